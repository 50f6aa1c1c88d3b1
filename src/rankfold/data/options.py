"""The options of ``prepare``: their defaults, bounds, choices and help.

The command line reads them from here, so this module imports neither torch nor polars.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankfold.config import Settings, check, setting
from rankfold.data.read.columns import NONE
from rankfold.errors import UserError

if TYPE_CHECKING:
    from rankfold.data.read.dialect import Dialect

Input = Any
"""A path or glob, or a table in memory; ``memory.ACCEPTED`` lists them."""
FORMATS = ("table", "adjacency", "texts", "xc", "features")
_PAIR_COLUMNS = ("query_column", "candidate_column", "grade_column", "time_column")
_TEXTS_ONLY = ("text_column", "label_separator", "content", "tokens", "vocabulary")
_MIN_PAIRS = ("min_query_pairs", "min_candidate_pairs", "kcore")
_FILTERS = ("min_grade", "exclude_self", *_MIN_PAIRS, "fold_in", "duplicates")
_PAIRS_ONLY = ("candidate_column", "header", *_TEXTS_ONLY, *_FILTERS, "shards")
GRADED_ONLY = ("grades", "drop", "image_size")
_SET_BY_GRADED_SOURCE = ("query_column", "grade_column", "time_column", "train")


class _RegistryNames(Collection[str]):
    """The names of a registry, which is imported on first use."""

    def __init__(self, module: str, registry: str) -> None:
        self._module, self._registry = module, registry

    def __contains__(self, name: object) -> bool:
        return any(name == one for one in self)

    def __iter__(self) -> Iterator[str]:
        return iter(getattr(import_module(self._module), self._registry))

    def __len__(self) -> int:
        return sum(1 for _ in self)


_SOURCES = _RegistryNames("rankfold.data.sources", "SOURCES")
_DUPLICATES = _RegistryNames("rankfold.data.build.pairs", "DUPLICATES")
_TOKEN_KINDS = _RegistryNames("rankfold.data.build.tokens", "KINDS")


class TableOptions(Settings):
    """How tables of text are written."""

    separator: str | None = setting(
        None, help="the mark between columns of text tables, or 'tab' (default: detected)"
    )
    decimal: str = setting(".", choices=(".", ","), help="the decimal mark of text tables")
    encoding: str | None = setting(
        None, help="the encoding of text files, such as latin-1 or utf-16 (default: UTF-8)"
    )
    missing: str | Sequence[str] | None = setting(
        None,
        help="words that mean no value, in every column: A,B,... (default: NULL, NA, NaN, None and "
        "the like in keys and grades; '': empty text only)",
    )

    @property
    def dialect(self) -> "Dialect":
        from rankfold.data.read.dialect import Dialect, check_encoding

        if self.encoding is not None:
            check_encoding(self.encoding)
        mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(self.separator or "", self.separator)
        if mark is not None and (len(mark.encode()) != 1 or mark in '"\r\n'):
            hint = "name one character, such as ';', or 'tab'"
            raise UserError(f"`separator` must be one ASCII character, got {mark!r}", hint=hint)
        words = self.missing.split(",") if isinstance(self.missing, str) else self.missing
        listed = None if words is None else ("", *(word.strip() for word in words))
        return Dialect(mark, self.decimal, listed, getattr(self, "time_format", None))


class Preparation(TableOptions):
    source: str | None = setting(
        None, choices=_SOURCES, help="a public data set by name; see the guide"
    )
    format: str | None = setting(
        None,
        choices=FORMATS,
        help="format of the input: table or adjacency (default: detected from the file), texts "
        "(documents with labels), xc (a folder of the XC repository), or features (rows with an "
        "ordered grade each)",
    )
    query_column: str | None = setting(
        None, help="the column of queries, or of keys of documents and rows; 'none': no column"
    )
    candidate_column: str | None = setting(None, help="the column of candidates or labels")
    grade_column: str | None = setting(None, help="the column of grades; 'none': ignore grades")
    time_column: str | None = setting(None, help="the column of times; 'none': ignore times")
    text_column: str | None = setting(None, help="the column of texts")
    time_format: str | None = setting(
        None,
        help="how times are written: day-first, month-first, or a format such as '%d.%m.%Y %H:%M' "
        "(default: guessed)",
    )
    header: bool = setting(
        True, help="the first line names the columns; else they are column_0, column_1 and so on"
    )
    train: Input = setting(None, help="the training data of given splits, in place of inputs")
    validation: Input = setting(None, help="the validation data of given splits")
    test: Input = setting(None, help="the test data of given splits")
    validation_share: float = setting(
        0.1,
        at_least=0,
        below=1,
        help="share of train used for validation if splits are given without one",
    )
    query_features: Input = setting(
        None,
        help="a table of query features; its key column has the same name as in the pairs, else "
        "it is the first",
    )
    candidate_features: Input = setting(None, help="a table of candidate features, in the same way")
    query_texts: Input = setting(
        None, help="a table of query texts: keys as for features, and a text column"
    )
    candidate_texts: Input = setting(None, help="a table of candidate texts, in the same way")
    label_separator: str | None = setting(
        None, help="the mark between labels (default: the first of | ; , that occurs, else space)"
    )
    content: bool = setting(False, help="add the content of a document to its title (xc)")
    tokens: str = setting(
        "word", choices=_TOKEN_KINDS, help="the tokens that texts become: word or word-piece"
    )
    vocabulary: int | None = setting(
        None, at_least=1, help="maximum number of tokens (default: depends on the kind of tokens)"
    )
    grades: str | Sequence[Any] | None = setting(
        None, help="the grades of features, lowest first (default: ascending numbers)"
    )
    drop: str | Sequence[str] | None = setting(None, help="columns of features to leave out")
    image_size: int = setting(
        64, at_least=1, at_most=4096, help="pixels per side of images from files (features)"
    )
    duplicates: str = setting(
        "highest", choices=_DUPLICATES, help="which of equal pairs is kept: highest (grade) or last"
    )
    min_grade: float | None = setting(None, help="drop pairs with a lower grade")
    exclude_self: bool = setting(
        False, help="never return the candidate with the same key as the query"
    )
    min_query_pairs: int = setting(
        0, at_least=0, help="drop queries with fewer pairs, once, after --min-candidate-pairs"
    )
    min_candidate_pairs: int = setting(0, at_least=0, help="drop candidates with fewer pairs, once")
    kcore: int = setting(
        0, at_least=0, help="keep queries and candidates with at least this many pairs"
    )
    split: str | Sequence[float] | None = setting(
        None,
        help="shares of each query's pairs or each grade's rows (default: 0.8,0.1,0.1), of whole "
        "queries ('queries:0.8,0.1,0.1', the default for texts; 'queries:1000,1000': numbers for "
        "validation and test), 'last', 'time:T', or for features 'group:COLUMN': whole groups",
    )
    fold_in: float | None = setting(
        None,
        above=0,
        below=1,
        help="share of each held-out query's pairs that is its history; the others are judged",
    )
    seed: int = setting(0, at_least=0, help="seed of the split")
    strict: bool = setting(False, help="refuse bad rows instead of dropping them")
    shards: int = setting(
        1, at_least=1, at_most=99_999, help="number of files for the pairs, by contiguous queries"
    )

    def __post_init__(self) -> None:
        check(self)
        _check_kind(self)

    @property
    def is_graded(self) -> bool:
        """Whether the rows have grades and features, in place of pairs."""
        from rankfold.data.sources import SOURCES

        graded_source = self.source is not None and SOURCES[self.source].graded
        return graded_source or self.format == "features"

    @property
    def keeps_splits(self) -> bool:
        """Whether splits in the input are kept: they are unless ``split`` is set."""
        return self.train is not None or self.split is None

    @property
    def named_columns(self) -> list[str]:
        """The options of ``_PAIR_COLUMNS`` that name a column."""
        return [name for name in _PAIR_COLUMNS if getattr(self, name) not in (None, NONE)]


DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(Preparation)}


def is_default(options: Preparation, name: str) -> bool:
    """Whether an option has its default value; a table in memory never has."""
    value, default = getattr(options, name), DEFAULTS[name]
    return value is None if default is None else bool(value == default)


def flag(name: str) -> str:
    """An option as it is written on the command line."""
    return "--no-header" if name == "header" else f"--{name.replace('_', '-')}"


def _check_kind(options: Preparation) -> None:
    """A UserError for an option of another kind of data."""
    from rankfold.data.sources import SOURCES

    graded_source = options.source is not None and SOURCES[options.source].graded
    is_graded = options.is_graded
    unused: Sequence[str] = _PAIRS_ONLY if is_graded else GRADED_ONLY
    rows = "graded rows" if is_graded else "pairs"
    if graded_source:
        unused, rows = (*unused, *_SET_BY_GRADED_SOURCE), f"rows of the source {options.source}"
    for name in unused:
        if not is_default(options, name):
            hint = "it is for --format features" if name in GRADED_ONLY else "leave it out"
            raise UserError(f"{rows} take no {flag(name)}", hint=hint)
    if options.format == "adjacency" and options.named_columns:
        hint = "they have no columns: leave it out, or use --format table"
        raise UserError(f"adjacency files take no {flag(options.named_columns[0])}", hint=hint)
