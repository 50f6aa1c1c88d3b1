"""The parts a method is made of: losses, encoders, samplers, indexes, processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.types.data import Interactions


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
