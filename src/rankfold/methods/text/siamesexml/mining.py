"""What SiameseXML finds among all candidates or documents, by vectors as they are.

Of several processes each has an index of its own, which answers for the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.encoders.bags import unit
from rankfold.methods.text.siamesexml.distributed import rounds
from rankfold.methods.text.siamesexml.training_data import ENCODED, Encoder, Parts, encoded
from rankfold.types import Index, Interactions, TopK


class Mined:
    """What was found last, and when to look again.

    Found for some rows of a table alone, it is kept with all of them: processes divide it by these.
    """

    def __init__(
        self,
        mine: Callable[[], Tensor],
        every: int,
        device: torch.device,
        rows: Tensor | None = None,  # [n] bool, for which it is found; None: all
    ) -> None:
        self.mine, self.every, self.rows = mine, every, rows
        self.found, self.steps = torch.zeros(0, dtype=torch.int64, device=device), 0

    def next(self) -> Tensor:
        """For the step to come."""
        if self.steps % self.every == 0:
            self.found = self.mine()
        self.steps += 1
        return self.found

    def state(self) -> dict[str, Tensor]:
        found = self.found
        if self.rows is not None:
            found = found.new_full((len(self.rows), *found.shape[1:]), -1)
            found[self.rows] = self.found
        return {"found": found, "steps": torch.tensor(self.steps)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        found = state["found"].to(self.found.device)
        self.found = found if self.rows is None else found[self.rows]
        self.steps = int(state["steps"])


@torch.no_grad()
def shortlists(
    encoder: Encoder, parts: Parts, size: int, build_index: Callable[[Tensor], Index]
) -> Tensor:
    """Module II: half of a list by the candidates' texts, half by their documents; [docs, size].

    For documents with candidates only, in order; -1 where there are fewer.
    """
    asking = (parts.rows.counts() > 0).nonzero().flatten()
    texts = encoded(encoder, parts.labels)
    indices = [build_index(texts), build_index(centroids(encoder, parts, texts))]
    found = []
    for mine, here in rounds(len(asking), parts.comm, ENCODED):
        some = asking[mine]
        vectors, own = encoder(parts.documents.select(some)), parts.rows.select(some)
        halves = nearest_labels(indices, vectors, own, -(-size // 2), here, parts)
        found.append(without_repeats(torch.cat(halves, dim=1)).int())
    return torch.cat(found)


def nearest_labels(
    indices: list[Index], vectors: Tensor, own: Interactions, k: int, here: slice, parts: Parts
) -> list[Tensor]:
    """The k best candidates by each index for documents of this process, but their own; [b, k].

    ``here`` is where they are among the documents of all, which every process answers by its share.
    """
    if parts.shards is None:
        return [index.search(vectors, k, own).ids for index in indices]
    every = parts.comm.gather(vectors)
    seen = parts.shards.seen(own.to(torch.device("cpu"))).to(vectors.device)
    most = min(k, parts.label_shard.size)
    merge = parts.shards.merge
    return [merge(index.search(every, k, seen), most).ids[here] for index in indices]


def without_repeats(ids: Tensor) -> Tensor:
    """Each id of a row once, -1 for the others."""
    ids = ids.sort(dim=1).values
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    return ids.masked_fill(again, -1)


def centroids(encoder: Encoder, parts: Parts, texts: Tensor) -> Tensor:
    """The mean vector of each candidate's documents, of length 1; without any, its text's."""
    lonely = (parts.own_counts == 0)[:, None]
    return torch.where(lonely, texts, unit(summed_vectors(encoder, parts, texts)))


def summed_vectors(encoder: Encoder, parts: Parts, texts: Tensor) -> Tensor:
    """The sums of the vectors of each candidate's documents, of the candidates here; [n, D]."""
    sums, rows = torch.zeros_like(texts), parts.rows
    if parts.shards is None:
        for some in torch.arange(rows.n_queries, device=texts.device).split(ENCODED):
            chosen, vectors = rows.select(some), encoder(parts.documents.select(some))
            sums.index_add_(0, chosen.candidates, vectors[chosen.query_of_pair().long()])
        return sums
    return parts.shards.spread(encoded(encoder, parts.documents))


@torch.no_grad()
def hard_documents(
    encoder: Encoder, parts: Parts, build_index: Callable[[Tensor], Index]
) -> Tensor:
    """For each candidate the nearest document that it does not belong to, -1: none; [N].

    Of several processes each asks for its own candidates, and finds documents of all.
    """
    asking = (parts.rows.counts() > 0).nonzero().flatten()
    vectors = encoded(encoder, parts.documents.select(asking))
    index = build_index(vectors) if len(vectors) else None
    own = parts.hidden.select(asking).transpose()
    return nearest_documents(index, asking, encoded(encoder, parts.labels), own, parts)


def nearest_documents(
    index: Index | None, places: Tensor, vectors: Tensor, hidden: Interactions, parts: Parts
) -> Tensor:
    """The best document of all for each candidate of this process, -1: none; [n].

    Args:
        index: of documents of this process; None: there are none.
        places: which documents these are.
        vectors: of its candidates, [n, D].
        hidden: what may not be found: all candidates by the documents of the index.
        parts: the data.
    """
    comm, first, found = parts.comm, parts.label_shard.start, [places[:0]]
    if comm.size == 1:
        assert index is not None
        ids = index.search(vectors, 1, hidden).ids[:, 0]
        return torch.where(ids < 0, -1, places[ids.clamp(min=0)])
    for mine, here in rounds(len(vectors), comm, ENCODED):
        asked = torch.arange(len(vectors), device=places.device)[mine] + first
        asked, every = comm.gather(asked), comm.gather(vectors[mine])
        best = TopK(*(every.new_zeros(len(every), 0) for _ in range(2)))
        if index is not None:
            best = index.search(every, 1, hidden.select(asked))
        lack = (0, 1 - best.ids.shape[1])
        ids, scores = pad(best.ids.long(), lack, value=-1), pad(best.scores, lack, value=-torch.inf)
        if len(places):
            ids = torch.where(ids < 0, -1, places[ids.clamp(min=0)] + parts.document_shard.start)
        ids, scores = comm.gather(ids.T), comm.gather(scores.T)
        winner = scores.argmax(dim=0, keepdim=True)  # of equal ones the first: the lowest number
        found.append(ids.gather(0, winner)[0, here])
    return torch.cat(found)
