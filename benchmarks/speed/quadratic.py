"""The quadratic methods against implicit and irspack: CPU seconds on gowalla, in one run.

    python -m benchmarks.speed.quadratic [--rounds 3] [--write]

Each round runs, for each width: a fit of implicit (15 iterations; one iteration is the difference
to a fit of 3), a fit of irspack (16 epochs), rankfold's decomposition, its ``ials`` and ``wrmf``
sweeps, and its ``rg2`` fit with selection on validation. The cost of a peer's grid is its number of
points times the sum of a fit and the scoring of 10,000 validation queries, which rankfold does for
it. The peers run in their own environments. Results are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH, SHARED
from benchmarks.peers.quadratic import PEERS, Fit, prepared, save_csr, start
from rankfold.kernels.threads import limited_threads
from rankfold.metrics import parse
from rankfold.objectives.implicit import ials, wrmf
from rankfold.objectives.quadratic import Objective, candidate_half, query_half
from rankfold.objectives.rg import rg2
from rankfold.solvers.als import sweep
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.solvers.spectral import Target, decompose
from rankfold.tasks.metric_totals import score
from rankfold.types import Dataset, Model

WIDTHS = (64, 128, 256)
SETTINGS = {
    "implicit": {"alpha": 40, "regularization": 1},
    "irspack": {"alpha0": 0.03, "reg": 0.001},
}
QUERIES = 10_000  # validation queries, for everyone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    data = prepared("gowalla", args.data)
    fits = {peer: start(peer) for peer in PEERS}
    results = {}
    for width in args.widths:
        rounds = [one_round(data, width, fits) for _ in range(args.rounds)]
        middle = {name: median(result[name] for result in rounds) for name in rounds[0]}
        results[width] = {**middle, **ratios(middle)}
        print(width, json.dumps(results[width], indent=1), flush=True)
    if args.write:
        about = {"data": "gowalla", "unit": "CPU seconds", "threads": torch.get_num_threads()}
        text = json.dumps({**about, "rounds": args.rounds, "widths": results}, indent=1)
        (RESULTS / "speed" / "quadratic.json").write_text(text + "\n")


def one_round(data: Dataset, width: int, fits: dict[str, Fit | None]) -> dict[str, float]:
    result: dict[str, float] = {}
    for peer, fit in fits.items():
        if fit is not None:
            result |= of_peer(peer, fit, data, width)
    with limited_threads(own=True):  # as ``rankfold.fit`` does
        result["decomposition"] = of_decomposition(data, width)
        for name, objective in (
            ("ials sweep", ials(data.split("train"), 0.003, 0.03)),
            ("wrmf sweep", wrmf(data.split("train"), 1.0, 40.0)),
        ):
            result[name] = of_sweep(objective, width)
    began = process_time()
    ranker = rf.fit("rg2", data, width=width, metric="ndcg@20", validation_queries=QUERIES)
    result["rg2 tuned"] = process_time() - began
    result["scoring"] = of_scoring(ranker.model, data)
    return result


def of_peer(peer: str, fit: Fit, data: Dataset, width: int) -> dict[str, float]:
    train = SCRATCH / "quality" / f"gowalla-train-{data.fingerprint[:12]}.npz"
    out = SCRATCH / "quality" / peer
    out.mkdir(parents=True, exist_ok=True)
    if not train.exists():
        save_csr(train, data.split("train"))
    most, few = PEERS[peer].iterations, 3
    job: dict[str, Any] = {"width": width, "seed": 0, "settings": SETTINGS[peer]}
    job |= {"train": str(train.resolve()), "out": str(out.resolve())}
    seconds = [fit({**job, "iterations": n})["cpu_seconds"] for n in (few, most)]
    return {f"{peer} fit": seconds[1], f"{peer} sweep": (seconds[1] - seconds[0]) / (most - few)}


def of_decomposition(data: Dataset, width: int) -> float:
    began = process_time()
    objective = rg2(data.split("train"), 0.0, exponent=-0.375, candidate_exponent=0.35)
    target = Target(objective, 2**30)
    *_, _found = decompose(target, width, torch.Generator().manual_seed(0), tolerance=0.07)
    return process_time() - began


def of_sweep(objective: Objective, width: int, sweeps: int = 4) -> float:
    columns, solve = objective.rows.transpose(), by_conjugate_gradients(2)
    halves = query_half(objective), candidate_half(objective, columns)
    rng = torch.Generator().manual_seed(0)
    sizes = objective.rows.n_queries, objective.rows.n_candidates
    queries, candidates = (torch.randn(n, width, generator=rng) * 0.1 / width**0.5 for n in sizes)
    queries, candidates = sweep(halves, queries, candidates, solve)
    began = process_time()
    for _ in range(sweeps):
        queries, candidates = sweep(halves, queries, candidates, solve)
    return (process_time() - began) / sweeps


def of_scoring(model: Model, data: Dataset) -> float:
    truth = data.split("validation")
    rows = torch.nonzero(truth.counts() > 0).flatten()[:QUERIES]
    began = process_time()
    score(model, truth, data.seen("validation"), rows, [parse("ndcg@20")])
    return process_time() - began


def ratios(result: dict[str, float]) -> dict[str, float]:
    """CPU seconds of the peers relative to rankfold's; for sweeps ours relative to theirs."""
    ratio = {}
    for peer, points in (("irspack", 16), ("implicit", 9)):
        if f"{peer} fit" in result:
            grid = points * (result[f"{peer} fit"] + result["scoring"])
            ratio[f"{peer} grid / rg2 tuned"] = grid / result["rg2 tuned"]
            ratio[f"{peer} grid without scoring / rg2 tuned"] = (
                points * result[f"{peer} fit"] / result["rg2 tuned"]
            )
    if "implicit fit" in result:
        ratio["implicit fit / decomposition"] = result["implicit fit"] / result["decomposition"]
        for name in ("ials", "wrmf"):
            ours = result[f"{name} sweep"]
            ratio[f"{name} sweep / implicit sweep"] = ours / result["implicit sweep"]
    return ratio


if __name__ == "__main__":
    main()
