"""``rg2`` with its tail on a GPU: seconds by stage and peak memory for 100 million pairs.

    python -m benchmarks.scale.tail_gpu [--pairs 1e8] [--width 64] [--out DIR]

The pairs of ``scale/spectral_gpu.py``: 1 M queries x 100 k candidates, skewed. Three fits: without
the tail, with it, and with its selection on the validation pairs of 10,000 queries. The time of the
tail is the difference of the first two. Requires only torch and numpy.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.paths import RESULTS
from benchmarks.quality.quadratic import DEVICE, start
from benchmarks.scale.spectral_gpu import clock, generate
from rankfold.methods import METHODS
from rankfold.types import Dataset, Interactions, Vocabulary

VALIDATION_QUERIES = 10_000
MEMORY = 2**34 if DEVICE.type == "cuda" else 2**30  # bytes, for blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=float, default=1e8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS / "scale")
    args = parser.parse_args()
    rows = generate(int(args.pairs)).to("cpu")
    result: dict[str, Any] = {"device": str(DEVICE), "pairs": rows.n_pairs, "width": args.width}
    if DEVICE.type == "cuda":
        result["device"] = torch.cuda.get_device_name()
    result["sizes"] = [rows.n_queries, rows.n_candidates]
    measure(dataset(generate(10**5).to("cpu"), selects=True), 16)  # warm-up
    for name, settings, selects in (
        ("without tail", {"tail": "none"}, False),
        ("with tail", {}, False),
        ("with tail, selected", {}, True),
    ):
        result[name] = measure(dataset(rows, selects=selects), args.width, **settings)
        print(name, result[name], flush=True)
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "tail_gpu.json").write_text(json.dumps(result, indent=1) + "\n")


def dataset(rows: Interactions, *, selects: bool) -> Dataset:
    """The pairs, and one validation pair for each of some queries."""
    validation = None
    if selects:
        n = min(VALIDATION_QUERIES, rows.n_queries)
        rng = torch.Generator().manual_seed(1)
        drawn = torch.rand(n, generator=rng) ** 2.5 * rows.n_candidates
        offsets = torch.arange(rows.n_queries + 1).clamp(max=n)
        validation = Interactions(offsets, drawn.int(), None, rows.n_candidates)
    queries, candidates = map(Vocabulary.numbered, (rows.n_queries, rows.n_candidates))
    return Dataset("interactions", rows, validation, None, queries, candidates)


def measure(data: Dataset, width: int, **settings: Any) -> dict[str, float]:
    """Seconds up to the last pass of the decompositions, and of the rest of the fit."""
    recipe, run = METHODS["rg2"], replace(start(data, 0), memory_budget=MEMORY)
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = clock()
    marks, model = [], None
    for step in recipe.fit(data, recipe.config(width=width, **settings), run):
        marks.append(clock() - began)
        model = step.model
    assert model is not None
    passes = marks[-2] if len(marks) > 1 else 0.0
    return {
        "seconds": marks[-1],
        "passes seconds": passes,
        "last pass, choice, tail and vectors seconds": marks[-1] - passes,
        "steps": len(marks),
        "model MiB": sum(tensor.nbytes for tensor in model.tensors.values()) / 2**20,
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else 0.0,
    }


if __name__ == "__main__":
    main()
