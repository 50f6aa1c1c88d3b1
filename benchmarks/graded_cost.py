"""What the cache of ``cba`` adds to a step of training, and how much memory it takes.

    OMP_NUM_THREADS=1 python benchmarks/graded_cost.py [--rounds N] [--device D] [--write]

A step is a batch taken, encoded, scored, its gradient, and the optimiser's update. Four kinds take
turns in one process: ``ce``; ``batch``, which is ``cba`` with its ranks told from the batch alone;
``direct`` and ``likeness``, with ranks from a cache of 512 vectors per grade. Figures are medians
of CPU milliseconds of one thread, on a CUDA device of elapsed ones; a ratio is the median over the
turns, whose kinds ran side by side, so that what else the machine does weighs on all alike.
``graded_quality.py export`` makes the arrays.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple
from unittest.mock import patch

import graded_quality as ours
import torch
from torch import Tensor

from rankfold import config as settings_of
from rankfold.comm import Alone
from rankfold.losses.low_fpr import above
from rankfold.methods import METHODS, cba, graded
from rankfold.samplers.queues import Queues, shares_above
from rankfold.training.loop import Loop, Nothing
from rankfold.types import Dataset, Run

OUT = Path(__file__).parent / "results" / "graded"
CACHE, WIDTH = 512, 64
KINDS = ("ce", "batch", "direct", "likeness")
CASES = (("fars", 256), ("fars", 512), ("retinamnist", 64))
TIMED = 0.04  # CPU seconds that one kind has of a turn, at least


class BatchAlone(Nothing):
    """Ranks among the negatives of the batch itself: what ``cba`` were without a cache."""

    def __init__(self, n_grades: int) -> None:
        self.n_grades = n_grades

    def push(self, _vectors: Tensor, grades: Tensor) -> None:
        self.weights = (~above(grades, self.n_grades)).float()

    def ranks(self, vectors: Tensor, head: Tensor, *, by_likeness: bool, wanted: Tensor) -> Tensor:
        del by_likeness, wanted
        scores = vectors @ head
        return shares_above(scores, scores, self.weights)


class Steps:
    """One kind of training, a step after the other."""

    def __init__(self, data: Dataset, kind: str, batch_size: int, device: torch.device) -> None:
        given: dict[str, Any] = {"width": WIDTH, "batch_size": batch_size, "epochs": 1000}
        if kind != "ce":
            given |= {"cache": CACHE, "ranks": "likeness" if kind == "likeness" else "direct"}
        method = METHODS["ce" if kind == "ce" else "cba"]
        run = Run(torch.Generator().manual_seed(0), device, Alone())
        filled = (lambda parts: BatchAlone(parts.n_grades)) if kind == "batch" else cba.filled
        with patch.object(graded, "train", Loop), patch.object(cba, "filled", filled):
            self.loop: Any = method.fit(data, settings_of.build(method.config, given), run)
        self.batches, self.device = self.loop.task.batches, device
        self.place, self.order = 0, self.batches.order(torch.Generator().manual_seed(0))

    def seconds(self, count: int) -> float:
        """Of so many steps, of full batches."""
        began = self.clock()
        for _ in range(count):
            self.loop.learn(self.batches.take(self.order, self.place))
            self.place = (self.place + 1) % (len(self.batches) - 1)
        spent = self.clock() - began
        self.loop.look()
        return spent

    def clock(self) -> float:
        if self.device.type == "cpu":
            return process_time()
        torch.cuda.synchronize(self.device)
        return perf_counter()


class Cost(NamedTuple):
    """Of a data set and a batch size."""

    milliseconds: dict[str, float]
    of_batch: dict[str, float]  # how often a step without the cache
    of_ce: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"cache": CACHE, "width": WIDTH, "torch": torch.__version__}
    cuda = args.device.type == "cuda"
    processor = torch.cuda.get_device_name(args.device) if cuda else platform.machine()
    found |= {"processor": processor, "threads": 1, "rounds": args.rounds, "steps": {}}
    for name, batch_size in CASES:
        data = ours.load(name)
        data = replace(data, train=data.graded("train").join(data.graded("validation")))
        cost = measured(data, batch_size, args.rounds, args.device)
        found["steps"][f"{name}, batch {batch_size}"] = cost._asdict()
        found["memory"] = memory(len(data.candidates))
        print(name, batch_size, json.dumps(cost._asdict()), flush=True)
    print(json.dumps(found["memory"]))
    if args.write:
        OUT.mkdir(parents=True, exist_ok=True)
        name = "cost-cuda.json" if cuda else "cost.json"
        (OUT / name).write_text(json.dumps(found, indent=1) + "\n")


def measured(data: Dataset, batch_size: int, rounds: int, device: torch.device) -> Cost:
    steps = {kind: Steps(data, kind, batch_size, device) for kind in KINDS}
    single = {kind: steps[kind].seconds(8) / 8 for kind in KINDS}  # warms up, too
    count = max(2, round(TIMED / min(single.values())))
    turns: list[dict[str, float]] = []
    for turn in range(rounds):
        order = KINDS[turn % len(KINDS) :] + KINDS[: turn % len(KINDS)]
        spent = {kind: steps[kind].seconds(count) / count for kind in order}
        turns.append(spent)

    def ratios(below: str) -> dict[str, float]:
        return {k: round(median(turn[k] / turn[below] for turn in turns), 3) for k in KINDS}

    medians = {k: round(1000 * median(turn[k] for turn in turns), 3) for k in KINDS}
    return Cost(medians, ratios("batch"), ratios("ce"))


def memory(n_grades: int) -> dict[str, int]:
    """Bytes of all that a full cache keeps, and of its vectors by the formula."""
    queues = Queues(torch.ones(n_grades) / n_grades, [CACHE] * n_grades, WIDTH)
    queues.push(torch.randn(n_grades * CACHE, WIDTH), torch.arange(n_grades).repeat(CACHE))
    queues.ranks(torch.randn(1, WIDTH), torch.randn(WIDTH), by_likeness=True)
    kept = [value for value in vars(queues).values() if isinstance(value, Tensor)]
    return {
        "kept_bytes": sum(tensor.numel() * tensor.element_size() for tensor in kept),
        "formula_bytes": n_grades * CACHE * WIDTH * 4,
    }


if __name__ == "__main__":
    main()
