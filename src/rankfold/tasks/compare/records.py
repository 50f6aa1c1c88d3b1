"""The finished parts of a comparison on disk. Each is written atomically, so a killed run resumes.

DIR/manifest.json         the plan; a folder with another plan is refused
DIR/runs/NAME/begun/      the settings of the entry
DIR/runs/NAME/tuned/      the selected settings
DIR/runs/NAME/tuning/     the unfinished search
DIR/runs/NAME/seed-0/     the results of one seed on the test split, per query
DIR/runs/NAME/model-0/    its model, until it is tested
DIR/runs/NAME/error.txt   the traceback of a failure, until the next attempt
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rankfold import storage
from rankfold.tasks.compare.plan import ComparePlan, Entry
from rankfold.training.checkpoint import check_same, path_of, remove

_BEGUN = "begun"
_HOLDS, _HINT = "holds a comparison", "choose another --out, or give the same settings to resume"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of an entry, or its error."""

    entry: Entry
    error: Mapping[str, str] | None
    tuned: Mapping[str, Any] | None = None  # None: not tuned
    seeds: Sequence[storage.Folder] = ()  # as written by ``save``

    @property
    def records(self) -> list[dict[str, Any]]:
        return [folder.manifest["record"] for folder in self.seeds]


@contextmanager
def open_folder(plan: ComparePlan) -> Iterator[None]:
    """Create or open the folder of a comparison and lock it; a UserError for another plan."""
    check_folder(plan)
    if not (plan.out / storage.MANIFEST).exists():
        plan.out.absolute().parent.mkdir(parents=True, exist_ok=True)
        storage.write(plan.out, "comparison", {"plan": plan.identity()}, {})
    with storage.locked(plan.out):
        for entry in plan.entries:
            home = home_of(plan, entry)
            unfinished = home.exists() and any(home.glob("*/")) and not _finished(plan, entry)
            if unfinished and not _belongs(home / _BEGUN, entry):
                remove(home)
        yield


def check_folder(plan: ComparePlan) -> None:
    """A UserError if the folder holds another comparison, or finished parts of another entry."""
    if not (plan.out / storage.MANIFEST).exists():
        if plan.out.absolute().parent.exists():  # otherwise it is made
            storage.check_writable(plan.out, "comparison")
        return
    saved = storage.read(plan.out, "comparison").manifest["plan"]
    check_same(f"{plan.out} {_HOLDS}", saved, plan.identity(), _HINT)
    for entry in plan.entries:
        for folder in _finished(plan, entry):
            what = f"{home_of(plan, entry)} {_HOLDS}"
            check_same(what, _identity_in(folder), entry.identity(), _HINT)


def _finished(plan: ComparePlan, entry: Entry) -> list[Path]:
    """The folders of the finished parts of an entry."""
    folders = sorted(home_of(plan, entry).glob("*/"))
    return [one for one in folders if one.name == "tuned" or one.name.startswith("seed-")]


def begin(plan: ComparePlan, entry: Entry) -> None:
    """Record the settings of the entry whose models follow; remove its last failure."""
    error_of(plan, entry).unlink(missing_ok=True)
    if not _belongs(home_of(plan, entry) / _BEGUN, entry):
        save(plan, entry, _BEGUN, {})


def _belongs(path: Path, entry: Entry) -> bool:
    return path.exists() and bool(_identity_in(path) == entry.identity())


def _identity_in(path: Path) -> dict[str, Any]:
    return dict(storage.read(path, "run").manifest["entry"])


def home_of(plan: ComparePlan, entry: Entry) -> Path:
    return plan.out / "runs" / entry.folder


def model_of(plan: ComparePlan, entry: Entry, seed: int) -> Path:
    """The folder of a model while it is fitted and tested."""
    return home_of(plan, entry) / f"model-{seed}"


def error_of(plan: ComparePlan, entry: Entry) -> Path:
    """The file for the traceback of a bug."""
    return home_of(plan, entry) / "error.txt"


def drop_model(plan: ComparePlan, entry: Entry, seed: int) -> None:
    path = model_of(plan, entry, seed)
    for folder in (path, path_of(path)):
        remove(folder)


def save(
    plan: ComparePlan,
    entry: Entry,
    name: str,
    record: Mapping[str, Any],
    values: Mapping[str, Tensor] | None = None,
) -> storage.Folder:
    """Write a finished part and open it."""
    path = home_of(plan, entry) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"entry": entry.identity(), "record": dict(record)}
    storage.write(path, "run", meta, {} if values is None else {"values": values})
    return storage.read(path, "run")


def load(plan: ComparePlan, entry: Entry, name: str) -> storage.Folder | None:
    """A part that was finished before; None without one."""
    path = home_of(plan, entry) / name
    return storage.read(path, "run", full=True) if path.exists() else None
