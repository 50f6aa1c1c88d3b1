"""SiameseXML among processes: each has the documents of its own queries and a share of the labels.

What a batch of all of them needs is told or brought to all; of one process, nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset
from rankfold.encoders.bags import thin
from rankfold.methods.text.siamesexml.parts import Parts
from rankfold.training.batches import QueryBatches, Rows
from rankfold.types import Comm, Interactions, Own, Texts, TopK, from_pairs

# ---------------------------------------------------------------------------------- a batch


def chosen_by_all(batch: Rows, comm: Comm) -> Tensor:
    """The candidates that the queries of the whole batch chose, maybe with repeats."""
    own = batch.positives.candidates
    return own if comm.size == 1 else comm.gather(own.unique())


def of_all(ids: Tensor, comm: Comm) -> Tensor:
    """The distinct ids that some process has, ascending."""
    distinct: Tensor = ids.unique()
    return distinct if comm.size == 1 else comm.gather(distinct).unique()


def told(values: Tensor, own: Own | None, comm: Comm) -> Tensor:
    """Numbers of the own rows of a batch [..., b] as those of all; [..., B]."""
    if own is None:
        return values
    every = values.new_zeros(*values.shape[:-1], own.of)
    every[..., own.places] = values
    return comm.sum(every)


def thinning(
    parts: Parts, batches: QueryBatches, share: float
) -> Callable[[Rows, torch.Generator], Texts]:
    """How a step sees the documents of a batch: without some of their tokens.

    All processes know how many tokens each document has, to draw for the batch of all.
    """
    lengths = parts.comm.gather(parts.documents.counts()[batches.asking].int())

    def seen(batch: Rows, rng: torch.Generator) -> Texts:
        own = None
        if batch.own is not None and batch.numbers is not None:
            own = own_tokens(lengths[batch.numbers], batch.own)
        return thin(parts.documents.select(batch.queries), share, rng, own)

    return seen


def own_tokens(lengths: Tensor, own: Own) -> Own:
    """Of all tokens of texts, one after the other, so long [B], those of one's own texts."""
    offsets = torch.cat([lengths.new_zeros(1), lengths]).cumsum(0)
    every = Texts(offsets, torch.arange(int(offsets[-1]), device=offsets.device))
    return Own(every.select(own.places).tokens, len(every.tokens))


def encoding(
    parts: Parts, encoder: Callable[[Texts], Tensor], share: float
) -> Callable[[Tensor, torch.Generator], Tensor]:
    """How a step sees any documents, by their numbers among all: their owners encode them."""
    lengths = parts.comm.gather(parts.documents.counts().int())
    held = parts.document_shard

    def vectors(ids: Tensor, rng: torch.Generator) -> Tensor:
        own = None if parts.comm.size == 1 else own_tokens(lengths[ids], held.find(ids))
        return held.bring(
            ids, lambda rows: encoder(thin(parts.documents.select(rows), share, rng, own))
        )

    return vectors


# ---------------------------------------------------------------------------------- all of them


def rounds(count: int, comm: Comm, most: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of the rows that each process has, as many for all, no more than ``most`` in all.

    Each with where its rows are among those of all processes.
    """
    step = max(1, most // comm.size)
    counts = comm.gather(torch.tensor([count])).tolist()
    for start in range(0, max(counts), step):
        sizes = [min(max(0, one - start), step) for one in counts]
        before, size = sum(sizes[: comm.rank]), sizes[comm.rank]
        yield slice(start, start + size), slice(before, before + size)


def by_candidate(rows: Interactions, parts: Parts) -> Interactions:
    """The transpose: a row for each candidate here, with the queries of all processes."""
    comm = parts.comm
    if comm.size == 1:
        return rows.transpose()
    first, labels, n = parts.document_shard.start, parts.label_shard, parts.document_shard.size
    pairs = torch.stack([rows.candidates.long(), rows.query_of_pair().long() + first], dim=1)
    kept = []
    for mine, _ in rounds(len(pairs), comm, 2**22):
        every = comm.gather(pairs[mine])
        kept.append(every[labels.find(every[:, 0]).places])
    candidates, queries = torch.cat([pairs[:0], *kept]).T
    order = (candidates * n + queries).argsort()
    shape = labels.stop - labels.start, n
    return from_pairs(candidates[order] - labels.start, queries[order], None, shape)


# ---------------------------------------------------------------------------------- the mix


class Asked(NamedTuple):
    """Some queries of all processes; those of this one are ``own``, and lie ``here`` among them."""

    vectors: Tensor  # [B, D]
    hidden: Interactions  # what may not be returned, of the candidates here
    own: slice
    here: slice


def first_of_all(queries: Tensor, count: int, comm: Comm) -> Tensor:
    """Those of this process among the first ``count`` of all processes."""
    before, _ = row_offset(len(queries), comm)
    return queries[: max(0, count - before)]


def of_all_queries(
    vectors: Tensor, hidden: Interactions, block: int, parts: Parts
) -> Iterator[Asked]:
    """The queries of all processes, given this one's, so many at a time."""
    before, size = 0, len(vectors)
    if parts.shards is not None:
        before, _ = row_offset(size, parts.comm)
        vectors, hidden = parts.comm.gather(vectors), parts.shards.seen(hidden)
    for start in range(0, len(vectors), block):
        stop = min(start + block, len(vectors))
        own = slice(*(min(max(0, end - before), size) for end in (start, stop)))
        here = slice(own.start + before - start, own.stop + before - start)
        if own.start == own.stop:
            here = slice(0, 0)
        yield Asked(vectors[start:stop], hidden.part(start, stop), own, here)


def best_of_all(found: list[TopK], k: int, parts: Parts) -> list[Tensor]:
    """The best k of all candidates, from several searches for the same queries; [B, k] each."""
    if parts.shards is None:
        return [one.ids for one in found]
    ids, scores = (torch.cat(column) for column in zip(*found, strict=True))
    best = parts.shards.merge(TopK(ids, scores), min(k, parts.label_shard.size))
    return list(best.ids.split(len(found[0].ids)))
