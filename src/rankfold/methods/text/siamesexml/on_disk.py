"""SiameseXML with an encoder on disk: a pretrained network, or vectors made elsewhere.

``read`` gives the data the tokens of the encoder: pieces of words, or one token per text, the row
of its vector. A frozen network becomes a table of vectors for the fit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from rankfold.data.build.retokenise import Reading, retokenised
from rankfold.encoders.bag_encoder import PRETRAINED, VECTORS, unit, weighted
from rankfold.encoders.frozen import Frozen, Given, Source, cached, name_of
from rankfold.encoders.pretrained import Pretrained, build_network, load_network
from rankfold.encoders.pretrained_folder import Blueprint, Choices, read_blueprint
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml.config import EncoderConfig, is_on_disk
from rankfold.methods.text.siamesexml.corpus import ENCODE_BLOCK, Corpus
from rankfold.types import Comm, Dataset, Model, Run, Texts

_NETWORK = "network."  # before the names of a frozen network's tensors


def read(data: Dataset, config: EncoderConfig, comm: Comm) -> Dataset:
    """The data as the encoder reads it."""
    if not is_on_disk(config):
        return data
    if comm.size > 1:
        raise UserError(
            f"encoder={config.encoder} is fitted by one process, got {comm.size}",
            hint="start it without torchrun",
        )
    if config.vectors is not None:
        raise UserError(
            f"`vectors` are of words, which encoder={config.encoder} does not have",
            hint="leave `vectors` out",
        )
    if config.encoder.startswith(VECTORS):
        return _with_rows(data, _path(config))
    blueprint, tokenizer = _blueprint(config)
    return retokenised(data, Reading(tokenizer, blueprint.prompts, blueprint.lower))


def open_source(data: Dataset, config: EncoderConfig, run: Run) -> Source | None:
    """The network or the vectors; None: the encoder is not on disk."""
    if not is_on_disk(config):
        return None
    if config.encoder.startswith(VECTORS):
        return _source_of_file(data, _path(config))
    blueprint, _ = _blueprint(config)
    network = Pretrained(load_network(_path(config), blueprint), blueprint, config.tokens_at_once)
    if not config.frozen:
        return Source(network.width, blueprint)
    source = Source(network.width, blueprint, config.frozen, network)
    assert data.query_texts is not None
    assert data.candidate_texts is not None
    sides = data.query_texts, data.candidate_texts
    name = name_of(f"{blueprint.checksum} {blueprint.pooling}", *sides)
    table = cached(config.cache, name, lambda: _encoded(network, sides, run.device))
    return replace(source, table=table)


def with_source(corpus: Corpus, source: Source | None) -> Corpus:
    """The corpus; with a frozen network, its texts are rows of the table."""
    if source is None or source.table is None:
        return corpus._replace(source=source)
    documents = _rows(corpus.documents.counts() > 0, 0)
    labels = _rows(corpus.labels.counts() > 0, len(corpus.documents))
    return corpus._replace(
        source=replace(source, table=source.table.to(corpus.idf.device)),
        documents=weighted(PRETRAINED, documents, corpus.idf),
        labels=weighted(PRETRAINED, labels, corpus.idf),
    )


def load(config: EncoderConfig, source: Source) -> nn.Module:
    """The encoder that a fit begins with."""
    if source.table is not None:
        return Given(source.table, keep=source.blueprint is None)
    assert source.blueprint is not None
    network = load_network(_path(config), source.blueprint)
    return Pretrained(network, source.blueprint, config.tokens_at_once)


def rebuild(
    config: EncoderConfig, source: Source, tensors: Mapping[str, Tensor], member: int
) -> nn.Module:
    """The encoder of a member of a model; its folder or file is not needed."""
    if source.table is not None or source.blueprint is None:
        table = tensors[f"{member}.table"] if source.table is None else source.table
        given = Given(table, keep=True)
        given.head = nn.Parameter(tensors[f"{member}.head"])
        return given.eval()
    prefix = _NETWORK if source.frozen else f"{member}.{_NETWORK}"
    weights = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    network = build_network(source.blueprint, weights)
    encoder = Pretrained(network, source.blueprint, config.tokens_at_once).eval()
    return Frozen(encoder, tensors[f"{member}.head"]) if source.frozen else encoder


def frozen_tensors(source: Source | None) -> dict[str, Tensor]:
    """The tensors of a frozen network, which all members share."""
    if source is None or not source.frozen or source.network is None:
        return {}
    state = source.network.network.state_dict()
    return {f"{_NETWORK}{name}": tensor for name, tensor in state.items()}


def source_in(model: Model) -> Source | None:
    """The source of a model's encoder, without its folder or file."""
    width, frozen = int(model.config["width"]), bool(model.config.get("frozen"))
    if "pretrained" in model.notes:
        try:
            return Source(width, Blueprint(**model.notes["pretrained"]), frozen)
        except TypeError:
            raise UserError(
                "the model's notes on its encoder are damaged", hint="copy its folder again"
            ) from None
    return Source(width) if "given_vectors" in model.notes else None


# ---------------------------------------------------------------------------------- networks


def _path(config: EncoderConfig) -> Path:
    return Path(config.encoder.partition(":")[2])


def _blueprint(config: EncoderConfig) -> tuple[Blueprint, str]:
    """The blueprint of the encoder's folder, and its tokenizer."""
    assert config.encoder.startswith(PRETRAINED)
    choices = Choices(
        config.pooling, config.max_length, config.query_prompt, config.candidate_prompt
    )
    return read_blueprint(_path(config), choices)


@torch.no_grad()
def _encoded(network: Pretrained, sides: tuple[Texts, Texts], device: torch.device) -> Tensor:
    """The vectors of queries, then of candidates; [M + N, D] float16."""
    network.to(device).eval()
    parts = [
        network(texts.part(start, min(start + ENCODE_BLOCK, len(texts))).to(device)).half().cpu()
        for texts in sides
        for start in range(0, len(texts), ENCODE_BLOCK)
    ]
    network.cpu()
    return torch.cat(parts)


# ---------------------------------------------------------------------------------- vectors


def _with_rows(data: Dataset, path: Path) -> Dataset:
    """The data with one token for each text that has a vector."""
    (has_query, has_candidate), _ = _aligned(data, path)
    return replace(
        data,
        kind="texts",
        query_texts=_rows(has_query, 0),
        candidate_texts=_rows(has_candidate, len(has_query)),
        tokenizer=None,
        n_tokens=len(has_query) + len(has_candidate),
    )


def _source_of_file(data: Dataset, path: Path) -> Source:
    has, table = _aligned(data, path)
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    counts = {
        name: int(own.sum()) for name, own in zip(("queries", "candidates"), has, strict=True)
    }
    about = {"file": path.name, "checksum": checksum, **counts}
    return Source(table.shape[1], table=table, file=about)


def _aligned(data: Dataset, path: Path) -> tuple[list[Tensor], Tensor]:
    """Which queries and candidates have a vector, and the vectors of all; [M + N, D] float16."""
    from rankfold.data.read.vectors import read_both_sides  # needs polars, which fits do not

    both = read_both_sides(path)
    has, tables = [], []
    for side, keys in (("query", data.queries), ("candidate", data.candidates)):
        vectors, rows = both[side].of(keys)
        if len(rows) == 0:
            raise UserError(
                f"{path} has a vector for none of the {len(keys):,} {side} keys",
                hint=f"the data has keys such as {keys.keys[0]!r}; is it the right file?",
            )
        table = torch.zeros(len(keys), vectors.shape[1], dtype=torch.float16)
        table[rows] = unit(vectors).half()
        tables.append(table)
        has.append(torch.zeros(len(keys), dtype=torch.bool).index_fill(0, rows, value=True))
    return has, torch.cat(tables)


def _rows(has: Tensor, first: int) -> Texts:
    """One token for each text that has a vector: its row in the table, after ``first`` others."""
    tokens = has.nonzero().flatten() + first
    offsets = torch.nn.functional.pad(has.long().cumsum(0), (1, 0))
    return Texts(offsets, tokens.int())
