"""Methods with no option on the sets of ``unseen_sets.py``, beside irspack tuned on validation.

    python -m benchmarks.quality.unseen run OUT.jsonl --sets NAME... [--peer]
    python -m benchmarks.quality.unseen table OUT.jsonl

Each line has the ndcg@10 of one model on validation and test, and its CPU seconds; of irspack those
of all 16 points, of which validation chooses one. Nothing is refitted. ``rg2`` is also fitted at
the width of ``ials`` and irspack. A second run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.paths import SCRATCH
from benchmarks.peers.quadratic import PEERS, Fit, save_csr, start
from benchmarks.quality.choices import fit
from benchmarks.quality.defaults import Judged, load
from rankfold.types import Model

WIDTH = 64
FITS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("popularity", {}),
    ("rg2", {}),
    ("rg2", {"width": WIDTH}),
    ("ease", {}),
    ("blend", {}),
    ("ials", {}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["run", "table"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--peer", action="store_true", help="irspack, too")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    if args.task == "table":
        table(lines)
        return
    torch.set_num_threads(1)
    peer = start("irspack") if args.peer else None
    for name in args.sets:
        for method, settings in (*FITS, *([("irspack", {})] if peer else [])):
            job = {"set": name, "method": method, "settings": settings}
            if any(job.items() <= line.items() for line in lines):
                continue
            if method == "irspack" and peer is not None:
                result = job | of_peer(name, peer)
            else:
                result = fit({**job, "queries": "all", "draw": 0})
            with args.out.open("a") as file:
                file.write(json.dumps(result) + "\n")


def of_peer(name: str, fit: Fit) -> dict[str, Any]:
    """The best of the grid by validation, and the CPU seconds of all fits."""
    data, out = load(name), SCRATCH / "quality" / "irspack"
    out.mkdir(parents=True, exist_ok=True)
    train = out / f"{name}.npz"
    save_csr(train, data.split("train"))
    job = {"width": WIDTH, "iterations": PEERS["irspack"].iterations, "seed": 0}
    job |= {"train": str(train), "out": str(out)}
    points, seconds = [], 0.0
    for settings in PEERS["irspack"].points():
        seconds += fit({**job, "settings": settings})["cpu_seconds"]
        sides = ("queries", "candidates")
        vectors = {side: torch.from_numpy(np.load(out / f"{side}.npy")) for side in sides}
        model = Model("irspack", settings, vectors)
        figures = {
            split: round(Judged(data, split).mean(model, torch.device("cpu")), 5)
            for split in ("validation", "test")
        }
        points.append({**figures, "chosen": settings})
    best = max(points, key=lambda point: point["validation"])
    return {**best, "cpu seconds": round(seconds, 2)}


def table(lines: list[dict[str, Any]]) -> None:
    """Validation / test of every method, and the CPU seconds."""
    kinds = list(dict.fromkeys((line["method"], str(line["settings"])) for line in lines))
    print("| set |", " | ".join(" ".join(kind) for kind in kinds), "|")
    for name in dict.fromkeys(line["set"] for line in lines):
        own = {(one["method"], str(one["settings"])): one for one in lines if one["set"] == name}
        cells = [
            f"{own[kind]['validation']:.4f} / {own[kind]['test']:.4f}, {own[kind]['cpu seconds']} s"
            if kind in own
            else ""
            for kind in kinds
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
