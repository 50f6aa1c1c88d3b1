"""Fits that take their steps together, from jobs to lines; they can stop and go on."""

from __future__ import annotations

import base64
import json
import time
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.paths import SCRATCH
from benchmarks.quality import quadratic
from benchmarks.quality.equal_terms import cached
from benchmarks.quality.order.plan import METRIC, WIDTH, Job, key
from benchmarks.quality.order.stack import Point, Stack
from benchmarks.quality.quadratic import DEVICE, Judged
from rankfold.models.search import Filter, Searcher
from rankfold.types import Dataset, Model

PARTS = SCRATCH / "order-parts"
PATIENCE = 5
HURDLES, BEHIND = (20, 40), 0.85  # epochs; the least share of the best score at a hurdle
DEPTH = 20


def lines_of(jobs: list[Job], until: float) -> list[dict[str, Any]]:
    """The lines of fits that differ in rate, decay and seed, as far as the time suffices."""
    if time.time() > until:
        return []
    data, is_trial = cached(jobs[0].data), jobs[0].kind == "trial"
    if not is_trial:
        train = data.split("train").union(data.split("validation"))
        data = replace(data, train=train, validation=None)
    points = [Point(job.lr, job.decay, job.seed) for job in jobs]
    stack = Stack(data, jobs[0].method, jobs[0].batch, WIDTH, points)
    active, lines, part = [{**job._asdict(), "curve": []} for job in jobs], [], Part(jobs)
    began = time.time() - part.load(stack, active)
    part.remove()
    while active:
        if time.time() > until:
            left = {key(line) for line in active}
            Part([job for job in jobs if job in left]).save(stack, active, time.time() - began)
            break
        stack.learn()
        if is_trial:
            judge = Judged(data, "validation", METRIC)
            for place, line in enumerate(active):
                score = judge.means(stack.model(place), [METRIC])[METRIC]
                line["curve"].append(round(score, 6))
        over = [is_over(line, stack.epochs, active + lines) for line in active]
        for place, line in enumerate(active):
            if over[place]:
                about = {"device": str(DEVICE), "seconds": round(time.time() - began, 1)}
                lines.append({**line, **about, **outcome(line, stack.model(place), data)})
        places = [place for place, one in enumerate(over) if not one]
        active = [active[place] for place in places]
        if active and len(places) < len(over):
            stack.keep(places)
    return lines


def is_over(line: dict[str, Any], epochs: int, others: list[dict[str, Any]]) -> bool:
    """After all epochs; of a trial also by patience, or behind the best at a hurdle."""
    if epochs == line["epochs"] or line["kind"] == "test":
        return bool(epochs == line["epochs"])
    curve = line["curve"]
    best = max(max(one["curve"][:epochs]) for one in others)
    is_behind = epochs in HURDLES and max(curve) < BEHIND * best
    return is_behind or epochs - 1 - curve.index(max(curve)) >= PATIENCE


def outcome(line: dict[str, Any], model: Model, data: Dataset) -> dict[str, Any]:
    """The best epoch of a trial; the values of single queries of a test."""
    if line["kind"] == "trial":
        best = max(line["curve"])
        return {"score": best, "epoch": line["curve"].index(best) + 1}
    values = values_of(model, data)
    packed = base64.b64encode(zlib.compress(values.astype(np.float16).tobytes())).decode()
    return {METRIC: float(values.mean()), "values": packed}


class Part:
    """Fits that are not finished, on disk."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        name = "-".join(map(str, [*jobs[0], len(jobs)]))
        self.state = PARTS / f"{name}.npz"
        self.about = self.state.with_suffix(".json")

    def save(self, stack: Stack, active: list[dict[str, Any]], seconds: float) -> None:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self.state, **{name: one.cpu().numpy() for name, one in stack.state().items()})
        about = {"jobs": self.jobs, "active": active, "seconds": seconds}
        self.about.write_text(json.dumps(about))  # last: without it the state does not count

    def load(self, stack: Stack, active: list[dict[str, Any]]) -> float:
        """Go on where the part ended; the seconds until then."""
        about = json.loads(self.about.read_text()) if self.about.exists() else {}
        if about.get("jobs") != [list(job) for job in self.jobs]:
            return 0.0
        active[:] = about["active"]
        with np.load(self.state) as kept:
            stack.load({name: torch.from_numpy(kept[name]) for name in kept.files})
        return float(about["seconds"])

    def remove(self) -> None:
        self.about.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)


def values_of(model: Model, data: Dataset) -> NDArray[np.float32]:
    """The metric of each test query, in the order of rows."""
    judged = Judged(data, "test", METRIC)
    rows = judged.queries
    searcher = Searcher(model, data.split("train"), quadratic.MEMORY)
    hidden = Filter(judged.hidden(rows).to(DEVICE))
    ids = searcher.of_queries(rows.to(DEVICE), DEPTH, hidden).ids
    values: NDArray[np.float32] = judged.values(rows, ids).float().numpy()
    return values
