"""The data as training of the SiameseXML family sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.encoders.sharded_table import TableShard
from rankfold.encoders.start_vectors import Given
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions, Texts

ENCODED = 2**14  # texts at a time
Encoder = Callable[[Texts], Tensor]


class Parts(NamedTuple):
    """All of it, on its device.

    Of several processes each has the documents of its own queries, and a share of the labels.
    """

    documents: Texts  # weighed
    labels: Texts  # likewise
    pairs: Tensor  # [P], adjacent tokens that count as one more
    idf: Tensor  # [V + P]
    rows: Interactions  # train: own documents by all candidates
    excluded: Interactions | None
    hidden: Interactions  # train, and what is excluded: no negatives
    counts: Tensor  # [N], how many documents of all processes have each candidate
    shares: Tensor  # [N], of the documents
    given: Given | None  # token vectors to start at
    document_shard: TableShard  # which of all documents are here
    label_shard: TableShard  # which of all candidates
    shards: Shards | None  # sums and searches over these; None: one process has all

    @property
    def comm(self) -> Comm:
        return self.label_shard.comm

    @property
    def own_counts(self) -> Tensor:
        """Of the candidates here."""
        return self.counts[self.label_shard.start : self.label_shard.stop]


def encoded(encoder: Encoder, bags: Texts) -> Tensor:
    """The vectors of many texts; [n, D]."""
    parts = torch.arange(len(bags), device=bags.offsets.device).split(ENCODED)
    return torch.cat([encoder(bags.select(some)) for some in parts])
