"""Fits alone, beside three busy loops and on one core, and ``ials`` beside implicit, in one run.

    taskset --cpu-list 0,1 python -m benchmarks.speed.contention [--write LABEL]

Each fit runs in its own process, as a Python program that has loaded torch, after a small one that
warms it up. Its seconds include the start and the final step. ``implicit`` gets the same pairs. It
runs in this Python if it can be imported, else in the environment of the peer. The rest requires
only torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.paths import RESULTS
from benchmarks.peers.environment import environment

FITS = ("rg2", "ials", "bpr", "implicit")
SHAPES = {500_000: (20_000, 10_000), 7_000_000: (100_000, 20_000)}  # queries and candidates
SETTINGS: dict[str, dict[str, Any]] = {
    "rg2": {"width": 256},
    "ials": {"width": 128, "sweeps": 15},
    "bpr": {"width": 64, "epochs": 1},
    "implicit": {"width": 128},
}
BUSY = "while True: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", choices=FITS, help="one fit in this process")
    parser.add_argument("--width", type=int)
    parser.add_argument("--pairs", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fits", nargs="*", choices=FITS, default=FITS)
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SHAPES), help="ials, implicit")
    parser.add_argument("--widths", nargs="*", type=int, default=[64, 128])
    parser.add_argument("--write", metavar="LABEL")
    args = parser.parse_args()
    if args.fit:
        settings = SETTINGS[args.fit] | ({"width": args.width} if args.width else {})
        print(json.dumps((fit_implicit if args.fit == "implicit" else fit)(args, settings)))
        return
    results = {"beside other work": contended(args), "ials beside implicit": compared(args)}
    if args.write:
        path = RESULTS / "speed" / f"contention-{args.write}.json"
        path.write_text(json.dumps({"seconds": "wall, CPU", **results}, indent=1) + "\n")


def contended(args: argparse.Namespace) -> dict[str, Any]:
    """Medians of each fit alone, beside three busy loops and on one core, and their ratios."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in args.fits}
    for _ in range(args.rounds):  # alternating: the speed of cores drifts
        for name in args.fits:
            rounds[name].append(one_round(name, args.pairs))
    results: dict[str, Any] = {}
    for name, every in rounds.items():
        result = {where: _medians([one[where] for one in every]) for where in every[0]}
        ratios = {f"{where} / alone": _ratios(result[where], result["alone"]) for where in result}
        results[name] = {**result, **ratios}
        print(name, results[name], flush=True)
    return results


def one_round(name: str, n_pairs: int) -> dict[str, list[float]]:
    alone = measure(name, n_pairs)
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3)]
    try:
        beside = measure(name, n_pairs)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    core = str(min(os.sched_getaffinity(0)))
    on_one = measure(name, n_pairs, before=("taskset", "-c", core))
    return {"alone": alone, "beside 3": beside, "one core": on_one}


def compared(args: argparse.Namespace) -> dict[str, Any]:
    """``ials`` and implicit in alternation, and the ratio of their seconds, for each size."""
    results: dict[str, Any] = {}
    for n_pairs in args.sizes:
        for width in args.widths:
            names = ("ials", "implicit")
            every = [[measure(name, n_pairs, width) for name in names] for _ in range(args.rounds)]
            ours, theirs = (_medians(list(one)) for one in zip(*every, strict=True))
            key = f"{n_pairs} pairs, width {width}"
            results[key] = {"ials": ours, "implicit": theirs, "ratio": _ratios(ours, theirs)}
            print(key, results[key], flush=True)
    return results


def _medians(rounds: list[list[float]]) -> list[float]:
    return [round(median(column), 2) for column in zip(*rounds, strict=True)]


def _ratios(some: list[float], others: list[float]) -> list[float]:
    return [round(one / other, 2) for one, other in zip(some, others, strict=True)]


def measure(
    name: str, n_pairs: int, width: int | None = None, before: tuple[str, ...] = ()
) -> list[float]:
    """Wall and CPU seconds of a fit in its own process."""
    python, variables = sys.executable, dict(os.environ)
    if name == "implicit":
        variables["OPENBLAS_NUM_THREADS"] = "1"  # as it recommends: it has its own threads
        if find_spec("implicit") is None:
            python = str(environment("implicit"))
    words = ["--fit", name, "--pairs", str(n_pairs), *(["--width", str(width)] if width else [])]
    command = [*before, python, "-m", "benchmarks.speed.contention", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr[-600:]}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def fit(args: argparse.Namespace, settings: dict[str, Any]) -> list[float]:
    """Wall and CPU seconds of the second fit; the first, of a tenth of the data, warms up."""
    import time

    import torch

    from rankfold.distributed.collectives import SingleProcess
    from rankfold.index.exact import Exact
    from rankfold.kernels.threads import limited_threads
    from rankfold.methods import METHODS
    from rankfold.types import Run

    method = METHODS[args.fit]
    for n in (args.pairs // 10, args.pairs):
        data = dataset(n, SHAPES.get(args.pairs, SHAPES[500_000]))
        run = Run(
            rng=torch.Generator().manual_seed(0),
            device=torch.device("cpu"),
            comm=SingleProcess(),
            judge=Judged(data),
            build_index=Exact,
        )
        wall, cpu = time.perf_counter(), time.process_time()
        with limited_threads(own=method.own_threads):  # as ``rankfold.fit`` does
            *_, last = method.fit(data, method.config(**settings), run)
            if method.finalize is not None:
                method.finalize(last.model, data.train, run)
        result = [time.perf_counter() - wall, time.process_time() - cpu]
    return result


def fit_implicit(args: argparse.Namespace, settings: dict[str, Any]) -> list[float]:
    import time

    import numpy as np
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    for n in (args.pairs // 10, args.pairs):
        shape = SHAPES.get(args.pairs, SHAPES[500_000])
        codes, _ = pair_codes(n, shape)
        places = codes // shape[1], codes % shape[1]
        matrix = csr_matrix((np.ones(len(codes), np.float32), places), shape)
        model = AlternatingLeastSquares(
            settings["width"], alpha=40, iterations=15, num_threads=2, random_state=0, use_cg=True
        )
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(matrix, show_progress=False)
        result = [time.perf_counter() - wall, time.process_time() - cpu]
    return result


def pair_codes(n: int, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Nine tenths and a tenth of about n pairs in 40 groups, candidates by a power law."""
    import numpy as np

    rng, (n_queries, n_candidates) = np.random.default_rng(0), shape
    queries = rng.integers(0, n_queries, n)
    draws = (n_candidates * rng.random(n) ** 2).astype(np.int64)
    in_group = draws // 40 * 40 + queries % 40
    candidates = np.where(rng.random(n) < 0.7, in_group, draws) % n_candidates
    codes = np.unique(queries * n_candidates + candidates)
    held = rng.random(len(codes)) < 0.1
    return codes[~held], codes[held]


def dataset(n: int, shape: tuple[int, int]) -> Any:
    import torch

    from rankfold.types import Dataset, Vocabulary, from_pairs

    train, validation = (
        from_pairs(part // shape[1], part % shape[1], None, shape)
        for part in map(torch.from_numpy, pair_codes(n, shape))
    )
    names = map(Vocabulary.numbered, shape)
    return Dataset("interactions", train, validation, None, *names)


class Judged:
    """The validation queries, at most 10,000, by ndcg@10."""

    def __init__(self, data: Any) -> None:
        self.data, self.truth, self.depth = data, data.split("validation"), 10
        self.queries = self.truth.counts().nonzero().flatten()[:10_000]

    def hidden(self, queries: Any) -> Any:
        return self.data.seen("validation").select(queries)

    def values(self, queries: Any, ids: Any) -> Any:
        from rankfold.metrics import METRICS
        from rankfold.metrics.judged import judge

        return METRICS["ndcg"].value(judge(ids, self.truth.select(queries)), 10)


if __name__ == "__main__":
    main()
