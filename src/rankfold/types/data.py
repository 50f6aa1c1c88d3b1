"""Data: interactions, texts, features, graded rows, and the data set that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.types.vocabulary import Vocabulary

Kind = Literal["interactions", "texts", "graded"]
SplitName = Literal["train", "validation", "test"]
Side = Literal["query", "candidate"]
Progress = Callable[[str, float], None]
"""``(what is being done, share done)``; called now and then by long work."""
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = 0, 1, 2  # a split as a number: its place in SPLITS
GIVEN = 3  # the number of ``Dataset.given``


def silent(_what: str, _share: float) -> None:
    """A ``Progress`` that shows nothing."""


@dataclass(frozen=True, slots=True)
class Interactions:
    """The candidates that each query chose: a CSR matrix of grades, queries by candidates.

    Within a query the candidates ascend without repeats. The tensors may be memory-mapped: they
    are never written to.
    """

    offsets: Tensor  # [M + 1] int64
    candidates: Tensor  # [nnz] int32, or int64 if M or N needs it
    grades: Tensor | None  # [nnz] float32, all > 0; None: all 1
    n_candidates: int

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_pairs(self) -> int:
        return len(self.candidates)

    def counts(self) -> Tensor:
        """|I_x|, the number of candidates of each query; [M]."""
        return self.offsets.diff()

    def candidate_counts(self) -> Tensor:
        """c_y, the number of queries of each candidate; [N]."""
        return torch.bincount(self.candidates, minlength=self.n_candidates)

    def query_of_pair(self) -> Tensor:
        """The query of each pair; [nnz], of the candidates' dtype."""
        rows = torch.arange(self.n_queries, dtype=self.candidates.dtype, device=self.offsets.device)
        return torch.repeat_interleave(rows, self.counts(), output_size=self.n_pairs)

    def select(self, queries: Tensor) -> Interactions:
        """The rows of ``queries`` [B], in that order."""
        offsets, places = _places(self.offsets, queries)
        grades = None if self.grades is None else self.grades[places]
        return Interactions(offsets, self.candidates[places], grades, self.n_candidates)

    def only(self, kept: Tensor) -> Interactions:
        """The pairs of the queries where ``kept`` [M]; all rows stay."""
        pairs = kept[self.query_of_pair().long()].nonzero().flatten()
        grades = None if self.grades is None else self.grades[pairs]
        shape = self.n_queries, self.n_candidates
        return from_pairs(self.query_of_pair()[pairs], self.candidates[pairs], grades, shape)

    def part(self, start: int, stop: int) -> Interactions:
        """The rows from ``start`` to ``stop``. The pairs are shared, not copied."""
        offsets = self.offsets[start : stop + 1]
        pairs = slice(int(offsets[0]), int(offsets[-1]))
        grades = None if self.grades is None else self.grades[pairs]
        return Interactions(offsets - offsets[0], self.candidates[pairs], grades, self.n_candidates)

    def transpose(self) -> Interactions:
        """The same grades, candidates by queries."""
        order = torch.argsort(self.candidates, stable=True)
        grades = None if self.grades is None else self.grades[order]
        counts = self.candidate_counts()
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Interactions(offsets, self.query_of_pair()[order], grades, self.n_queries)

    def union(self, other: Interactions) -> Interactions:
        """The pairs of both. A pair in both has its grade from ``other``."""
        n = self.n_candidates
        ours, theirs = self.query_of_pair().long(), other.query_of_pair().long()
        pairs = torch.cat([ours * n + self.candidates, theirs * n + other.candidates])
        pairs, order = torch.sort(pairs, stable=True)
        last = torch.ones(len(pairs), dtype=torch.bool)
        last[:-1] = pairs[1:] != pairs[:-1]
        grades = None
        if self.grades is not None or other.grades is not None:
            grades = torch.cat([_grades(self), _grades(other)])[order][last]
        pairs = pairs[last]
        return from_pairs(pairs // n, pairs % n, grades, (self.n_queries, n))

    def without(self, other: Interactions) -> Interactions:
        """The pairs that ``other`` does not have."""
        n, rows = self.n_candidates, self.query_of_pair().long()
        theirs = other.query_of_pair().long() * n + other.candidates
        kept = (~torch.isin(rows * n + self.candidates, theirs)).nonzero()[:, 0]
        grades = None if self.grades is None else self.grades[kept]
        return from_pairs(rows[kept], self.candidates[kept], grades, (self.n_queries, n))

    def to(self, device: torch.device) -> Interactions:
        grades = None if self.grades is None else self.grades.to(device)
        offsets, candidates = self.offsets.to(device), self.candidates.to(device)
        return Interactions(offsets, candidates, grades, self.n_candidates)


def from_pairs(
    queries: Tensor, candidates: Tensor, grades: Tensor | None, shape: tuple[int, int]
) -> Interactions:
    """CSR of pairs that are sorted by query, then candidate, without repeats."""
    n_queries, n_candidates = shape
    counts = torch.bincount(queries, minlength=n_queries)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    dtype = torch.int32 if n_candidates < 2**31 and n_queries < 2**31 else torch.int64
    return Interactions(offsets, candidates.to(dtype), grades, n_candidates)


def to_tensors(part: Interactions | Graded | Features | Texts) -> dict[str, Tensor]:
    """The tensors of a part by the names of its fields, without those that are None."""
    names = type(part).__slots__
    return {n: t for n in names if isinstance(t := getattr(part, n), Tensor)}


def _places(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Some rows of a CSR: their new offsets, and the places of their entries."""
    starts = offsets[rows]
    counts = offsets[rows + 1] - starts
    new = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = torch.repeat_interleave(starts - new[:-1], counts)
    return new, torch.arange(len(shift), device=shift.device) + shift


def _grades(pairs: Interactions) -> Tensor:
    return torch.ones(pairs.n_pairs) if pairs.grades is None else pairs.grades


@dataclass(frozen=True, slots=True)
class Texts:
    """One side's texts as token ids: text i is ``tokens[offsets[i] : offsets[i + 1]]``.

    Tokens are in the order of the words. Bags have weights, and their tokens are in any order.
    """

    offsets: Tensor  # [n + 1] int64
    tokens: Tensor  # [total] int32
    weights: Tensor | None = None  # [total] float32; None: each 1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def counts(self) -> Tensor:
        """The number of tokens of each text; [n]."""
        return self.offsets.diff()

    def select(self, rows: Tensor) -> Texts:
        """The texts of ``rows`` [B], in that order."""
        offsets, places = _places(self.offsets, rows)
        weights = None if self.weights is None else self.weights[places]
        return Texts(offsets, self.tokens[places], weights)

    def part(self, start: int, stop: int) -> Texts:
        """The texts from ``start`` to ``stop``; the tokens are shared, not copied."""
        offsets = self.offsets[start : stop + 1]
        own = slice(int(offsets[0]), int(offsets[-1]))
        weights = None if self.weights is None else self.weights[own]
        return Texts(offsets - offsets[0], self.tokens[own], weights)

    def join(self, other: Texts) -> Texts:
        """These texts, then those of ``other``. Both have weights, or neither has."""
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = torch.cat([self.weights, other.weights])
        offsets = torch.cat([self.offsets, self.offsets[-1] + other.offsets[1:]])
        return Texts(offsets, torch.cat([self.tokens, other.tokens]), weights)

    def to(self, device: torch.device) -> Texts:
        weights = None if self.weights is None else self.weights.to(device)
        return Texts(self.offsets.to(device), self.tokens.to(device), weights)


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
        return Columns(tuple(meta["numbers"]), levels)


@dataclass(frozen=True, slots=True)
class Features:
    """The side features of queries or of candidates, row by row."""

    numbers: Tensor  # [n, F] float32; NaN: missing
    categories: Tensor  # [n, C] int32, places in the levels; -1: missing or unknown
    columns: Columns


@dataclass(frozen=True, slots=True)
class Graded:
    """Rows with features and one ordered grade each."""

    numbers: Tensor  # [n, F] float32; NaN: missing
    categories: Tensor  # [n, C] int32; -1: missing or unknown
    images: Tensor | None  # [n, height, width, channels] uint8
    grades: Tensor  # [n] int64, 0 is the lowest; -1: unknown

    def __len__(self) -> int:
        return len(self.grades)

    def select(self, rows: Tensor) -> Graded:
        """The rows ``rows`` [B], in that order."""
        images = None if self.images is None else self.images[rows]
        return Graded(self.numbers[rows], self.categories[rows], images, self.grades[rows])

    def part(self, start: int, stop: int) -> Graded:
        """The rows from ``start`` to ``stop``. They are shared, not copied."""
        own = slice(start, stop)
        images = None if self.images is None else self.images[own]
        return Graded(self.numbers[own], self.categories[own], images, self.grades[own])

    def join(self, other: Graded) -> Graded:
        """These rows, then those of ``other``, which has the same columns."""
        images = None
        if self.images is not None and other.images is not None:
            images = torch.cat([self.images, other.images])
        numbers = torch.cat([self.numbers, other.numbers])
        categories = torch.cat([self.categories, other.categories])
        return Graded(numbers, categories, images, torch.cat([self.grades, other.grades]))

    def to(self, device: torch.device) -> Graded:
        images = None if self.images is None else self.images.to(device)
        numbers, categories = self.numbers.to(device), self.categories.to(device)
        return Graded(numbers, categories, images, self.grades.to(device))


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

    @property
    def n_queries(self) -> int:
        """The number of all queries, held here or not."""
        return len(self.queries)

    def split(self, name: SplitName) -> Interactions:
        """The pairs of one split. A UserError if the data lacks it or is graded."""
        part = self._part(name)
        if isinstance(part, Graded):
            raise UserError(
                "this data holds graded rows, not pairs of queries and candidates",
                hint="`rankfold methods` lists the data that each method takes",
            )
        return part

    def graded(self, name: SplitName) -> Graded:
        """The graded rows of one split. A UserError if the data lacks it or holds pairs."""
        part = self._part(name)
        if isinstance(part, Interactions):
            raise UserError(
                "this data holds pairs of queries and candidates, not graded rows",
                hint="`rankfold methods` lists the data that each method takes",
            )
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
