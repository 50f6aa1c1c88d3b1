"""Every shared type. Read this file first.

Words: a *query* asks, a *candidate* is what it may get, a *grade* says how positive a pair of the
two is (0 = not), a *split* is train, validation or test, a *pool* is the candidates a query is
compared with in one step.

Shapes: M queries, N candidates, B queries in a batch, C candidates in a pool, D width, K results.

This module and everything that trains imports only torch and numpy when it is loaded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.errors import UserError

if TYPE_CHECKING:
    import polars as pl

Key = int | str
Kind = Literal["interactions", "texts", "graded"]
FEW = 32  # keys: as many are looked up one by one
SplitName = Literal["train", "validation", "test"]
Side = Literal["query", "candidate"]
Progress = Callable[[str, float], None]
"""``(what is being done, share of it that is done)``; called now and then by long work."""


# ---------------------------------------------------------------------------------- data


@dataclass(frozen=True, slots=True)
class Interactions:
    """What each query chose: a CSR matrix of grades, queries by candidates.

    Within a query the candidates ascend and none is repeated. The tensors may be memory-mapped:
    they are read, never written.
    """

    offsets: Tensor  # [M + 1] int64
    candidates: Tensor  # [nnz] int32, or int64 where N needs it
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

    def part(self, start: int, stop: int) -> Interactions:
        """The rows from ``start`` to ``stop``; the pairs are shared, not copied."""
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
        """The pairs of both; where a pair is in both, the grade of ``other``."""
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
    """CSR of pairs already sorted by query, then candidate, without repeats."""
    n_queries, n_candidates = shape
    counts = torch.bincount(queries, minlength=n_queries)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    dtype = torch.int32 if n_candidates < 2**31 and n_queries < 2**31 else torch.int64
    return Interactions(offsets, candidates.to(dtype), grades, n_candidates)


def _places(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Where some rows of a CSR stand: their own offsets, and the places of all they hold."""
    starts = offsets[rows]
    counts = offsets[rows + 1] - starts
    own = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = torch.repeat_interleave(starts - own[:-1], counts)
    return own, torch.arange(len(shift), device=shift.device) + shift


def _grades(pairs: Interactions) -> Tensor:
    return torch.ones(pairs.n_pairs) if pairs.grades is None else pairs.grades


@dataclass(frozen=True, slots=True)
class Texts:
    """One side's texts as token ids: text i is ``tokens[offsets[i] : offsets[i + 1]]``.

    Tokens stand in the order of the words; those of bags, which have weights, in any.
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
        """These texts, then those of ``other``; both have weights, or neither."""
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
    """What the columns of features mean; travels with a model as plain JSON."""

    numbers: tuple[str, ...]  # names, ascending
    levels: Mapping[str, tuple[str, ...]]  # of each categorical column, its values, both ascending


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of one side's rows besides their pairs."""

    numbers: Tensor  # [n, F] float32, NaN where missing
    categories: Tensor  # [n, C] int32, places in the levels, -1 where missing or unknown
    columns: Columns


@dataclass(frozen=True, slots=True)
class Graded:
    """Rows with features and one ordered grade each."""

    numbers: Tensor  # [n, F] float32, NaN where missing
    categories: Tensor  # [n, C] int32, -1 where unseen
    images: Tensor | None  # [n, height, width, channels] uint8
    grades: Tensor  # [n] int64, 0 is the lowest; -1: not known

    def __len__(self) -> int:
        return len(self.grades)

    def select(self, rows: Tensor) -> Graded:
        """Some of the rows [B], in that order."""
        images = None if self.images is None else self.images[rows]
        return Graded(self.numbers[rows], self.categories[rows], images, self.grades[rows])

    def part(self, start: int, stop: int) -> Graded:
        """The rows from ``start`` to ``stop``, shared, not copied."""
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


class Vocabulary:
    """Keys <-> rows. Row i holds the i-th key in ascending order, so the rows follow from the keys.

    Keys are int64 if every one of them is a canonical integer (``7``, not ``07``), else strings.
    They are loaded when first needed: a dataset opens without reading them. So are the texts to
    show beside them, where there are such.
    """

    def __init__(
        self,
        size: int,
        load: Callable[[], pl.Series],
        load_texts: Callable[[], pl.Series | None] | None = None,
    ) -> None:
        self._size = size
        self._load = load
        self._load_texts = load_texts
        self._keys: pl.Series | None = None
        self._texts: pl.Series | None = None

    @staticmethod
    def numbered(size: int, texts: Sequence[str] | None = None) -> Vocabulary:
        """Row i has the key i; ``texts``, if there are such, are shown beside them."""

        def count() -> pl.Series:
            import polars as pl

            return pl.int_range(size, eager=True)

        def words() -> pl.Series:
            import polars as pl

            return pl.Series(texts, dtype=pl.String)

        return Vocabulary(size, count, None if texts is None else words)

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> pl.Series:
        """All keys, ascending: Int64 or String."""
        if self._keys is None:
            self._keys = self._load()
        return self._keys

    @property
    def texts(self) -> pl.Series | None:
        """The text of each row as it was written, null where it has none; None: no row has one."""
        load = self._load_texts
        if load is not None:
            self._texts, self._load_texts = load(), None  # once, also where there are none
        return self._texts

    @property
    def holds_integers(self) -> bool:
        return bool(self.keys.dtype.is_integer())

    def find(self, keys: Sequence[Key] | pl.Series) -> Tensor:
        """The row of each key, -1 where unknown; int64."""
        import polars as pl

        if not isinstance(keys, pl.Series) and len(keys) <= FEW:
            return self._find_few(keys)
        wanted = (
            keys
            if isinstance(keys, pl.Series)
            else pl.Series([str(k) for k in keys], dtype=pl.String)
        )
        if len(wanted) == 0 or len(self) == 0:
            return torch.full((len(wanted),), -1)
        if self.holds_integers and not wanted.dtype.is_integer():
            text = wanted.cast(pl.String)
            numbers = text.cast(pl.Int64, strict=False)
            wanted = pl.select(pl.when(numbers.cast(pl.String) == text).then(numbers)).to_series()
        wanted = wanted.cast(self.keys.dtype, strict=False)
        rows = self.keys.search_sorted(wanted, side="left").cast(pl.Int64)
        rows = rows.clip(upper_bound=len(self) - 1)
        known = (self.keys.gather(rows) == wanted).fill_null(value=False)
        return torch.from_numpy(
            pl.select(pl.when(known).then(rows).otherwise(-1)).to_series().to_numpy(writable=True)
        )

    def _find_few(self, keys: Sequence[Key]) -> Tensor:
        """The same, key by key: for a few that takes a tenth of the time."""
        held, n, found = self.keys, len(self), []
        for key in keys:
            wanted = _canonical(str(key)) if self.holds_integers else str(key)
            place = n if wanted is None else bisect_left(held, wanted)
            found.append(place if place < n and held[place] == wanted else -1)
        return torch.tensor(found, dtype=torch.int64)

    def rows(self, keys: Sequence[Key], what: str = "query") -> Tensor:
        """The row of each key; an unknown key is a UserError that names the nearest ones."""
        rows = self.find(keys)
        if bool((rows < 0).any()):
            key = keys[int((rows < 0).nonzero()[0])]
            near = self.nearest(str(key))
            hint = (
                f"did you mean {', '.join(map(repr, near))}?"
                if near
                else "the model knows no key like it"
            )
            raise UserError(f"unknown {what} {key!r}", hint=hint)
        return rows

    def nearest(self, key: str, n: int = 3) -> list[Key]:
        """A few known keys that look like ``key``."""
        import difflib

        import polars as pl

        text = self.keys.cast(pl.String)
        place = int(self.keys.search_sorted(key)) if not self.holds_integers else 0
        around = text.slice(max(0, place - 200), 400)
        folded = text.str.to_lowercase()
        containing = text.filter(folded.str.contains(key.lower(), literal=True)).head(200)
        first = text.filter(folded.str.starts_with(key[:2].lower())).head(2000)
        pool = dict.fromkeys([*containing.to_list(), *around.to_list(), *first.to_list()])
        near = difflib.get_close_matches(key, pool, n=n, cutoff=0.5) or containing.head(n).to_list()
        return [int(k) for k in near] if self.holds_integers else list(near)

    def take(self, rows: Tensor) -> pl.Series:
        """The keys of ``rows``."""
        return self.keys.gather(rows.numpy())


def _canonical(text: str) -> int | None:
    """The integer that is written so, if one is."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Prepared data: the splits in one row space, the keys of its rows, what to leave out.

    Of several processes each may hold the rows of some queries only, from ``first`` on: then
    splits, excluded pairs, texts and features of queries are those of these; the keys are of all.
    Of graded rows each holds its share of every split.
    """

    kind: Kind
    train: Interactions | Graded
    validation: Interactions | Graded | None
    test: Interactions | Graded | None
    queries: Vocabulary
    candidates: Vocabulary  # for graded data the grades, lowest first, their names as texts
    query_texts: Texts | None = None
    candidate_texts: Texts | None = None
    tokenizer: str | None = None  # turned texts into tokens: JSON of `tokenizers`; None: bags given
    n_tokens: int = 0  # every token of both sides is below it
    query_features: Features | None = None
    candidate_features: Features | None = None
    columns: Columns | None = None  # of graded rows that come from a table
    excluded: Interactions | None = None  # pairs that may never be returned
    summary: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""  # of the content; equal for equal data
    first: int = 0  # the row, among those of all queries, of the first that is held here

    @property
    def n_queries(self) -> int:
        """Of all, also of those that are not held here."""
        return len(self.queries)

    def split(self, name: SplitName) -> Interactions:
        """The pairs of one split; a UserError where the data has none or is graded."""
        part = self._part(name)
        if isinstance(part, Graded):
            raise UserError(
                "this data holds graded rows, not pairs of queries and candidates",
                hint="`rankfold methods` lists what each method takes",
            )
        return part

    def graded(self, name: SplitName) -> Graded:
        """The graded rows of one split; a UserError where the data has none, or has pairs."""
        part = self._part(name)
        if isinstance(part, Interactions):
            raise UserError(
                "this data holds pairs of queries and candidates, not graded rows",
                hint="`rankfold methods` lists what each method takes",
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
        """What may not be returned when ``split`` is scored: earlier splits and the excluded."""
        seen = self.split("train")
        if split == "test" and self.validation is not None:
            seen = seen.union(self.split("validation"))
        return seen if self.excluded is None else seen.union(self.excluded)


# ---------------------------------------------------------------------------------- parts


class Loss(Protocol):
    """Pure, and never reduced over queries. ``weights`` [B, C] weighs the candidates' terms."""

    def __call__(
        self, scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
    ) -> Tensor: ...


class FullLoss(Protocol):
    """A loss over all candidates that never holds B x N scores.

    ``queries`` [B, D] and ``candidates`` [N, D] are vectors, row b of ``positives`` holds the
    candidates that query b chose. One value per query: the mean over its positives, weighed by
    their grades if they have some; 0 without any.
    """

    def __call__(self, queries: Tensor, candidates: Tensor, positives: Interactions) -> Tensor: ...


class Encoder(Protocol):
    """A module that turns rows of both sides into vectors whose inner products are scores."""

    def of_queries(self, rows: Tensor | None) -> Tensor:
        """[...] int64 -> [..., D]; None: of all, [M, D]."""
        ...

    def of_candidates(self, rows: Tensor | None) -> Tensor:
        """Likewise."""
        ...


class Own(NamedTuple):
    """The rows of a batch that are this process's own; what is drawn by row is drawn for all."""

    places: Tensor  # [b] int64, ascending
    of: int  # B, the rows of all processes


class Batch(NamedTuple):
    """Pairs to learn from: row b is a query and one candidate that it chose.

    Of several processes each knows the candidates of all rows, and the queries of its own.
    """

    queries: Tensor  # [B] int64; of the own rows, [b]
    candidates: Tensor  # [B] int64
    own: Own | None = None  # None: all are

    @property
    def chosen(self) -> Tensor:
        """The candidate of each query."""
        return self.candidates if self.own is None else self.candidates[self.own.places]


class Pool(NamedTuple):
    """The candidates that a batch is compared with, and how likely one draw proposes each."""

    ids: Tensor  # [C], the same for every query, or [B, C]; int64
    log_q: Tensor  # like ids
    positive_log_q: Tensor  # [B], of the batch's own candidates
    holds_batch: bool = False  # the first B ids are these candidates: not to be encoded twice
    own: Own | None = None  # what has a row per query has only these

    def cut(self, own: Own) -> Pool:
        """For these rows of the batch alone; a pool that all share stays."""
        ids, log_q = self.ids, self.log_q
        if ids.dim() == 2:
            ids, log_q = ids[own.places], log_q[own.places]
        return Pool(ids, log_q, self.positive_log_q[own.places], self.holds_batch, own)


class Picks(NamedTuple):
    """What a resampler picked from some columns of a pool, with replacement."""

    times: Tensor  # [B, C'] float, how often each; all 0 for a query without a valid column
    weights: Tensor  # [B, C'], the probability with which a pick takes the column
    share: float  # of the loss on these picks in the query's loss


class Drawn(NamedTuple):
    """All picks: one group of columns after the other, together the whole pool."""

    groups: tuple[Picks, ...]  # their shares sum to 1
    draws: int  # picks of a query in each group


class Sampler(Protocol):
    """Where negatives come from. All state that outlives a step lives here."""

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        """``rng`` is on the device of the batch."""
        ...

    def resample(
        self, scores: Tensor, pool: Pool, valid: Tensor | None, rng: torch.Generator
    ) -> Drawn | None:
        """Pick from the pool by detached ``scores`` [B, C] where ``valid``; None: take it all.

        Without ``valid``, everywhere. Where the pool has some rows alone, of these.
        """
        ...

    def observe(self, batch: Batch, pool: Pool, drawn: Drawn | None) -> None:
        """Told once after each step."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that ``load`` needs to go on as if nothing had happened."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None: ...


class TopK(NamedTuple):
    """Results of a search, best first; equal scores by ascending id."""

    ids: Tensor  # [B, K] int64, -1 where there are fewer than K
    scores: Tensor  # [B, K], -inf where there are fewer than K


class Index(Protocol):
    """The best candidates by inner product; searched by one thread at a time."""

    def search(
        self,
        vectors: Tensor,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """The k best of what may be returned: k of them, wherever so many may be.

        Row b of ``exclude`` holds what may not be returned for ``vectors[b]``. ``allow`` [n] int64,
        ascending and distinct, holds all that may be returned for any of them; None: everything.
        """
        ...


class Judge(Protocol):
    """The validation queries of a run, for a method that ranks them itself."""

    @property
    def queries(self) -> Tensor:
        """Rows of the data, ascending; [n]."""
        ...

    @property
    def depth(self) -> int:
        """How many candidates of a query are looked at."""
        ...

    def hidden(self, queries: Tensor) -> Interactions:
        """What may not be returned for some of the queries."""
        ...

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        """The metric for some of the queries, given what they got [B, K], -1 pads; [B]."""
        ...


class Comm(Protocol):
    """The processes of a run, each with its rank. One by default.

    All of them call the same functions in the same order. What they are given may be overwritten.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def sent(self) -> int:
        """Bytes that this rank has sent, by the formulas of ``comm.py``."""
        ...

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, on each of them the same to the bit."""
        ...

    def gather(self, tensor: Tensor) -> Tensor:
        """The rows of all ranks, one rank's after the other's; there may be more of one."""
        ...

    def collect(self, tensor: Tensor) -> Tensor:
        """The same on rank 0 alone; the others get no rows."""
        ...

    def texts(self, text: str) -> list[str]:
        """The text of each rank, on all."""
        ...

    def scatter_sum(self, tensor: Tensor) -> Tensor:
        """Of the sum over all ranks [n, ...], the rows that this rank owns: ``share(n)``."""
        ...

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """The tensor of one rank, on all; they hold one of its shape."""
        ...

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        ...

    def share(self, n: int) -> tuple[int, int]:
        """Start and stop of the rows of n that this rank owns."""
        ...

    def agree(self, facts: Mapping[str, Any]) -> None:
        """A UserError, on every rank, where the facts of one are not those of the others."""
        ...


# ---------------------------------------------------------------------------------- fitting


@dataclass(frozen=True, slots=True)
class Model:
    """All that training leaves behind: plain data.

    A score is the inner product of a row of ``tensors["queries"]`` and a row of
    ``tensors["candidates"]``. A method that brings its own ``search`` keeps instead the pairs that
    it was fitted on, as ``tensors["offsets"]`` [M + 1], ``tensors["candidates_of_queries"]`` [nnz].
    """

    method: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """What a fit is given besides data and settings."""

    rng: torch.Generator
    device: torch.device
    comm: Comm
    resume: Mapping[str, Tensor] | None = (
        None  # ``state()`` of the step to go on after, and "number"
    )
    validate: Callable[[Model], float] | None = None  # None: there are no validation pairs
    judge: Judge | None = None  # likewise
    build_index: Callable[[Tensor], Index] | None = None  # over half-trained candidate vectors
    memory_budget: int = 2**30  # bytes, for blocks
    candidate_memory: int = 2**34  # of a table of vectors of all candidates, held by each process


class Step(NamedTuple):
    """What a method yields after each sweep, pass or epoch."""

    number: int  # counts from 1
    loss: float
    seconds: float  # spent training since the step before
    model: Model | None
    state: Callable[[], dict[str, Tensor]]  # all that ``Run.resume`` needs to go on after this step
    final: bool
    share: float | None = None  # of the work that is done, about, where steps do not tell
    whole: bool = True  # False: inside an epoch; only a place to stop at, ``number`` is the epoch's
    divided: Collection[str] = ()
    """Names in ``state`` of tables of which each process has its ``share``; others are the same."""
    stage: str | None = None  # what it belongs to, where a method has several


@dataclass(frozen=True, slots=True)
class Method:
    """A named recipe that a person picks."""

    summary: str
    config: type[Any]  # a frozen dataclass; its fields are the method's options
    data_kind: Kind
    fit: Callable[[Dataset, Any, Run], Iterator[Step]]
    fold_in: Callable[[Model, Interactions], Tensor] | None = None  # vectors of new queries, [B, D]
    search: Callable[[Model, Interactions, int, Interactions | None], TopK] | None = None
    """``(model, histories, k, exclude)``, a row per query: where scores are no inner products."""
    encode_candidates: Callable[[Model, Features], Tensor] | None = None
    """Vectors of candidates that are new to the model, from what is known of them; [n, D]."""
    encode_texts: Callable[[Model, Texts, Side], Tensor] | None = None
    """Vectors of texts, [n, D]: such a model keeps no vectors of queries."""
    search_texts: Callable[[Model, Texts, int, Interactions | None], TopK] | None = None
    """``(model, texts of queries, k, exclude)``: where scores are no inner products."""
    score_rows: Callable[[Model, Graded], Tensor] | None = None
    """One score per graded row, [n]: the higher, the higher the grade."""
    paper: str = ""  # a key in docs/reference/papers.md
    selects_itself: bool = False  # chooses its own settings on validation: never stopped early
    settle: Callable[[Model, Interactions, Run], Model] | None = None
    """Done to the model that is kept, for the pairs that it was fitted on."""
    divides: bool = False  # several processes can fit it, each with the rows of its own queries
