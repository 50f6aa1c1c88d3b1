"""A killed run leaves the old folder or the new one.

This file is also the script that is killed: ``main`` reports that it is ready, and writes on order.
A process is killed with SIGKILL at a random time, uniform over slightly more than the duration of a
write: most kills land inside the write, some after it.
"""

import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from rankfold import storage
from rankfold.data import folder, prepare
from rankfold.data.build.dataset import fingerprint
from rankfold.models.load import load_ranker
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Model, Vocabulary, from_pairs

pytestmark = pytest.mark.slow

KILLS = 50
WAITING = 2  # processes that start while another one is killed


# ---------------------------------------------------------------------------------- content


def table(version: int) -> pl.DataFrame:
    """Interactions that differ from version to version."""
    rng = np.random.default_rng(version)
    queries, candidates = rng.integers(0, 20_000, 100_000), rng.integers(0, 5_000, 100_000)
    return pl.DataFrame({"query": queries, "candidate": candidates})


def make_data(version: int) -> Dataset:
    return prepare.prepare(table(version))


def make_ranker(version: int) -> Ranker:
    """A model that differs from version to version."""
    rng = torch.Generator().manual_seed(version)
    tensors = {
        "queries": torch.randn(20_000, 64, generator=rng),
        "candidates": torch.randn(5_000, 64, generator=rng),
    }
    keys = pl.Series([f"{version}-{row}" for row in range(20_000)]).sort()
    chosen = torch.arange(20_000) % (4_000 + version)
    seen = from_pairs(torch.arange(20_000), chosen, None, (20_000, 5_000))
    model = Model("rg2-plain", {"width": 64}, tensors)
    return Ranker(model, Vocabulary(20_000, lambda: keys), Vocabulary.numbered(5_000), seen)


def same_data(actual: Dataset, expected: Dataset) -> bool:
    """Whether two data sets have equal content, not only equal recorded fingerprints."""
    parts = (actual.train, actual.validation, actual.test)
    content = fingerprint(parts, actual.queries.keys, actual.candidates.keys)  # type: ignore[arg-type]
    return content == actual.fingerprint == expected.fingerprint


def same_ranker(actual: Ranker, expected: Ranker) -> bool:
    ours, theirs = actual.model.tensors, expected.model.tensors
    return (
        ours.keys() == theirs.keys()
        and all(torch.equal(ours[name], theirs[name]) for name in ours)
        and torch.equal(actual.seen.candidates, expected.seen.candidates)
        and actual.queries.keys.equals(expected.queries.keys)
        and actual.candidates.keys.equals(expected.candidates.keys)
    )


# ---------------------------------------------------------------------------------- victim


def main() -> None:
    """Read orders, ``[what, path, version]``, and carry them out."""
    report("ready")
    for order in sys.stdin:
        what, path, version = json.loads(order)
        if what == "data":
            prepare.prepare(table(version), out=path, progress=report_writing)
        else:
            made = make_ranker(version)
            report("writing")
            made.save(path)
        report("done")


def report_writing(what: str, _share: float) -> None:
    if what == "writing":
        report("writing")


def report(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Process:
    """A process that writes on order."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def start_writing(self, *order: Any) -> None:
        """Send an order and wait until the writing begins."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.expect("writing")

    def kill(self) -> bool:
        """Kill it; True if it was still writing."""
        self.process.send_signal(signal.SIGKILL)
        rest, _ = self.process.communicate()
        return rest == ""


def processes() -> Generator[Process, None, None]:
    """Processes that are ready, while the next ones start."""
    waiting = deque(Process() for _ in range(WAITING))
    try:
        while True:
            waiting.append(Process())
            waiting[0].expect("ready")
            yield waiting.popleft()
    finally:
        for process in waiting:
            process.kill()


# ---------------------------------------------------------------------------------- kills


@dataclass(frozen=True, slots=True)
class Scenario:
    """A write, and what must exist afterwards."""

    what: str
    begin_with: int | None  # the version that exists before each write; None: none
    make: Callable[[int], Any]
    load: Callable[[Path], Any]
    same: Callable[[Any, Any], bool]


SCENARIOS = {
    "prepare into a new folder": Scenario("data", None, make_data, folder.load, same_data),
    "prepare over a folder": Scenario("data", 0, make_data, folder.load, same_data),
    "save over a folder": Scenario("model", 0, make_ranker, load_ranker, same_ranker),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_write_leaves_the_old_or_the_new_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, path, rng = SCENARIOS[name], tmp_path / "out", random.Random(name)
    ends: Counter[str] = Counter()
    with closing(processes()) as ready:
        duration = measure(scenario, path, ready)
        present = scenario.begin_with
        for version in range(1, KILLS + 1):
            if scenario.begin_with is None:
                shutil.rmtree(path, ignore_errors=True)
                present = None
            process = next(ready)
            process.start_writing(scenario.what, str(path), version)
            time.sleep(rng.uniform(0, duration))
            interrupted = process.kill()
            left = present_version(scenario, path, (present, version))
            assert interrupted or left == version
            duration *= 1.05 if interrupted else 0.9  # follow the load of the machine
            ends["before the end"] += interrupted
            ends["with an unfinished file"] += left != version and has_unfinished(path)
            ends["new after" if left == version else "old after"] += 1
            present = left
        process = next(ready)
        process.start_writing(scenario.what, str(path), KILLS + 1)
        process.expect("done")
        process.kill()
    assert present_version(scenario, path, (KILLS + 1,)) == KILLS + 1
    assert not has_unfinished(path)
    assert len(list(path.iterdir())) <= 1 + 2 * len(storage.read(path).manifest["files"])
    with capsys.disabled():
        counts = ", ".join(f"{n} {what}" for what, n in ends.items())
        sys.stderr.write(f"\n{name}: {KILLS} kills in {duration * 1e3:.0f} ms: {counts}\n")
    assert ends["before the end"] >= KILLS / 3
    assert ends["with an unfinished file"] >= KILLS / 5


def measure(scenario: Scenario, path: Path, ready: Iterator[Process]) -> float:
    """The median duration of a write in seconds. Restores the start of the scenario."""
    seconds = []
    for version in (2, 1, 0):
        if scenario.begin_with is None:
            shutil.rmtree(path, ignore_errors=True)
        process = next(ready)
        process.start_writing(scenario.what, str(path), version)
        began = time.monotonic()
        process.expect("done")
        seconds.append(time.monotonic() - began)
        process.kill()
    return statistics.median(seconds)


def present_version(scenario: Scenario, path: Path, allowed: tuple[int | None, ...]) -> int | None:
    """Which of the allowed versions is present and complete; None: no folder."""
    if not path.exists():
        assert None in allowed
        return None
    storage.read(path, full=True)
    loaded = scenario.load(path)
    matching = [
        v for v in allowed if v is not None and scenario.same(loaded, make_version(scenario, v))
    ]
    assert len(matching) == 1
    return matching[0]


@lru_cache(maxsize=4)
def make_version(scenario: Scenario, version: int) -> Any:
    return scenario.make(version)


def has_unfinished(path: Path) -> bool:
    """Whether a write left unfinished files, beside the folder or in it."""
    beside = path.parent.glob(f".{path.name}.writing-*")
    return any(beside) or any(path.glob(".*.writing-*"))


if __name__ == "__main__":
    main()
