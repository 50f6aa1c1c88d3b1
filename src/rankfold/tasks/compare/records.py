"""What a comparison has done so far, on disk: written at once, so that a killed run goes on.

DIR/manifest.json         what is compared how: a folder made otherwise is refused
DIR/runs/NAME/begun/      with which settings
DIR/runs/NAME/tuned/      the settings that were chosen
DIR/runs/NAME/tuning/     where tuning stands
DIR/runs/NAME/seed-0/     what the fit of a seed did on the test split, query by query
DIR/runs/NAME/model-0/    its model, until that is known
DIR/runs/NAME/error.txt   where it failed, until it is tried again
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError
from rankfold.tasks.compare.plan import Entry, Plan
from rankfold.training.checkpoint import path_of

BEGUN = "begun"


@contextmanager
def opened(plan: Plan) -> Iterator[None]:
    """Make the folder of a comparison, and hold it; one that was made otherwise is a UserError."""
    if (plan.out / storage.MANIFEST).exists():
        found = storage.read(plan.out, "comparison").manifest["plan"]
        _check_same(plan.out, found, plan.identity())
    else:
        plan.out.absolute().parent.mkdir(parents=True, exist_ok=True)
        storage.write(plan.out, "comparison", {"plan": plan.identity()}, {})
    with storage.locked(plan.out):
        for entry in plan.entries:
            _check_kept(plan, entry)
        yield


def _check_kept(plan: Plan, entry: Entry) -> None:
    """What is finished must be of this entry; what is not, and is of another, is removed."""
    home = home_of(plan, entry)
    folders = sorted(home.glob("*/")) if home.exists() else []
    finished = [f for f in folders if f.name == "tuned" or f.name.startswith("seed-")]
    for folder in finished:
        _check_same(home, storage.read(folder, "run").manifest["entry"], entry.identity())
    if folders and not finished and not _is_of(home / BEGUN, entry):
        drop(home)


def begin(plan: Plan, entry: Entry) -> None:
    """Say whose the models and checkpoints in the entry's folder will be; forget its failure."""
    error_of(plan, entry).unlink(missing_ok=True)
    if not _is_of(home_of(plan, entry) / BEGUN, entry):
        keep(plan, entry, BEGUN, {})


def _is_of(path: Path, entry: Entry) -> bool:
    if not path.exists():
        return False
    found: Mapping[str, Any] = storage.read(path, "run").manifest["entry"]
    return dict(found) == entry.identity()


def home_of(plan: Plan, entry: Entry) -> Path:
    return plan.out / "runs" / entry.folder


def model_of(plan: Plan, entry: Entry, seed: int) -> Path:
    """Where a model is while it is fitted and tested."""
    return home_of(plan, entry) / f"model-{seed}"


def error_of(plan: Plan, entry: Entry) -> Path:
    """Where a failure that is a bug is told in full."""
    return home_of(plan, entry) / "error.txt"


def drop_model(plan: Plan, entry: Entry, seed: int) -> None:
    path = model_of(plan, entry, seed)
    for folder in (path, path_of(path)):
        drop(folder)


def drop(path: Path) -> None:
    """Remove a folder, if it is there."""
    shutil.rmtree(path, ignore_errors=True)


def keep(
    plan: Plan,
    entry: Entry,
    name: str,
    record: Mapping[str, Any],
    values: Mapping[str, Tensor] | None = None,
) -> storage.Folder:
    """Write a finished part, and open it."""
    path = home_of(plan, entry) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"entry": entry.identity(), "record": dict(record)}
    storage.write(path, "run", meta, {} if values is None else {"values": values})
    return storage.read(path, "run")


def kept(plan: Plan, entry: Entry, name: str) -> storage.Folder | None:
    """A part that was finished before."""
    path = home_of(plan, entry) / name
    return storage.read(path, "run", full=True) if path.exists() else None


def _check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """A UserError that names what differs."""
    for name, value in wanted.items():
        if found.get(name) != value:
            what = "on other data" if name == "data" else _difference(name, found.get(name), value)
            raise UserError(
                f"{path} holds a comparison {what}",
                hint="name another --out, or give the same settings to go on",
            )


def _difference(name: str, found: Any, wanted: Any) -> str:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        names = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
        return _difference(names[0], found.get(names[0]), wanted.get(names[0]))
    return f"with {name} = {found}, not {wanted}"
