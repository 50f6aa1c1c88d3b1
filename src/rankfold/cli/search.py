"""``rankfold search``: the best candidates for one query, one history or one candidate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json, print_table
from rankfold.errors import UserError


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    *,
    query: Annotated[str | None, typer.Option(help="A known query.", metavar="KEY")] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="What a new query chose; again for a key with a comma; may be empty.",
            metavar="KEY,KEY",
        ),
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="Find candidates like this one.", metavar="KEY")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also what the query chose before.")
    ] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show the best candidates for a query, a history or a candidate."""
    from rankfold.ranker import load

    asked: dict[str, Any] = {}
    if query is not None:
        asked["queries"] = [query]
    if history:
        parts = history[0].split(",") if len(history) == 1 else history
        asked["history"] = [key for key in parts if key]
    if candidate is not None:
        asked["candidates"] = [candidate]
    if len(asked) != 1:
        raise UserError("search takes one question", hint="give --query, --history or --candidate")
    ranking = load(model).search(**asked, k=k, include_seen=include_seen)
    say = console(quiet=quiet)
    if asked.get("history") == []:
        say.print("no history: these are the most popular")
    question = query or candidate or ",".join(history or [])
    found = list(zip(ranking.keys[0], ranking.scores[0].tolist(), strict=False))
    if json:
        results = [{"candidate": key, "score": score} for key, score in found]
        print_json({"query": question, "results": results})
        return
    rows = [[str(place), str(key), f"{score:.4f}"] for place, (key, score) in enumerate(found, 1)]
    title = f"for {question}" if question else "the most popular"
    print_table(title, ["", "candidate", "score"], rows, say, left=2)
