"""``rankfold search``: the best candidates for one query, history, text or candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table
from rankfold.cli.index import describe_index
from rankfold.cli.options import IncludeSeen, Index, Json, Model, Quiet
from rankfold.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.models.ranker import Ranker


def command(
    model: Model,
    *,
    query: Annotated[str | None, typer.Option(help="A known query.", metavar="KEY")] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="What a new query chose; again for a key with a comma; may be empty.",
            metavar="KEY,KEY",
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="A new query, of a model that ranks by text.", metavar="T")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="Find candidates like this one.", metavar="KEY")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    include_seen: IncludeSeen = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Not this candidate; may be given again.", metavar="KEY"),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Only this candidate; may be given again.", metavar="KEY"),
    ] = None,
    index: Index = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the best candidates for a query, a history, a text or a candidate."""
    from rankfold.models.ranker import load

    asked: dict[str, Any] = {}
    if query is not None:
        asked["queries"] = [query]
    if history:
        parts = history[0].split(",") if len(history) == 1 else history
        asked["history"] = [key for key in parts if key]
    if text is not None:
        asked["texts"] = [text]
    if candidate is not None:
        asked["candidates"] = [candidate]
    if len(asked) != 1:
        raise UserError(
            "search takes one question", hint="give --query, --history, --text or --candidate"
        )
    ranker = load(model, index=index)
    ranking = ranker.search(
        **asked, k=k, include_seen=include_seen, exclude=exclude or (), allow=allow or None
    )
    say = console(quiet=quiet)
    _explain(ranker, asked, say)
    question = query or candidate or text or ",".join(history or [])
    found = zip(ranking.keys[0], ranking.scores[0].tolist(), strict=False)
    results: list[dict[str, Any]] = [{"candidate": key, "score": score} for key, score in found]
    if ranking.texts is not None:
        both = zip(results, ranking.texts[0], strict=True)
        results = [{**entry, "text": words} for entry, words in both]
    if json:
        print_json({"query": question, "results": results})
    else:
        _show(results, f"for {question}" if question else "the most popular", say)


def _explain(ranker: Ranker, asked: dict[str, Any], out: Console) -> None:
    """Say what a reader of the results could be wrong about."""
    if "candidates" not in asked and ranker.about["kind"] != "exact":
        out.print(f"by an index: {describe_index(ranker.about)}")
    if asked.get("history") == []:
        out.print("no history: these are the most popular")
    if "texts" in asked and not len(ranker.tokens(asked["texts"]).tokens):
        out.print("no word of the text is known: these are the most popular")


def _show(results: list[dict[str, Any]], title: str, out: Console) -> None:
    """A table; texts stand beside the keys where they say more than these."""
    says_more = any(entry.get("text") not in (None, entry["candidate"]) for entry in results)
    rows = [
        [
            str(place),
            str(entry["candidate"]),
            *([entry["text"] or ""] if says_more else []),
            f"{entry['score']:.4f}",
        ]
        for place, entry in enumerate(results, 1)
    ]
    columns = ["", "candidate", *(["text"] if says_more else []), "score"]
    print_table(title, columns, rows, out, left=len(columns) - 1)
