"""The model card: ``README.md`` of a model folder, in the form that Hugging Face reads.

It says what the model was fitted on, how, how good it is, where its limits are and how to load it.
Everything in it is in the manifest as well: it is for people.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rankfold import storage
from rankfold.methods import METHODS
from rankfold.types import Kind, Model

MEASURED = "measured"  # a note: what ``evaluate`` found, with intervals
DATA_SUMMARY = "data_summary"  # a note: the sizes and columns of the fitted data
_CHANGES = ("added", "extended", "removed")  # notes of what was done after the fit
_KEPT = (
    "source",
    "columns",
    "rows",
    "queries",
    "candidates",
    "pairs",
    "train",
    "validation",
    "test",
)
_TASKS: dict[Kind, tuple[str, str | None]] = {  # what it does, the task's name at Hugging Face
    "interactions": ("ranks candidates for queries", None),
    "texts": ("ranks labels for texts", "text-classification"),
    "graded": ("gives rows an ordered grade", "tabular-classification"),
}
_LOAD = 'import rankfold as rf\n\nmodel = rf.load("this folder")'
_EXAMPLES: dict[Kind, str] = {
    "interactions": 'ranking = model.search(["a query"], k=10)  # or history=[...]',
    "texts": 'ranking = model.search(text=["a new text"], k=10)',
    "graded": 'grades = model.predict("rows.csv", fpr=0.01)',
}
_LIMITS: dict[Kind, tuple[str, ...]] = {
    "interactions": (
        "It knows what was chosen, not why. What was shown often is chosen often.",
        "A query that it does not know needs a history; without one it gets the most popular.",
    ),
    "texts": (
        "Words that the fitted texts lack are ignored. A text without a known word gets the most "
        "popular labels.",
    ),
    "graded": (
        "Rates of false alarms hold for rows like the fitted ones. `rankfold predict` reports "
        "columns that differ.",
    ),
}


def summary_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a card says about the data."""
    return {name: summary[name] for name in _KEPT if name in summary}


def readme(model: Model, sizes: Mapping[str, int]) -> str:
    """The text of the card.

    Args:
        model: a fitted model.
        sizes: numbers by name, such as ``{"queries": 300}``.
    """
    kind = METHODS[model.method].data_kind if model.method in METHODS else "interactions"
    does, task = _TASKS[kind]
    sections = [
        f"# {model.method}: {does}",
        f"A model of rankfold. {_summary(model)}",
        "## Use",
        f"```python\n{_LOAD}\n{_EXAMPLES[kind]}\n```",
        "## Data",
        _table(_data(model, sizes)),
        "## Quality",
        *_quality(model),
        "## Settings",
        _table(model.config),
        "## Limits",
        "\n".join(f"- {limit}" for limit in (*_LIMITS[kind], *_own_limits(model))),
    ]
    return f"{_head(model, task)}\n" + "\n\n".join(sections) + "\n"


def _head(model: Model, task: str | None) -> str:
    """YAML: a JSON value is a YAML value."""
    tags = ["ranking", model.method]
    fields: dict[str, Any] = {"library_name": "rankfold", "tags": tags}
    if task is not None:
        fields["pipeline_tag"] = task
    results = [
        {
            "task": {"type": task or "ranking"},
            "dataset": {
                "name": f"{measured['split']} split",
                "type": "tabular",
                "split": measured["split"],
            },
            "metrics": [
                {"type": name, "value": value, "name": name}
                for name, value in measured["metrics"].items()
                if value is not None
            ],
        }
        for measured in model.notes.get(MEASURED, ())
    ]
    if results:
        fields["model-index"] = [{"name": model.method, "results": results}]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=True)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", storage.CARD_MARK])


def _summary(model: Model) -> str:
    text = METHODS[model.method].summary if model.method in METHODS else model.method
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _data(model: Model, sizes: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    about = dict(model.notes.get(DATA_SUMMARY, {}))
    columns = about.pop("columns", None)
    if columns:
        yield "columns", ", ".join(f"{what}: {name}" for what, name in columns.items())
    for name, value in {**sizes, **about}.items():
        yield name, f"{value['rows']:,} rows" if isinstance(value, Mapping) else value
    yield "fitted on", "train and validation" if model.notes.get("refit") else "train"
    yield "fingerprint", str(model.notes.get("data", ""))[:16]
    for name in _CHANGES:
        if name in model.notes:
            yield name, json.dumps(model.notes[name])


def _quality(model: Model) -> Iterator[str]:
    """The chosen step's validation score, and what was measured afterwards."""
    notes = model.notes
    best = [entry["score"] for entry in notes.get("history", ()) if "score" in entry]
    score = notes.get("score", max(best, default=None))
    if score is not None:
        yield (
            f"Validation {notes.get('metric', 'score')} {score:.4f}. It chose settings "
            "or the step, so it is too high."
        )
    for measured in notes.get(MEASURED, ()):
        yield f"On the {measured['split']} split, {measured['queries']:,} {measured['of']}:"
        lines = ["| metric | value | 95 % interval |", "|---|---|---|"]
        for name, value in measured["metrics"].items():
            ends = measured["intervals"].get(name)
            interval = "" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"
            lines.append(f"| {name} | {'' if value is None else f'{value:.4f}'} | {interval} |")
        yield "\n".join(lines)
    if not notes.get(MEASURED):
        yield "Not measured on test. `rankfold evaluate MODEL DATA --card` writes the result here."


def _own_limits(model: Model) -> Iterator[str]:
    if any(name in model.notes for name in _CHANGES):
        yield "It was changed after the fit: what was measured then holds for the model before."
    if "neighbours" in model.tensors:
        yield "Scores add a tail of neighbours to inner products: exported vectors lack it."
    if model.notes.get("operating_on") == "train":
        yield "Its cuts come from rows that it was fitted on: expect more false alarms."


def _table(facts: Mapping[str, Any] | Iterator[tuple[str, Any]]) -> str:
    pairs = facts.items() if isinstance(facts, Mapping) else facts
    lines = ["| | |", "|---|---|"]
    for name, value in pairs:
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        lines.append(f"| {_cell(name)} | {_cell('' if shown is None else shown)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """Names of columns may contain anything."""
    text = " ".join(str(value).split())
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
