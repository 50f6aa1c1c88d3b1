"""Where a fit stands, on disk: enough to go on as if it had never stopped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankfold import store
from rankfold.errors import UserError
from rankfold.training.course import Course
from rankfold.types import Model


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One moment of a fit, right after a step.

    ``identity`` is what must be equal for a fit to go on from here: method, settings, seed, data.
    """

    identity: Mapping[str, Any]
    course: Course
    state: Mapping[str, Tensor]  # of the step, with its number and the generator's state


def path_of(model: Path) -> Path:
    """``MODEL.checkpoint``, beside the model to be."""
    return model.with_name(f"{model.name}.checkpoint")


def save(path: Path, checkpoint: Checkpoint) -> None:
    course, model = checkpoint.course, checkpoint.course.model
    meta: dict[str, Any] = {
        "identity": dict(checkpoint.identity),
        "course": [course.phase, course.steps, course.history, course.number, course.score],
        "chosen": [course.settings, course.notes, course.in_passes],
        "model": None if model is None else [model.method, dict(model.config), dict(model.notes)],
    }
    files: dict[str, store.Content] = {"state": dict(checkpoint.state)}
    if model is not None:
        files["model"] = dict(model.tensors)
    store.write(path, "checkpoint", meta, files)


def load(path: Path) -> Checkpoint:
    folder = store.read(path, "checkpoint", full=True)
    with store.understood(path):
        return _checkpoint(folder)


def _checkpoint(folder: store.Folder) -> Checkpoint:
    meta = folder.manifest
    model = None
    if meta["model"] is not None:
        method, config, notes = meta["model"]
        model = Model(method, config, _copied(folder, "model"), notes)
    phase, steps, history, number, score = meta["course"]
    course = Course(phase, steps, history, number, score, model, *meta["chosen"])
    return Checkpoint(meta["identity"], course, _copied(folder, "state"))


def _copied(folder: store.Folder, name: str) -> dict[str, Tensor]:
    """Tensors in memory: the files are replaced while the fit goes on."""
    return {key: torch.clone(tensor) for key, tensor in folder.tensors(name).items()}


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
