"""Texts as bags of tokens, and an encoder that turns bags into vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, normalize

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.types import Comm, Own, Texts

GATHERED = 2**22  # pairs of tokens, of all processes, that are counted at a time
SHORTEST = 1e-6  # a vector shorter than this is not stretched to length 1


def rarity(sides: Sequence[Texts], n_tokens: int, comm: Comm = SINGLE_PROCESS) -> Tensor:
    """How much a token says: idf_t = 1 + ln((1 + n) / (1 + df_t)) over n texts; [n_tokens].

    Of several processes each has some of the texts.
    """
    counts = torch.zeros(n_tokens, dtype=torch.float64)
    for texts in sides:
        bags = as_bags(texts)
        counts += torch.bincount(bags.tokens.cpu(), minlength=n_tokens)
    n = int(comm.sum(torch.tensor(sum(map(len, sides)))))
    counts = comm.sum(counts)
    return (1 + torch.log((1 + n) / (1 + counts))).float()


def as_bags(texts: Texts) -> Texts:
    """Each token of a text once, ascending, weighed by how often it occurs."""
    rows = torch.repeat_interleave(texts.counts())
    base = int(texts.tokens.max()) + 1 if len(texts.tokens) else 1
    pairs, places = (rows * base + texts.tokens).unique(return_inverse=True)
    given = torch.ones(len(rows), device=rows.device) if texts.weights is None else texts.weights
    weights = given.new_zeros(len(pairs)).index_add(0, places, given)
    counts = torch.bincount(pairs // base, minlength=len(texts))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Texts(offsets, (pairs % base).to(texts.tokens.dtype), weights)


def weigh(texts: Texts, idf: Tensor) -> Texts:
    """Bags of length 1 with tf-idf weights: (1 + ln tf) idf, divided by the norm.

    Weights that the texts bring (of bags made elsewhere) are taken as they are, then normalised.
    """
    bags = as_bags(texts)
    assert bags.weights is not None
    weights = bags.weights
    if texts.weights is None:
        weights = (1 + weights.log()) * idf[bags.tokens]
    rows = torch.repeat_interleave(bags.counts())
    squares = weights.new_zeros(len(bags)).index_add(0, rows, weights.square())
    return Texts(bags.offsets, bags.tokens, weights / squares.sqrt().clamp(min=1e-30)[rows])


def weigh_in_order(texts: Texts, idf: Tensor) -> Texts:
    """The same with every token where it stands in its text: of n times, each has an nth."""
    bags = weigh(texts, idf)
    assert bags.weights is not None
    base = len(idf)
    known = torch.repeat_interleave(bags.counts()) * base + bags.tokens  # ascending
    wanted = torch.repeat_interleave(texts.counts()) * base + texts.tokens
    places = torch.searchsorted(known, wanted)
    times = torch.bincount(places, minlength=len(known))
    return Texts(texts.offsets, texts.tokens, (bags.weights / times.clamp(min=1))[places])


def common_pairs(
    sides: Sequence[Texts], n_tokens: int, least: int, comm: Comm = SINGLE_PROCESS
) -> Tensor:
    """Pairs of adjacent tokens that occur at least so often, as first n_tokens + second; ascending.

    Bags that were made elsewhere have no order of words, and no pairs. Of several processes each
    has some of the texts.
    """
    found = torch.cat([_pairs(texts, n_tokens)[1] for texts in sides])
    pairs, counts = found.unique(return_counts=True)
    if comm.size > 1:
        pairs, counts = _sum_over_ranks(pairs, counts, least, comm)
    often: Tensor = pairs[counts >= least]
    return often


def _sum_over_ranks(pairs: Tensor, counts: Tensor, least: int, comm: Comm) -> tuple[Tensor, Tensor]:
    """Of distinct pairs and how often each process has them, those of all that are no rarer.

    Some are gathered at a time, by what remains of them.
    """
    groups = -(-int(comm.sum(torch.tensor(len(pairs)))) // GATHERED)
    kept = [(pairs[:0], counts[:0])]
    for number in range(groups):
        mine = pairs % groups == number
        every, places = comm.gather(pairs[mine]).unique(return_inverse=True)
        sums = counts.new_zeros(len(every)).index_add_(0, places, comm.gather(counts[mine]))
        kept.append((every[sums >= least], sums[sums >= least]))
    both = [torch.cat(column) for column in zip(*kept, strict=True)]
    order = both[0].argsort()
    return both[0][order], both[1][order]


def with_pairs(texts: Texts, pairs: Tensor, n_tokens: int) -> Texts:
    """The texts with a token more for each of the ``pairs`` in them: n_tokens + its place.

    Bags stay as they are.
    """
    if len(pairs) == 0 or texts.weights is not None:
        return texts
    rows, keys = _pairs(texts, n_tokens)
    places = torch.searchsorted(pairs, keys).clamp_(max=len(pairs) - 1)
    known = pairs[places] == keys
    added = (places[known] + n_tokens).to(texts.tokens.dtype)
    owners = torch.cat([torch.repeat_interleave(texts.counts()), rows[known]])
    order = owners.argsort(stable=True)
    counts = torch.bincount(owners, minlength=len(texts))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Texts(offsets, torch.cat([texts.tokens, added])[order])


def _pairs(texts: Texts, n_tokens: int) -> tuple[Tensor, Tensor]:
    """The text and the key of each pair of adjacent tokens."""
    if texts.weights is not None:
        return texts.offsets[:0], texts.offsets[:0]
    rows = torch.repeat_interleave(texts.counts())
    inside = (rows[1:] == rows[:-1]).nonzero().flatten()
    first, second = texts.tokens[inside].long(), texts.tokens[inside + 1].long()
    return rows[inside], first * n_tokens + second


class Bags(nn.Module):
    """A vector of length 1 for each weighed bag; [siamesexml], section 3.

    With x the bag, E the table of token vectors, R a square matrix::

        plain     normalise(E x)
        residual  f = normalise(relu(E x)),  normalise(f + relu(R f))

    A text without a token has zeros.
    """

    def __init__(self, start: Tensor, *, residual: bool, rng: torch.Generator) -> None:
        """``start`` [V, D]: the token vectors to begin with."""
        super().__init__()
        self.tokens = nn.Embedding(len(start), start.shape[1], sparse=True, _weight=start)
        width = start.shape[1]
        self.mixing = (
            nn.Parameter(torch.randn(width, width, generator=rng) / width) if residual else None
        )

    def forward(self, bags: Texts) -> Tensor:
        """[n, D]."""
        return self.through(self.sums(bags))

    def sums(self, bags: Texts) -> Tensor:
        """E x; [n, D]. Each token is looked up once, however many texts have it."""
        known, places = bags.tokens.unique(return_inverse=True)
        return embedding_bag(
            places,
            self.tokens(known).float(),  # of a kept model they are halves
            bags.offsets[:-1],
            mode="sum",
            per_sample_weights=bags.weights,
        )

    def through(self, sums: Tensor) -> Tensor:
        """From E x to the vector."""
        if self.mixing is None:
            return unit(sums)
        first = unit(sums.relu())
        return unit(first + (first @ self.mixing.T).relu())


def plain(start: Tensor, rng: torch.Generator) -> nn.Module:
    return Bags(start, residual=False, rng=rng)


def residual(start: Tensor, rng: torch.Generator) -> nn.Module:
    return Bags(start, residual=True, rng=rng)


TextEncoder = Callable[[Tensor, torch.Generator], nn.Module]
"""From token vectors to begin with [V, D], and draws, to a module: weighed texts in, [n, D] out."""

TEXT_ENCODERS: dict[str, TextEncoder] = {"plain": plain, "residual": residual}
OF_BAGS = tuple(TEXT_ENCODERS)  # ours, to which the order of words is nothing


def weighed(encoder: str, texts: Texts, idf: Tensor) -> Texts:
    """Texts as an encoder takes them: ours as bags, one of your own in the order of their words."""
    return (weigh if encoder in OF_BAGS else weigh_in_order)(texts, idf)


def find_text_encoder(name: str) -> TextEncoder:
    """A UserError for what is none."""
    if name not in TEXT_ENCODERS:
        raise UserError(
            f"encoder cannot be {name!r}",
            hint=f"it is {' or '.join(TEXT_ENCODERS)}; one of your own is put into "
            "rankfold.encoders.bags.TEXT_ENCODERS first",
        )
    return TEXT_ENCODERS[name]


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zeros stay zeros."""
    return normalize(vectors, dim=-1, eps=SHORTEST)


def thin(bags: Texts, share: float, rng: torch.Generator, own: Own | None = None) -> Texts:
    """The bags without about a ``share`` of their tokens, which weigh 0.

    Of bags that several processes have, draws are for the tokens of all; ``own`` are these ones'.
    """
    assert bags.weights is not None
    total = len(bags.weights) if own is None else own.of
    kept = torch.rand(total, generator=rng, device=rng.device) >= share
    if own is not None:
        kept = kept[own.places]
    return Texts(bags.offsets, bags.tokens, bags.weights * kept)
