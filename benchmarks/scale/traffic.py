"""Bytes that a rank sends, against the formulas of docs/reference/processes.md.

    PYTHONPATH=src python -m benchmarks.scale.traffic [--ranks 2 4] [--write]

The pairs between texts of a few words are generated. ``Comm.sent`` counts the bytes that rank 1
sends between two steps of a fit; rank 0 sends small matrices in addition. The formulas use the
numbers of candidates and tokens in each batch, recorded during the fit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import torch

from benchmarks.checks.ranks import in_processes, part
from benchmarks.paths import RESULTS
from rankfold.distributed.connection import connect
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import modules
from rankfold.training import loop
from rankfold.types import Comm, Dataset, Run, Texts, Vocabulary, from_pairs

RESULT = RESULTS / "scale" / "traffic.json"
M, N, PAIRS, WIDTH, BATCH, WORDS = 20_000, 20_000, 200_000, 32, 1024, 3_000
WHOLE, DIVIDED = 2**34, 2**19
JOINT = {"encoder_epochs": 0, "classifier_epochs": 0, "joint_epochs": 1, "batch_size": 256}
CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "rg2-plain": ("a pass", "rg2-plain", WHOLE, {"width": 64}),
    "rg2-plain, divided": ("a pass", "rg2-plain", DIVIDED, {"width": 64}),
    "ials": ("a sweep", "ials", WHOLE, {"sweeps": 3}),
    "ials, divided": ("a sweep", "ials", DIVIDED, {"sweeps": 3}),
    "rgx": ("a sweep", "rgx", WHOLE, {"sweeps": 3, "start": "random"}),
    "rgx, divided": ("a sweep", "rgx", DIVIDED, {"sweeps": 3, "start": "random"}),
    "bpr": ("a step", "bpr", WHOLE, {"batch_size": BATCH, "epochs": 1}),
    "bpr, divided": ("a step", "bpr", DIVIDED, {"batch_size": BATCH, "epochs": 1}),
    "siamesexml": ("a step", "siamesexml", WHOLE, JOINT),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    result: dict[str, Any] = {"queries": M, "candidates": N, "width": WIDTH, "batch_size": BATCH}
    for ranks in given.ranks:
        every = in_processes(ranks, measured)
        result[str(ranks)] = {}
        for case, (step, *_) in CASES.items():
            figures = {"per": step, "sent": every[1][case]["sent"]}
            figures["formula"] = formula(case, ranks, [one[case] for one in every])
            result[str(ranks)][case] = figures
            print(ranks, case, json.dumps(figures), flush=True)
    if given.write:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


def formula(case: str, size: int, every: list[dict[str, int]]) -> int:
    """Bytes by the formulas of the document, without small matrices and a few vectors."""

    def s(bytes_: int) -> int:
        return 2 * bytes_ * (size - 1) // size

    met = every[0]
    columns = max(16, 64 // 4)
    t = 4 * N * WIDTH * (size - 1) // size
    name, *divided = case.split(", ")
    if name == "rg2-plain":
        return s(4 * N * columns)
    if name in ("ials", "rgx"):
        if divided:
            return {"ials": 3 * 2 + 4, "rgx": 2 + 45}[name] * t
        sums, counts = {"ials": (3, 2), "rgx": (22, 1)}[name]
        return sums * s(4 * N * WIDTH) + counts * s(8 * N)
    if name == "bpr":
        return s(4 * BATCH) + s(24) + (2 if divided else 1) * s(4 * met["met"] * WIDTH)
    figures = (8 + 4 * max(one["chosen"] for one in every)) * (size - 1)
    tokens = (8 + 4 * max(one["own"] for one in every)) * (size - 1)
    tokens += s(4 * met["tokens"] * WIDTH)
    return figures + 2 * s(4 * met["pool"] * WIDTH) + s(24) + tokens


def measured() -> dict[str, dict[str, int]]:
    """The bytes that this rank sends in the second step of each case, and the counts there."""
    torch.set_num_threads(1)
    comm, data, loop.PAUSE_SECONDS = connect(), made(), -1.0  # a step after every batch
    return {case: of_a_step(case, part(data, comm), comm) for case in CASES}


def of_a_step(case: str, data: Dataset, comm: Comm) -> dict[str, int]:
    _, name, memory, settings = CASES[case]
    method, rng = METHODS[name], torch.Generator().manual_seed(0)
    run = Run(rng, torch.device("cpu"), comm, build_index=Exact, candidate_memory=memory)
    seen: list[dict[str, int]] = []
    undo = noted(seen)
    fit = method.fit(data, method.config(**{"width": WIDTH, **settings}), run)
    sent = [comm.sent for _ in islice(fit, 2)]
    undo()
    return {"sent": sent[1] - sent[0], **(seen[1] if len(seen) > 1 else {})}


def noted(seen: list[dict[str, int]]) -> Callable[[], None]:
    """Record the counts of each batch; returns a function that stops this."""
    chosen_by_all, pool_around = modules.chosen_by_all, modules.pool_around
    sum_gradients = loop.sum_gradients

    def chosen(batch: Any, comm: Comm) -> Any:
        seen.append({"chosen": len(batch.positives.candidates.unique())})
        return chosen_by_all(batch, comm)

    def pool(*given: Any) -> Any:
        result = pool_around(*given)
        seen[-1]["pool"] = len(result.ids)
        return result

    def summed(module: Any, *given: Any) -> None:
        if not hasattr(module.encoder, "tokens"):
            seen.append({"met": len(given[1])})
            return sum_gradients(module, *given)
        table = module.encoder.tokens.weight
        own = len(table.grad.indices()[0])
        sum_gradients(module, *given)
        seen[-1] |= {"own": own, "tokens": len(table.grad.indices()[0])}
        return None

    modules.chosen_by_all, modules.pool_around = chosen, pool
    loop.sum_gradients = summed
    return partial(_restore, chosen_by_all, pool_around, sum_gradients)


def _restore(chosen_by_all: Any, pool_around: Any, sum_gradients: Any) -> None:
    modules.chosen_by_all, modules.pool_around = chosen_by_all, pool_around
    loop.sum_gradients = sum_gradients


def made() -> Dataset:
    """Pairs with skewed candidates; a text has six words, some from its number."""
    rng = torch.Generator().manual_seed(0)
    queries = torch.randint(0, M, (PAIRS,), generator=rng)
    candidates = (torch.rand(PAIRS, generator=rng).square() * N).long()
    codes = torch.unique(queries * N + candidates)
    pairs = from_pairs(codes // N, codes % N, None, (M, N))
    names = Vocabulary.numbered(M), Vocabulary.numbered(N)

    def texts(n: int) -> Texts:
        words = torch.randint(0, WORDS, (n, 6), generator=rng)
        return Texts(torch.arange(0, 6 * n + 1, 6), words.flatten().int())

    return Dataset("texts", pairs, None, None, *names, texts(M), texts(N), n_tokens=WORDS)


if __name__ == "__main__":
    main()
