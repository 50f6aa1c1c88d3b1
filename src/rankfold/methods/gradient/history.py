"""Queries made of what they chose: the encoder that the settings describe, kept and opened."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.history import History, PoolSpec, encode_histories, make_pool
from rankfold.encoders.tables import table
from rankfold.encoders.towers import NetworkSpec, Tower
from rankfold.errors import UserError
from rankfold.training.loop import seed_of
from rankfold.types import Dataset, Input, Interactions, Model, Run

BY_FEATURES = "queries_by_features"
"""Tensor of a model: what the features of each query add to its history."""
_POOL = "history."  # prefix of the names of a pool's tensors in a model
_ROW_BLOCK = 2**16  # rows encoded at a time
_SETTINGS = ("pooling", "width", "history_length", "half_life", "layers", "heads", "dropout")


def answers_with(config: Mapping[str, Any]) -> tuple[Input, ...]:
    """What the models of a method with an encoder can be queried by, besides features."""
    return ("histories",) if config.get("encoder") == "history" else ()


def make(
    data: Dataset, rows: Interactions, config: Any, run: Run, *, sparse: bool = False
) -> History:
    """The encoder on the run's device. Candidates with features have a tower, else a table."""
    if run.comm is not SINGLE_PROCESS and run.comm.size > 1:
        raise UserError(
            f"encoder=history cannot be fitted by {run.comm.size} processes",
            hint="start it without torchrun",
        )
    if config.weights == "grade":
        raise UserError(
            "encoder=history learns each choice once: it takes no weights=grade",
            hint="leave weights out, or set encoder=tables",
        )
    rng = torch.Generator().manual_seed(seed_of(run, "vectors"))
    seen = (rows.candidate_counts() > 0).cpu()
    candidates: torch.nn.Embedding | Tower
    if data.candidate_features is None:
        candidates = table(rows.n_candidates, config.width, rng, sparse=sparse)
        candidates.weight.data[~seen] = 0
    else:
        network = NetworkSpec(config.network, config.rows_at_once)
        known = data.candidate_features
        candidates = Tower(seen, config.width, rng, known, sparse=sparse, network=network)
    spec = _spec(vars_of(config), by_time=rows.times is not None)
    unit = config.similarity == "cosine"
    encoder = History(rows, candidates, spec, rng, data.query_features, unit=unit)
    return encoder.to(run.device)


def vars_of(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _SETTINGS}


def _spec(config: Mapping[str, Any], *, by_time: bool) -> PoolSpec:
    return PoolSpec(**{name: config[name] for name in _SETTINGS}, by_time=by_time)


def tensors_of(encoder: History) -> dict[str, Tensor]:
    """The parameters of the pool, as tensors of a model."""
    return {_POOL + name: tensor.clone() for name, tensor in encoder.pool.state_dict().items()}


@torch.no_grad()
def by_features(encoder: History, n_queries: int) -> Tensor:
    """What features add to the histories of all queries; [M, D]."""
    assert encoder.known is not None
    blocks = torch.arange(n_queries, device=encoder.chosen.offsets.device).split(_ROW_BLOCK)
    return torch.cat([encoder.known(rows).float() for rows in blocks])


def open_model(model: Model) -> Callable[[Interactions], Tensor]:
    """Encodes histories: [B, D], zeros for an empty one."""
    spec = _spec(model.config, by_time=bool(model.notes.get("by_time")))
    pool = make_pool(spec, torch.Generator())
    kept = {k.removeprefix(_POOL): t for k, t in model.tensors.items() if k.startswith(_POOL)}
    pool.load_state_dict(kept)
    candidates = model.tensors["candidates"][:, : spec.width]
    pool.to(candidates.device)

    @torch.no_grad()
    def encode(rows: Interactions) -> Tensor:
        rows = rows.to(candidates.device)
        return encode_histories(pool, lambda ids: candidates[ids], rows)

    return encode
