"""Queries without a table: a query is what it chose, as a function of the candidates' vectors.

A function of the history gives the query before each of its choices, in one pass over all of them.
The positive of a pair is never in its own history: with times, a history has the earlier choices;
without times, those before it in a random order, or all others for their mean.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, normalize, scaled_dot_product_attention

from rankfold.encoders.sequences import in_order, padded
from rankfold.encoders.tables import MIN_NORM, look_up
from rankfold.encoders.towers import FeatureVectors, Tower, small_linear
from rankfold.errors import UserError
from rankfold.types import Batch, Features, Interactions

_POSITION_STD = 0.02  # of a coordinate
_HIDDEN_FACTOR = 2  # hidden width / width
_BLOCK = 2**18  # places of padded histories encoded at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """How a history becomes a vector."""

    pooling: str  # a key of ``POOLINGS``
    width: int
    history_length: int  # the latest choices that are read
    half_life: float
    layers: int
    heads: int
    dropout: float
    by_time: bool  # whether the order of choices is known


class History(nn.Module):
    """The vectors of candidates, from a table or a tower, and queries made of them."""

    def __init__(
        self,
        chosen: Interactions,
        candidates: nn.Embedding | Tower,
        spec: PoolSpec,
        rng: torch.Generator,
        features: Features | None = None,
        *,
        unit: bool = False,
    ) -> None:
        """``features`` of queries are added to their histories; ``unit``: vectors of length 1."""
        super().__init__()
        self.chosen, self.spec, self.unit = chosen, spec, unit
        self.candidates = candidates
        self.pool = make_pool(spec, rng)
        self.known = None if features is None else FeatureVectors(features, spec.width, rng)

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        if isinstance(self.candidates, nn.Embedding):
            return look_up(self.candidates, rows)
        vectors: Tensor = self.candidates(rows)
        return vectors

    def encode_batch(self, batch: Batch) -> Tensor:
        """The query of each pair, before it chose the pair's candidate; [B, D]."""
        assert batch.sequences is not None
        ids, holds = padded(batch.sequences)
        counts = batch.sequences.counts()
        self.pool.train()
        states = self.pool(self._read(ids) * holds[..., None], counts, self.spec.dropout)
        learnt = holds.clone()
        learnt[:, 0] &= self.reads_first
        vectors: Tensor = states[learnt]
        return vectors if self.known is None else vectors + self.known(batch.queries)

    @property
    def table(self) -> nn.Embedding:
        """The table with a row per candidate."""
        own = self.candidates
        return own if isinstance(own, nn.Embedding) else own.own

    @property
    def draws(self) -> bool:
        """Whether the pool may draw from torch's global generators."""
        return not isinstance(self.pool, Mean | Recent)

    @property
    def reads_first(self) -> bool:
        """Whether the first choice of a query is learnt, too: it has features."""
        return self.known is not None

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        """Queries after all that they chose in training; [..., D]."""
        if rows is None:
            rows = torch.arange(self.chosen.n_queries, device=self.chosen.offsets.device)
        vectors = encode_histories(self.pool, self._read, self.chosen.select(rows.flatten()))
        vectors = vectors.view(*rows.shape, -1)
        return vectors if self.known is None else vectors + self.known(rows)

    def _read(self, rows: Tensor) -> Tensor:
        vectors = self.encode_candidates(rows)
        return normalize(vectors, dim=-1, eps=MIN_NORM) if self.unit else vectors


def encode_histories(
    pool: nn.Module, read: Callable[[Tensor], Tensor], histories: Interactions
) -> Tensor:
    """Queries by what they chose, with the vectors that ``read`` returns; [B, D].

    An empty history has zeros.
    """
    pool.eval()
    counts, most = histories.counts(), getattr(pool, "longest", None)
    longest = int(counts.max()) if len(counts) else 0
    step, parts = max(1, _BLOCK // (longest + 1)), []
    for start in range(0, max(len(counts), 1), step):
        part = histories.part(start, min(start + step, len(counts)))
        sequences = in_order(part, most)
        ids, holds = padded(sequences, spare=1)
        filled = sequences.counts()
        states = pool(read(ids) * holds[..., None], filled + 1, 0.0)
        parts.append(states[torch.arange(len(filled), device=filled.device), filled])
    return torch.cat(parts)


# ---------------------------------------------------------------------------------- pools


def make_pool(spec: PoolSpec, rng: torch.Generator) -> nn.Module:
    """The function of histories that a spec describes.

    Parameters that a module draws from torch's global generator follow from ``rng``, too.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(rng.initial_seed())
        return POOLINGS[spec.pooling](spec, rng)


class Mean(nn.Module):
    """The mean of the choices before each place; without times that of all other choices."""

    def __init__(self, spec: PoolSpec, _rng: torch.Generator) -> None:
        super().__init__()
        self.by_time = spec.by_time
        self.longest = spec.history_length if spec.by_time else None

    def forward(self, vectors: Tensor, counts: Tensor, rate: float) -> Tensor:  # noqa: ARG002
        if self.by_time:
            before = torch.arange(vectors.shape[1], device=vectors.device).clamp(min=1)
            return (vectors.cumsum(dim=1) - vectors) / before[:, None]
        others = (counts - 1).clamp(min=1)[:, None, None]
        return (vectors.sum(dim=1, keepdim=True) - vectors) / others


class Recent(nn.Module):
    """The weighted mean of the choices before each place: weights halve every ``half_life``."""

    def __init__(self, spec: PoolSpec, _rng: torch.Generator) -> None:
        super().__init__()
        if not spec.by_time:
            raise UserError(
                "pooling=recent needs the times of pairs, which this data lacks",
                hint="prepare it with --time-column NAME, or set pooling=mean",
            )
        self.half_life, self.longest = spec.half_life, spec.history_length

    def forward(self, vectors: Tensor, counts: Tensor, rate: float) -> Tensor:  # noqa: ARG002
        places = torch.arange(vectors.shape[1], device=vectors.device)
        age = (places[:, None] - 1 - places).to(vectors.dtype)  # of a choice, before a place
        weights = torch.where(age >= 0, 0.5 ** (age.clamp(min=0) / self.half_life), 0.0)
        return (weights / weights.sum(dim=1, keepdim=True).clamp(min=1)) @ vectors


class Attention(nn.Module):
    """A causal transformer over the choices; the state before a place is the output of the last.

    [kang2018] (SASRec) with normalisation before each part and GELU.
    """

    def __init__(self, spec: PoolSpec, rng: torch.Generator) -> None:
        super().__init__()
        if spec.width % spec.heads:
            raise UserError(
                f"`width` must be a multiple of `heads`, got {spec.width} and {spec.heads}",
                hint="set heads=1, the default",
            )
        self.longest = spec.history_length
        drawn = torch.randn(spec.history_length, spec.width, generator=rng)
        self.positions = nn.Parameter(drawn * _POSITION_STD)
        self.layers = nn.ModuleList(_Layer(spec, rng) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.width)

    def forward(self, vectors: Tensor, counts: Tensor, rate: float) -> Tensor:  # noqa: ARG002
        first = torch.zeros_like(vectors[:, :1])
        if vectors.shape[1] == 1:
            return first
        length, width = vectors.shape[1] - 1, vectors.shape[2]
        states = dropout(vectors[:, :-1] * width**0.5 + self.positions[:length], rate)
        for layer in self.layers:
            states = layer(states, rate)
        return torch.cat([first, self.norm(states)], dim=1)


class _Layer(nn.Module):
    """Attention to earlier places, then a small network at each place."""

    def __init__(self, spec: PoolSpec, rng: torch.Generator) -> None:
        super().__init__()
        width, hidden = spec.width, _HIDDEN_FACTOR * spec.width
        self.heads = spec.heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.reads = small_linear(width, 3 * width, rng)
        self.writes = small_linear(width, width, rng)
        self.opens = small_linear(width, hidden, rng)
        self.closes = small_linear(hidden, width, rng)

    def forward(self, states: Tensor, rate: float) -> Tensor:
        rows, length, width = states.shape
        split = self.reads(self.norms[0](states)).view(rows, length, 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(queries, keys, values, dropout_p=rate, is_causal=True)
        joined = seen.transpose(1, 2).reshape(rows, length, width)
        states = states + dropout(self.writes(joined), rate)
        hidden = dropout(gelu(self.opens(self.norms[1](states))), rate)
        return states + dropout(self.closes(hidden), rate)


Pool = Callable[[PoolSpec, torch.Generator], nn.Module]
"""``(spec, generator) -> module``, called with vectors of choices, oldest first [Q, T, D], zeros
behind the end of a sequence, the length of each in ``counts`` [Q], and the rate of dropout, 0 in
search. It returns the state before each place, which may depend on earlier places alone; [Q, T, D],
zeros before the first. Its ``longest``, if it has one, is how many of the latest choices it reads.
"""

POOLINGS: dict[str, Pool] = {"mean": Mean, "recent": Recent, "attention": Attention}
