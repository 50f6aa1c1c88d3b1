"""``rankfold search``: the best candidates for a query, history, features, text or candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rankfold.cli.console import console, print_json, print_table
from rankfold.cli.index import describe_index
from rankfold.cli.options import IncludeSeen, Index, Json, Model, Quiet, takes
from rankfold.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.models.ranker import Ranker
    from rankfold.types import Columns

T = TypeVar("T", int, float)
History = Annotated[
    list[str] | None,
    takes(
        "KEY,KEY", "The choices of a new query, if any. Repeat it for keys that contain a comma."
    ),
]
Features = Annotated[
    list[str] | None,
    takes("COLUMN=VALUE", "A new query by its features; repeat it for each column."),
]
Exclude = Annotated[
    list[str] | None, takes("KEY", "Do not return this candidate; may be repeated.")
]
Allow = Annotated[list[str] | None, takes("KEY", "Return only this candidate; may be repeated.")]
Where = Annotated[
    str | None,
    takes("CONDITION", "Only candidates with such features: \"price < 20 and brand = 'x'\"."),
]
Pin = Annotated[list[str] | None, takes("KEY", "Return this candidate first; may be repeated.")]
Boost = Annotated[
    list[str] | None,
    takes("AMOUNT:CONDITION", "Add to scores: \"0.5: brand = 'x'\"; may be repeated."),
]
AtMost = Annotated[
    list[str] | None,
    takes("FEATURE=N", "At most N results per value of a feature; may be repeated."),
]
Diversity = Annotated[
    float, takes("D", "0 keeps the order of scores; towards 1 results differ more.")
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Show which candidates of the history, or words of the text, raise each score.",
    ),
]

Thresholds = Annotated[
    str | None,
    takes("GOAL", "For texts: only results that reach their thresholds: f1, or precision=.9."),
]


def command(
    model: Model,
    *,
    query: Annotated[str | None, takes("KEY", "A known query.")] = None,
    history: History = None,
    features: Features = None,
    text: Annotated[str | None, takes("T", "A new query, for a model that ranks by text.")] = None,
    candidate: Annotated[str | None, takes("KEY", "Find candidates similar to this one.")] = None,
    k: Annotated[int, typer.Option("-k", help="The number of results.")] = 10,
    include_seen: IncludeSeen = False,
    exclude: Exclude = None,
    allow: Allow = None,
    where: Where = None,
    pin: Pin = None,
    boost: Boost = None,
    at_most: AtMost = None,
    diversity: Diversity = 0.0,
    explain: Explain = False,
    thresholds: Thresholds = None,
    index: Index = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the best candidates for a query, a history, features, a text or a candidate."""
    from rankfold.models.load import load_ranker

    keys = history[0].split(",") if history and len(history) == 1 else history
    chosen = [key for key in keys if key] if keys else None
    every = {"queries": query, "history": chosen, "features": features}
    every |= {"text": text, "candidates": candidate}
    given: dict[str, Any] = {by: value for by, value in every.items() if value is not None}
    ranker = load_ranker(model, index=index)
    if len(given) != 1:
        raise UserError(
            f"`search` takes one input, got {len(given)}",
            hint="give one of --query, --history, --features, --text, --candidate",
        )
    if features is not None:
        given["features"] = _record(features, ranker.query_columns)
    ranking = ranker.search(
        **given,
        k=k,
        include_seen=include_seen,
        exclude=exclude or (),
        allow=allow or None,
        where=where,
        pin=pin or (),
        boost=dict(_parse(one, ":", float, "--boost \"0.5: brand = 'x'\"") for one in boost or ()),
        at_most=parse_quotas(at_most),
        diversity=diversity,
        explain=explain,
        thresholds=thresholds,
    )
    say = console(quiet=quiet)
    _explain(ranker, given, say)
    asked = query or candidate or text or ",".join([*(history or ()), *(features or ())])
    pairs = zip(ranking.keys[0], ranking.scores[0].tolist(), strict=False)
    results: list[dict[str, Any]] = [{"candidate": key, "score": score} for key, score in pairs]
    if ranking.probabilities is not None:
        for entry, chance in zip(results, ranking.probabilities[0].tolist(), strict=False):
            entry["probability"] = chance
    for entry, words in zip(results, ranking.texts[0] if ranking.texts else (), strict=False):
        entry["text"] = words
    for entry, reason in zip(results, (ranking.explanations or [[]])[0], strict=False):
        entry |= reason.to_json()
    if json:
        print_json({"query": asked, "results": results})
    else:
        _show(results, f"for {asked}" if asked else "the most popular", say)


def _record(words: list[str], columns: Columns) -> dict[str, str | float | None]:
    """The values of columns by name; an empty one is missing."""
    record: dict[str, str | float | None] = {}
    names = (*columns.numbers, *columns.levels)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise UserError(f"cannot read {word!r}", hint="write --features city=Rome")
        if any(f",{other}=" in value.replace(" ", "") for other in names):
            hint = "repeat it for each column: --features city=Rome --features age=31"
            raise UserError(f"--features takes one column, got {word!r}", hint=hint)
        name, value = name.strip(), value.strip()
        record[name] = value or None
        if value and name in columns.numbers:
            try:
                record[name] = float(value)
            except ValueError:
                raise UserError(
                    f"{name} must be a number, got {value!r}", hint=f"write {name}=1.5"
                ) from None
    return record


def parse_quotas(at_most: list[str] | None) -> dict[str, int]:
    """The quotas of ``--at-most``."""
    return dict(_parse(one, "=", int, "--at-most brand=2") for one in at_most or ())


def _parse(word: str, mark: str, kind: type[T], example: str) -> tuple[str, T]:
    """A name and a number, which comes before a colon or behind an equals sign."""
    left, separator, right = word.partition(mark) if mark == ":" else word.rpartition(mark)
    number, name = (left, right) if mark == ":" else (right, left)
    try:
        if separator and name.strip():
            return name.strip(), kind(number)
    except ValueError:
        pass
    raise UserError(f"cannot read {word!r}", hint=f"write {example}")


def _explain(ranker: Ranker, given: dict[str, Any], out: Console) -> None:
    """Say what the results do not show: an approximate index, unknown values, or popularity."""
    if "candidates" not in given and ranker.about["kind"] != "exact":
        out.print(f"by an index: {describe_index(ranker.about)}")
    if given.get("history") == []:
        out.print("the history is empty: these are the most popular candidates")
    for name, value in given.get("features", {}).items():
        levels = ranker.query_columns.levels.get(name)
        if levels is not None and value is not None and value not in levels:
            out.print(f"{name}={value} was not in training: it counts as missing", markup=False)
    if "text" in given and not len(ranker.tokens([given["text"]]).tokens):
        out.print("no word of the text is known: these are the most popular candidates")


def _show(results: list[dict[str, Any]], title: str, out: Console) -> None:
    """A table; texts stand beside the keys if they differ from them."""
    explained = bool(results) and "because" in results[0]
    says_more = any(entry.get("text") not in (None, entry["candidate"]) for entry in results)
    likely = bool(results) and "probability" in results[0]
    rows = [
        [
            str(place),
            str(entry["candidate"]),
            *([entry["text"] or ""] if says_more else []),
            f"{entry['score']:.4f}",
            *([f"{entry['probability']:.0%}"] if likely else []),
            *([_because(entry)] if explained else []),
        ]
        for place, entry in enumerate(results, 1)
    ]
    columns = ["", "candidate", *(["text"] if says_more else []), "score"]
    left = len(columns) - 1
    columns += ["probability"] if likely else []
    columns += ["because"] if explained else []
    print_table(title, columns, rows, out, left=left)
    if explained and not results[0]["exact"]:
        out.print(
            "a part is how much the score falls without that candidate; for a word, the mean of "
            "that and of its own score"
        )


def _because(entry: dict[str, Any]) -> str:
    """The contributions to a score; with the rest they sum to it."""
    parts = [
        f"{one.get('text') or one['key']} {one['score']:+.3f}"
        for one in entry["because"]
        if abs(one["score"]) >= 0.0005
    ]
    return ", ".join([*parts, f"rest {entry['rest']:+.3f}"])
