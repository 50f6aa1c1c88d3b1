"""Where a fit stands, on disk: enough to go on as if it had never stopped.

Of several processes each writes its share of the tables that are divided among them, and the first
what they have in common. Any number of processes can go on from there: a divided table is the
shares one after the other, of which each reads the rows that are its own now.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankfold import storage
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.training.history import History
from rankfold.types import Comm, Model


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One moment of a fit, right after a step.

    ``identity`` is what must be equal for a fit to go on from here: method, settings, seed, data.
    """

    identity: Mapping[str, Any]
    history: History
    state: Mapping[str, Tensor]  # of the step, with its number and the generator's state
    divided: Collection[str] = ()  # names in it of tables that are divided among processes
    per_query: Collection[str] = ("queries",)  # names of the model's tensors with a row per query


def path_of(model: Path) -> Path:
    """``MODEL.checkpoint``, beside the model to be."""
    return model.with_name(f"{model.name}.checkpoint")


def save(path: Path, checkpoint: Checkpoint, comm: Comm = SINGLE_PROCESS) -> None:
    history, model = checkpoint.history, checkpoint.history.model
    meta: dict[str, Any] = {
        "identity": dict(checkpoint.identity),
        "course": [history.phase, history.steps, history.entries, history.number, history.score],
        "chosen": [history.settings, history.notes, history.in_passes],
        "model": None if model is None else [model.method, dict(model.config), dict(model.notes)],
    }
    files = _files("state", checkpoint.state, checkpoint.divided, comm)
    in_model = () if model is None else _of_model(checkpoint, model, comm)
    if model is not None:
        files |= _files("model", model.tensors, in_model, comm)
    in_state = [name for name in checkpoint.divided if name in checkpoint.state]
    divided = {"state": in_state, "model": in_model}
    meta["divided"] = {name: sorted(names) for name, names in divided.items()}
    meta["ranks"] = comm.size
    storage.write_distributed(path, "checkpoint", meta, files, comm)


def _files(
    name: str, tensors: Mapping[str, Tensor], divided: Collection[str], comm: Comm
) -> dict[str, storage.Content]:
    """What this process writes: its shares, and as the first what all have in common."""
    if comm.size == 1:
        return {name: dict(tensors)}
    shares = {key: tensor for key, tensor in tensors.items() if key in divided}
    files: dict[str, storage.Content] = {_share(name, comm.rank): shares}
    if comm.rank == 0:
        files[name] = {key: tensor for key, tensor in tensors.items() if key not in divided}
    return files


def _of_model(checkpoint: Checkpoint, model: Model, comm: Comm) -> list[str]:
    """Names of divided tables in the model that is kept: it has a row per query, too.

    One of an earlier checkpoint may be whole, though the state has a share of it now.
    """
    names = [name for name in (*checkpoint.per_query, *checkpoint.divided) if name in model.tensors]
    return [name for name in dict.fromkeys(names) if not _is_whole(name, checkpoint, model, comm)]


def _is_whole(name: str, checkpoint: Checkpoint, model: Model, comm: Comm) -> bool:
    """Whether all processes have all rows of a table that is divided in the state."""
    if comm.size == 1 or name in checkpoint.per_query or name not in checkpoint.state:
        return False
    lengths = [len(model.tensors[name]), len(checkpoint.state[name])]
    kept, divided = comm.sum(torch.tensor(lengths)).tolist()
    return bool(kept != divided)


def _share(name: str, rank: int) -> str:
    return f"{name}_{rank:05}"


def load(path: Path, comm: Comm = SINGLE_PROCESS) -> Checkpoint:
    """A checkpoint; of tables that are divided among processes the rows of this one."""
    folder = storage.read(path, "checkpoint", full=True)
    with storage.check_contents(path):
        return _checkpoint(folder, comm)


def _checkpoint(folder: storage.Folder, comm: Comm) -> Checkpoint:
    meta = folder.manifest
    model = None
    if meta["model"] is not None:
        method, config, notes = meta["model"]
        model = Model(method, config, _tensors(folder, "model", comm), notes)
    phase, steps, entries, number, score = meta["course"]
    history = History(phase, steps, entries, number, score, model, *meta["chosen"])
    return Checkpoint(meta["identity"], history, _tensors(folder, "state", comm))


def _tensors(folder: storage.Folder, name: str, comm: Comm) -> dict[str, Tensor]:
    """Tensors in memory: the files are replaced while the fit goes on."""
    common, ranks = folder.tensors(name), folder.manifest.get("ranks", 1)
    shares = [common] if ranks == 1 else [folder.tensors(_share(name, r)) for r in range(ranks)]
    found = {key: torch.clone(tensor) for key, tensor in common.items()}
    for key in folder.manifest.get("divided", {}).get(name, ()):
        found[key] = _rows([share[key] for share in shares], comm)
    return found


def _rows(shares: Sequence[Tensor], comm: Comm) -> Tensor:
    """The rows of this process in the table that the shares are."""
    start, stop = comm.share(sum(map(len, shares)))
    parts, first = [], 0
    for share in shares:
        parts.append(share[max(0, start - first) : max(0, stop - first)])
        first += len(share)
    return torch.cat(parts)


def check_same_fit(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """A UserError that names the first setting in which a checkpoint differs from this fit."""
    for name, value in wanted.items():
        if found.get(name) != value:
            what = "other data" if name == "data" else f"{name} = {found.get(name)}, not {value}"
            raise UserError(
                f"the checkpoint {path} was made with {what}",
                hint="give the settings it was made with, or start anew without --resume",
            )


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
