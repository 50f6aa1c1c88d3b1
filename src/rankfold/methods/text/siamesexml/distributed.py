"""SiameseXML over several processes.

Each process has the documents of its own queries and a share of the labels. These functions bring
what a batch needs to all processes. With one process they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import rounds, row_offset
from rankfold.encoders.bags import thin
from rankfold.training.batches import QueryBatches, Rows
from rankfold.types import Comm, Interactions, OwnRows, Texts, TopK, from_pairs

if TYPE_CHECKING:
    from rankfold.methods.text.siamesexml.corpus import Corpus

_GATHERED_PAIRS = 2**22  # pairs of all processes that are gathered at a time


def chosen_by_all(batch: Rows, comm: Comm) -> Tensor:
    """The candidates that the queries of the whole batch chose, possibly with repeats."""
    own = batch.positives.candidates
    return own if comm.size == 1 else comm.gather(own.unique())


def distinct_of_all(ids: Tensor, comm: Comm) -> Tensor:
    """The distinct ids of all processes, ascending."""
    distinct: Tensor = ids.unique()
    return distinct if comm.size == 1 else comm.gather(distinct).unique()


def gather_batch(values: Tensor, own: OwnRows | None, comm: Comm) -> Tensor:
    """The values of a whole batch [..., B] from those of its own rows [..., b]."""
    if own is None:
        return values
    every = values.new_zeros(*values.shape[:-1], own.total)
    every[..., own.places] = values
    return comm.sum(every)


def thinned_documents(
    corpus: Corpus, batches: QueryBatches, share: float
) -> Callable[[Rows, torch.Generator], Texts]:
    """A function that gives the documents of a batch without about a ``share`` of their tokens.

    All processes know the length of each document, to draw for the whole batch.
    """
    lengths = corpus.comm.gather(corpus.documents.counts()[batches.active].int())

    def thinned(batch: Rows, rng: torch.Generator) -> Texts:
        own = None
        if batch.own is not None and batch.numbers is not None:
            own = _own_tokens(lengths[batch.numbers], batch.own)
        return thin(corpus.documents.select(batch.queries), share, rng, own)

    return thinned


def _own_tokens(lengths: Tensor, own: OwnRows) -> OwnRows:
    """Which tokens of a batch of texts with these ``lengths`` [B] belong to its own texts."""
    offsets = torch.cat([lengths.new_zeros(1), lengths]).cumsum(0)
    every = Texts(offsets, torch.arange(int(offsets[-1]), device=offsets.device))
    return OwnRows(every.select(own.places).tokens, len(every.tokens))


def thinned_vectors(
    corpus: Corpus, encoder: Callable[[Texts], Tensor], share: float
) -> Callable[[Tensor, torch.Generator], Tensor]:
    """A function from document ids, of all processes, to vectors; owners encode their documents."""
    lengths = corpus.comm.gather(corpus.documents.counts().int())
    shard = corpus.document_shard

    def vectors(ids: Tensor, rng: torch.Generator) -> Tensor:
        own = None if corpus.comm.size == 1 else _own_tokens(lengths[ids], shard.find(ids))
        return shard.bring(
            ids, lambda rows: encoder(thin(corpus.documents.select(rows), share, rng, own))
        )

    return vectors


def by_candidate(rows: Interactions, corpus: Corpus) -> Interactions:
    """The transpose: a row for each candidate here, with the queries of all processes."""
    comm = corpus.comm
    if comm.size == 1:
        return rows.transpose()
    documents, labels = corpus.document_shard, corpus.label_shard
    queries = rows.query_of_pair().long() + documents.start
    pairs = torch.stack([rows.candidates.long(), queries], dim=1)
    kept = []
    for mine, _ in rounds(len(pairs), comm, _GATHERED_PAIRS):
        every = comm.gather(pairs[mine])
        kept.append(every[labels.find(every[:, 0]).places])
    candidates, queries = torch.cat([pairs[:0], *kept]).T
    order = (candidates * documents.size + queries).argsort()
    shape = labels.stop - labels.start, documents.size
    return from_pairs(candidates[order] - labels.start, queries[order], None, shape)


class QueryBlock(NamedTuple):
    """Some queries of all processes."""

    vectors: Tensor  # [B, D]
    hidden: Interactions  # what may not be returned, of the candidates here
    own: slice  # which of the own queries they include
    here: slice  # where these are in the block


def first_of_all(queries: Tensor, count: int, comm: Comm) -> Tensor:
    """The own queries that are among the first ``count`` of all processes."""
    before, _ = row_offset(len(queries), comm)
    return queries[: max(0, count - before)]


def query_blocks(
    vectors: Tensor, hidden: Interactions, size: int, corpus: Corpus
) -> Iterator[QueryBlock]:
    """The queries of all processes in blocks of ``size``, from the own ones."""
    before, n_own = 0, len(vectors)
    if corpus.shards is not None:
        before, _ = row_offset(n_own, corpus.comm)
        vectors, hidden = corpus.comm.gather(vectors), corpus.shards.seen(hidden)
    for start in range(0, len(vectors), size):
        stop = min(start + size, len(vectors))
        own = slice(*(min(max(0, end - before), n_own) for end in (start, stop)))
        here = slice(own.start + before - start, own.stop + before - start)
        if own.start == own.stop:
            here = slice(0, 0)
        yield QueryBlock(vectors[start:stop], hidden.part(start, stop), own, here)


def best_of_all(results: list[TopK], k: int, corpus: Corpus) -> list[Tensor]:
    """The best k of all candidates, for several searches of the same queries; [B, k] each."""
    if corpus.shards is None:
        return [one.ids for one in results]
    ids, scores = (torch.cat(column) for column in zip(*results, strict=True))
    best = corpus.shards.merge(TopK(ids, scores), min(k, corpus.label_shard.size))
    return list(best.ids.split(len(results[0].ids)))
