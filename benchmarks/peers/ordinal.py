"""Ordinal peers at low false-positive rates, tuned the way ``quality/ordinal.py`` tunes.

    python -m benchmarks.peers.ordinal [--data-sets ...] [--peers ...] [--jobs N] [--device D]

Arrays, number of settings, the rows for trials, the five fits on train and validation, metrics and
the layout of results are those of ``quality/ordinal.py``, whose ``table`` shows both. Each peer has
its own space; the first setting is its default. The rates share the trials; the selection is made
per rate. Each peer runs in its own environment, or in a given ``--python``, with one thread;
``--jobs`` processes fit side by side. ``seconds`` are CPU seconds of the fits. An interrupted run
is resumed. On retinamnist the first and the selected settings are scored on fresh thirds at the
end, as in ``again``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.paths import HOME, SCRATCH
from benchmarks.peers.environment import required
from benchmarks.quality import ordinal as ours
from benchmarks.quality.ordinal import METRICS, RATES, SEEDS, TRIALS, Row
from rankfold.types import Dataset

PARTS = SCRATCH / "graded" / "parts"
Space = dict[str, tuple[Any, ...]]


class Peer(NamedTuple):
    """A peer's folder, its defaults, and its search space."""

    folder: str
    start: Row
    space: Space
    of_data: dict[str, tuple[Row, Space]]  # in addition, for one set
    draws: bool = True  # whether a fit depends on the seed


LIBAUC = {"lr": 1e-3, "weight_decay": 1e-5, "dropout": 0.1, "epochs": 30, "batches": "tri"}
LIBAUC_SPACE: Space = {
    **{key: ours.COMMON[key] for key in ("lr", "dropout")},
    "weight_decay": (0.0, 1e-5, 1e-4),
    "batches": ("tri", "rows"),
    "margin": (0.3, 0.5, 0.7, 1.0),
}
LIBAUC_OF_DATA: dict[str, tuple[Row, Space]] = {
    "fars": ({"batch_size": 512, "flips": "none"}, {"epochs": (6, 12, 24)}),
    "retinamnist": ({"batch_size": 64, "flips": "both"}, {"epochs": (15, 30, 60)}),
}
PEERS = {
    "lightgbm": Peer(
        "lightgbm",
        {"trees": 100, "learning_rate": 0.1, "num_leaves": 31, "min_data_in_leaf": 20},
        {
            "learning_rate": (0.02, 0.05, 0.1),
            "num_leaves": (7, 15, 31, 63, 127),
            "min_data_in_leaf": (5, 20, 100),
            "lambda_l2": (0.0, 1.0, 10.0),
            "bagging_fraction": (0.6, 0.8, 1.0),
        },
        {
            "fars": (
                {"bagging_freq": 1},
                {
                    "trees": (100, 200, 400),
                    "feature_fraction": (0.3, 0.6, 1.0),
                    "cat_smooth": (1.0, 10.0, 50.0),
                },
            ),
            "retinamnist": (
                {"bagging_freq": 1, "max_bin": 63},
                {"trees": (50, 100, 200), "feature_fraction": (0.02, 0.1, 0.3)},
            ),
        },
    ),
    "mord": Peer(
        "mord", {"alpha": 1.0}, {"alpha": tuple(np.logspace(-2, 5, 29).tolist())}, {}, draws=False
    ),
    "libauc-sopas": Peer(
        "libauc",
        {**LIBAUC, "mode": "SOPAs", "margin": 1.0, "Lambda": 1.0, "gamma": 0.9},
        {**LIBAUC_SPACE, "Lambda": (0.1, 0.3, 1.0, 3.0), "gamma": (0.1, 0.5, 0.9)},
        LIBAUC_OF_DATA,
    ),
    "libauc-sopa": Peer(
        "libauc",
        {**LIBAUC, "mode": "SOPA", "margin": 1.0, "beta": 0.2, "eta": 0.1},
        {**LIBAUC_SPACE, "beta": (0.01, 0.05, 0.1, 0.3), "eta": (0.01, 0.1, 1.0)},
        LIBAUC_OF_DATA,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-sets", nargs="+", default=[*ours.OF_DATA], choices=[*ours.OF_DATA])
    parser.add_argument("--peers", nargs="+", default=[*PEERS], choices=[*PEERS])
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--python", type=Path, help="a Python with the peer; default: its own environment"
    )
    parser.add_argument("--out", type=Path, default=ours.OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.peers:
        with ExitStack() as stack:
            python = args.python or required(PEERS[name].folder)
            peers = [PeerProcess(PEERS[name].folder, python, args.device) for _ in range(args.jobs)]
            ask = Several([stack.enter_context(peer) for peer in peers])
            for data_name in args.data_sets:
                study(name, data_name, ask, args.out)


def study(name: str, data_name: str, ask: Several, out: Path) -> None:
    """Tune one peer on one set, then test."""
    path = out / f"{name}-{data_name}.json"
    result = ours.begun(path, data_name)
    data = ours.load(data_name)
    tried = ours.splits_for_tuning(data)
    ours.check_splits(result, len(tried), path)
    for trial in trials(name, data_name)[len(result["trials"]) :]:
        jobs = [
            (f"{data_name}-{place}-validation", one, "validation", trial, 0)
            for place, one in enumerate(tried)
        ]
        scored = ask.each(fitted, jobs)
        seconds = round(sum(row["seconds"] for row in scored), 1)
        result["trials"].append({"settings": trial, "seconds": seconds, **ours.averaged(scored)})
        ours.keep(path, result)
        shown = {m: round(result["trials"][-1][m], 4) for m in METRICS[: len(RATES)]}
        print(data_name, name, trial, shown, flush=True)
    whole = replace(data, train=data.graded("train").join(data.graded("validation")))
    for wanted in RATES:
        best = max(result["trials"], key=lambda row: row[ours.at(wanted)])["settings"]
        if str(wanted) not in result["tests"]:
            same = [t["seeds"] for t in result["tests"].values() if t["settings"] == best]
            seeds = range(SEEDS if PEERS[name].draws else 1)
            jobs = [(f"{data_name}-test", whole, "test", best, seed) for seed in seeds]
            rows = same[0] if same else ask.each(fitted, jobs)
            rows = rows if PEERS[name].draws else rows[:1] * SEEDS
            result["tests"][str(wanted)] = {"settings": best, "seeds": rows}
            ours.keep(path, result)
        kept = result["tests"][str(wanted)]
        mean = np.mean([row[ours.at(wanted)] for row in kept["seeds"]])
        print(data_name, name, "TEST", wanted, best, round(float(mean), 4), flush=True)
    for settings in ours.to_judge(result) if len(tried) > 1 else []:
        jobs = [
            (f"{data_name}-anew-{place}", one, "validation", settings, place)
            for place, one in enumerate(ours.splits_anew(data))
        ]
        ours.add_judged(path, result, settings, ask.each(fitted, jobs))


def trials(name: str, data_name: str) -> list[Row]:
    """The settings to try, all different; the first is the peer's default."""
    peer, rng = PEERS[name], np.random.default_rng(0)
    fixed, own = peer.of_data.get(data_name, ({}, {}))
    result = [{**peer.start, **fixed}]
    while len(result) < TRIALS:
        space = {**peer.space, **own}
        drawn = {key: values[rng.integers(len(values))] for key, values in space.items()}
        if {**peer.start, **fixed, **drawn} not in result:
            result.append({**peer.start, **fixed, **drawn})
    return result


def fitted(ask: PeerProcess, part: str, data: Dataset, split: str, settings: Row, seed: int) -> Row:
    """The metrics of a peer on a split, and its CPU seconds."""
    path, out = PARTS / f"{part}.npz", PARTS / f"scores-{ask.process.pid}.npy"
    rows: Any = data.graded(split)  # type: ignore[arg-type]
    if not path.exists():
        write(path, data, rows)
    figures = ask({"data": str(path), "settings": settings, "seed": seed, "out": str(out)})
    scores, n = torch.from_numpy(np.load(out)).double(), len(data.candidates)
    out.unlink()
    figure = ours.tested if split == "test" else ours.measured
    return {**figure(scores, rows, n), "seconds": round(figures["cpu_seconds"], 1)}


def write(path: Path, data: Dataset, asked: Any) -> None:
    """Input of a peer: rows to fit on, and rows to score."""
    assert data.columns is not None
    kept = {
        f"{name}_{field}": value.numpy()
        for name, rows in (("train", data.graded("train")), ("asked", asked))
        for field in ("numbers", "categories", "images", "grades")
        if (value := getattr(rows, field)) is not None
    }
    kept["levels"] = np.array([len(v) for v in data.columns.levels.values()], dtype=np.int64)
    kept["n_grades"] = np.array(len(data.candidates))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{os.getpid()}-{threading.get_ident()}-{path.name}")
    np.savez(partial, **kept)
    partial.replace(path)


class Several:
    """Processes of a peer that fit in parallel."""

    def __init__(self, peers: list[PeerProcess]) -> None:
        self.free: SimpleQueue[PeerProcess] = SimpleQueue()
        for peer in peers:
            self.free.put(peer)
        self.threads = len(peers)

    def each(self, function: Callable[..., Row], jobs: list[tuple[Any, ...]]) -> list[Row]:
        """``function(process, *job)`` for each job, in order."""

        def done(job: tuple[Any, ...]) -> Row:
            peer = self.free.get()
            try:
                return function(peer, *job)
            finally:
                self.free.put(peer)

        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(done, jobs))


class PeerProcess:
    """A peer's process: sends a job, returns its answer."""

    def __init__(self, folder: str, python: Path, device: str) -> None:
        words = [str(python.absolute()), str(HOME / "peers" / folder / "fit.py")]
        single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        paths = [str(HOME.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, **single, "PYTHONPATH": os.pathsep.join(paths)}
        pipe = subprocess.PIPE
        self.device = device
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=env)

    def __enter__(self) -> PeerProcess:
        return self

    def __call__(self, job: Row) -> Row:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**job, "device": self.device}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):  # a peer may print other lines
                answer: Row = json.loads(line)
                return answer
        raise RuntimeError(f"the peer ended with {self.process.wait()} at {job}")

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    main()
