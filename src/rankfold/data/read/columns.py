"""Names of columns: which column of a table holds what."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rankfold.errors import UserError

NONE = "none"  # as the name of a column: use no column
MAX_NAMES_SHOWN = 12
OPTIONS = {"key": "--query-column", "labels": "--candidate-column"}  # where the role differs
USUAL_NAMES = {
    "query": "query user user_id userid uid username reviewerid customer customer_id customerid "
    "visitor visitorid session session_id sessionid src source from head document doc",
    "candidate": "candidate item item_id itemid iid movie movie_id movieid product product_id "
    "productid parent_asin asin track track_id song artist artist_id book book_id isbn "
    "business_id location_id article article_id label tag dst target to tail",
    "grade": "grade rating ratings overall stars score weight count plays playcount hours",
    "time": "time timestamp date datetime unixreviewtime ts created_at review_date",
}


class PairColumns(NamedTuple):
    """The columns of pairs; None: guess it from the names, ``none``: use no column."""

    query: str | None = None
    candidate: str | None = None
    grade: str | None = None
    time: str | None = None


def choose_columns(names: Sequence[str], columns: PairColumns, table: str) -> PairColumns:
    """The columns to read: those named, else the first with a usual name."""
    chosen = choose(names, columns._asdict(), USUAL_NAMES, table)
    if len(names) == 2:
        free = iter([name for name in names if name not in chosen.values()])
        for role in ("query", "candidate"):
            chosen[role] = chosen[role] or next(free, None)
    missing = [role for role in ("query", "candidate") if chosen[role] in (None, NONE)]
    if missing:
        which = "column" if len(missing) == 1 else "columns"
        verb = "is" if len(missing) == 1 else "are"
        raise UserError(
            f"cannot tell which {which} of {table} {verb} the {' and the '.join(missing)}",
            hint=f"{listing(names)}; use "
            + " and ".join(f"--{role}-column NAME" for role in missing)
            + (", and --no-header if this is a row" if any(map(_is_number, names)) else ""),
        )
    if chosen["query"] == chosen["candidate"]:
        raise UserError(
            f"column {chosen['query']!r} of {table} cannot be both query and candidate",
            hint=f"{listing(names)}; use --query-column NAME and --candidate-column NAME",
        )
    return PairColumns(**{role: None if name == NONE else name for role, name in chosen.items()})


def choose(
    names: Sequence[str], wanted: Mapping[str, str | None], usual: Mapping[str, str], table: str
) -> dict[str, str | None]:
    """The column of each role: the wanted one, else the first left that has a usual name."""
    for role, name in wanted.items():
        check_column(name, names, table, OPTIONS.get(role, f"--{role}-column"))
    chosen = dict(wanted)
    for role in wanted:
        free = [name for name in names if name not in chosen.values()]
        chosen[role] = chosen[role] or find_usual(usual[role], free)
    return chosen


def check_column(name: str | None, names: Sequence[str], table: str, option: str) -> None:
    """A UserError if a named column does not exist; None and ``none`` name no column."""
    if name is not None and name not in (NONE, *names):
        hint = f"{listing(names)}; use {option} NAME"
        raise UserError(f"{table} has no column {name!r}", hint=hint)


def find_usual(usual: str, names: Sequence[str]) -> str | None:
    """The first of the ``usual`` words that is among ``names``, in any spelling."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(name.strip().lower().replace(" ", "_").replace("-", "_"), name)
    return next((plain[word] for word in usual.split() if word in plain), None)


def is_header(words: Sequence[str]) -> bool:
    """Whether the words name a column of queries and one of candidates."""
    return all(find_usual(USUAL_NAMES[role], words) for role in ("query", "candidate"))


def check_header(names: Sequence[str], file: str, hint: str) -> None:
    """A UserError if a first line holds numbers only: it is a row, not a header."""
    if all(map(_is_number, names)):
        numbers = ",".join(names[:MAX_NAMES_SHOWN])
        raise UserError(f"the first line of {file} has no column names: {numbers}", hint=hint)


def distinct(names: Sequence[str]) -> list[str]:
    """The names; a repeated one has its place behind it: ``tags``, ``tags [column 8]``."""
    first = {name: place for place, name in reversed([*enumerate(names)])}
    return [
        name if first[name] == place else f"{name} [column {place + 1}]"
        for place, name in enumerate(names)
    ]


def repeats(name: str, names: Iterable[str]) -> list[str]:
    """The other columns of a text table that have this name in its first line."""
    numbered = [other for other in names if other.startswith(f"{name} [column ")]
    return [other for other in numbered if _unnumbered(other) == name]


def check_repeated(chosen: Iterable[str], names: Iterable[str], table: str) -> None:
    """A UserError if a column to read shares its name with another one."""
    repeated = {_unnumbered(name) for name in names} - {None}
    twice = next((name for name in chosen if name in repeated), None)
    if twice is not None:
        raise UserError(f"{table} has two columns named {twice!r}", hint="rename one of them")


def _unnumbered(name: str) -> str | None:
    """A name without its place; None if it has none."""
    match = re.fullmatch(r"(.*) \[column \d+\]", name, re.DOTALL)
    return None if match is None else match[1]


def _is_number(name: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?", name) is not None


def check_names(names: Sequence[str], table: str) -> None:
    """A UserError for a name that polars takes for a pattern, and so for other columns."""
    for name in names:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            error = f"column {name!r} of {table} cannot be read: its name is a pattern"
            raise UserError(error, hint="rename it")


def listing(names: Sequence[str]) -> str:
    """Some names, for a hint."""
    shown = ", ".join(names[:MAX_NAMES_SHOWN])
    return f"it has {shown}{', ...' if len(names) > MAX_NAMES_SHOWN else ''}"
