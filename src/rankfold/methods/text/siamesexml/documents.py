"""Documents that a fitted model learns about without a fit: its labels move towards them."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rankfold.encoders.bag_encoder import unit
from rankfold.methods.text.siamesexml.corpus import ENCODE_BLOCK
from rankfold.methods.text.siamesexml.mix import open_model, popularity_values
from rankfold.types import Interactions, Model, Texts, history_tensors

_LABELS = 2**14  # at a time


@torch.no_grad()
def add_documents(model: Model, texts: Texts, before: Interactions, now: Interactions) -> Model:
    """The model whose documents chose ``now`` [M, N] instead of ``before``.

    A label y with another number of documents moves by the mean of their vectors, of length 1, and
    by its popularity::

        candidate(y) += centroid_weight (mean_now(y) - mean_before(y))

    Without documents before, the mean was the text of the label, the direction of its vector. The
    new documents join those that near ones are looked for among. Classifiers stay as they are.
    """
    encode = open_model(model).texts
    assert encode is not None
    tensors, members = dict(model.tensors), int(model.config["members"])
    shape, weight = (members, int(model.config["width"])), model.config["centroid_weight"] or 0.0
    columns = slice(0, shape[0] * shape[1])

    def vectors(rows: Tensor) -> Tensor:
        return encode(texts.select(rows), "query")[:, columns]

    table, counts = tensors["candidates"].clone(), now.candidate_counts()
    changed = (counts != before.candidate_counts()).nonzero().flatten()
    both = before.transpose(), now.transpose()
    for some in changed.split(_LABELS if weight else max(1, len(changed))):
        if weight:
            old, new = (_means(vectors, pairs.select(some), shape) for pairs in both)
            own = unit(table[some, columns].float().unflatten(1, shape)).flatten(1)
            old = torch.where((both[0].counts()[some] == 0)[:, None], own, old)
            moved = table[some, columns] + weight / members * (new - old)
            table[some, columns] = moved.to(table)
        if table.shape[1] > columns.stop:
            values = popularity_values(counts[some], float(model.config["popularity_weight"]))
            table[some, columns.stop] = values.to(table)
    tensors["candidates"] = table
    if "documents" in tensors:
        rows = (now.counts() != before.counts()).nonzero().flatten()
        known = tensors["documents"].clone()
        for part in rows.split(ENCODE_BLOCK):
            known[part] = (vectors(part) * members**-0.5).to(known)
        tensors["documents"] = known
    return replace(model, tensors=tensors | history_tensors(now))


def _means(
    vectors: Callable[[Tensor], Tensor], documents: Interactions, shape: tuple[int, int]
) -> Tensor:
    """The mean vector of each label's documents, of length 1 for each member; [n, members D]."""
    sums = torch.zeros(documents.n_queries, shape[0] * shape[1])
    parts = documents.query_of_pair().long(), documents.candidates.long()
    for labels, chosen in zip(*(part.split(ENCODE_BLOCK) for part in parts), strict=True):
        distinct, places = chosen.unique(return_inverse=True)
        sums.index_add_(0, labels, vectors(distinct).to(sums)[places])
    return unit(sums.unflatten(1, shape)).flatten(1)
