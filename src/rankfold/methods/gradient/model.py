"""The encoder of the gradient-trained methods, and the model that it exports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from rankfold.config import setting
from rankfold.distributed.collectives import count_over_ranks
from rankfold.encoders.history import POOLINGS, History
from rankfold.encoders.sharded_table import TableShard
from rankfold.encoders.tables import GRADIENT_SCALE, MIN_NORM, Biased, Scaled, Tables
from rankfold.encoders.towers import (
    NETWORKS,
    RESIDUAL,
    FeatureVectors,
    NetworkSpec,
    Residual,
    RowRange,
    Tower,
    Towers,
)
from rankfold.errors import UserError
from rankfold.kernels.sparse import in_file
from rankfold.methods.gradient import history
from rankfold.methods.noise_defaults import noise_of
from rankfold.training.batches import (
    Batches,
    PairBatches,
    QueryBatches,
    SequenceBatches,
    default_batch,
)
from rankfold.training.gradient_sync import Sides
from rankfold.training.loop import Training, seed_of
from rankfold.training.optimisers import is_sparse
from rankfold.types import (
    Comm,
    Dataset,
    Encoder,
    Features,
    Interactions,
    Method,
    Model,
    Opened,
    Run,
    Side,
    Step,
)

_ROW_BLOCK = 2**16  # rows encoded at a time
EncoderKind = Literal["tables", "towers", "history"]
TOWERS: Mapping[Side, str] = {"query": "query_tower.", "candidate": "tower."}
"""The prefix of the names of a side's tower in a model."""


class EncoderConfig(Training):
    """Settings of vectors and scores."""

    batch_size: int | None = setting(
        None, at_least=1, help="pairs in a batch; none: 256 to 2048, by their number"
    )
    encoder: EncoderKind = setting(
        "tables", help="a vector per row; towers: also features; history: of what a query chose"
    )
    network: str = setting(
        "residual", choices=NETWORKS, help="towers, features of candidates: the network of a side"
    )
    rows_at_once: int | None = setting(
        None, at_least=1, help="rows in that network at a time: saves memory; none: a batch"
    )
    pooling: str = setting(
        "mean",
        choices=POOLINGS,
        help="pooling of a history; recent: later choices count more; attention: a transformer",
    )
    history_length: int = setting(
        50, at_least=1, help="encoder=history: the latest choices of a query that are read"
    )
    half_life: float = setting(
        5.0, above=0, help="pooling=recent: choices after which the weight of one is half"
    )
    layers: int = setting(2, at_least=1, help="pooling=attention: layers of the transformer")
    heads: int = setting(1, at_least=1, help="pooling=attention: heads of a layer; width / heads")
    dropout: float = setting(0.2, at_least=0, at_most=0.9, help="pooling=attention: dropout")
    similarity: Literal["dot", "cosine"] = setting("dot", help="inner product or cosine of vectors")
    temperature: float = setting(1.0, above=0, help="scores are divided by it")
    BATCHES: ClassVar[tuple[int, int]] = 256, 2048  # where batch_size is open
    DECAY: ClassVar[float] = 0.15  # times that of the noise

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        """With a batch size by the number of pairs and a weight decay by their noise."""
        batch_size, decay = self.batch_size, self.weight_decay
        if batch_size is None:
            n_queries = count_over_ranks((rows.counts() > 0).sum(), comm)
            examples = self.n_examples(count_over_ranks(rows.n_pairs, comm), n_queries)
            batch_size = default_batch(examples, *self.BATCHES)
        if decay is None:
            decay = self.DECAY * noise_of(rows, comm).decay
        return replace(self, batch_size=batch_size, weight_decay=decay)

    def n_examples(self, n_pairs: int, _n_queries: int) -> int:
        """The number of examples of an epoch."""
        return n_pairs


def trained_encoder(
    data: Dataset, rows: Interactions, config: EncoderConfig, run: Run, *, divisible: bool = False
) -> Scaled:
    """The encoder that the settings describe, to be trained by gradients.

    Where candidates are divisible, processes divide a table of them that exceeds their memory.
    """
    n_queries = count_over_ranks(rows.n_queries, run.comm)
    sparse = is_sparse(config.optimiser, (n_queries + rows.n_candidates) * config.width)
    shard = None
    if divisible and config.encoder == "tables" and run.comm.size > 1:
        size = 4 * rows.n_candidates * config.width
        if size > run.candidate_memory:
            shard = TableShard(rows.n_candidates, run.comm, run.memory_budget)
    half = is_half(config)
    if half and run.comm.size > 1:
        raise UserError(
            f"table=float16 cannot be fitted by {run.comm.size} processes",
            hint="start it without torchrun, or leave table out",
        )
    encoder: Tables | Towers | History
    if config.encoder == "history":
        encoder = history.make(data, rows, config, run, sparse=sparse)
    else:
        encoder = make_encoder(
            data,
            rows,
            config.encoder,
            config.width,
            run,
            sparse=sparse,
            shard=shard,
            half=half,
            network=NetworkSpec(config.network, config.rows_at_once),
        )
    return Scaled(encoder, config.similarity, config.temperature)


def make_encoder(
    data: Dataset,
    rows: Interactions,
    kind: Literal["tables", "towers"],
    width: int,
    run: Run,
    *,
    sparse: bool = False,
    shard: TableShard | None = None,
    half: bool = False,
    network: NetworkSpec = RESIDUAL,
) -> Tables | Towers:
    """An encoder on the run's device, initialised at random by the run's seed.

    A row without pairs starts with zeros. Each of several processes has the vectors of its own
    queries and of all candidates.
    """
    rng = torch.Generator().manual_seed(seed_of(run, "vectors"))
    seen = (rows.counts() > 0).cpu(), (run.comm.sum(rows.candidate_counts()) > 0).cpu()
    n_queries = count_over_ranks(rows.n_queries, run.comm)
    own = data.first, data.first + rows.n_queries
    if kind == "towers":
        features, held = (data.query_features, data.candidate_features), None
        if run.comm.size > 1:
            held = RowRange(n_queries, own, run.comm)
        towers = Towers(seen, width, rng, features, sparse=sparse, held=held, network=network)
        return towers.to(run.device)
    sizes = n_queries, rows.n_candidates
    encoder = Tables(sizes, width, rng, sparse=sparse, own=own, shard=shard, half=half)
    if shard is not None:
        seen = seen[0], seen[1][shard.start : shard.stop]
    for table, known in zip((encoder.queries, encoder.candidates), seen, strict=True):
        table.weight.data[~known] = 0
    return encoder.to(run.device)


def is_half(config: EncoderConfig) -> bool:
    """Whether the tables of vectors have half precision."""
    return getattr(config, "table", "float32") == "float16"


def gradient_scale(config: EncoderConfig) -> float:
    """What the gradients of tables are multiplied by."""
    return GRADIENT_SCALE if is_half(config) else 1.0


def sides_of(encoder: Encoder) -> Sides:
    """The tables of an encoder that are divided among processes, or have a row per candidate."""
    if isinstance(encoder, Biased):
        divided, per_candidate = sides_of(encoder.encoder)
        return Sides(divided, (*per_candidate, encoder.biases))
    inner = _innermost(encoder)
    if isinstance(inner, History):
        return Sides((), (inner.table,))
    if isinstance(inner, Towers):
        return Sides((inner.queries.own,), (inner.candidates.own,))
    if inner.shard is not None:
        return Sides((inner.queries, inner.candidates))
    return Sides((inner.queries,), (inner.candidates,))


def shard_of(encoder: Encoder) -> TableShard | None:
    """The shard of an encoder's table of candidates, if the table is divided."""
    inner = _innermost(encoder)
    return inner.shard if isinstance(inner, Tables) else None


def pair_batches(encoder: Encoder, rows: Interactions, config: Any, comm: Comm) -> Batches:
    """The batches of pairs that an encoder is trained on."""
    inner, length = _innermost(encoder), config.history_length
    if isinstance(inner, History):
        counts = rows.counts().clamp(max=length)
        mean = max(1.0, float(counts[counts > 0].float().mean()) if rows.n_pairs else 1.0)
        queries = max(1, round(config.batch_size / mean))
        return SequenceBatches(rows, queries, length, with_first=inner.reads_first)
    return PairBatches(rows, config.batch_size, config.weights, comm)


def query_batches(encoder: Encoder, rows: Interactions, config: Any, comm: Comm) -> Batches:
    """The batches of queries that an encoder is trained on."""
    inner = _innermost(encoder)
    if isinstance(inner, History):
        length, first = config.history_length, inner.reads_first
        return SequenceBatches(rows, config.batch_size, length, with_first=first)
    return QueryBatches(rows, config.batch_size, comm)


def has_dropout(encoder: Encoder) -> bool:
    """Whether an encoder may draw from torch's global generators."""
    inner = _innermost(encoder)
    tower = inner.candidates if isinstance(inner, History | Towers) else None
    is_known = not isinstance(tower, Tower) or isinstance(tower.layers, Residual)
    return not is_known or (isinstance(inner, History) and inner.draws)


def _innermost(encoder: Encoder) -> Tables | Towers | History:
    """The encoder inside its wrappers."""
    inner: Any = encoder
    while not isinstance(inner, Tables | Towers | History):
        inner = inner.encoder
    return inner


def model_of(name: str, config: Any, encoder: Encoder, data: Dataset, rows: Interactions) -> Model:
    """The vectors of all rows, and the towers that can encode new rows by their features."""
    kept = torch.float16 if is_half(config) else torch.float32
    tensors, notes = vectors(encoder, rows, kept), dict[str, Any]()
    inner = _innermost(encoder)
    sides: dict[Side, tuple[nn.Module, Features | None]] = {}
    if isinstance(inner, Towers):
        sides["query"] = inner.queries, data.query_features
        sides["candidate"] = inner.candidates, data.candidate_features
    elif isinstance(inner, History):
        tensors |= history.tensors_of(inner)
        notes["by_time"] = inner.spec.by_time
        if inner.known is not None:
            sides["query"] = inner.known, data.query_features
            tensors[history.BY_FEATURES] = history.by_features(inner, rows.n_queries)
        sides["candidate"] = inner.candidates, data.candidate_features
    for side, (tower, features) in sides.items():
        if features is not None:
            learnt = {k: t for k, t in tower.state_dict().items() if not k.startswith("own")}
            tensors |= {TOWERS[side] + key: tensor.clone() for key, tensor in learnt.items()}
            notes[f"{side}_columns"] = features.columns.to_json()
    return Model(name, asdict(config), tensors, notes)


@torch.no_grad()
def vectors(
    encoder: Encoder, rows: Interactions, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """The vectors of all candidates and of this process's queries."""
    shard = shard_of(encoder)
    sides = {
        "queries": (encoder.encode_queries, rows.n_queries),
        "candidates": (encoder.encode_candidates, rows.n_candidates),
    }
    tables = {}
    for side, (encode, size) in sides.items():
        if side == "candidates" and shard is not None:
            tables[side] = shard.whole(encode, rows.offsets.device, in_file)
            continue
        parts = torch.arange(size, device=rows.offsets.device).split(_ROW_BLOCK)
        tables[side] = torch.cat([encode(some).to(dtype) for some in parts])
    return tables


def gradient_method(
    summary: str,
    config: type[Any],
    fit: Callable[[Dataset, Any, Run], Iterator[Step]],
    **declared: Any,
) -> Method:
    """A method whose model is that of ``model_of``; ``declared``: further fields of ``Method``."""
    shared = {
        "open": open_model,
        "answers": ("features",),
        "answers_with": history.answers_with,
        "distributed": True,
        "per_query": ("queries", history.BY_FEATURES),
    }
    return Method(summary, config, "interactions", fit, **{**shared, **declared})


def _encode_new(model: Model, features: Features, side: Side) -> Tensor:
    """Vectors of rows that are new to the model, from their features; [n, D].

    A column of biases, which follows the vectors, is 1 for a query and the mean for a candidate.
    """
    return _scored(model, tower_vectors(model, features, side), side)


def _scored(model: Model, vectors: Tensor, side: Side) -> Tensor:
    """Vectors of an encoder as scores read them: their length, the temperature, and biases."""
    if model.config.get("similarity") == "cosine":
        vectors = nn.functional.normalize(vectors, dim=-1, eps=MIN_NORM)
    biases = model.tensors["candidates"][:, vectors.shape[1] :].mean(dim=0)
    if side == "query":
        vectors, biases = vectors / model.config.get("temperature", 1.0), torch.ones_like(biases)
    return torch.cat([vectors, biases.expand(len(vectors), -1)], dim=1)


def open_model(
    model: Model, encode: Callable[[Model, Features, Side], Tensor] = _encode_new
) -> Opened:
    """A model that was fitted with features encodes new rows; a tower is built when it is used.

    One with ``encoder=history`` encodes new queries by what they chose.
    """
    has_tower = any(name.startswith((*TOWERS.values(),)) for name in model.tensors)
    features = partial(encode, model) if has_tower else None
    if model.config.get("encoder") != "history":
        return Opened(features=features)
    read, own = history.open_model(model), model.tensors.get(history.BY_FEATURES)

    def known(rows: Tensor, histories: Interactions) -> Tensor:
        vectors = read(histories)
        vectors = vectors if own is None else vectors + own[rows.to(own.device)]
        return _scored(model, vectors, "query")

    return Opened(
        features=features,
        histories=lambda rows: _scored(model, read(rows), "query"),
        known=known,
    )


@torch.no_grad()
def tower_vectors(model: Model, features: Features, side: Side) -> Tensor:
    """The vectors of new rows by the tower of their side; [n, D]."""
    prefix = TOWERS[side]
    kept = {k.removeprefix(prefix): t for k, t in model.tensors.items() if k.startswith(prefix)}
    if side == "query" and model.config["encoder"] == "history":
        known = FeatureVectors(features, model.config["width"], torch.Generator())
        known.load_state_dict(kept)
        vectors: Tensor = known(None)
        return vectors
    network = NetworkSpec(model.config.get("network", "residual"))
    width, none = model.config["width"], torch.zeros(0)
    tower = Tower(none, width, torch.Generator(), features, network=network)
    tower.load_state_dict(kept, strict=False)
    return tower.encode_new(features)
