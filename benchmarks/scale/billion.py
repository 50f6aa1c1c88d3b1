"""The spectral RG2 solver on a billion pairs: seconds per pass, peak memory, cost against size.

    python -m benchmarks.scale.billion generate --pairs 1e9 --out DIR
    python -m benchmarks.scale.billion run DIR [--tail none] [--memory-budget BYTES] [--write]
    python -m benchmarks.scale.billion linear [--write]

``generate`` writes a prepared folder of 10 M queries x 1 M candidates, or in proportion. A query
draws a log-normal number of candidates by a power law, half of them from its own topic, and keeps
the distinct ones. ``run`` fits rg2 with ``rf.fit``, without validation. ``linear`` runs the full
number of iterations for each size, each in its own process.

The floor of a pass is the data that the two products with a block of vectors must move (the index
and the gathered vector of each pair, twice; the dense blocks once) at this machine's streaming read
rate. Vectors that stay in a cache are read faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH
from rankfold import storage
from rankfold.data import folder
from rankfold.data.build.dataset import fingerprint, pair_counts
from rankfold.methods.closed_form import path_search, tail
from rankfold.solvers import spectral
from rankfold.tasks.fit import plan
from rankfold.types import Dataset, Interactions, Vocabulary

RESULT = RESULTS / "scale" / "billion.json"
PAIRS_A_QUERY, PAIRS_A_CANDIDATE, FEWEST = 100, 1000, 5
SPREAD = 1.0  # of the log of a query's number of pairs
SKEW = 2.5  # a candidate's rank is N u^SKEW, so that its chance falls as rank^(1/SKEW - 1)
TOPICS, SMALLEST = 256, 500  # of the candidates: at most so many, of no fewer candidates
IN_TOPIC = 0.5  # the share of draws within the query's topic
DRAWS = 2**24  # at a time
SIZES = (10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8)
WIDTHS = (16, 32, 64, 128, 256)
WIDTH, AT = 64, 10**7  # of the other series each
ROUNDS = 3
FULL_LENGTH = 1e-30  # an unreachable tolerance


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("generate")
    one.add_argument("--pairs", type=_whole, default=10**9)
    one.add_argument("--out", type=Path, required=True)
    one = commands.add_parser("run")
    one.add_argument("folder", type=Path)
    one.add_argument("--width", type=int, default=WIDTH)
    one.add_argument("--tolerance", type=float, help="of the residual; default: that of the method")
    one.add_argument("--tail", choices=["neighbours", "none"], default="neighbours")
    one.add_argument("--memory-budget", type=_whole, help="default: that of rf.fit")
    one.add_argument("--write", action="store_true", help=f"write the figures to {RESULT.name}")
    one = commands.add_parser("linear")
    one.add_argument("--write", action="store_true", help=f"write the figures to {RESULT.name}")
    args = parser.parse_args()
    if args.command == "generate":
        generate(args.pairs, args.out)
        return
    if args.command == "run":
        given = {"tolerance": args.tolerance, "memory_budget": args.memory_budget}
        given["tail"] = args.tail
        options = {name: value for name, value in given.items() if value is not None}
        result = {f"run, tail={args.tail}": run(args.folder, args.width, options)}
    else:
        result = {"linear": linear()}
    print(json.dumps(result, indent=1))
    if args.write:
        kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        kept |= result
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def _whole(text: str) -> int:
    return int(float(text))


# ---------------------------------------------------------------------------------- generate


def generate(pairs: int, path: Path) -> None:
    """Roughly ``pairs`` distinct pairs as prepared data; one chunk of them in memory."""
    storage.check_writable(path, "data")
    began, rng = perf_counter(), torch.Generator().manual_seed(0)
    n_queries, n_candidates = pairs // PAIRS_A_QUERY, pairs // PAIRS_A_CANDIDATE
    shuffled = torch.randperm(n_candidates, generator=rng)
    mean = _mean_to_draw(shuffled, rng)
    sizes = _sizes(n_queries, mean, n_candidates, rng)
    temporary = path.with_name(f".{path.name}.pairs")
    try:
        counts = []
        with temporary.open("wb") as file:
            for some in sizes.split(max(1, int(DRAWS / mean))):
                chosen = choose(some, shuffled, rng)
                file.write(chosen.candidates.numpy().data)
                counts.append(chosen.counts())
                done = sum(map(len, counts))
                print(f"{done / n_queries:.1%}, {perf_counter() - began:.0f} s", file=sys.stderr)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), *counts]).cumsum(0)
        size = int(offsets[-1])
        chosen = torch.from_file(str(temporary), shared=True, size=size, dtype=torch.int32)
        folder.save(_dataset(Interactions(offsets, chosen, None, n_candidates), sizes), path)
    finally:
        temporary.unlink(missing_ok=True)
    seconds = perf_counter() - began
    print(f"{path}: {size:,} distinct pairs of {int(sizes.sum()):,} drawn in {seconds:.0f} s")


def choose(sizes: Tensor, shuffled: Tensor, rng: torch.Generator) -> Interactions:
    """The distinct candidates of each query's draws, half of them from its topic.

    Candidates are drawn by rank: those of topic t have rank t modulo the number of topics.
    """
    n, topics = len(shuffled), _topics(len(shuffled))
    topic = (topics * torch.rand(len(sizes), generator=rng) ** 2).long()  # some are popular
    query = torch.repeat_interleave(sizes)
    share = torch.rand(len(query), generator=rng) ** SKEW
    within = (n // topics * share).long() * topics + topic[query]
    inside = torch.rand(len(query), generator=rng) < IN_TOPIC
    rank = torch.where(inside, within, (n * share).long()).clamp_(max=n - 1)
    pairs = query.mul_(n).add_(shuffled[rank]).numpy()
    pairs.sort()  # numpy's sort is the faster one
    distinct = torch.from_numpy(pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])])
    counts = torch.bincount(distinct // n, minlength=len(sizes))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Interactions(offsets, (distinct % n).int(), None, n)


def _topics(n_candidates: int) -> int:
    return min(TOPICS, math.ceil(n_candidates / SMALLEST))


def _sizes(n: int, mean: float, n_candidates: int, rng: torch.Generator) -> Tensor:
    """The number of draws of each of n queries: log-normal with this mean."""
    log = torch.randn(n, generator=rng) * SPREAD + math.log(mean) - SPREAD**2 / 2
    return log.exp().round().long().clamp(FEWEST, n_candidates // 2)


def _mean_to_draw(shuffled: Tensor, rng: torch.Generator) -> float:
    """The draws per query for the wanted number of pairs, estimated on a sample."""
    mean, n = float(PAIRS_A_QUERY), 20_000
    for _ in range(5):
        kept = choose(_sizes(n, mean, len(shuffled), rng), shuffled, rng).n_pairs / n
        mean *= PAIRS_A_QUERY / kept
    return mean


def _dataset(train: Interactions, sizes: Tensor) -> Dataset:
    shape = train.n_queries, train.n_candidates
    queries, candidates = (Vocabulary.numbered(size) for size in shape)
    parts: dict[str, Interactions | None] = {"train": train, "validation": None, "test": None}
    drawn = int(sizes.sum())
    dropped = [{"why": "a pair twice", "rows": drawn - train.n_pairs}]
    return Dataset(
        kind="interactions",
        train=train,
        validation=None,
        test=None,
        queries=queries,
        candidates=candidates,
        summary={**pair_counts(parts, shape), "grades": None, "rows": drawn, "dropped": dropped},
        fingerprint=fingerprint(parts.values(), queries.keys, candidates.keys),
    )


# ---------------------------------------------------------------------------------- run

PARTS = {  # of a fit, each without nested parts
    "check the pairs": (plan, "check_content"),
    "objective": (path_search, "rg2"),
    "R V": (spectral.Target, "times"),
    "R^T W": (spectral.Target, "normal"),
    "transposes": (Interactions, "transpose"),
    "orthonormal": (spectral, "orthonormal"),
    "projection": (spectral._Space, "add"),
    "Ritz vectors": (spectral._Space, "decomposition"),
    "fold": (path_search, "fold"),
    "tail: fewer pairs": (tail, "thinned"),
    "tail: neighbours": (tail, "neighbours"),
    "tail: diagonal": (tail, "gram_diagonal"),
    "tail: regression": (tail, "regressed"),
}


def run(path: Path, width: int, options: dict[str, Any]) -> dict[str, Any]:
    """Fit rg2 on a prepared folder; its time, memory and floor."""
    steps: list[float] = []

    def report(_course: object, step: Any) -> None:
        steps.append(step.seconds)
        what = f"step {step.number}: {step.seconds:.2f} s, residual {step.loss:.4f}"
        print(what, file=sys.stderr, flush=True)

    watch = Stopwatch()
    with memory() as peak:
        began, others = perf_counter(), _busy() - process_time()
        data = rf.load_data(path)
        load = perf_counter() - began
        with watch.on(PARTS):
            model = rf.fit("rg2", data, width=width, rank=width, report=report, **options).model
        total, others = perf_counter() - began, _busy() - process_time() - others
    figures, passes = model.notes, steps[1:-1] or steps
    rows = data.split("train")
    block = min(max(16, width // 4), rows.n_candidates)
    floor = Floor.of(rows, block)
    took = {name: round(seconds, 3) for name, seconds in watch.seconds.items()}
    return {
        "queries": rows.n_queries,
        "candidates": rows.n_candidates,
        "pairs": rows.n_pairs,
        "width": width,
        "block": block,
        "columns": figures["columns"],
        "residual": figures["residual"],
        "options": options,
        "threads": torch.get_num_threads(),
        "cores_used_by_others": round(others / total, 2),
        "seconds": round(total, 3),
        "load_seconds": round(load, 3),
        "first_step_seconds": round(steps[0], 3),  # with the objective, the order by candidate
        "last_step_seconds": round(steps[-1], 3),  # with the vectors of the queries
        "seconds_per_pass": round(median(passes), 4),
        "nanoseconds_per_pair": round(1e9 * median(passes) / rows.n_pairs, 2),
        "parts": {**took, "other": round(total - sum(watch.seconds.values()), 3)},
        "calls": {name: watch.calls[name] for name in ("R^T W", "R V", "transposes")},
        "peak_gib": peak,
        "floor": floor._asdict(),
        "to_floor": round(median(passes) / floor.seconds, 2),
    }


class Floor(NamedTuple):
    """The bytes that a pass must move, and the time to stream them on this machine."""

    bytes: int
    bytes_per_second: float
    seconds: float

    @staticmethod
    def of(rows: Interactions, block: int) -> Floor:
        gathered = 2 * rows.n_pairs * (4 + 4 * block)
        dense = 2 * (rows.n_queries + rows.n_candidates) * 4 * block  # each written and read once
        speed = bandwidth()
        return Floor(gathered + dense, speed, (gathered + dense) / speed)


def bandwidth() -> float:
    """Bytes per second of a sum over far more than a cache holds; the best of a few."""
    numbers = torch.ones(2**28)

    def seconds() -> float:
        began = perf_counter()
        numbers.sum()
        return perf_counter() - began

    return numbers.numel() * 4 / min(seconds() for _ in range(7))


class Stopwatch:
    """Seconds in some functions, each without nested ones."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._inside = [0.0]

    @contextmanager
    def on(self, parts: dict[str, tuple[Any, str]]) -> Iterator[None]:
        before = {label: getattr(*place) for label, place in parts.items()}
        for label, place in parts.items():
            setattr(*place, self._timed(label, before[label]))
        try:
            yield
        finally:
            for label, place in parts.items():
                setattr(*place, before[label])

    def _timed(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            self._inside.append(0.0)
            began = perf_counter()
            try:
                return function(*args, **options)
            finally:
                took = perf_counter() - began
                self.seconds[label] += took - self._inside.pop()
                self.calls[label] += 1
                self._inside[-1] += took

        return timed


@contextmanager
def memory() -> Iterator[dict[str, float]]:
    """Peaks in GiB: resident, with the mapped pages of the data; and anonymous, without them.

    The anonymous memory is sampled every 20 ms.
    """
    peak: dict[str, float] = {}
    highest, done = 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.02):
            highest = max(highest, _anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    before = _anonymous()
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sizes = {"resident": resident, "anonymous": highest, "anonymous_at_start": before}
        peak |= {name: round(size / 2**30, 3) for name, size in sizes.items()}


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _busy() -> float:
    """CPU seconds of all processes, on all cores."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------------------------- linear


def linear() -> dict[str, list[dict[str, Any]]]:
    """Full-length runs by number of pairs, and by width.

    The fastest of a few rounds counts, because a machine is seldom idle.
    """
    cases = [(pairs, WIDTH) for pairs in SIZES] + [(AT, width) for width in WIDTHS]
    rounds = [[_run_apart(*case) for case in cases] for _ in range(ROUNDS)]
    best = [
        min(runs, key=lambda one: one["seconds_per_pass"]) for runs in zip(*rounds, strict=True)
    ]
    return {"pairs": best[: len(SIZES)], "width": best[len(SIZES) :]}


def _run_apart(pairs: int, width: int) -> dict[str, Any]:
    """A run in a fresh process."""
    path = SCRATCH / f"billion-{pairs}"
    SCRATCH.mkdir(exist_ok=True)
    if not path.exists():
        generate(pairs, path)
    words = ["run", str(path), "--width", str(width), "--tolerance", str(FULL_LENGTH)]
    output = subprocess.check_output([sys.executable, "-m", "benchmarks.scale.billion", *words])
    figures: dict[str, Any] = json.loads(output)["run"]
    line = f"{figures['pairs']:,} pairs, width {width}: {figures['seconds_per_pass']:.3f} s a pass"
    print(f"{line}, {figures['to_floor']:.2f} times the floor", file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    main()
