"""How steady the selection of ``rg2`` is: test ndcg@10 over seeds, with the selection inside.

    python -m benchmarks.quality.steady run [--variants today,...] [--sets ...] [--workers 12]
    python -m benchmarks.quality.steady table

Each seed draws the validation queries, the start of the decomposition and so the choice. The chosen
settings are fitted again on train and validation. Sets as in ``quality.defaults``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from statistics import mean, stdev
from typing import Any

import torch

from benchmarks.paths import RESULTS
from benchmarks.quality.defaults import SETS, Judged, load
from rankfold.distributed.collectives import SingleProcess
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.closed_form import racing, rg2
from rankfold.types import Run

OUT = RESULTS / "quality" / "steady.jsonl"
DRAWN = 10_000  # validation queries, at most
DRAWN_SHARE = 0.6  # of them, at most: so that seeds differ on small sets
BLEND = rg2.blend
DEFAULTS: dict[str, Any] = {
    **{name: getattr(racing, name) for name in ("STAGES", "MAX_ERRORS", "MIN_GAIN")},
    "blend": True,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "before": {"STAGES": (1, 1, 2, 4), "MAX_ERRORS": 1.5, "MIN_GAIN": 0.01, "blend": False},
    "best": {"blend": False},
    "blend": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["run", "table"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--sets", nargs="+", default=sorted(p.stem for p in SETS.glob("*.npz")))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.task == "table":
        table()
        return
    deadline = time.time() + args.seconds
    jobs = [
        (name, variant, seed)
        for name in args.sets
        for variant in args.variants
        for seed in range(args.seeds)
    ]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    known = {(r["set"], r["variant"], r["seed"]) for r in _records()}
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        futures = [
            pool.submit(fit, *job, args.device, deadline) for job in jobs if job not in known
        ]
        for future in as_completed(futures):
            record = future.result()
            if record is not None:
                with OUT.open("a") as file:
                    file.write(json.dumps(record) + "\n")


def fit(name: str, variant: str, seed: int, device_name: str, deadline: float) -> dict | None:
    if time.time() > deadline:
        return None
    torch.set_num_threads(1)
    options = {**DEFAULTS, **VARIANTS[variant]}
    rg2.blend = BLEND if options.pop("blend") else lambda weights: next(iter(weights))
    for key, value in options.items():
        setattr(racing, key, value)
    device, data = torch.device(device_name), load(name)
    judged = Judged(data, "validation")
    rows = torch.nonzero(judged.truth.counts() > 0).flatten()
    rng, drawn = torch.Generator().manual_seed(seed), min(DRAWN, int(DRAWN_SHARE * len(rows)))
    judged.queries = rows[torch.randperm(len(rows), generator=rng)[:drawn].sort().values]
    run = Run(
        rng=torch.Generator().manual_seed(seed),
        device=device,
        comm=SingleProcess(),
        judge=judged,
        build_index=Exact,
        memory_budget=2**28,
    )
    began = time.process_time()
    *_, last = METHODS["rg2"].fit(data, rg2.Config(), run)
    seconds = time.process_time() - began
    whole = replace(
        data, train=data.split("train").union(data.split("validation")), validation=None
    )
    again = replace(run, rng=torch.Generator().manual_seed(seed), judge=None)
    *_, final = METHODS["rg2"].fit(whole, rg2.Config(**last.model.config), again)
    names = ("query_exponent", "candidate_exponent", "rank", "threshold", "discount")
    return {
        "set": name,
        "variant": variant,
        "seed": seed,
        "validation": last.model.notes["score"],
        "test": Judged(whole, "test").mean(final.model, device),
        "seconds": round(seconds, 2),
        "chosen": {key: last.model.config[key] for key in names},
    }


def table() -> None:
    """Mean, standard deviation in percent of the mean, and CPU seconds of the selection."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in _records():
        groups[record["set"], record["variant"]].append(record)
    variants = list(dict.fromkeys(variant for _, variant in groups))
    print("| set | " + " | ".join(variants) + " |\n|---|" + "---|" * len(variants))
    for name in sorted({name for name, _ in groups}):
        cells = []
        for variant in variants:
            found = groups[name, variant]
            tests = [record["test"] for record in found]
            if len(tests) < 2:
                cells.append("-")
                continue
            spread, cost = 100 * stdev(tests) / mean(tests), mean(r["seconds"] for r in found)
            cells.append(f"{mean(tests):.4f} ±{spread:.2f}% {cost:.1f} s")
        print(f"| {name} | " + " | ".join(cells) + " |")


def _records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []


if __name__ == "__main__":
    main()
