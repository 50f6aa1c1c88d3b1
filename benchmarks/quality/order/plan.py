"""The fits of a study, and what they wait for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality.order.stack import largest

METHODS_HERE = ("ssl-pop", "bir", "xir")
RATES = {512: (0.001, 0.003, 0.01), 2048: (0.002, 0.006, 0.02), 8192: (0.003, 0.01, 0.03)}
EPOCHS = {512: 60, 2048: 100, 8192: 100}
DECAYS = (1e-6, 3e-6, 1e-5, 3e-5)
TRIED = {512: DECAYS, 2048: DECAYS, 8192: DECAYS[:3]}
SEEDS = (0, 1, 2)
WIDTH, METRIC = 32, "ndcg@10"


class Job(NamedTuple):
    """One fit: a trial, or a test with the settings and the epochs of the best trial."""

    kind: str  # trial, test
    data: str
    method: str
    batch: int
    lr: float
    decay: float
    seed: int
    epochs: int


def jobs_of(args: Any, lines: list[dict[str, Any]]) -> list[Job]:
    """The fits without a line that can begin now, by batch size."""
    done, jobs = {key(line) for line in lines}, []
    for name, batch, method in product(args.data_sets, sorted(args.batches), args.methods):
        points = product(RATES[batch], TRIED[batch])
        trials = [Job("trial", name, method, batch, *point, 0, EPOCHS[batch]) for point in points]
        missing = [job for job in trials if job not in done]
        if not missing:
            every = tests_of([line for line in lines if key(line) in {*trials}])
            missing = [job for job in every if job not in done]
        jobs += missing
    return jobs


def tests_of(trials: list[dict[str, Any]]) -> list[Job]:
    """A test for each seed of the best trial of each decay."""
    tests = []
    for decay in DECAYS:
        own = [line for line in trials if line["decay"] == decay]
        if not own:
            continue
        best = best_of(own)
        same = key(best)._replace(kind="test", epochs=best["epoch"])
        tests += [same._replace(seed=seed) for seed in SEEDS]
    return tests


def stacks_of(jobs: list[Job]) -> list[list[Job]]:
    """The jobs that can be fitted together, in groups that fit the memory."""
    stacks = []
    for (_, _, method, batch), some in groupby(jobs, lambda job: job[:4]):
        together, count = [*some], largest(method, batch)
        stacks += [together[first : first + count] for first in range(0, len(together), count)]
    return stacks


def key(line: dict[str, Any]) -> Job:
    return Job(*(line[name] for name in Job._fields))


def best_of(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return max(trials, key=lambda line: line["score"])


def read(lines: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
