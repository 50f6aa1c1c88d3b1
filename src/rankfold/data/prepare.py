"""From tables to prepared data: read, number, filter, split, summarise."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from rankfold import config, storage
from rankfold.data import folder
from rankfold.data.build import features, graded, side_features, split
from rankfold.data.build import tokens as texts
from rankfold.data.build.align import keyed_pairs, own_pairs
from rankfold.data.build.grades import GradedRows, give_grades
from rankfold.data.build.pairs import (
    DUPLICATES,
    Pairs,
    at_least,
    check_not_empty,
    compact,
    core,
    number,
    own_rows,
    positive,
)
from rankfold.data.build.side_features import Known, Told, dropped
from rankfold.data.read import keel, memory
from rankfold.data.read.adjacency import looks_like_adjacency, read_adjacency
from rankfold.data.read.documents import Asked, Documents, TextTable, open_texts, read_documents
from rankfold.data.read.files import BadRows, Reading, base_suffix, expand, lines, silent
from rankfold.data.read.graded_rows import Asked as AskedRows
from rankfold.data.read.graded_rows import RawRows, drop
from rankfold.data.read.images import Shape
from rankfold.data.read.tables import NONE, Columns, is_text, read_frame, read_table, stack
from rankfold.data.read.xc import read_xc
from rankfold.data.sources import SOURCES
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.types import Comm, Dataset, Interactions, Progress, Vocabulary, from_pairs

Input = Any
"""A path or glob, or a table in memory; ``memory.ACCEPTED`` lists them."""
Rows = pl.LazyFrame | Documents | GradedRows | Dataset
Keys = Mapping[str, Vocabulary]
"""By side, ``query`` or ``candidate``."""
Filter = tuple[str, Callable[[Pairs], Pairs], str]
"""Its name, the function, and what to do if it leaves nothing."""
FORMATS = ("table", "adjacency", "texts", "xc", "features")
OPTIONS = {"candidate": "candidate-column", "time": "time-column", "text": "text-column"}
OPTIONS |= {"header": "no-header", "query": "query-column", "grade": "grade-column"}
MOST_PIXELS = 4096  # in height or width of an image
MOST_SHARDS = 99_999
OF_SOURCE = ("query", "grade", "train")  # what a source of graded rows knows itself
FOR_GRADED = ("grades", "drop_columns", "image_size")
FOR_PAIRS = (
    "candidate",
    "time",
    "header",
    "text",
    "label_separator",
    "content",
    "tokens",
    "vocabulary",
    "min_grade",
    "exclude_self",
    "kcore",
    "duplicates",
    "shards",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The options of ``prepare``. Columns are guessed where None; ``"none"`` is to do without."""

    query: str | None = None
    candidate: str | None = None
    grade: str | None = None
    time: str | None = None
    header: bool = True  # False: the columns of a text table are column_0, column_1, ...
    source: str | None = None  # a name in SOURCES
    format: str | None = None  # one of FORMATS; table or adjacency, told from the file, where None
    train: Input = None  # given splits instead of inputs
    validation: Input = None
    test: Input = None
    query_features: Input = None  # one table; its keys: the query column's name, else the first
    candidate_features: Input = None
    query_texts: Input = None  # likewise, of texts
    candidate_texts: Input = None
    text: str | None = None  # the column of text
    label_separator: str | None = None  # between the labels of a document
    content: bool = False  # add the content to the title, where xc has both
    tokens: str = "word"  # what texts are turned into, a name in texts.KINDS
    vocabulary: int | None = None  # how many tokens at most; as usual for the kind where None
    validation_share: float = 0.1  # carved from train where splits are given without validation
    grades: str | Sequence[Any] | None = None  # features: lowest first; None: numbers ascending
    drop_columns: str | Sequence[str] | None = None  # features: columns to leave out
    image_size: int = 64  # features: what images from files are brought to, height and width
    duplicates: str = "highest"  # which of equal pairs stays: highest (grade) or last
    min_grade: float | None = None
    exclude_self: bool = False  # never return what has the query's own key (pages, packages)
    kcore: int = 0
    split: str | Sequence[float] | None = None  # None: split.usual
    seed: int = 0
    strict: bool = False  # refuse bad rows instead of leaving them out
    shards: int = 1  # in how many files the folder has its pairs, by contiguous queries


def prepare(
    *inputs: Input, out: str | Path | None = None, progress: Progress = silent, **options: Any
) -> Dataset:
    """Prepare interactions, documents or graded rows for fitting; with ``out``, as a folder.

    ``options`` are the fields of ``Preparation``. The same seed gives the same splits whatever the
    order of the rows.
    """
    config.check_names(Preparation, options)
    plan = _checked(Preparation(**options))
    if out is not None:
        storage.check_writable(Path(out), "data")
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        reading = Reading(Path(scratch), progress=progress)
        rows = _read(inputs, plan, reading)
        told = _read_tables(plan, reading, rows)
        if isinstance(rows, GradedRows):
            how = graded.Splitting(plan.split, plan.validation_share, plan.seed)
            data = graded.assemble(rows, how, reading)
        else:
            data = rows if isinstance(rows, Dataset) else _assemble(rows, told, plan, reading)
    if out is None:
        return data
    progress("writing", 0.0)
    folder.save(data, Path(out), plan.shards)
    return folder.load(out)


def as_data(data: Any, comm: Comm = SINGLE_PROCESS) -> Dataset:
    """Prepared data or its folder as it is; any other table or matrix as pairs to train on.

    Of several processes each gets the rows of its own queries; tables in memory are whole on all.
    """
    if isinstance(data, str | Path):
        return folder.load(data, comm)
    if not isinstance(data, Dataset):
        is_sparse = memory.is_sparse(data)
        data = memory.from_sparse(data) if is_sparse else prepare(data, split=(1.0, 0.0, 0.0))
    return folder.part(data, comm)


def _checked(plan: Preparation) -> Preparation:
    for name, value, known in (
        ("source", plan.source, SOURCES),
        ("duplicates", plan.duplicates, DUPLICATES),
        ("format", plan.format, FORMATS),
        ("kind of tokens", plan.tokens, texts.KINDS),
    ):
        if value is not None and value not in known:
            raise UserError(f"there is no {name} {value!r}", hint=f"known: {', '.join(known)}")
    if not 0 <= plan.validation_share < 1:
        raise UserError(
            f"the validation share is {plan.validation_share:g}", hint="it is at least 0, below 1"
        )
    for name, number_ in (("seed", plan.seed), ("kcore", plan.kcore)):
        if not isinstance(number_, int) or number_ < 0:
            raise UserError(f"{name} is {number_}", hint="it is a whole number, 0 or more")
    if not isinstance(plan.shards, int) or not 1 <= plan.shards <= MOST_SHARDS:
        hint = f"it is a number of files, {MOST_SHARDS:,} at most"
        raise UserError(f"shards is {plan.shards}", hint=hint)
    if plan.vocabulary is not None and plan.vocabulary < 1:
        raise UserError(f"the vocabulary is {plan.vocabulary}", hint="it is a number of tokens")
    if plan.min_grade is not None and not math.isfinite(plan.min_grade):
        raise UserError(f"the minimum grade is {plan.min_grade}", hint="it is a number")
    if not isinstance(plan.image_size, int) or not 1 <= plan.image_size <= MOST_PIXELS:
        hint = f"it is a number of pixels, {MOST_PIXELS:,} at most"
        raise UserError(f"the image size is {plan.image_size}", hint=hint)
    _check_kind(plan)
    _check_tables(plan)
    return plan


def _named_columns(plan: Preparation) -> list[str]:
    """The roles that a column is named for: only a table has columns."""
    return [role for role in Columns._fields if getattr(plan, role) not in (None, NONE)]


def _check_kind(plan: Preparation) -> None:
    """Options for another kind of data are refused, not ignored."""
    of_source = plan.source is not None and SOURCES[plan.source].graded
    is_graded = of_source or plan.format == "features"
    others: Sequence[str] = FOR_PAIRS if is_graded else FOR_GRADED
    rows = "graded rows" if is_graded else "pairs"
    if of_source:
        others, rows = (*FOR_PAIRS, *OF_SOURCE), f"rows of the source {plan.source}"
    usual = Preparation()
    for name in others:
        value, default = getattr(plan, name), getattr(usual, name)
        if value is not default if default is None else value != default:
            option = OPTIONS.get(name, name.replace("_", "-"))
            hint = "leave it out" if name in FOR_PAIRS else "it is for --format features"
            raise UserError(f"{rows} take no --{option}", hint=hint)
    if plan.format == "adjacency" and (named := _named_columns(plan)):
        hint = "they have no columns: leave it out, or say --format table"
        raise UserError(f"adjacency files take no --{OPTIONS[named[0]]}", hint=hint)


def _check_tables(plan: Preparation) -> None:
    for what, side in product(("features", "texts"), ("query", "candidate")):
        table = getattr(plan, f"{side}_{what}")
        if table is not None:
            features.check_source(table, what)
    if plan.format == "texts" or plan.query_texts is not None or plan.candidate_texts is not None:
        texts.check_library()


# ---------------------------------------------------------------------------------- reading


def _read(inputs: Sequence[Input], plan: Preparation, reading: Reading) -> Rows:
    """The usable rows of the inputs, with a column ``split`` where the splits are given."""
    rows: Rows | RawRows
    given = _given(inputs, plan)
    if plan.format == "xc":
        rows = _read_xc(inputs, plan, reading)
    elif plan.source is not None and not given:
        rows = _read_source(inputs, plan, reading)
    elif plan.format == "texts" and plan.query_texts is None:
        rows = _read_documents([*given, *((None, value) for value in inputs)], plan, reading)
    elif plan.format == "features":
        rows = _read_features([*given, *((None, value) for value in inputs)], plan, reading)
    elif given:
        rows = stack([(split.NAMES[i], _read_split(i, value, plan, reading)) for i, value in given])
    else:
        rows = _read_inputs(inputs, plan, reading)
    if isinstance(rows, RawRows):
        rows = give_grades(rows, _listed(plan.grades), reading.bad)
    _check_strict(plan, reading.bad)
    return rows


def _given(inputs: Sequence[Input], plan: Preparation) -> list[tuple[int, Input]]:
    """The splits that are given, by number."""
    values = enumerate((plan.train, plan.validation, plan.test))
    given = [(number_, value) for number_, value in values if value is not None]
    if given and (inputs or plan.train is None or plan.format == "xc"):
        raise UserError(
            "given splits need a train file and no other input",
            hint="use --train F, with --validation F and --test F where there are such",
        )
    return given


def _read_split(number_: int, value: Input, plan: Preparation, reading: Reading) -> pl.LazyFrame:
    rows = _read_inputs([value], plan, reading)
    return rows.with_columns(split=pl.lit(number_, pl.UInt8))


def _read_documents(
    given: Sequence[tuple[int | None, Input]], plan: Preparation, reading: Reading
) -> Documents:
    items = [(item, number_) for number_, value in given for item in _items(value)]
    asked = Asked(plan.query, plan.text, plan.candidate, plan.label_separator)
    return read_documents(items, asked, reading, header=plan.header)


def _read_features(
    given: Sequence[tuple[int | None, Input]], plan: Preparation, reading: Reading
) -> RawRows:
    items = [(number_, item) for number_, value in given for item in _each(value)]
    asked = AskedRows(plan.grade, plan.query, Shape(plan.image_size, plan.image_size))
    rows = graded.read_all(items, asked, reading)
    own = plan.train is not None or plan.split is None
    return drop(rows if own else replace(rows, splits=None), _listed(plan.drop_columns))


def _listed(names: str | Sequence[Any] | None) -> Sequence[Any] | None:
    return names.split(",") if isinstance(names, str) else names


def _read_xc(inputs: Sequence[Input], plan: Preparation, reading: Reading) -> Documents:
    if len(inputs) != 1 or not isinstance(inputs[0], str | Path) or plan.source is not None:
        raise UserError("the format xc needs one folder, and no source", hint="name the folder")
    (folder_,) = expand([inputs[0]])
    return read_xc(folder_, reading, content=plan.content)


def _check_strict(plan: Preparation, bad: BadRows) -> None:
    if plan.strict and bad.counts:
        raise UserError(
            f"found {'; '.join(bad.describe())}",
            hint="correct them, or leave --strict out to go on without them",
        )


def _read_source(inputs: Sequence[Input], plan: Preparation, reading: Reading) -> Rows | RawRows:
    assert plan.source is not None
    source = SOURCES[plan.source]
    if bool(inputs) != bool(source.inputs):
        wanted = f"takes {source.inputs}" if source.inputs else "is bundled and takes no input"
        raise UserError(f"the source {plan.source} {wanted}", hint=source.summary)
    read = source.read_texts if plan.format == "texts" else source.read
    if read is None:
        having = [name for name, other in SOURCES.items() if other.read_texts]
        hint = f"leave --format texts out; these have: {', '.join(having)}"
        raise UserError(f"the source {plan.source} has no texts", hint=hint)
    reading.progress(f"reading {plan.source}", 0.0)
    rows = read(expand(inputs), reading)
    if isinstance(rows, RawRows):
        return drop(rows, _listed(plan.drop_columns))
    if isinstance(rows, Dataset | Documents):
        if isinstance(rows, Dataset):
            _check_whole(plan)
        return rows
    names = Columns("query", "candidate", None, None if _wants_time(plan) else NONE)
    return read_frame(rows, names, plan.source, reading)


def _check_whole(plan: Preparation) -> None:
    """A source that is a whole ``Dataset`` is taken as it is."""
    for name in ("split", *FOR_GRADED):
        if getattr(plan, name) != getattr(Preparation(), name):
            option = name.replace("_", "-")
            hint = f"leave --{option} out: they are the official ones"
            raise UserError(f"the source {plan.source} has splits and grades of its own", hint=hint)


def _read_inputs(inputs: Sequence[Input], plan: Preparation, reading: Reading) -> pl.LazyFrame:
    columns = Columns(
        plan.query, plan.candidate, plan.grade, plan.time or (None if _wants_time(plan) else NONE)
    )
    items = [item for value in inputs for item in _items(value)]
    if not items:
        raise UserError("there is nothing to read", hint="name a file, or a --source")
    tables = []
    for number_, item in enumerate(items):
        name = (item.name or str(item)) if isinstance(item, Path) else "the table"
        reading.progress(f"reading {name}", number_ / len(items))
        if isinstance(item, Path):
            tables.append((name, _read_file(item, columns, plan, reading)))
        else:
            tables.append((name, read_frame(memory.to_frame(item), columns, name, reading)))
    return stack(tables)


def _items(value: Input) -> Sequence[Input]:
    """The files that a path, a glob or a list of them names; a table in memory is one item."""
    each = _each(value)
    return expand(each) if all(isinstance(path, str | Path) for path in each) else each


def _each(value: Input) -> Sequence[Input]:
    """The paths and globs of a list of them; anything else is one item."""
    named = isinstance(value, list) and all(isinstance(path, str | Path) for path in value)
    return value if named else [value]


def _read_file(path: Path, columns: Columns, plan: Preparation, reading: Reading) -> pl.LazyFrame:
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint=f"name its files, say '{path}/*.parquet'")
    if plan.format is None and is_text(path) and keel.looks_like_keel(path):
        raise UserError(
            f"{path.name} is a KEEL file, of rows with grades, not of pairs",
            hint="add --format features",
        )
    guessed = plan.format is None and plan.header and not _named_columns(plan)
    if plan.format == "adjacency" or (guessed and _is_adjacency(path)):
        names = Columns("query", "candidate", NONE, NONE)
        return read_frame(read_adjacency(path), names, path.name, reading)
    return read_table(path, columns, reading, header=plan.header)


def _wants_time(plan: Preparation) -> bool:
    rule = split.usual(whole=False) if plan.split is None else plan.split
    return split.parse(rule, 0.0).needs_time or plan.duplicates == "last"


def _is_adjacency(path: Path) -> bool:
    if base_suffix(path) not in (".txt", ""):
        return False
    return looks_like_adjacency([text for _, text in islice(lines(path), 10)])


# ---------------------------------------------------------------------------------- assembling


def _assemble(
    rows: pl.LazyFrame | Documents, told: Told, plan: Preparation, reading: Reading
) -> Dataset:
    """Number, filter and split the rows; then come features and texts, which change no split."""
    rule = split.usual(whole=bool(told.texts)) if plan.split is None else plan.split
    splitter = split.parse(rule, plan.validation_share)  # a bad one is refused before long work
    reading.progress("numbering keys", 0.0)
    pairs, queries, candidates = number(_frame(rows, plan))
    left_out = dropped(reading.bad)
    n_read = len(pairs) + sum(entry["rows"] for entry in left_out)
    if len(pairs) == 0:
        raise UserError(
            "there are no usable rows" if n_read else "the input has no rows",
            hint="; ".join(reading.bad.describe()) or "is it the right file?",
        )
    reading.progress("filtering", 0.0)
    given = rows.excluded if isinstance(rows, Documents) else None
    for name, keep, hint in _filters(pairs, plan, queries, candidates, given):
        before, pairs = len(pairs), keep(pairs)
        check_not_empty(pairs, before, f"the filter '{name}'", hint)
        if len(pairs) < before:
            left_out.append({"why": name, "rows": before - len(pairs)})
    pairs, queries, candidates = compact(pairs, queries, candidates)
    reading.progress("splitting", 0.0)
    pairs = _split(pairs, plan, splitter, whole=bool(told.texts))
    pairs, keys = side_features.join(pairs, {"query": queries, "candidate": candidates}, told)
    tokens = side_features.Tokens(plan.tokens, plan.vocabulary)
    known = side_features.describe(pairs, keys, told, tokens, reading.progress)
    data = _dataset(pairs, keys, known, {"rows": n_read, "dropped": left_out, **known.summary})
    return replace(data, excluded=_excluded(data, plan, given))


def _frame(rows: pl.LazyFrame | Documents, plan: Preparation) -> pl.LazyFrame:
    """The pairs; documents have splits of their own unless others are asked for."""
    if not isinstance(rows, Documents):
        return rows
    own = plan.train is not None or plan.split is None
    return rows.pairs if own else rows.pairs.drop("split", strict=False)


def _excluded(data: Dataset, plan: Preparation, given: pl.DataFrame | None) -> Interactions | None:
    """The pairs that may never be returned: those that are given, and a query's own key."""
    own = own_pairs(data.queries, data.candidates) if _excludes_self(plan) else None
    if given is None:
        return own
    pairs = keyed_pairs(given, data.queries, data.candidates)
    return pairs if own is None else pairs.union(own)


def _split(pairs: Pairs, plan: Preparation, splitter: split.Splitter, *, whole: bool) -> Pairs:
    """The pairs with their splits: as given, or drawn by the seed; ``whole`` queries are carved."""
    rng = np.random.default_rng(plan.seed)
    if pairs.splits is None:
        splits = splitter.assign(pairs, rng)
    elif plan.validation is None and plan.validation_share and not _has_validation(pairs):
        carve = split.carve_queries if whole else split.carve_validation
        splits = carve(pairs, plan.validation_share, rng)
    else:
        splits = pairs.splits
    if not (splits == split.TRAIN).any():
        raise UserError(
            f"none of the {len(pairs):,} pairs is for training",
            hint="is the train file the right one?",
        )
    return replace(pairs, splits=splits)


def _has_validation(pairs: Pairs) -> bool:
    return pairs.splits is not None and bool((pairs.splits == split.VALIDATION).any())


def _excludes_self(plan: Preparation) -> bool:
    return plan.exclude_self or (plan.source is not None and SOURCES[plan.source].links)


def _filters(
    pairs: Pairs,
    plan: Preparation,
    queries: pl.Series,
    candidates: pl.Series,
    excluded: pl.DataFrame | None,
) -> list[Filter]:
    """The filters in their order."""
    low = plan.min_grade
    if low is not None and pairs.grades is None:
        raise UserError(
            "a minimum grade needs grades", hint="name their column: --grade-column NAME"
        )
    filters: list[Filter] = [("repeated pair", DUPLICATES[plan.duplicates], "")]
    if low is not None:
        hint = f"lower --min-grade; the highest grade is {pairs.grades.max():g}"  # type: ignore[union-attr]
        filters.append((f"grade below {low:g}", lambda p: at_least(p, low), hint))
    filters.append(
        ("grade of 0 or less", positive, "a grade above 0 means that a pair is positive")
    )
    if _excludes_self(plan):
        own, hint = own_rows(queries, candidates), "leave --exclude-self out"
        filters.append(("own key", lambda p: p.take(p.candidates != own[p.queries]), hint))
    if excluded is not None:
        filters += _without(keyed_pairs(excluded, *map(_numbered, (queries, candidates))), pairs)
    if plan.kcore > 1:
        filters.append((f"{plan.kcore}-core", lambda p: core(p, plan.kcore), "lower --kcore"))
    return filters


def _without(excluded: Interactions, pairs: Pairs) -> list[Filter]:
    """What may never be returned is no positive either; told for each split that is given."""
    hint = "are the filter files those of this data set?"
    if pairs.splits is None:
        return [("excluded pair", lambda p: p.take(~_among(p, excluded)), hint)]

    def keep(number_: int, p: Pairs) -> Pairs:
        return p.take(~(_among(p, excluded) & (p.splits == number_)))

    return [
        (f"excluded pair of {name}", partial(keep, number_), hint)
        for number_, name in enumerate(split.NAMES)
    ]


def _among(pairs: Pairs, others: Interactions) -> NDArray[np.bool_]:
    """Which of the pairs, none of them there twice, are among others."""
    n = others.n_candidates
    ours = pairs.queries * n + pairs.candidates  # ascending
    theirs = (others.query_of_pair().long() * n + others.candidates).numpy()
    places = np.searchsorted(ours, theirs).clip(max=len(ours) - 1)
    found = np.zeros(len(ours), dtype=bool)
    found[places[ours[places] == theirs]] = True
    return found


def _numbered(keys: pl.Series) -> Vocabulary:
    return Vocabulary(len(keys), lambda: keys)


def _dataset(pairs: Pairs, keys: Keys, known: Known, history: dict[str, Any]) -> Dataset:
    queries, candidates, written = keys["query"], keys["candidate"], known.written
    shape = (len(queries), len(candidates))
    grades = pairs.grades
    if grades is not None and (grades == 1).all():
        grades = None
    parts: dict[str, Interactions | None] = {}
    for number_, name in enumerate(split.NAMES):
        mine = pairs.splits == number_
        parts[name] = from_pairs(
            torch.from_numpy(pairs.queries[mine]),
            torch.from_numpy(pairs.candidates[mine]),
            None if grades is None else torch.from_numpy(grades[mine]),
            shape,
        )
        if name != "train" and not np.any(mine):
            parts[name] = None
    train, validation, test = parts.values()
    assert train is not None
    data = Dataset(
        kind="texts" if written.texts else "interactions",
        train=train,
        validation=validation,
        test=test,
        queries=queries,
        candidates=candidates,
        query_texts=written.texts.get("query"),
        candidate_texts=written.texts.get("candidate"),
        tokenizer=written.tokenizer,
        n_tokens=written.n_tokens,
        query_features=known.features.get("query"),
        candidate_features=known.features.get("candidate"),
        summary={**_counts(parts, shape), **_grade_summary(grades), **history},
        fingerprint=folder.fingerprint(
            parts.values(), queries.keys, candidates.keys, known.features, written.texts
        ),
    )
    if "candidate" not in written.words:
        return data
    keys_, words = candidates.keys, written.words["candidate"]
    return replace(data, candidates=Vocabulary(len(keys_), lambda: keys_, lambda: words))


def _counts(parts: dict[str, Interactions | None], shape: tuple[int, int]) -> dict[str, Any]:
    sizes = {name: 0 if part is None else part.n_pairs for name, part in parts.items()}
    total = sum(sizes.values())
    per_query = sum(part.counts() for part in parts.values() if part is not None)
    per_candidate = sum(part.candidate_counts() for part in parts.values() if part is not None)
    assert isinstance(per_query, torch.Tensor)
    assert isinstance(per_candidate, torch.Tensor)
    return {
        "queries": shape[0],
        "candidates": shape[1],
        "pairs": total,
        **sizes,
        "density": total / (shape[0] * shape[1]),
        "pairs_per_query": {"median": int(per_query.median()), "max": int(per_query.max())},
        "pairs_per_candidate": {
            "median": int(per_candidate.median()),
            "max": int(per_candidate.max()),
        },
    }


def _grade_summary(grades: np.ndarray[Any, Any] | None) -> dict[str, Any]:
    if grades is None:
        return {"grades": None}
    values, counts = np.unique(grades, return_counts=True)
    summary: dict[str, Any] = {
        "lowest": float(values[0]),
        "highest": float(values[-1]),
        "mean": float(grades.mean(dtype=np.float64)),
    }
    if len(values) <= 20:
        summary["pairs"] = {f"{value:g}": int(n) for value, n in zip(values, counts, strict=True)}
    return {"grades": summary}


# ---------------------------------------------------------------------------------- tables


def _read_tables(plan: Preparation, reading: Reading, rows: Rows) -> Told:
    """The tables of features and texts; their keys stand in the column that the pairs have them in.

    Graded rows and documents bring their own.
    """
    own = rows.tables if isinstance(rows, Documents) else {}
    found: dict[str, dict[str, Any]] = {"features": {}, "texts": dict(own)}
    for what, side in product(found, ("query", "candidate")):
        table = getattr(plan, f"{side}_{what}")
        if table is None:
            continue
        is_graded = isinstance(rows, Dataset | GradedRows)
        own_table = found[what].get(side)
        if is_graded or (own_table is not None and own_table.says_something):
            rows_ = "graded rows" if is_graded else "these documents"
            raise UserError(
                f"{rows_} take no table of {side} {what}",
                hint=f"leave --{side}-{what} out: the rows have {what} of their own",
            )
        reading.progress(f"reading {side} {what}", 0.0)
        usual = reading.columns.get(side)
        if what == "features":
            found[what][side] = features.open_table(table, usual=usual)
        else:
            texts = open_texts(table, usual, plan.text, header=plan.header)
            if own_table is not None:
                _check_words(own)
                texts = texts.with_keys(own_table.keys)
            found[what][side] = texts
        _check_strict(plan, found[what][side].bad)
    return Told(**found)


def _check_words(tables: Mapping[str, TextTable]) -> None:
    """A UserError where one side has bags: words of the other would be other tokens."""
    if any(table.bags is not None for table in tables.values()):
        raise UserError(
            "these documents are bags of features: their labels cannot have texts in words",
            hint="give the labels' features, lbl_X_Xf.txt, or prepare raw texts, trn.json",
        )
