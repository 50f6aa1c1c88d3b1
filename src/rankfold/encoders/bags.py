"""Texts as bags of tokens: tf-idf weights, and frequent pairs of adjacent tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, count_over_ranks, uniforms
from rankfold.types import Comm, Interactions, OwnRows, Texts, offsets_of

_GRAM, _SHORTEST = 4, 3  # characters of an n-gram, and of a word that has any
MAX_GATHERED_PAIRS = 2**22  # of all processes, counted at a time


def inverse_document_frequency(
    sides: Sequence[Texts], n_tokens: int, comm: Comm = SINGLE_PROCESS
) -> Tensor:
    """idf_t = 1 + ln((1 + n) / (1 + df_t)) over n texts; [n_tokens].

    Each of several processes has some of the texts.
    """
    counts = torch.zeros(n_tokens, dtype=torch.float64)
    for texts in sides:
        counts += torch.bincount(as_bags(texts).tokens.cpu(), minlength=n_tokens)
    n = count_over_ranks(sum(map(len, sides)), comm)
    counts = comm.sum(counts)
    return (1 + torch.log((1 + n) / (1 + counts))).float()


def as_bags(texts: Texts) -> Texts:
    """The distinct tokens of each text, ascending, weighted by their counts."""
    rows = torch.repeat_interleave(texts.counts())
    base = int(texts.tokens.max()) + 1 if len(texts.tokens) else 1
    pairs, places = (rows * base + texts.tokens).unique(return_inverse=True)
    given = torch.ones(len(rows), device=rows.device) if texts.weights is None else texts.weights
    weights = given.new_zeros(len(pairs)).index_add(0, places, given)
    return Texts(
        _offsets(pairs // base, len(texts)), (pairs % base).to(texts.tokens.dtype), weights
    )


def weigh(texts: Texts, idf: Tensor) -> Texts:
    """Bags of length 1 with tf-idf weights: (1 + ln tf) idf, divided by the norm.

    Texts that have weights (bags made elsewhere) keep them, normalised.
    """
    bags = as_bags(texts)
    assert bags.weights is not None
    weights = bags.weights
    if texts.weights is None:
        weights = (1 + weights.log()) * idf[bags.tokens]
    rows = torch.repeat_interleave(bags.counts())
    squares = weights.new_zeros(len(bags)).index_add(0, rows, weights.square())
    return Texts(bags.offsets, bags.tokens, weights / squares.sqrt().clamp(min=1e-30)[rows])


def beside(words: Texts, grams: Texts) -> Texts:
    """Bags of words and of n-grams as bags of length 1, with half of the square from each side."""
    assert words.weights is not None
    assert grams.weights is not None
    owners = torch.cat([torch.repeat_interleave(side.counts()) for side in (words, grams)])
    order = owners.argsort(stable=True)
    weights = torch.cat([words.weights, grams.weights])[order] * 0.5**0.5
    tokens = torch.cat([words.tokens, grams.tokens])[order]
    return Texts(_offsets(owners, len(words)), tokens, weights)


def weigh_in_order(texts: Texts, idf: Tensor) -> Texts:
    """The weights of ``weigh``, with tokens in text order; n occurrences share a token's weight."""
    bags = weigh(texts, idf)
    assert bags.weights is not None
    base = len(idf)
    known = torch.repeat_interleave(bags.counts()) * base + bags.tokens  # ascending
    wanted = torch.repeat_interleave(texts.counts()) * base + texts.tokens
    places = torch.searchsorted(known, wanted)
    times = torch.bincount(places, minlength=len(known))
    return Texts(texts.offsets, texts.tokens, (bags.weights / times.clamp(min=1))[places])


def thin(bags: Texts, share: float, rng: torch.Generator, own: OwnRows | None = None) -> Texts:
    """The bags with the weights of about a ``share`` of their tokens set to 0.

    If the bags are part of a batch, the draws are for the tokens of the whole batch, and ``own``
    says which of them are here.
    """
    assert bags.weights is not None
    kept = uniforms(bags.weights.shape, rng, own) >= share
    return Texts(bags.offsets, bags.tokens, bags.weights * kept)


def character_grams(words: Sequence[str]) -> Interactions:
    """The n-grams of each word, by number: four characters of ``<word>``; [T, G].

    A word of fewer than three characters has none.
    """
    numbers: dict[str, int] = {}
    ids, counts = [], []
    for word in words:
        marked = f"<{word}>"
        starts = range(len(marked) - _GRAM + 1) if len(word) >= _SHORTEST else ()
        own = sorted({marked[start : start + _GRAM] for start in starts})
        ids += [numbers.setdefault(gram, len(numbers)) for gram in own]
        counts.append(len(own))
    offsets = offsets_of(torch.tensor(counts, dtype=torch.int64))
    return Interactions(offsets, torch.tensor(ids, dtype=torch.int32), None, len(numbers))


def with_grams(texts: Texts, grams: Interactions) -> Texts:
    """The n-grams of the words of each text in place of the words."""
    own = grams.select(texts.tokens.long())
    ends = offsets_of(own.counts())
    return Texts(ends[texts.offsets], own.candidates)


def common_pairs(
    sides: Sequence[Texts], n_tokens: int, min_count: int, comm: Comm = SINGLE_PROCESS
) -> Tensor:
    """Pairs of adjacent tokens with at least ``min_count`` occurrences, ascending; [P].

    A pair is first * n_tokens + second. Bags made elsewhere have no order of tokens, and no pairs.
    Each of several processes has some of the texts.
    """
    occurrences = torch.cat([_pairs(texts, n_tokens)[1] for texts in sides])
    pairs, counts = occurrences.unique(return_counts=True)
    if comm.size > 1:
        pairs, counts = _sum_over_processes(pairs, counts, min_count, comm)
    common: Tensor = pairs[counts >= min_count]
    return common


def _sum_over_processes(
    pairs: Tensor, counts: Tensor, min_count: int, comm: Comm
) -> tuple[Tensor, Tensor]:
    """The distinct pairs of all processes with at least ``min_count`` occurrences, and the counts.

    Pairs are gathered in groups, by their remainder.
    """
    groups = -(-count_over_ranks(len(pairs), comm) // MAX_GATHERED_PAIRS)
    kept = [(pairs[:0], counts[:0])]
    for number in range(groups):
        mine = pairs % groups == number
        every, places = comm.gather(pairs[mine]).unique(return_inverse=True)
        sums = counts.new_zeros(len(every)).index_add_(0, places, comm.gather(counts[mine]))
        kept.append((every[sums >= min_count], sums[sums >= min_count]))
    pairs, counts = (torch.cat(column) for column in zip(*kept, strict=True))
    order = pairs.argsort()
    return pairs[order], counts[order]


def with_pairs(texts: Texts, pairs: Tensor, n_tokens: int) -> Texts:
    """The texts with one more token, n_tokens + place, for each of the ``pairs`` they contain.

    Bags made elsewhere are returned unchanged.
    """
    if len(pairs) == 0 or texts.weights is not None:
        return texts
    rows, keys = _pairs(texts, n_tokens)
    places = torch.searchsorted(pairs, keys).clamp_(max=len(pairs) - 1)
    known = pairs[places] == keys
    added = (places[known] + n_tokens).to(texts.tokens.dtype)
    owners = torch.cat([torch.repeat_interleave(texts.counts()), rows[known]])
    order = owners.argsort(stable=True)
    return Texts(_offsets(owners, len(texts)), torch.cat([texts.tokens, added])[order])


def _offsets(owners: Tensor, n: int) -> Tensor:
    """The offsets of n texts, from the text of each token."""
    return offsets_of(torch.bincount(owners, minlength=n))


def _pairs(texts: Texts, n_tokens: int) -> tuple[Tensor, Tensor]:
    """The text and the key of each pair of adjacent tokens."""
    if texts.weights is not None:
        return texts.offsets[:0], texts.offsets[:0]
    rows = torch.repeat_interleave(texts.counts())
    inside = (rows[1:] == rows[:-1]).nonzero().flatten()
    first, second = texts.tokens[inside].long(), texts.tokens[inside + 1].long()
    return rows[inside], first * n_tokens + second
