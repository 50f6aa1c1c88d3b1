"""Module II of the released SiameseXML: shortlists by three kinds of nearness.

A document is near a candidate by the centroid of the candidate's documents, by its text, which a
random walk has smoothed, and by the candidates of near training documents.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.encoders.bag_encoder import unit
from rankfold.kernels.sparse import row_sums
from rankfold.kernels.topk import merge_top_k, top_k
from rankfold.methods.text.neighbours import add_choices, query_blocks
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, Encoder, encode_all
from rankfold.methods.text.siamesexml.mining import BuildIndex, centroids
from rankfold.samplers.resampling import draw_one
from rankfold.types import Interactions, TopK, from_pairs

WALK_STEPS, _RESTART, WALK_CANDIDATES = 400, 0.8, 10  # of a random walk; candidates kept of it
_NEIGHBOUR_WEIGHT = 0.025
WALK_BLOCK = 2**13  # walks at a time
DOCUMENT_BLOCK = 2**16  # training documents compared at a time
PAIR_BLOCK = 2**16  # pairs of vectors multiplied at a time


def random_walks(rows: Interactions, steps: int, kept: int, rng: torch.Generator) -> Interactions:
    """The candidates that a random walk from each one meets most often; [N, N], rows sum to 1.

    Each step returns to the first candidate with probability .8, then goes to one of the documents
    of the current candidate, then to one of that document's candidates. A candidate without
    documents meets itself.
    """
    of_labels, n = rows.transpose(), rows.n_candidates
    busy = of_labels.counts() > 0
    idle = (~busy).nonzero().flatten()
    blocks = [most_met(idle[:, None], idle, n, 1)]
    for first in busy.nonzero().flatten().split(WALK_BLOCK):
        places, met = first, []
        for _ in range(steps):
            back = torch.rand(len(first), generator=rng, device=rng.device) < _RESTART
            places = torch.where(back, first, places)
            places = draw_one(rows, draw_one(of_labels, places, rng), rng)
            met.append(places)
        blocks.append(most_met(torch.stack(met, dim=1), first, n, kept))
    keys, counts = (torch.cat(column) for column in zip(*blocks, strict=True))
    order = keys.argsort()
    keys, weights = keys[order], counts[order].float()
    sums = weights.new_zeros(n).index_add_(0, keys // n, weights)
    return from_pairs(keys // n, keys % n, weights / sums[keys // n], (n, n))


def most_met(met: Tensor, first: Tensor, n: int, kept: int) -> tuple[Tensor, Tensor]:
    """The ``kept`` most frequent ids of each row of ``met`` [B, steps]; ties: the lower id.

    Returns keys, first n + candidate, and how often each was met.
    """
    keys, counts = (first[:, None] * n + met).unique(return_counts=True)
    owners = keys // n
    order = ((owners + 1) * (met.shape[1] + 1) - counts).argsort(stable=True)
    place = torch.arange(len(keys), device=keys.device) - torch.searchsorted(owners, owners)
    best = order[place < kept]
    return keys[best], counts[best]


@torch.no_grad()
def smoothed_texts(features: Encoder, corpus: Corpus, walk: Interactions) -> Tensor:
    """The candidates' text vectors, each a mean over the candidates its walk met; [N, D]."""
    return row_sums(walk, encode_all(features, corpus.labels), walk.grades)


class NearSpace(NamedTuple):
    """The vectors that a document is compared with for its shortlist."""

    candidates: Tensor  # [N, D], centroid + smoothed text, each of length 1
    documents: Tensor  # [n, D], the training documents with candidates, of length 1


@torch.no_grad()
def space_of(features: Encoder, corpus: Corpus, walk: Interactions) -> NearSpace:
    texts = unit(smoothed_texts(features, corpus, walk))
    candidates = texts + centroids(features, corpus, texts)
    documents = corpus.documents.select(corpus.labelled)
    return NearSpace(candidates, unit(encode_all(features, documents)))


def near_scores(vectors: Tensor, space: NearSpace, chosen: Interactions, neighbours: int) -> Tensor:
    """.975 (cosine with centroid + with text) + .025 sum of cosines with neighbours; [B, N].

    A candidate's neighbours are those of the ``neighbours`` nearest training documents that have
    it. Row i of ``chosen`` belongs to ``space.documents[i]``; ``vectors`` [B, D] have length 1.
    """
    scores = (1 - _NEIGHBOUR_WEIGHT) * (vectors @ space.candidates.T)
    nearest = nearest_rows(vectors, space.documents, neighbours)
    return add_choices(scores, nearest, chosen, _NEIGHBOUR_WEIGHT)


def nearest_rows(vectors: Tensor, table: Tensor, count: int) -> TopK:
    """The ``count`` rows of ``table`` with the largest inner products, block by block."""
    none = torch.zeros(len(vectors), 0, device=vectors.device)
    nearest = TopK(none.long(), none)
    for start in range(0, len(table), DOCUMENT_BLOCK):
        block = table[start : start + DOCUMENT_BLOCK].to(vectors.dtype)
        best = top_k(vectors @ block.T, count)
        nearest = merge_top_k(nearest, TopK(best.ids + start, best.scores), count)
    return nearest


@torch.no_grad()
def mine_shortlists(
    space: NearSpace, corpus: Corpus, config: ReleasedConfig, build_index: BuildIndex
) -> Tensor:
    """The best by ``near_scores`` for training documents that have candidates, without these.

    The best are among the nearest candidates and the candidates of the nearest documents, which
    two indices find. [docs, size], -1 where there are fewer.
    """
    chosen, lists = corpus.rows.select(corpus.labelled), []
    near, known = build_index(space.candidates), build_index(space.documents)
    size = min(config.shortlist, len(space.candidates))
    for start, stop in query_blocks(chosen.n_queries, 32 * (size + config.neighbours)):
        vectors, own = space.documents[start:stop], chosen.part(start, stop)
        listed = near.search(vectors, size, own)
        nearest = known.search(vectors, config.neighbours)
        lists.append(_best_of_both(vectors, listed, nearest, space.candidates, chosen, own).int())
    return torch.cat(lists)


def _best_of_both(
    vectors: Tensor,
    listed: TopK,
    nearest: TopK,
    candidates: Tensor,
    chosen: Interactions,
    own: Interactions,
) -> Tensor:
    """The best by ``near_scores`` among both, without a document's own candidates; [B, size].

    For documents with these ``vectors`` [B, D], ``listed`` [B, size] are the nearest candidates,
    and ``nearest`` the nearest documents, rows of ``chosen``.
    """
    n, rows = len(candidates), torch.arange(len(vectors), device=vectors.device)[:, None]
    theirs = chosen.select(nearest.ids.clamp(min=0).flatten())
    queries = torch.repeat_interleave(rows.expand_as(nearest.ids).flatten(), theirs.counts())
    shares = nearest.scores.where(nearest.ids >= 0, 0.0).flatten()
    shares = torch.repeat_interleave(shares, theirs.counts())
    there = listed.ids >= 0
    first = (rows * n + listed.ids)[there]
    keys, places = torch.cat([first, queries * n + theirs.candidates]).unique(return_inverse=True)
    products = vectors.new_full(keys.shape, torch.nan)
    products[places[: len(first)]] = listed.scores[there].to(products)
    others = products.isnan().nonzero().flatten()
    for some in others.split(PAIR_BLOCK):
        a, b = vectors[keys[some] // n], candidates[keys[some] % n]
        products[some] = torch.einsum("pd,pd->p", a, b)
    scores = (1 - _NEIGHBOUR_WEIGHT) * products
    scores.index_add_(0, places[len(first) :], shares.to(scores), alpha=_NEIGHBOUR_WEIGHT)
    taken = torch.isin(keys, own.query_of_pair().long() * n + own.candidates)
    keys, scores = keys[~taken], scores[~taken]
    order = scores.argsort(descending=True, stable=True)
    order = order[(keys[order] // n).argsort(stable=True)]
    keys = keys[order]
    owners = keys // n
    place = torch.arange(len(keys), device=keys.device) - torch.searchsorted(owners, owners)
    lists = torch.full_like(listed.ids, -1)
    kept = place < lists.shape[1]
    lists[owners[kept], place[kept]] = keys[kept] % n
    return lists
