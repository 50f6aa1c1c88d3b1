"""A page per method: what it is, when to use it, its formula, cost, figures and settings.

Generated from ``METHODS``, the docstrings and ``benchmarks/results/``; ``methods/advice.toml`` has
what no program knows: when to use a method, and when not.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import mean
from textwrap import indent
from typing import Any

from settings_page import settings_table

from rankfold.config import list_settings
from rankfold.methods import METHODS

HOME = Path(__file__).parent
RESULTS = HOME.parent / "benchmarks" / "results" / "quality" / "equal_terms"
SETS = ("gowalla", "pinterest", "debian-links")
FAMILIES = {
    "closed_form": "Closed form",
    "als": "Alternating least squares",
    "gradient": "Gradient descent",
    "text": "Texts",
    "ordinal": "Ordered grades",
}
DATA = {
    "interactions": "pairs of queries and candidates",
    "texts": "texts and their labels",
    "graded": "rows with an ordered grade",
}


def navigation() -> list[dict[str, Any]]:
    """The entries of the navigation: a family with its methods each."""
    return [
        {title: [{name: f"methods/{name}.md"} for name in METHODS if family(name) == key]}
        for key, title in FAMILIES.items()
    ]


def family(name: str) -> str:
    """The folder of a method."""
    return METHODS[name].config.__module__.split(".")[2]


@cache
def advice() -> dict[str, dict[str, str]]:
    return tomllib.loads((HOME / "methods" / "advice.toml").read_text())


def pages() -> dict[str, str]:
    """Path and text of every page."""
    return {f"methods/{name}.md": page(name) for name in METHODS}


def page(name: str) -> str:
    """The page of a method."""
    method, known = METHODS[name], advice().get(name, {})
    lines = [f"# {name}", "", f"{method.summary[0].upper()}{method.summary[1:]}.", ""]
    lines += [*_example(name), "", "## When to use it", ""]
    for key, title in (("use", "When"), ("avoid", "When not"), ("cost", "Cost")):
        if key in known:
            text = known[key]
            lines += [f"**{title}.** {text}" if key == "cost" else f"**{title}:** {text}", ""]
    lines += [
        "## In short",
        "",
        "| | |",
        "|---|---|",
        *(f"| {left} | {right} |" for left, right in _facts(name)),
        "",
    ]
    if "formula" in known:
        lines += ["## Formula", "", formula(known["formula"]), ""]
    if (RESULTS / f"gowalla-{name}-64.json").exists() or (
        RESULTS / f"gowalla-{name}.json"
    ).exists():
        lines += [*_figures(name), ""]
    return "\n".join([*lines, *_settings(name), ""])


def _example(name: str) -> list[str]:
    kind = METHODS[name].data_kind
    command = f"rankfold fit {name} data --out model\n"
    python = (
        f'import rankfold as rf\n\nmodel = rf.fit("{name}", rf.load_data("data"), out="model")\n'
    )
    if kind == "graded":
        command += "rankfold predict model new.csv --fpr .01 --out graded.parquet"
        python += 'graded = model.predict("new.csv", fpr=0.01)'
    elif kind == "texts":
        command += 'rankfold search model --text "screen stays black"'
        python += 'print(model.search(text="screen stays black").keys)'
    else:
        command += "rankfold search model --query alice"
        python += 'print(model.search("alice").keys)'
    return [*_tab("Command line", "sh", command), "", *_tab("Python", "python", python)]


def _tab(title: str, language: str, code: str) -> list[str]:
    return [f'=== "{title}"', "", *indent(f"```{language}\n{code}\n```", "    ").split("\n")]


def _facts(name: str) -> list[tuple[str, str]]:
    method = METHODS[name]
    answers = ["known queries"] if method.data_kind != "graded" else []
    words = {"histories": "new histories", "texts": "new texts", "rows": "new rows",
             "features": "new queries and candidates by their features"}  # fmt: skip
    answers += [words[one] for one in method.answers]
    if method.answers_with({"encoder": "history"}):
        answers.append("new histories with `encoder=history`")
    paper = f"[{method.paper}](../reference/papers.md)" if method.paper else "none"
    space = ", ".join(f"`{key}`" for key in method.space) or "none"
    selects = "by itself, on validation" if method.self_tuning else f"`rankfold tune` tries {space}"
    return [
        ("Data", DATA[method.data_kind]),
        ("Answers", ", ".join(answers)),
        ("Search", "its own, exact" if method.own_search else "inner product; any index"
         if method.data_kind != "graded" else "none: rows are scored"),
        ("Settings are chosen", selects),
        ("Several processes", "yes" if method.distributed else "no"),
        ("Paper", paper),
    ]  # fmt: skip


def formula(place: str) -> str:
    """The docstring that ``module:name`` has, as Markdown."""
    module, _, name = place.partition(":")
    value: Any = import_module(module)
    for part in name.split(".") if name else ():
        value = getattr(value, part)
    text = inspect.cleandoc(value.__doc__ or "").partition("\nArgs:")[0]
    return text.replace("::\n", ":\n").replace("docs/decisions/", "decision ")


def _figures(name: str) -> list[str]:
    lines = ["## Measured", "", "ndcg@10 on test with the defaults, on "
             "[equal terms](../reference/tables.md#every-method-on-equal-terms):", ""]  # fmt: skip
    lines += ["| width | " + " | ".join(SETS) + " |", "|---" * (len(SETS) + 1) + "|"]
    for width in (64, 256):
        values = [_value(name, data, width) for data in SETS]
        lines.append(f"| {width} | " + " | ".join(values) + " |")
    return lines


def _value(name: str, data: str, width: int) -> str:
    paths = (RESULTS / f"{data}-{name}-{width}.json", RESULTS / f"{data}-{name}.json")
    path = next((one for one in paths if one.exists()), None)
    if path is None:
        return "-"
    tested = [
        run["test"]["ndcg@10"] for run in json.loads(path.read_text())["runs"] if "test" in run
    ]
    return f"{mean(tested):.4f}".removeprefix("0") if tested else "-"


def _settings(name: str) -> list[str]:
    config = METHODS[name].config
    rows = settings_table(config)
    if not rows:
        return ["It has no settings."]
    example = (
        f"`--set {next(list_settings(config))[0]}=...` on the command line, an argument in Python."
    )
    return ["## Settings", "", example, "", *rows]
