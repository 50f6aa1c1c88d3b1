"""Methods: their parts, the context of a fit, its steps and the model it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from rankfold.types.data import (
    Dataset,
    Features,
    Graded,
    Interactions,
    Kind,
    Sequences,
    Side,
    Texts,
)
from rankfold.types.spaces import Space

Exclude: TypeAlias = Interactions | None
"""Row b holds the candidates that are hidden from query b; None: none are."""
Allow: TypeAlias = Tensor | None
"""The only candidates that may be returned, [n] int64, ascending and distinct; None: all."""


class Loss(Protocol):
    """A pure function with one value per query. ``weights`` [B, C] weigh the candidates' terms."""

    def __call__(
        self, scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
    ) -> Tensor: ...


class FullLoss(Protocol):
    """A loss over all candidates that never holds B x N scores.

    ``queries`` [B, D] and ``candidates`` [N, D] are vectors; row b of ``positives`` holds the
    positives of query b. One value per query: the mean over its positives, weighted by their
    grades if there are any; 0 without positives.
    """

    def __call__(self, queries: Tensor, candidates: Tensor, positives: Interactions) -> Tensor: ...


class Encoder(Protocol):
    """A module that turns rows of both sides into vectors whose inner products are scores."""

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        """[...] int64 -> [..., D]; None: of all queries, [M, D]."""

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        """[...] int64 -> [..., D]; None: of all candidates, [N, D]."""

    def encode_batch(self, batch: Batch) -> Tensor:
        """The queries of a batch, as they were before they chose its candidates; [B, D]."""


class OwnRows(NamedTuple):
    """The rows of a batch that this process holds. Random draws per row are made for all rows."""

    places: Tensor  # [b] int64, ascending
    total: int  # B, the number of rows of all processes


class Batch(NamedTuple):
    """Training pairs: row b is a query and one of its positives.

    With several processes, each holds the candidates of all rows, and the queries of its own rows.
    """

    queries: Tensor  # [B] int64; with several processes those of the own rows, [b]
    candidates: Tensor  # [B] int64
    own: OwnRows | None = None  # None: all rows
    sequences: Sequences | None = None  # of whole queries, whose choices are the rows

    @property
    def chosen(self) -> Tensor:
        """The positive of each query."""
        return self.candidates if self.own is None else self.candidates[self.own.places]


class Pool(NamedTuple):
    """The candidates that a batch is compared with, and their log-probabilities of a draw."""

    ids: Tensor  # [C], the same for every query, or [B, C]; int64
    log_q: Tensor  # like ids
    positive_log_q: Tensor  # [B], of the batch's positives
    holds_batch: bool = False  # the first B ids are the positives, which need no second encoding
    own: OwnRows | None = None  # the rows that tensors with a row per query hold; None: all rows

    def cut(self, own: OwnRows) -> Pool:
        """The pool of these rows; ids that all queries share stay as they are."""
        ids, log_q = self.ids, self.log_q
        if ids.dim() == 2:
            ids, log_q = ids[own.places], log_q[own.places]
        return Pool(ids, log_q, self.positive_log_q[own.places], self.holds_batch, own)


class Picks(NamedTuple):
    """The columns that a resampler picked from a part of a pool, with replacement."""

    times: Tensor  # [B, C'] float, how often each was picked; 0 for a query without valid columns
    weights: Tensor  # [B, C'], the probability of each column in a pick
    share: float  # weight of these picks in the query's loss


class Drawn(NamedTuple):
    """All picks, by consecutive groups of columns that make up the pool."""

    groups: tuple[Picks, ...]  # their shares sum to 1
    draws: int  # picks per query in each group


class Sampler(Protocol):
    """The source of negatives. It holds all state that outlives a step."""

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        """The pool of a batch; ``rng`` is on the device of the batch."""

    def resample(
        self, scores: Tensor, pool: Pool, valid: Tensor | None, rng: torch.Generator
    ) -> Drawn | None:
        """Pick from the valid columns of the pool by detached ``scores`` [B, C].

        None: use the whole pool. ``valid`` None: all columns are valid. B are the rows that the
        pool holds.
        """

    def observe(self, batch: Batch, pool: Pool, drawn: Drawn | None) -> None:
        """Called once after each step."""

    def state(self) -> dict[str, Tensor]:
        """All that ``load`` needs to continue identically."""

    def load(self, state: Mapping[str, Tensor]) -> None: ...


class TopK(NamedTuple):
    """Results of a search, best first; equal scores are ordered by id."""

    ids: Tensor  # [B, K] int64, -1 pads
    scores: Tensor  # [B, K], -inf pads

    def first(self, k: int) -> TopK:
        """The best k of each list."""
        return TopK(self.ids[:, :k], self.scores[:, :k])


class Index(Protocol):
    """Finds the best candidates by inner product; used by one thread at a time."""

    def search(self, vectors: Tensor, k: int, exclude: Exclude = None, allow: Allow = None) -> TopK:
        """The k best candidates after filters: fewer only if fewer are left."""


class Judge(Protocol):
    """The validation queries of a run, for a method that ranks them itself."""

    @property
    def queries(self) -> Tensor:
        """Rows of the data, ascending; [n]."""

    @property
    def depth(self) -> int:
        """How many results of a query count."""

    def hidden(self, queries: Tensor) -> Interactions:
        """The candidates that are hidden from some of the queries."""

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        """The metric of some of the queries, given their results [B, K], -1 pads; [B]."""


class Comm(Protocol):
    """The processes of a run, each with its rank. One by default.

    All processes call the same functions in the same order. Arguments may be overwritten.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def sent(self) -> int:
        """Bytes that this rank has sent, by the formulas of ``distributed/collectives.py``."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, bit-identical on each."""

    def gather(self, tensor: Tensor) -> Tensor:
        """The rows of all ranks, in the order of ranks; their numbers of rows may differ."""

    def collect(self, tensor: Tensor) -> Tensor:
        """``gather`` on rank 0; the others get no rows."""

    def texts(self, text: str) -> list[str]:
        """The texts of all ranks, on each."""

    def scatter_sum(self, tensor: Tensor) -> Tensor:
        """The rows ``share(n)`` of the sum over all ranks [n, ...]."""

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """The tensor of rank ``source``, on all; the others pass one of the same shape."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def share(self, n: int) -> tuple[int, int]:
        """Start and stop of the rows, out of n, that this rank owns."""

    def agree(self, facts: Mapping[str, Any]) -> None:
        """A UserError on every rank unless all ranks have the same facts."""


# ---------------------------------------------------------------------------------- fitting


@dataclass(frozen=True, slots=True)
class Model:
    """All that training leaves behind: plain data.

    A score is the inner product of a row of ``tensors["queries"]`` and a row of
    ``tensors["candidates"]``. A method whose scores need the pairs that it was fitted on keeps
    them: ``history_tensors``.
    """

    method: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any] = field(default_factory=dict)


def history_tensors(rows: Interactions) -> dict[str, Tensor]:
    """The tensors in which a model keeps the pairs that it was fitted on."""
    grades = {} if rows.grades is None else {"grades_of_queries": rows.grades}
    return {"offsets": rows.offsets, "candidates_of_queries": rows.candidates, **grades}


def kept_histories(model: Model, n_candidates: int) -> Interactions | None:
    """The pairs that a model was fitted on, if it keeps them."""
    if "candidates_of_queries" not in model.tensors:
        return None
    names = ("offsets", "candidates_of_queries", "grades_of_queries")
    offsets, candidates, grades = map(model.tensors.get, names)
    assert offsets is not None
    assert candidates is not None
    return Interactions(offsets, candidates, grades, n_candidates)


def list_tensors(name: str, lists: Interactions) -> dict[str, Tensor]:
    """The tensors in which a model keeps lists of weighted numbers, such as words."""
    assert lists.grades is not None
    parts = {"offsets": lists.offsets, "numbers": lists.candidates, "weights": lists.grades}
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}


def list_with(model: Model, name: str, n: int) -> Interactions:
    """The lists with this name, of numbers below n."""
    offsets, numbers, weights = (
        model.tensors[f"{name}.{part}"] for part in ("offsets", "numbers", "weights")
    )
    return Interactions(offsets, numbers, weights, n)


@dataclass(frozen=True, slots=True)
class Start:
    """A fitted model that a fit starts from, and the places of the data's rows in it."""

    model: Model
    tokens: Tensor  # [V], the model's token for each token of the data; -1: a new one
    candidates: Tensor  # [N], the model's row of each candidate of the data; -1: a new one


@dataclass(frozen=True, slots=True)
class Run:
    """The context of a fit, besides its data and settings."""

    rng: torch.Generator
    device: torch.device
    comm: Comm
    resume: Mapping[str, Tensor] | None = None  # ``state()`` of the last step, and its "number"
    validate: Callable[[Model], float] | None = None  # None: there are no validation pairs
    judge: Judge | None = None  # None: the same
    build_index: Callable[[Tensor], Index] | None = None  # over half-trained candidate vectors
    memory_budget: int = 2**30  # bytes, for blocks
    candidate_memory: int = 2**34  # of a table of vectors of all candidates, held by each process
    start: Start | None = None  # None: from nothing; others only where ``Method.start`` takes them


class Step(NamedTuple):
    """The result of a sweep, pass or epoch."""

    number: int  # counts from 1
    loss: float
    model: Model | None
    state: Callable[[], dict[str, Tensor]]  # all that ``Run.resume`` needs to go on after this step
    final: bool
    share: float | None = None  # of the work that is done, about; None: by the steps
    whole: bool = True  # False: inside an epoch; only a place to stop at, ``number`` is the epoch's
    divided: Collection[str] = ()
    """The tables in ``state`` that are divided: each process has its ``share``."""
    stage: str | None = None  # its stage, where a method has several
    updates: int | None = None  # of the parameters, in this epoch; None: not by gradient steps
    seconds: float = 0.0  # that the method spent on it, set by ``timed``
    measured: Mapping[str, float] = MappingProxyType({})  # figures beside the loss, by name


Input = Literal["histories", "texts", "features", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model ready to answer: its modules are built. A field is None if the model cannot.

    A model either encodes its inputs, and scores are inner products of vectors, or brings its own
    search: ``(inputs, k, exclude)``, where row b of ``exclude`` is not in list b.
    """

    histories: Callable[[Interactions], Tensor] | None = None  # vectors of new queries, [B, D]
    known: Callable[[Tensor, Interactions], Tensor] | None = None
    """Beside ``histories``, for models whose queries are what they chose: vectors of the model's
    queries ``rows`` [B] after these histories, with their features; [B, D]."""
    texts: Callable[[Texts, Side], Tensor] | None = None  # vectors of either side, [n, D]
    features: Callable[[Features, Side], Tensor] | None = None  # vectors of new rows, [n, D]
    rows: Callable[[Graded], Tensor] | None = None  # scores [n]: a higher grade scores higher
    gain: Callable[[], Tensor] | None = None
    """Beside ``rows``, for trees: the share of each column in the gain of all splits; [F + C],
    numbers before categories."""
    contributions: Callable[[Graded], Tensor] | None = None
    """Beside ``rows``: how much each column raises the score of each row; [n, F + C]. None:
    measured by replacing the values of columns."""
    extra: Callable[[Interactions], Interactions] | None = None
    """Scores above 0 that are added to the inner products for some histories, as grades. A
    candidate may occur several times in a row."""
    extra_texts: Callable[[Texts, Tensor], Interactions] | None = None
    """The same for texts, with their vectors [B, D]."""
    parts: Callable[[Interactions, Tensor], Tensor] | None = None
    """What each pair of one history adds to the scores of some candidates; [nnz, K]. None: scores
    are no sums over pairs."""
    search_histories: Callable[[Interactions, int, Exclude], TopK] | None = None
    scores: Callable[[Interactions], Tensor] | None = None
    """Beside ``search_histories``: the scores of all candidates for some histories, [B, N]."""
    search_texts: Callable[[Texts, int, Exclude], TopK] | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """A named recipe that a person picks."""

    summary: str
    config: type[Any]  # a frozen dataclass; its fields are the method's options
    data_kind: Kind
    fit: Callable[[Dataset, Any, Run], Iterator[Step]]
    open: Callable[[Model], Opened]
    """Builds the modules of a model, on the device of its tensors. Costly: call it once."""
    answers: tuple[Input, ...] = ()  # what its models can be queried by, besides known queries
    answers_with: Callable[[Mapping[str, Any]], tuple[Input, ...]] = lambda _config: ()
    """What its models can be queried by with some settings, besides that."""
    own_search: bool = False  # scores are not inner products: models bring their own search
    paper: str = ""  # a key in docs/reference/papers.md
    self_tuning: bool = False  # chooses its own settings on validation: never stopped early
    selects: bool = False  # reads graded validation rows in a fit: others set its cuts
    finalize: Callable[[Model, Interactions, Run], Model] | None = None
    """Done to the model that is kept, for the pairs that it was fitted on."""
    own_threads: bool = (
        False  # torch gets one thread: ``kernels.threads`` divides the work, or none
    )
    read: Callable[[Dataset, Any, Comm], Dataset] = lambda data, _config, _comm: data
    """The data as the method reads it with some settings: texts in other tokens, for example."""
    add_documents: Callable[[Model, Texts, Interactions, Interactions], Model] | None = None
    """The model after new pairs: ``(model, texts of queries, pairs it knows, pairs now)``, [M, N].
    None: a model that ranks by text cannot add pairs."""
    start: Callable[[Any, Start], Any] | None = None
    """The settings of a fit that starts from a model; a UserError if they do not suit it. None:
    its fits start from nothing."""
    distributed: bool = False  # several processes can fit it, each with the rows of its own queries
    space: Space = field(default_factory=dict)  # the settings that ``rankfold tune`` tries
    paper_space: Space | None = None  # the grid that its paper states, if it states one
    per_query: tuple[str, ...] = ("queries",)  # tensors of its models with a row per query
    per_candidate: tuple[str, ...] = ("candidates",)  # tensors with a row per candidate
    query_lists: tuple[str, ...] = ()  # ``list_tensors`` of its models with a list per query
    candidate_lists: tuple[str, ...] = ()  # the same per candidate
    describe: Callable[[Model], str | None] = lambda _model: None
    """The settings it selected on validation, in words. None: it selected none."""

    def __repr__(self) -> str:
        return f"<Method: {self.summary}>"
