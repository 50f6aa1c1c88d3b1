"""The time that the cache of ``cba`` adds to a training step, and its memory.

    python -m benchmarks.speed.cache [--rounds N] [--threads N] [--device D] [--write]

A step takes a batch, encodes and scores it, computes the gradient and updates the parameters. Five
kinds alternate in one process: ``ce``, and ``cba`` with direct ranks or ranks by likeness, from the
batch alone or from a cache of 512 vectors per grade. The cost of the cache is the ratio of these
two for one estimator. The cost of an estimator is its ratio to direct ranks from the batch. Figures
are medians: CPU milliseconds for one thread, elapsed ones for several threads and for CUDA. Ratios
are medians over rounds, since kinds of one round run under the same load.
``quality/ordinal.py export`` writes the arrays.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import replace
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.paths import RESULTS
from benchmarks.quality import ordinal as ours
from rankfold import config as settings_of
from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.methods.ordinal import cba, training
from rankfold.samplers.cba_cache import (
    CachedNegatives,
    CrossBatchCache,
    counts_before,
    likeness_ranks,
    scores_of,
    sort_ascending,
    weights_before,
)
from rankfold.training.loop import EmptyMemory, Loop
from rankfold.types import Dataset, Run

OUT = RESULTS / "speed"
CACHE, WIDTH = 512, 64
ESTIMATORS = ("direct", "likeness")
KINDS = ("ce", *(f"{where}, {how}" for how in ESTIMATORS for where in ("batch", "cache")))
PLAIN = "batch, direct"
CASES = (("fars", 256), ("fars", 512), ("retinamnist", 64))
ROWS = ([2 * CACHE] * 5, [2_000_000, 2_000_000, 1_000_000, 1000, 500], [600] * 100)  # by grade
IMAGES = 10  # turns of tables for one of images, whose steps are long
TIMED = 0.04  # CPU seconds that one kind has of a turn, at least


class BatchAlone(EmptyMemory):
    """Ranks among the negatives of the batch: ``cba`` without a cache."""

    def __init__(self, parts: training.FitContext) -> None:
        self.grades = parts.rows.grades
        numbers = torch.arange(parts.n_grades, device=self.grades.device)
        self.counted = (numbers <= numbers[:-1, None]).float()  # thresholds, grades

    def push(self, _vectors: Tensor, rows: Tensor) -> None:
        self.owners = self.grades.index_select(0, rows)

    def ranks(self, vectors: Tensor, head: Tensor, *, by_likeness: bool, wanted: Tensor) -> Tensor:
        if not by_likeness:
            entries, scores = self.entries(vectors, self.owners), scores_of(vectors, head)
            ordered, order = sort_ascending(-scores)
            owners = entries.owners.index_select(0, order)
            return weights_before(counts_before(ordered, order), owners, entries.weights)
        if vectors.is_cuda:
            return likeness_ranks(vectors, self.entries(vectors, self.owners), head)
        rows = wanted.nonzero().squeeze(1)
        some = vectors.index_select(0, rows)
        entries = self.entries(some, self.owners.index_select(0, rows))
        result = likeness_ranks(some, entries, head)
        return result.new_zeros(len(result), len(vectors)).index_copy_(1, rows, result)

    def entries(self, vectors: Tensor, owners: Tensor) -> CachedNegatives:
        """Equal weights; the highest grade has weight 0."""
        counts = torch.bincount(owners, minlength=self.counted.shape[1]).cumsum(0)
        return CachedNegatives(vectors, owners, self.counted / counts[:-1, None].clamp(min=1))


class Steps:
    """One kind of training, step by step."""

    def __init__(self, data: Dataset, kind: str, batch_size: int, device: torch.device) -> None:
        given: dict[str, Any] = {"width": WIDTH, "batch_size": batch_size, "epochs": 1000}
        if kind != "ce":
            given |= {"cache": CACHE, "ranks": kind.split(", ")[1]}
        method = METHODS["ce" if kind == "ce" else "cba"]
        run = Run(torch.Generator().manual_seed(0), device, SingleProcess())
        filled = BatchAlone if kind[:5] == "batch" else cba.fill_cache
        with patch.object(training, "train", Loop), patch.object(cba, "fill_cache", filled):
            self.loop: Any = method.fit(data, settings_of.build(method.config, given), run)
        self.batches, self.device = self.loop.task.batches, device
        rng = torch.Generator(device).manual_seed(0)
        self.place, self.order = 0, self.batches.order(rng)

    def seconds(self, count: int) -> float:
        """Seconds of a number of steps with full batches."""
        began = self.clock()
        for _ in range(count):
            self.loop.learn(self.batches.take(self.order, self.place))
            self.place = (self.place + 1) % (len(self.batches) - 1)
        spent = self.clock() - began
        self.loop.check_losses()
        return spent

    def clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif torch.get_num_threads() == 1:
            return process_time()
        return perf_counter()


class Cost(NamedTuple):
    """Figures of a data set and a batch size."""

    milliseconds: dict[str, float]
    cache_adds: dict[str, float]  # to a step with the same estimator, a share of it
    of_plain: dict[str, float]  # how many steps with direct ranks from the batch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result: dict[str, Any] = {"cache": CACHE, "width": WIDTH, "torch": torch.__version__}
    cuda = args.device.type == "cuda"
    processor = torch.cuda.get_device_name(args.device) if cuda else platform.machine()
    result |= {"processor": processor, "threads": args.threads, "rounds": args.rounds, "steps": {}}
    for name, batch_size in CASES:
        data = ours.load(name)
        data = replace(data, train=data.graded("train").join(data.graded("validation")))
        rounds = args.rounds if data.graded("train").images is None else args.rounds // IMAGES
        cost = measured(data, batch_size, max(1, rounds), args.device)
        result["steps"][f"{name}, batch {batch_size}"] = cost._asdict()
        print(name, batch_size, json.dumps(cost._asdict()), flush=True)
    result["memory"] = memory()
    print(json.dumps(result["memory"]))
    if args.write:
        OUT.mkdir(parents=True, exist_ok=True)
        name = "cache-cuda" if cuda else "cache" if args.threads == 1 else "cache-threads"
        (OUT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def measured(data: Dataset, batch_size: int, rounds: int, device: torch.device) -> Cost:
    steps = {kind: Steps(data, kind, batch_size, device) for kind in KINDS}
    single = {kind: steps[kind].seconds(8) / 8 for kind in KINDS}  # warms up, too
    count = max(2, round(TIMED / min(single.values())))
    turns: list[dict[str, float]] = []
    for turn in range(rounds):
        order = KINDS[turn % len(KINDS) :] + KINDS[: turn % len(KINDS)]
        spent = {kind: steps[kind].seconds(count) / count for kind in order}
        turns.append(spent)

    def ratio(kind: str, below: str) -> float:
        return round(median(turn[kind] / turn[below] for turn in turns), 3)

    medians = {k: round(1000 * median(turn[k] for turn in turns), 3) for k in KINDS}
    adds = {how: round(ratio(f"cache, {how}", f"batch, {how}") - 1, 3) for how in ESTIMATORS}
    return Cost(medians, adds, {kind: ratio(kind, PLAIN) for kind in KINDS})


def memory() -> dict[str, dict[str, int]]:
    """Bytes of a full cache, and of its vectors by the formula."""
    return {f"{len(counts)} grades, {sum(counts):,} rows": kept(counts) for counts in ROWS}


def kept(counts: list[int]) -> dict[str, int]:
    """A cache for grades with these numbers of rows."""
    n, grades = len(counts), torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    cache = CrossBatchCache(grades, torch.ones(n) / n, CACHE, WIDTH)
    for rows in torch.arange(len(grades)).split(2**16):
        cache.push(torch.randn(len(rows), WIDTH), rows)
    cache.ranks(torch.randn(1, WIDTH), torch.randn(WIDTH), by_likeness=True)
    assert cache.final is not None
    own = [value for value in vars(cache).values() if isinstance(value, Tensor)]
    own += [*cache.final, *(cache.fixed or ())]
    own = [tensor for tensor in own if tensor is not cache.grades]  # these are the data's
    return {
        "kept_bytes": sum(tensor.numel() * tensor.element_size() for tensor in own),
        "formula_bytes": n * CACHE * WIDTH * 4,
    }


if __name__ == "__main__":
    main()
