"""A fit on disk: everything needed to resume it as if it had never stopped.

With several processes, each writes its share of the divided tables, and rank 0 writes the rest.
Any number of processes can resume: a divided table is the concatenation of its shares, and each
process reads its own rows of it.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankfold import storage
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.training.early_stopping import History
from rankfold.types import Comm, Model


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a fit right after a step.

    ``identity``: the values that a resuming fit must share, such as method, settings, seed, data.
    """

    identity: Mapping[str, Any]
    history: History
    state: Mapping[str, Tensor]  # of the step, with its number and the generator's state
    divided: Collection[str] = ()  # names in ``state`` of tables divided among the processes
    per_query: Collection[str] = ("queries",)  # tensors of the model with a row per query


def path_of(model: Path) -> Path:
    """``MODEL.checkpoint``, beside the folder of the model."""
    storage.check_named(model)
    model = model if model.name else model.absolute()
    return model.with_name(f"{model.name}.checkpoint")


def exists(path: Path) -> bool:
    """Whether there is a checkpoint; the folder alone only says that a fit has begun."""
    return (path / storage.MANIFEST).exists()


def save(path: Path, checkpoint: Checkpoint, comm: Comm = SINGLE_PROCESS) -> None:
    history, model = checkpoint.history, checkpoint.history.model
    files = _files("state", checkpoint.state, checkpoint.divided, comm)
    in_state = [name for name in checkpoint.divided if name in checkpoint.state]
    in_model = [] if model is None else _divided_in_model(checkpoint, model, comm)
    if model is not None:
        files |= _files("model", model.tensors, in_model, comm)
    if history.tensors:
        files |= _files("kept", history.tensors, (), comm)
    meta: dict[str, Any] = {
        "identity": dict(checkpoint.identity),
        "progress": [history.phase, history.steps, history.entries, history.number, history.score],
        "chosen": [history.settings, history.notes, history.in_passes],
        "model": None if model is None else [model.method, dict(model.config), dict(model.notes)],
        "divided": {"state": sorted(in_state), "model": sorted(in_model)},
        "ranks": comm.size,
    }
    storage.write(path, "checkpoint", meta, files, comm)


def _files(
    name: str, tensors: Mapping[str, Tensor], divided: Collection[str], comm: Comm
) -> dict[str, storage.Content]:
    """The files of this process: its shares and, on rank 0, the tensors that all share."""
    if comm.size == 1:
        return {name: dict(tensors)}
    shares = {key: tensor for key, tensor in tensors.items() if key in divided}
    files: dict[str, storage.Content] = {_share(name, comm.rank): shares}
    if comm.rank == 0:
        files[name] = {key: tensor for key, tensor in tensors.items() if key not in divided}
    return files


def _divided_in_model(checkpoint: Checkpoint, model: Model, comm: Comm) -> list[str]:
    """Names of divided tables in the kept model, which also has a row per query.

    A table from an earlier checkpoint may be complete, though the state now has a share of it.
    """
    names = dict.fromkeys((*checkpoint.per_query, *checkpoint.divided))
    there = [name for name in names if name in model.tensors]
    return [name for name in there if not _is_complete(name, checkpoint, model, comm)]


def _is_complete(name: str, checkpoint: Checkpoint, model: Model, comm: Comm) -> bool:
    """Whether every process has all rows of a table that is divided in the state."""
    if comm.size == 1 or name in checkpoint.per_query or name not in checkpoint.state:
        return False
    lengths = [len(model.tensors[name]), len(checkpoint.state[name])]
    kept, divided = comm.sum(torch.tensor(lengths)).tolist()
    return bool(kept != divided)


def _share(name: str, rank: int) -> str:
    return f"{name}_{rank:05}"


def load(path: Path, comm: Comm = SINGLE_PROCESS) -> Checkpoint:
    """Load a checkpoint; of divided tables, only the rows of this process."""
    folder = storage.read(path, "checkpoint", full=True)
    with storage.check_contents(path):
        meta, model = folder.manifest, None
        if meta["model"] is not None:
            method, config, notes = meta["model"]
            model = Model(method, config, _tensors(folder, "model", comm), notes)
        phase, steps, entries, number, score = meta["progress"]
        history = History(phase, steps, entries, number, score, model, *meta["chosen"])
        if "kept" in folder:
            history.tensors = _tensors(folder, "kept", comm)
        return Checkpoint(meta["identity"], history, _tensors(folder, "state", comm))


def _tensors(folder: storage.Folder, name: str, comm: Comm) -> dict[str, Tensor]:
    """Tensors in memory: the files are replaced while the fit continues."""
    common, ranks = folder.tensors(name), folder.manifest.get("ranks", 1)
    shares = [common] if ranks == 1 else [folder.tensors(_share(name, r)) for r in range(ranks)]
    tensors = {key: torch.clone(tensor) for key, tensor in common.items()}
    for key in folder.manifest.get("divided", {}).get(name, ()):
        tensors[key] = _rows([share[key] for share in shares], comm)
    return tensors


def _rows(shares: Sequence[Tensor], comm: Comm) -> Tensor:
    """The rows of this process in the concatenation of the shares."""
    start, stop = comm.share(sum(map(len, shares)))
    parts, first = [], 0
    for share in shares:
        parts.append(share[max(0, start - first) : max(0, stop - first)])
        first += len(share)
    return torch.cat(parts)


def check_same(what: str, saved: Mapping[str, Any], wanted: Mapping[str, Any], hint: str) -> None:
    """A UserError that names the first value in which ``what`` was saved differs."""
    if difference := describe_difference(saved, wanted):
        raise UserError(f"{what} with {difference}", hint=hint)


def describe_difference(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first value that differs, as ``width = 8, not 9``; None if all wanted ones are equal."""
    for name, value in wanted.items():
        other = saved.get(name)
        if other == value:
            continue
        if name == "data":
            return "other data"
        if isinstance(other, Mapping) and isinstance(value, Mapping):
            inner = describe_difference(other, {**dict.fromkeys(other), **value})
            return f"{name}: {inner}"
        return f"{name} = {other}, not {value}"
    return None


def remove(path: Path) -> None:
    """Remove a folder; without its manifest, which goes first, the rest is a leftover."""
    with suppress(OSError):
        (path / storage.MANIFEST).unlink()
    shutil.rmtree(path, ignore_errors=True)
