"""The page "Python": signatures by mkdocstrings, options from the declared settings."""

from typing import Any

from rankfold.config import describe_values, list_settings
from rankfold.data.options import Preparation
from rankfold.tasks.options import Certainty, CompareOptions, FitOptions, TuneOptions

HEAD = """# Python API

```python
import rankfold as rf

data = rf.prepare("ratings.csv", query_column="user", candidate_column="item")
model = rf.fit("rg2", data, width=32)
ranking = model.search(["alice"], k=5)
print(ranking.keys[0], ranking.to_polars())
```

Everything public is in `rankfold`: `prepare`, `fit`, `evaluate`, `predict`, `add`, `extend`,
`tune`, `compare`, `blend`, `diagnose`, `export`, `load`, `load_data`, `METHODS`, `Ranker`,
`Grader`, `UserError`; and the [estimators](../guide/scikit-learn.md) of `rankfold.sklearn`.
Wrong input raises
`UserError`, whose `hint` says what to do. `help(rf.fit)` lists every setting of every method. An
option has the same name on the [command line](commands.md): `query_column` is `--query-column`.
"""
ENTRIES: tuple[tuple[str, str, type[Any] | None, str], ...] = (
    ("rf.prepare", "rankfold.data.prepare.prepare", Preparation, ""),
    (
        "rf.fit",
        "rankfold.tasks.fit.fit",
        FitOptions,
        "The [settings](settings.md) of the method, and:",
    ),
    ("rf.evaluate", "rankfold.tasks.evaluate.evaluate", Certainty, "For graded rows also:"),
    ("rf.tune", "rankfold.tasks.tune.tune", TuneOptions, ""),
    ("rf.compare", "rankfold.tasks.compare.compare", CompareOptions, ""),
    ("rf.blend", "rankfold.tasks.blend.blend", None, ""),
    ("rf.predict", "rankfold.tasks.predict.predict", None, ""),
    ("rf.add", "rankfold.tasks.update.add", None, ""),
    ("rf.extend", "rankfold.tasks.update.extend", None, ""),
    ("rf.diagnose", "rankfold.tasks.diagnose.diagnose", None, ""),
    ("rf.export", "rankfold.tasks.export.export", None, ""),
    ("rf.load", "rankfold.models.load.load", None, ""),
    ("rf.load_data", "rankfold.data.folder.load", None, ""),
)
CLASSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Ranker", "rankfold.models.ranker.Ranker",
     ("search", "add", "extend", "forget", "save", "about")),
    ("Ranking", "rankfold.models.ranking.Ranking", ("to_polars",)),
    ("Grader", "rankfold.models.grader.Grader",
     ("predict", "score", "cuts", "promise", "probabilities", "explain", "shifts", "save")),
    ("Evaluation", "rankfold.tasks.evaluate_ranking.Evaluation", ("to_polars", "to_json")),
    ("UserError", "rankfold.errors.UserError", ()),
    ("sklearn.Recommender", "rankfold.sklearn.recommender.Recommender",
     ("fit", "predict", "score")),
    ("sklearn.Labeler", "rankfold.sklearn.labeler.Labeler", ("fit", "predict", "score")),
    ("sklearn.OrdinalGrader", "rankfold.sklearn.grader.OrdinalGrader",
     ("fit", "predict", "predict_proba", "score_samples", "score")),
)  # fmt: skip


def page() -> str:
    """A section per public name."""
    parts = [HEAD]
    for heading, place, options, text in ENTRIES:
        parts.append(_directive(heading, place))
        if options is not None:
            parts.append(f"{text or 'Options:'}\n\n{_table(options)}\n")
    for heading, place, members in CLASSES:
        parts.append(_directive(heading, place, members))
    return "\n".join(parts)


def _directive(heading: str, place: str, members: tuple[str, ...] | None = None) -> str:
    lines = [
        f"::: {place}",
        "    options:",
        f"      heading: {heading}",
        f"      toc_label: {heading}",
    ]
    if members is not None:
        lines.append(f"      members: [{', '.join(members)}]")
    return "\n".join([*lines, ""])


def _table(options: type[Any]) -> str:
    lines = ["| option | default | values | meaning |", "|---|---|---|---|"]
    for name, default, declared in list_settings(options):
        try:
            values = describe_values(options, name)
        except (KeyError, TypeError):
            values = ""
        shown = "" if callable(default) else f"{default}"
        cells = (f"`{name}`", shown, values, declared.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
