"""Hard negatives of SiameseXML: shortlists of candidates and hard documents, by an index.

Each of several processes has its own index, which answers the queries of all processes.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.distributed.collectives import rounds
from rankfold.encoders.bag_encoder import unit
from rankfold.methods.text.siamesexml.corpus import ENCODE_BLOCK, Corpus, Encoder, encode_all
from rankfold.types import Index, Interactions, TopK

_SHARE_OF_MEMORY = 8  # the part of the budget that sums of vectors may take
BuildIndex = Callable[[Tensor], Index]


class MinedNegatives:
    """The result of the last mining; ``next`` mines again after ``every`` steps.

    If only some rows of a table are mined, the state still has all rows: processes divide it by
    row.
    """

    def __init__(
        self,
        mine: Callable[[], Tensor],
        every: int,
        device: torch.device,
        rows: Tensor | None = None,  # [n] bool, the rows that are mined; None: all
    ) -> None:
        self.mine, self.every, self.rows = mine, every, rows
        self.ids, self.steps = torch.zeros(0, dtype=torch.int64, device=device), 0

    def next(self) -> Tensor:
        """The ids for the next step."""
        if self.steps % self.every == 0:
            self.ids = self.mine()
        self.steps += 1
        return self.ids

    def state(self) -> dict[str, Tensor]:
        ids = self.ids
        if self.rows is not None:
            ids = ids.new_full((len(self.rows), *ids.shape[1:]), -1)
            ids[self.rows] = self.ids
        return {"found": ids, "steps": torch.tensor(self.steps)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        ids = state["found"].to(self.ids.device)
        self.ids = ids if self.rows is None else ids[self.rows]
        self.steps = int(state["steps"])


@torch.no_grad()
def mine_shortlists(encoder: Encoder, corpus: Corpus, size: int, build_index: BuildIndex) -> Tensor:
    """Module II: half of a list by the candidates' texts, half by their documents; [docs, size].

    Only for documents with candidates, in order; -1 where there are fewer.
    """
    with_labels, texts = corpus.labelled, encode_all(encoder, corpus.labels)
    indices = [build_index(texts), build_index(centroids(encoder, corpus, texts))]
    lists = []
    for mine, here in rounds(len(with_labels), corpus.comm, ENCODE_BLOCK):
        documents = with_labels[mine]
        vectors, own = encoder(corpus.documents.select(documents)), corpus.rows.select(documents)
        halves = _nearest_labels(indices, vectors, own, -(-size // 2), here, corpus)
        lists.append(without_repeats(torch.cat(halves, dim=1)).int())
    return torch.cat(lists)


def _nearest_labels(
    indices: list[Index], vectors: Tensor, own: Interactions, k: int, here: slice, corpus: Corpus
) -> list[Tensor]:
    """The k best candidates by each index for own documents, without their labels; [b, k].

    ``here`` says where these are among the documents of all processes, each of which searches its
    share of the candidates for all.
    """
    if corpus.shards is None:
        return [index.search(vectors, k, own).ids for index in indices]
    every = corpus.comm.gather(vectors)
    seen = corpus.shards.seen(own.to(torch.device("cpu"))).to(vectors.device)
    most, merge = min(k, corpus.label_shard.size), corpus.shards.merge
    return [merge(index.search(every, k, seen), most).ids[here] for index in indices]


def without_repeats(ids: Tensor) -> Tensor:
    """Each id of a row once, -1 for the repeats."""
    ids = ids.sort(dim=1).values
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    return ids.masked_fill(again, -1)


def centroids(encoder: Encoder, corpus: Corpus, texts: Tensor) -> Tensor:
    """The mean vector of each candidate's documents, of length 1; without any, its text's.

    The result has the type of ``texts`` [N, D]. Sums are in float32, of all candidates at once or,
    where these would take too much memory, tile by tile: then a document is encoded for each of its
    candidates.
    """
    room = corpus.label_shard.memory_budget // _SHARE_OF_MEMORY
    if corpus.shards is not None:
        sums = corpus.shards.spread(encode_all(encoder, corpus.documents))
    elif 4 * texts.numel() <= room:
        sums, rows = torch.zeros_like(texts, dtype=torch.float32), corpus.rows
        for some in torch.arange(rows.n_queries, device=texts.device).split(ENCODE_BLOCK):
            chosen, vectors = rows.select(some), encoder(corpus.documents.select(some))
            sums.index_add_(0, chosen.candidates, vectors[chosen.query_of_pair().long()])
    else:
        return _centroids_by_tiles(encoder, corpus, texts, max(1, room // (4 * texts.shape[1])))
    return torch.where((corpus.own_counts == 0)[:, None], texts, unit(sums).to(texts.dtype))


def _centroids_by_tiles(encoder: Encoder, corpus: Corpus, texts: Tensor, size: int) -> Tensor:
    result, by_candidate = texts.clone(), corpus.rows.transpose()
    for start in range(0, len(texts), size):
        own = by_candidate.part(start, min(start + size, len(texts)))
        sums = torch.zeros(own.n_queries, texts.shape[1], device=texts.device)
        both = zip(
            own.query_of_pair().split(ENCODE_BLOCK),
            own.candidates.long().split(ENCODE_BLOCK),
            strict=True,
        )
        for places, documents in both:
            sums.index_add_(0, places, encoder(corpus.documents.select(documents)))
        met = own.counts() > 0
        result[start : start + size][met] = unit(sums[met]).to(texts.dtype)
    return result


@torch.no_grad()
def mine_documents(encoder: Encoder, corpus: Corpus, build_index: BuildIndex) -> Tensor:
    """For each candidate the nearest document that does not have it, or -1; [N].

    Each of several processes asks for its own candidates and finds documents of all.
    """
    with_labels = corpus.labelled
    vectors = encode_all(encoder, corpus.documents.select(with_labels))
    index = build_index(vectors) if len(vectors) else None
    own = corpus.hidden.select(with_labels).transpose()
    return _nearest_documents(index, with_labels, encode_all(encoder, corpus.labels), own, corpus)


def _nearest_documents(
    index: Index | None, places: Tensor, vectors: Tensor, hidden: Interactions, corpus: Corpus
) -> Tensor:
    """The best document of all processes for each own candidate, or -1; [n].

    The index is of own documents, at the rows ``places``; None: there are none. ``hidden`` pairs
    [N, documents of the index] may not be returned.
    """
    comm, first, nearest = corpus.comm, corpus.label_shard.start, [places[:0]]
    if comm.size == 1:
        assert index is not None
        ids = index.search(vectors, 1, hidden).ids[:, 0]
        return torch.where(ids < 0, -1, places[ids.clamp(min=0)])
    for mine, here in rounds(len(vectors), comm, ENCODE_BLOCK):
        candidates = torch.arange(len(vectors), device=places.device)[mine] + first
        candidates, every = comm.gather(candidates), comm.gather(vectors[mine])
        best = TopK(*(every.new_zeros(len(every), 0) for _ in range(2)))
        if index is not None:
            best = index.search(every, 1, hidden.select(candidates))
        lack = (0, 1 - best.ids.shape[1])
        ids, scores = pad(best.ids.long(), lack, value=-1), pad(best.scores, lack, value=-torch.inf)
        if len(places):
            ids = torch.where(ids < 0, -1, places[ids.clamp(min=0)] + corpus.document_shard.start)
        ids, scores = comm.gather(ids.T), comm.gather(scores.T)
        winner = scores.argmax(dim=0, keepdim=True)  # ties: the first, which is the lowest id
        nearest.append(ids.gather(0, winner)[0, here])
    return torch.cat(nearest)
