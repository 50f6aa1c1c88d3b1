"""Data: interactions, texts, features, graded rows, and the data set that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Literal, Self

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.notebook import card
from rankfold.types.vocabulary import Vocabulary

Kind = Literal["interactions", "texts", "graded"]
SplitName = Literal["train", "validation", "test"]
Side = Literal["query", "candidate"]
Progress = Callable[[str, float], None]
"""``(what is being done, share done)``; called now and then by long work."""
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
_BARS = 24  # of the small picture of a data set
TRAIN, VALIDATION, TEST = 0, 1, 2  # a split as a number: its place in SPLITS
GIVEN = 3  # the number of ``Dataset.given``


@dataclass(frozen=True, slots=True)
class Tensors:
    """Fields that are tensors, or None. They may be memory-mapped: they are never written to."""

    def to(self, device: torch.device) -> Self:
        return self._each(lambda tensor: tensor.to(device))

    def join(self, *others: Self) -> Self:
        """These rows, then those of the others. A field is None if one of them lacks it."""
        if not others:
            return self
        parts = [to_tensors(part) for part in (self, *others)]
        common = set.intersection(*map(set, parts))
        joined: dict[str, Any] = {n: torch.cat([part[n] for part in parts]) for n in common}
        if isinstance(self, Lists):
            joined["offsets"] = offsets_of(torch.cat([part["offsets"].diff() for part in parts]))
        return replace(self, **dict.fromkeys(parts[0]) | joined)

    def _each(self, change: Callable[[Tensor], Tensor], **others: Any) -> Self:
        """The same with each tensor changed, except the fields in ``others``."""
        changed = {name: change(t) for name, t in to_tensors(self).items() if name not in others}
        return replace(self, **changed, **others)


def to_tensors(part: Tensors) -> dict[str, Tensor]:
    """The tensors of a part by the names of its fields, without those that are None."""
    values = {one.name: getattr(part, one.name) for one in fields(part)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True, slots=True)
class Table(Tensors):
    """Tensors with the same rows."""

    def select(self, rows: Tensor) -> Self:
        """The rows ``rows`` [B], in that order."""
        return self._each(lambda tensor: tensor[rows])

    def part(self, start: int, stop: int) -> Self:
        """The rows from ``start`` to ``stop``. They are shared, not copied."""
        return self._each(lambda tensor: tensor[start:stop])


@dataclass(frozen=True, slots=True)
class Lists(Tensors):
    """Lists: the entries of list i are those from ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: Tensor  # [n + 1] int64

    def counts(self) -> Tensor:
        """The number of entries of each list; [n]."""
        return self.offsets.diff()

    def select(self, rows: Tensor) -> Self:
        """The lists ``rows`` [B], in that order."""
        if len(rows) == 1 and rows.is_cpu and self.offsets.is_cpu:
            return self.part(int(rows), int(rows) + 1)  # a request for one query is common
        starts = self.offsets[rows]
        counts = self.offsets[rows + 1] - starts
        offsets = offsets_of(counts)
        shift = torch.repeat_interleave(starts - offsets[:-1], counts)
        places = torch.arange(len(shift), device=shift.device) + shift
        return self._each(lambda entries: entries[places], offsets=offsets)

    def part(self, start: int, stop: int) -> Self:
        """The lists from ``start`` to ``stop``. The entries are shared, not copied."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return self._each(lambda entries: entries[first:last], offsets=offsets - first)


def offsets_of(counts: Tensor) -> Tensor:
    """Where lists of these lengths [n] start, one after another, and where the last ends."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


@dataclass(frozen=True, slots=True)
class Interactions(Lists):
    """The candidates that each query chose: a CSR matrix of grades, queries by candidates.

    Within a query the candidates ascend without repeats.
    """

    candidates: Tensor  # [nnz] int32, or int64 if M or N needs it
    grades: Tensor | None  # [nnz] float32, all > 0; None: all 1
    n_candidates: int
    times: Tensor | None = None  # [nnz] float64, seconds since 1970; None: unknown

    def __repr__(self) -> str:
        sizes = f"{self.n_queries} queries x {self.n_candidates} candidates"
        return f"<Interactions: {sizes}, {self.n_pairs} pairs>"

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_pairs(self) -> int:
        return len(self.candidates)

    def candidate_counts(self) -> Tensor:
        """c_y, the number of queries of each candidate; [N]."""
        return torch.bincount(self.candidates, minlength=self.n_candidates)

    def query_of_pair(self) -> Tensor:
        """The query of each pair; [nnz], of the candidates' dtype."""
        rows = torch.arange(self.n_queries, dtype=self.candidates.dtype, device=self.offsets.device)
        return torch.repeat_interleave(rows, self.counts(), output_size=self.n_pairs)

    def codes(self) -> Tensor:
        """A number for each pair, N query + candidate; [nnz] int64, ascending."""
        return self.query_of_pair().long() * self.n_candidates + self.candidates

    def all_grades(self) -> Tensor:
        """The grades, 1 if there are none; [nnz] float32."""
        if self.grades is None:
            return torch.ones(self.n_pairs, device=self.candidates.device)
        return self.grades.float()

    def keep(self, kept: Tensor) -> Interactions:
        """The pairs where ``kept`` [nnz] is true. All rows stay."""
        before = offsets_of(kept)  # kept pairs before each pair
        return self._each(lambda pairs: pairs[kept], offsets=before[self.offsets])

    def transpose(self) -> Interactions:
        """The same grades, candidates by queries."""
        order = torch.argsort(self.candidates, stable=True)
        rows = replace(self, candidates=self.query_of_pair(), n_candidates=self.n_queries)
        return rows._each(lambda pairs: pairs[order], offsets=offsets_of(self.candidate_counts()))

    def union(self, other: Interactions) -> Interactions:
        """The pairs of both. A pair in both has its grade and its time from ``other``.

        Times are unknown unless both have them.
        """
        n = self.n_candidates
        pairs, order = torch.sort(torch.cat([self.codes(), other.codes()]), stable=True)
        last = torch.ones(len(pairs), dtype=torch.bool)
        last[:-1] = pairs[1:] != pairs[:-1]
        grades = None
        if self.grades is not None or other.grades is not None:
            grades = torch.cat([self.all_grades(), other.all_grades()])[order][last]
        times = None
        if self.times is not None and other.times is not None:
            times = torch.cat([self.times, other.times])[order][last]
        pairs = pairs[last]
        return from_pairs(pairs // n, pairs % n, grades, (self.n_queries, n), times)

    def without(self, other: Interactions) -> Interactions:
        """The pairs that ``other`` does not have."""
        return self.keep(~torch.isin(self.codes(), other.codes()))


def from_pairs(
    queries: Tensor,
    candidates: Tensor,
    grades: Tensor | None,
    shape: tuple[int, int],
    times: Tensor | None = None,
) -> Interactions:
    """CSR of pairs that are sorted by query, then candidate, without repeats."""
    n_queries, n_candidates = shape
    offsets = offsets_of(torch.bincount(queries, minlength=n_queries))
    dtype = torch.int32 if n_candidates < 2**31 and n_queries < 2**31 else torch.int64
    return Interactions(offsets, candidates.to(dtype), grades, n_candidates, times)


@dataclass(frozen=True, slots=True)
class Sequences(Lists):
    """What each of some queries chose, in an order."""

    candidates: Tensor  # [total] int64

    def row_of_entry(self) -> Tensor:
        """The sequence of each entry; [total]."""
        counts = self.counts()
        rows = torch.arange(len(counts), device=counts.device)
        return torch.repeat_interleave(rows, counts, output_size=len(self.candidates))


@dataclass(frozen=True, slots=True)
class Texts(Lists):
    """One side's texts as token ids: text i is ``tokens[offsets[i] : offsets[i + 1]]``.

    Tokens are in the order of the words. Bags have weights, and their tokens are in any order.
    """

    tokens: Tensor  # [total] int32
    weights: Tensor | None = None  # [total] float32; None: each 1

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Columns:
    """The schema of feature columns. A model stores it as plain JSON."""

    numbers: tuple[str, ...]  # names, ascending
    levels: Mapping[str, tuple[str, ...]]  # the values of each categorical column, both ascending

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON."""
        levels = {name: list(values) for name, values in self.levels.items()}
        return {"numbers": list(self.numbers), "levels": levels}

    @staticmethod
    def from_json(meta: Mapping[str, Any]) -> Columns:
        """The schema that ``to_json`` wrote."""
        levels = {name: tuple(values) for name, values in sorted(dict(meta["levels"]).items())}
        numbers = tuple(meta["numbers"])
        names = chain(numbers, *levels.values())
        if not all(isinstance(name, str) for name in names):
            raise TypeError("names of columns and levels must be texts")
        return Columns(numbers, levels)


@dataclass(frozen=True, slots=True)
class Features(Table):
    """The side features of queries or of candidates, row by row."""

    numbers: Tensor  # [n, F] float32; NaN: missing
    categories: Tensor  # [n, C] int32, places in the levels; -1: missing or unknown
    columns: Columns


@dataclass(frozen=True, slots=True)
class Graded(Table):
    """Rows with features and one ordered grade each."""

    numbers: Tensor  # [n, F] float32; NaN: missing
    categories: Tensor  # [n, C] int32; -1: missing or unknown
    images: Tensor | None  # [n, height, width, channels] uint8
    grades: Tensor  # [n] int64, 0 is the lowest; -1: unknown

    def __len__(self) -> int:
        return len(self.grades)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Prepared data: the splits in one row space, the keys of the rows, the excluded pairs.

    Among several processes, each may hold a range of queries only, starting at row ``first``. Then
    the splits, excluded pairs, query texts and query features cover that range, and the keys all
    queries. Of graded rows, each process holds its share of every split.
    """

    kind: Kind
    train: Interactions | Graded
    validation: Interactions | Graded | None
    test: Interactions | Graded | None
    queries: Vocabulary
    candidates: Vocabulary  # graded data: the grades, lowest first, with their names as texts
    query_texts: Texts | None = None
    candidate_texts: Texts | None = None
    tokenizer: str | None = None  # JSON of `tokenizers`; None: no texts, or bags
    n_tokens: int = 0  # all tokens of both sides are below it
    query_features: Features | None = None
    candidate_features: Features | None = None
    columns: Columns | None = None  # of graded rows; None: they have images alone
    excluded: Interactions | None = None  # pairs that may never be returned
    given: Interactions | None = None  # the histories of held-out queries: input, never fitted
    summary: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""  # hash of the content
    first: int = 0  # the row of the first query held here, among all queries

    def __repr__(self) -> str:
        n, m = len(self.queries), len(self.candidates)
        sizes = (
            f"{n} rows, {m} grades" if self.kind == "graded" else f"{n} queries x {m} candidates"
        )
        return f"<Dataset {self.kind}: {sizes}>"

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = {}
        n, m = len(self.queries), len(self.candidates)
        if self.kind == "graded":
            facts["grades"] = ", ".join(map(str, self.candidates.texts or range(m)))
        else:
            facts["size"] = f"{n:,} queries x {m:,} candidates"
        parts = {name: getattr(self, name) for name in SPLITS}
        for name, part in parts.items():
            if isinstance(part, Interactions):
                facts[name] = f"{part.n_pairs:,} pairs"
            elif part is not None:
                facts[name] = f"{len(part):,} rows"
        if self.kind == "graded":
            return card("Graded rows", facts, self._grade_counts(), "training rows by grade")
        counts = self.split("train").candidate_counts().sort(descending=True).values
        bars = [float(part.double().mean()) for part in counts.tensor_split(_BARS) if len(part)]
        return card(f"Data: {self.kind}", facts, bars, "training pairs, popular candidates first")

    def _grade_counts(self) -> list[float]:
        grades = self.graded("train").grades
        counts = torch.bincount(grades[grades >= 0], minlength=len(self.candidates))
        return [float(count) for count in counts]

    @property
    def n_queries(self) -> int:
        """The number of all queries, held here or not."""
        return len(self.queries)

    def split(self, name: SplitName) -> Interactions:
        """The pairs of one split. A UserError if the data lacks it or is graded."""
        part = self._part(name)
        if isinstance(part, Graded):
            raise _other_data("graded rows, not pairs of queries and candidates")
        return part

    def graded(self, name: SplitName) -> Graded:
        """The graded rows of one split. A UserError if the data lacks it or holds pairs."""
        part = self._part(name)
        if isinstance(part, Interactions):
            raise _other_data("pairs of queries and candidates, not graded rows")
        return part

    def _part(self, name: SplitName) -> Interactions | Graded:
        part = {"train": self.train, "validation": self.validation, "test": self.test}.get(name)
        if part is None:
            raise UserError(
                f"this data has no {name} split",
                hint="prepare it again with --split or --validation-share, or name another split",
            )
        return part

    def seen(self, split: SplitName) -> Interactions:
        """The pairs to hide when ``split`` is scored: earlier splits, given and excluded pairs."""
        seen = self.split("train")
        if split == "test" and self.validation is not None:
            seen = seen.union(self.split("validation"))
        for part in (self.given, self.excluded):
            seen = seen if part is None else seen.union(part)
        return seen


def _other_data(held: str) -> UserError:
    hint = "`rankfold methods` lists the data that each method takes"
    return UserError(f"this data holds {held}", hint=hint)
