"""The training data of the SiameseXML family: weighted texts of both sides, and their pairs."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.encoders.bag_encoder import weighted
from rankfold.encoders.bags import common_pairs, inverse_document_frequency, with_pairs
from rankfold.encoders.frozen import Source
from rankfold.encoders.sharded_table import TableShard
from rankfold.encoders.start_vectors import TokenVectors, read_vectors
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml.config import ModulesConfig
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Dataset, Interactions, Run, Texts

ENCODE_BLOCK = 2**14  # texts encoded at a time
Encoder = Callable[[Texts], Tensor]


class Corpus(NamedTuple):
    """Texts and pairs on the device of the run.

    Each of several processes has the documents of its own queries and a share of the labels.
    """

    documents: Texts  # weighted
    labels: Texts  # weighted
    pairs: Tensor  # [P], adjacent tokens that form one more token
    idf: Tensor  # [V + P]
    rows: Interactions  # train: own documents by all candidates
    excluded: Interactions | None
    hidden: Interactions  # train and excluded pairs: never negatives
    counts: Tensor  # [N], documents of each candidate, over all processes
    shares: Tensor  # [N], counts / documents
    token_vectors: TokenVectors | None  # to start from
    document_shard: TableShard  # which of all documents are here
    label_shard: TableShard  # which of all candidates are here
    shards: Shards | None  # sums and searches over processes; None: there is one process
    source: Source | None = None  # of an encoder on disk

    @property
    def comm(self) -> Comm:
        return self.label_shard.comm

    @property
    def labelled(self) -> Tensor:
        """The training documents that have candidates."""
        return self.rows.counts().nonzero().flatten()

    @property
    def own_counts(self) -> Tensor:
        """The counts of the candidates here."""
        return self.counts[self.label_shard.start : self.label_shard.stop]


def encode_all(encoder: Encoder, bags: Texts) -> Tensor:
    """The vectors of many texts, block by block; [n, D]."""
    blocks = torch.arange(len(bags), device=bags.offsets.device).split(ENCODE_BLOCK)
    return torch.cat([encoder(bags.select(block)) for block in blocks])


def build_corpus(data: Dataset, config: ModulesConfig, run: Run) -> Corpus:
    """Weigh the texts of both sides and count the pairs; a UserError where something is missing."""
    _check_texts(data)
    assert data.query_texts is not None
    assert data.candidate_texts is not None
    rows, comm = replace(data.split("train"), grades=None), run.comm
    with_labels = rows.counts() > 0
    n_documents = comm.sum(with_labels.sum())
    if not bool(n_documents > 0):
        raise UserError("no training document has a label", hint="is the train split empty?")
    if rows.n_candidates < comm.size:
        raise UserError(
            f"{rows.n_candidates} candidates cannot be divided among {comm.size} processes",
            hint="start fewer processes",
        )
    label_shard = TableShard(rows.n_candidates, comm, run.memory_budget)
    own = data.candidate_texts
    own = own if comm.size == 1 else own.part(label_shard.start, label_shard.stop)
    sides, n = [data.query_texts, own], data.n_tokens
    trained = with_labels.nonzero().flatten()
    pairs = torch.zeros(0, dtype=torch.int64)
    if config.pairs_from:
        pairs = common_pairs([sides[0].select(trained), own], n, config.pairs_from, comm)
    queries, candidates = (with_pairs(side, pairs, n) for side in sides)
    idf = inverse_document_frequency([queries.select(trained), candidates], n + len(pairs), comm)
    counts = comm.sum(rows.candidate_counts())
    shares, shards = counts / n_documents, None
    if comm.size > 1:
        shards = Shards(rows.to(run.device), comm, run.memory_budget // (4 * config.width))
    encoder = getattr(config, "encoder", "plain")  # siamesexml-released reads bags as well
    return Corpus(
        weighted(encoder, queries, idf).to(run.device),
        weighted(encoder, candidates, idf).to(run.device),
        pairs.to(run.device),
        idf.to(run.device),
        rows.to(run.device),
        None if data.excluded is None else data.excluded.to(run.device),
        data.seen("validation").to(run.device),
        counts.to(run.device),
        shares.clamp(max=1 - 1e-6).to(run.device),
        None if config.vectors is None else read_vectors(config.vectors, data, config.width),
        TableShard(data.n_queries, comm, run.memory_budget),
        label_shard,
        shards,
    )


def _check_texts(data: Dataset) -> None:
    sides = {"query": data.query_texts, "candidate": data.candidate_texts}
    options = [f"--{side}-texts" for side, texts in sides.items() if texts is None]
    if not options:
        return
    documents = data.query_texts is None
    other = ", or as documents: --format texts" if documents else ", or fit text-neighbours"
    raise UserError(
        f"this data has no texts of {'queries' if documents else 'candidates'}",
        hint=f"prepare it with {' and '.join(options)}{other}",
    )
