"""The pictures and answers of ``docs/reference/diagnoses.md``: every diagnosis on bundled data.

    python docs/diagnosis_pictures.py            # all, some minutes; docs/figures/diagnose-NAME.svg
    python docs/diagnosis_pictures.py taylor     # one

Prints the figures of each and its seconds, and writes the answer into the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from textwrap import fill, indent
from time import process_time
from typing import Any

import rankfold as rf
from rankfold.report.chart import DARK, LIGHT, _theme_css, css
from rankfold.report.pictures import diagnosis_svg
from rankfold.tasks.diagnose import DIAGNOSES
from rankfold.tasks.diagnose.result import DiagnosisResult

OUT = Path(__file__).parent / "figures"
PAGE = Path(__file__).parent / "reference" / "diagnoses.md"
FITS: dict[str, dict[str, Any]] = {"siamesexml": {"encoder": "residual"}}  # the paper's
_NAMES = "svg .name { paint-order: stroke; stroke-width: 4px; }\n"


@cache
def data_for(kind: str) -> Any:
    """Bundled data of a kind."""
    if kind == "graded":
        return rf.prepare(source="retinamnist")
    if kind == "texts":
        return rf.prepare(source="debian-tags", format="texts")
    return rf.prepare(source="debian-seealso")


def model_of(name: str) -> Any:
    """The model of a diagnosis; those with the same method share one."""
    return _fitted(DIAGNOSES[name].method, DIAGNOSES[name].paper.data)


@cache
def _fitted(method: str, kind: str) -> Any:
    quick = next(one.paper.quick for one in DIAGNOSES.values() if one.method == method)
    return rf.fit(method, data_for(kind), **quick, **FITS.get(method, {}))


def make(name: str) -> None:
    """The charts of one diagnosis, in light and in dark colours."""
    diagnosis = DIAGNOSES[name]
    options: dict[str, Any] = {}
    if diagnosis.subject != "nothing":
        options["data"] = data_for(diagnosis.paper.data)
    if diagnosis.subject == "model":
        options["model"] = model_of(name)
    began = process_time()
    result = rf.diagnose(name, **options)
    lines = [f"\n{name}: {diagnosis.summary} ({process_time() - began:.0f} CPU s)"]
    lines += [f"  {what}: {figure}" for what, figure in result.figures.items()]
    sys.stdout.write("\n".join([*lines, f"  {result.follows}", ""]))
    sys.stdout.flush()
    write_answer(name, result)
    for stem, chart in result.charts.items():
        svg = diagnosis_svg(chart)
        for suffix, theme in (("", LIGHT), ("-dark", DARK)):
            rules = f"{_theme_css(theme)}{_NAMES}"
            (OUT / f"diagnose-{stem}{suffix}.svg").write_text(svg.replace(css(), rules))


def write_answer(name: str, result: DiagnosisResult) -> None:
    """Put the first figure and the sentence between the marks of the page."""
    what, figure = next(iter(result.figures.items()))
    answer = fill(f"{what}: **{figure}**. {result.follows}", 96, break_on_hyphens=False)
    mark, end = f"<!-- answer: {name} -->\n", "<!-- end of the answer -->"
    before, after = PAGE.read_text(encoding="utf-8").split(mark)
    rest = after.split(end, 1)[1]
    quote = indent(answer[0].upper() + answer[1:], "> ")
    PAGE.write_text(f"{before}{mark}{quote}\n{end}{rest}", encoding="utf-8")


def main(names: Sequence[str]) -> None:
    """Make the pictures of the named diagnoses, or of all."""
    for name in names or DIAGNOSES:
        make(name)


if __name__ == "__main__":
    main(sys.argv[1:])
