"""``ease`` of many candidates: seconds and memory of its settings' search and of its matrix.

    python -m benchmarks.scale.ease [--candidates 50000] [--pairs 1e6] [--out DIR]

Generated pairs: a query has at most 20, most of them in one of 200 groups of candidates, popular
ones more often. One pair per query is for validation. On a CPU the memory is the largest resident
size of the process, on a GPU what torch allocated at most. The figures are added to ``ease.json``.
Requires only torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.paths import RESULTS
from benchmarks.quality.defaults import Judged
from rankfold.distributed.collectives import SingleProcess
from rankfold.methods.closed_form.ease import weights
from rankfold.methods.closed_form.settings_search import SettingsSearch
from rankfold.solvers.progress import finished
from rankfold.types import Dataset, Run, Vocabulary, from_pairs

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PAIRS, GROUPS, SHARE = 20, 200, 0.8  # drawn for each query; of candidates; inside of a group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, nargs="+", default=[50_000])
    parser.add_argument("--pairs", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=RESULTS / "scale")
    args = parser.parse_args()
    path = args.out / "ease.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    for n in args.candidates:
        result = json.loads(path.read_text()) if path.exists() else []
        result.append(measure(generate(int(args.pairs) // PAIRS, n)))
        print(json.dumps(result[-1]), flush=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


def generate(m: int, n: int) -> Dataset:
    """Group g has the candidates g, g + ``GROUPS`` and so on."""
    rng = torch.Generator().manual_seed(0)
    own = torch.randint(GROUPS, (m, 1), generator=rng)
    place = (torch.rand(m, PAIRS, generator=rng) ** 2.5 * n).long()  # popular ones are drawn often
    inside = torch.rand(m, PAIRS, generator=rng) < SHARE
    place = torch.where(inside, place - place % GROUPS + own, place).clamp(max=n - 1)
    codes = torch.arange(m)[:, None] * n + place
    held = codes[:, 0].unique()
    pairs = codes.unique()
    pairs = pairs[~torch.isin(pairs, held)]
    train, validation = (from_pairs(one // n, one % n, None, (m, n)) for one in (pairs, held))
    names = Vocabulary.numbered(m), Vocabulary.numbered(n)
    return Dataset("interactions", train, validation, None, *names)


def measure(data: Dataset) -> dict[str, Any]:
    rows = data.split("train").to(DEVICE)
    generator = torch.Generator().manual_seed(0)
    run = Run(generator, DEVICE, SingleProcess(), judge=Judged(data, "validation"))
    assert run.judge is not None
    began, cpu = time.perf_counter(), time.process_time()
    search = SettingsSearch(rows, None, {}, 400, run.judge, run)
    point = finished(search.best())
    chosen, cpu_chosen = time.perf_counter(), time.process_time()
    matrix = finished(weights(rows, point, run.memory_budget))
    _wait()
    done, cpu_done = time.perf_counter(), time.process_time()
    assert bool(matrix[:100].isfinite().all())
    on_gpu = DEVICE.type == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_gpu else _resident()
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "threads": torch.get_num_threads(),
        "queries": rows.n_queries,
        "candidates": rows.n_candidates,
        "pairs": rows.n_pairs,
        "search seconds": round(chosen - began, 1),
        "search cpu seconds": round(cpu_chosen - cpu, 1),
        "matrix seconds": round(done - chosen, 1),
        "matrix cpu seconds": round(cpu_done - cpu_chosen, 1),
        "peak GiB": round(peak / 2**30, 2),
        "chosen": point._asdict(),
        "validation": search.notes(point)["score"],
    }


def _wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def _resident() -> int:
    """The largest size of the process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
