"""A fault at any call on the disk leaves the old state or the new one, and a rerun succeeds.

The short form samples the calls of each command. The long one tries every fault at every call, but
once where the same lines of the program make a call several times; a kill before every call that
may change the disk, since before another one it leaves the same disk. Commands that take long meet
one error at each call, not all of them.
"""

import errno
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from disk_calls import Call, Fault, Killed, failing_call

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError
from rankfold.models.index import add_index
from rankfold.tasks.export import export
from rankfold.tasks.predict import predict
from rankfold.tasks.tune import tune
from rankfold.tasks.update import extend, fit_and_add, forget
from rankfold.types import Range

pytestmark = pytest.mark.usefixtures("extra_methods")

FAULTS: list[Fault] = [errno.ENOSPC, errno.EIO, errno.EINTR, "kill", "short"]
UNCHANGING = ("os.stat", "os.lstat", "os.listdir", "os.scandir", "os.fsync")
NEW_CANDIDATES = pl.DataFrame({"candidate": ["new"], "price": [2.5]})


@dataclass(frozen=True, slots=True)
class Command:
    """What is run in a folder that has ``data``, ``more``, ``rows.csv`` and ``model``."""

    run: Callable[[Path], Any]
    out: str
    once: bool = False  # a rerun after a success is refused
    resumes: bool = False  # it has states between the old and the new one


def fit(home: Path, out: str) -> None:
    options: dict[str, Any] = {"width": 2, "sweeps": 3, "patience": 9, "checkpoint_seconds": 0}
    rf.fit("ials", home / "data", out=home / out, resume=True, **options)


def search_settings(home: Path) -> None:
    space = {"reg": Range(0.01, 0.1)}
    fixed = {"width": 2, "sweeps": 1}
    tune("ials", home / "data", out=home / "tuned", trials=1, space=space, fixed=fixed)


COMMANDS = {
    "prepare": Command(lambda home: rf.prepare(home / "rows.csv", out=home / "new"), "new"),
    "prepare over": Command(lambda home: rf.prepare(home / "rows.csv", out=home / "data"), "data"),
    "fit": Command(lambda home: fit(home, "new"), "new"),
    "index": Command(lambda home: add_index(home / "model", "hnsw", recall=0.5), "model"),
    "add": Command(
        lambda home: fit_and_add("slopes", home / "data", home / "more", home / "model"), "model"
    ),
    "extend": Command(lambda home: extend(home / "model", NEW_CANDIDATES), "model", once=True),
    "forget": Command(lambda home: forget(home / "model", ["bob"]), "model"),
    "export": Command(
        lambda home: export(rf.load(home / "model"), home / "new", format="npy"), "new", once=True
    ),
    "predict": Command(
        lambda home: predict(rf.load(home / "model"), home / "rows.csv", home / "new.parquet"),
        "new.parquet",
    ),
    "tune": Command(search_settings, "tuned", resumes=True),
    "compare": Command(
        lambda home: rf.compare(home / "data", "popularity", out=home / "compared"),
        "compared",
        resumes=True,
    ),
}


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which every command starts, made once."""
    home = tmp_path_factory.getbasetemp() / "start"
    if home.exists():
        return home
    home.mkdir()
    pairs = [(f"q{q}", f"c{(q * step) % 11}") for q in range(9) for step in range(1, 7)]
    table = pl.DataFrame(
        [*pairs, ("bob", "c1"), ("bob", "c2")], ["query", "candidate"], orient="row"
    )
    table.write_csv(home / "rows.csv")
    features = pl.DataFrame({"candidate": [f"c{n}" for n in range(11)], "price": range(11)})
    rf.prepare(table, out=home / "data", candidate_features=features)
    rf.prepare(table.head(20), out=home / "more", split=(1.0, 0.0, 0.0))
    rf.fit("slopes", home / "data", out=home / "model")
    (home / "tmp").mkdir()
    return home


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> Command:
    return COMMANDS[request.param]


def state(path: Path) -> Any:
    """What a person has: the files that a manifest names, whose names have their checksums."""
    if not path.is_dir():
        return path.read_bytes() if path.exists() else None
    folders = [manifest.parent for manifest in path.rglob(storage.MANIFEST)]
    if not folders:
        files = (file for file in path.rglob("*") if file.is_file() and not is_temporary(file))
        return {file.relative_to(path): file.read_bytes() for file in files}
    files = {one: storage.read(one, full=True).manifest["files"].values() for one in folders}
    return {one.relative_to(path): sorted(e["file"] for e in files[one]) for one in folders}


def leftovers(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if is_temporary(path)]


def is_temporary(path: Path) -> bool:
    return ".writing-" in str(path)


def begin(start: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(start, home)
    monkeypatch.setattr(tempfile, "tempdir", str(home / "tmp"))


def calls_of(command: Command, home: Path) -> list[Call]:
    with failing_call(10**9, under=home) as calls:
        command.run(home)
    return calls


def check(command: Command, home: Path, place: int, fault: Fault, states: tuple[Any, Any]) -> None:
    """Run the command with a fault, and again without."""
    old, new = states
    out = home / command.out
    with failing_call(place, fault, under=home):
        try:
            command.run(home)
        except (UserError, Killed):
            pass
        except OSError as error:  # the command line prints it as one error
            assert error.errno == fault  # noqa: PT017
    left = state(out)
    assert command.resumes or left in (old, new)
    if left == new and command.once:
        return
    command.run(home)
    assert state(out) == new
    assert leftovers(home) == []


def check_at(
    start: Path, home: Path, command: Command, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    """Check faults at every call, or each fault at one call; those that take long only a kill."""
    begin(start, home, monkeypatch)
    old = state(home / command.out)
    calls = calls_of(command, home)
    new = state(home / command.out)
    assert new != old
    for number, fault in enumerate(FAULTS):
        able = places_for(fault, calls)
        if command.resumes and isinstance(fault, int):
            able = able[number % 3 :: 3]  # these take long: another error at each call
        some = able[number * len(able) // len(FAULTS) :][:1]  # at another stage for each fault
        for place in able if every else some if fault == "kill" or not command.resumes else []:
            begin(start, home, monkeypatch)
            check(command, home, place, fault, (old, new))


def places_for(fault: Fault, calls: Sequence[Call]) -> list[int]:
    """The numbers of the calls at which a fault may do what it does nowhere else."""
    if fault == "kill":
        return [place for place, call in enumerate(calls) if call.name not in UNCHANGING]
    first = {call: place for place, call in reversed([*enumerate(calls)])}
    return sorted(p for call, p in first.items() if fault != "short" or call.name == "os.write")


def test_a_fault_at_some_calls(
    start: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_at(start, tmp_path / "home", command, monkeypatch, every=False)


@pytest.mark.slow
def test_a_fault_at_every_call(
    start: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_at(start, tmp_path / "home", command, monkeypatch, every=True)
