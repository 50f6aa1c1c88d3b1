"""What the gradient-trained methods share: their encoder, and the model that it leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rankfold.encoders.biased import Biased
from rankfold.encoders.scaled import SHORTEST, Scaled
from rankfold.encoders.sharded_table import TableShard
from rankfold.encoders.tables import Tables
from rankfold.encoders.towers import Held, Tower, Towers
from rankfold.errors import UserError
from rankfold.kernels.sparse import in_file
from rankfold.objectives.quadratic import sum_over_ranks
from rankfold.training.loop import Training, seed_of
from rankfold.training.optimisers import is_sparse
from rankfold.training.replicas import Sides
from rankfold.types import Dataset, Encoder, Features, Interactions, Model, Run

ROWS = 2**16  # encoded at a time
Kind = Literal["tables", "towers"]
TOWER = "tower."  # before the names of the candidates' tower in a model


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding(Training):
    """How vectors and scores are made."""

    batch_size: int = 2048
    encoder: Kind = "tables"  # towers: with side features, if there are any
    similarity: Literal["dot", "cosine"] = "dot"
    temperature: float = 1.0  # scores are divided by it


def trained_encoder(
    data: Dataset,
    rows: Interactions,
    config: Encoding,
    run: Run,
    candidates: Literal["whole", "divisible"] = "whole",
) -> Scaled:
    """What the settings ask for, to be trained by gradients.

    Where candidates are divisible, several processes divide a table of them that is too large.
    """
    n_queries = int(sum_over_ranks(rows.n_queries, run.comm))
    sparse = is_sparse(config.optimiser, (n_queries + rows.n_candidates) * config.width)
    shard = None
    if candidates == "divisible" and config.encoder == "tables" and run.comm.size > 1:
        size = 4 * rows.n_candidates * config.width
        if size > run.candidate_memory:
            shard = TableShard(rows.n_candidates, run.comm, run.memory_budget)
    how: dict[str, Any] = {"sparse": sparse, "shard": shard}
    made = make_encoder(data, rows, config.encoder, config.width, run, **how)
    return Scaled(made, config.similarity, config.temperature)


def make_encoder(
    data: Dataset,
    rows: Interactions,
    kind: Kind,
    width: int,
    run: Run,
    *,
    sparse: bool = False,
    shard: TableShard | None = None,
) -> Tables | Towers:
    """An encoder on the run's device, random by the run's seed.

    A row without pairs starts with zeros: nothing is known of it. Of several processes each has the
    vectors of its own queries, and of all candidates.
    """
    rng = torch.Generator().manual_seed(seed_of(run, "vectors"))
    seen = (rows.counts() > 0).cpu(), (run.comm.sum(rows.candidate_counts()) > 0).cpu()
    n_queries = int(sum_over_ranks(rows.n_queries, run.comm))
    own = data.first, data.first + rows.n_queries
    if kind == "towers":
        features, held = (data.query_features, data.candidate_features), None
        if run.comm.size > 1:
            held = Held(n_queries, own, run.comm)
        return Towers(seen, width, rng, features, sparse=sparse, held=held).to(run.device)
    sizes = n_queries, rows.n_candidates
    made = Tables(sizes, width, rng, sparse=sparse, own=own, shard=shard)
    if shard is not None:
        seen = seen[0], seen[1][shard.start : shard.stop]
    for table, known in zip((made.queries, made.candidates), seen, strict=True):
        table.weight.data[~known] = 0
    return made.to(run.device)


def sides_of(encoder: Encoder) -> Sides:
    """The tables in an encoder that are divided, or have a row per candidate."""
    if isinstance(encoder, Biased):
        divided, whole = sides_of(encoder.encoder)
        return Sides(divided, (*whole, encoder.biases))
    made = innermost(encoder)
    if isinstance(made, Towers):
        return Sides((made.queries.own,), (made.candidates.own,))
    if made.shard is not None:
        return Sides((made.queries, made.candidates))
    return Sides((made.queries,), (made.candidates,))


def shard_of(encoder: Encoder) -> TableShard | None:
    """How an encoder's table of candidates is divided, if it is."""
    made = innermost(encoder)
    return made.shard if isinstance(made, Tables) else None


def innermost(encoder: Encoder) -> Tables | Towers:
    """The encoder that others were put around."""
    made: Any = encoder
    while not isinstance(made, Tables | Towers):
        made = made.encoder
    return made


def model_of(name: str, config: Any, encoder: Encoder, data: Dataset, rows: Interactions) -> Model:
    """The vectors of everybody, and the candidates' tower where it can take new ones."""
    tensors, notes = vectors(encoder, rows), {}
    made = innermost(encoder)
    if data.candidate_features is not None and isinstance(made, Towers):
        tower = made.candidates.state_dict()
        tensors |= {TOWER + key: t.clone() for key, t in tower.items() if not key.startswith("own")}
        columns = data.candidate_features.columns
        levels = {column: list(levels) for column, levels in columns.levels.items()}
        notes = {"candidate_columns": {"numbers": list(columns.numbers), "levels": levels}}
    return Model(name, asdict(config), tensors, notes)


@torch.no_grad()
def vectors(encoder: Encoder, rows: Interactions) -> dict[str, Tensor]:
    """The vectors of all rows of both sides; of several processes, of a process's own queries."""
    shard = shard_of(encoder)
    sides = {
        "queries": (encoder.of_queries, rows.n_queries),
        "candidates": (encoder.of_candidates, rows.n_candidates),
    }
    found = {}
    for side, (of, size) in sides.items():
        if side == "candidates" and shard is not None:
            found[side] = shard.whole(of, rows.offsets.device, in_file)
            continue
        parts = torch.arange(size, device=rows.offsets.device).split(ROWS)
        found[side] = torch.cat([of(some).float() for some in parts])
    return found


def encode_candidates(model: Model, features: Features) -> Tensor:
    """Vectors of candidates that the model never saw, by what is known of them; [n, D]."""
    found = tower_vectors(model, features)
    if model.config.get("similarity") == "cosine":
        found = nn.functional.normalize(found, dim=-1, eps=SHORTEST)
    biases = model.tensors["candidates"][:, found.shape[1] :]  # a new one has what others have
    return torch.cat([found, biases.mean(dim=0).expand(len(found), -1)], dim=1)


@torch.no_grad()
def tower_vectors(model: Model, features: Features) -> Tensor:
    """What the candidates' tower makes of new rows; [n, D]."""
    kept = {k.removeprefix(TOWER): t for k, t in model.tensors.items() if k.startswith(TOWER)}
    if not kept:
        raise UserError(
            "this model knows no features of candidates",
            hint="prepare the data with --candidate-features and fit with --set encoder=towers",
        )
    tower = Tower(torch.zeros(0), model.config["width"], torch.Generator(), features)
    tower.load_state_dict(kept, strict=False)
    return tower.of_new(features)
