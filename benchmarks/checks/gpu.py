"""Checks that need a GPU: every gradient-trained method, and the fused kernels.

    PYTHONPATH=src python -m benchmarks.checks.gpu

Each method is fitted on planted groups, or on rows with a planted order of grades, on the CPU and
on CUDA (in bfloat16 as well). Both must rank the held-out pairs equally well, and a fit resumed
within an epoch must end where the uninterrupted one ends. Ranks estimated from the cache of ``cba``
must equal those of the CPU. The fused log-sum-exp must equal the plain one in value and gradients.
Requires only torch and numpy. Prints one line per check; exit code 1 if one fails.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from rankfold.distributed.collectives import SingleProcess
from rankfold.kernels.softmax import log_sum_exp, log_sum_exp_plain
from rankfold.methods import METHODS
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.training import loop
from rankfold.training.loop import Training
from rankfold.types import (
    Columns,
    Dataset,
    Graded,
    Interactions,
    Model,
    Run,
    Vocabulary,
    from_pairs,
)

Settings = dict[str, Any]
M, N, GROUPS = 600, 300, 6
GRADED = [name for name, method in METHODS.items() if method.data_kind == "graded"]


def main() -> None:
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    data, held = planted()
    good = [check_fused(dtype, *shape) for dtype in DTYPES for shape in SHAPES]
    for name, method in METHODS.items():
        if issubclass(method.config, Training) and method.data_kind == "interactions":
            good.append(check_method(name, data, held, {}))
            good.append(check_method(name, data, held, {"precision": "bfloat16"}))
            good.append(check_resume(name, data, "candidates"))
    rows, held_rows = graded()
    for name, more in (*((name, {}) for name in GRADED), ("cba", {"ranks": "likeness"})):
        for half in ({}, {"precision": "bfloat16"}):
            good.append(check_grader(name, rows, held_rows, {**more, **half}))
        good.append(check_resume(name, rows, "head", more))
    good += [check_ranks(n_grades, width) for n_grades in (2, 5, 40) for width in (8, 64)]
    print(f"{sum(good)} of {len(good)} checks passed")
    sys.exit(not all(good))


# ---------------------------------------------------------------------------------- methods


def planted() -> tuple[Dataset, Interactions]:
    """Queries and candidates in groups; a tenth of the pairs is held out."""
    rng = torch.Generator().manual_seed(0)
    same = (torch.arange(M)[:, None] % GROUPS) == (torch.arange(N)[None] % GROUPS)
    chosen = torch.rand(M, N, generator=rng) < torch.where(same, 0.4, 0.02)
    held = chosen & (torch.rand(M, N, generator=rng) < 0.1)
    parts = [(chosen & ~held).nonzero(), held.nonzero()]
    train, test = (from_pairs(p[:, 0], p[:, 1], None, (M, N)) for p in parts)
    names = Vocabulary.numbered(M), Vocabulary.numbered(N)
    return Dataset("interactions", train, None, test, *names), test


def check_method(name: str, data: Dataset, held: Interactions, more: Settings) -> bool:
    """Recall of the held-out pairs, on both devices."""
    on_cpu = recall(fit(name, data, "cpu", {}), data, held)
    on_cuda = recall(fit(name, data, "cuda", more), data, held)
    return say(
        f"{name} {more}: recall@50 cpu {on_cpu:.3f} cuda {on_cuda:.3f}", on_cuda > on_cpu - 0.05
    )


def check_resume(name: str, data: Dataset, key: str, more: Settings | None = None) -> bool:
    """A fit resumed within the second epoch ends nearly where the uninterrupted one ends.

    ``key`` is the prefix of the tensors to compare.
    """
    loop.PAUSE_SECONDS = -1.0
    states, more = [], more or {}
    for step in steps(name, data, "cuda", more, None):
        if not step.whole and step.number == 2:
            states.append({key: value.clone() for key, value in step.state().items()})
        final = step
    loop.PAUSE_SECONDS = 1.0
    *_, resumed = steps(name, data, "cuda", more, states[len(states) // 2])
    whole, again = final.model.tensors, resumed.model.tensors
    gap = max(float((whole[n] - again[n]).abs().max()) for n in whole if n.startswith(key))
    return say(f"{name} {more} resumed: largest difference {gap:.2e}", gap < 1e-3)


def fit(name: str, data: Dataset, device: str, more: Settings) -> Model:
    *_, step = steps(name, data, device, more, None)
    assert step.model is not None
    return step.model


def steps(name: str, data: Dataset, device: str, more: Settings, resume: Any) -> Any:
    method = METHODS[name]
    known = {field.name for field in fields(method.config)}
    settings = {"width": 16, "epochs": 6, "batch_size": 256, "lr": 0.02, **more}
    config = method.config(**{key: value for key, value in settings.items() if key in known})
    run = Run(
        rng=torch.Generator().manual_seed(0),
        device=torch.device(device),
        comm=SingleProcess(),
        resume=resume,
    )
    return method.fit(data, config, run)


def recall(model: Model, data: Dataset, held: Interactions) -> float:
    queries, candidates = (model.tensors[key].float().cpu() for key in ("queries", "candidates"))
    scores = queries @ candidates.T
    seen = data.split("train")
    scores[seen.query_of_pair().long(), seen.candidates.long()] = -torch.inf
    best = scores.topk(50, dim=1).indices
    result = (best[held.query_of_pair().long()] == held.candidates[:, None]).any(dim=1)
    return float(result.double().mean())


# ---------------------------------------------------------------------------------- grades


def graded() -> tuple[Dataset, Graded]:
    """Rows whose grade follows from a number and a category; the highest grade is rare."""

    def planted_rows(n: int, seed: int) -> Graded:
        rng = torch.Generator().manual_seed(seed)
        numbers = torch.randn(n, 2, generator=rng)
        categories = torch.randint(0, 3, (n, 1), generator=rng, dtype=torch.int32)
        hidden = 1.5 * numbers[:, 0] + categories[:, 0] + 0.3 * torch.randn(n, generator=rng)
        edges = torch.tensor([-1.0, 1.0, 4.0])
        return Graded(numbers, categories, None, torch.bucketize(hidden, edges))

    train, test = planted_rows(4000, 0), planted_rows(2000, 1)
    names = Vocabulary.numbered(len(train)), Vocabulary.numbered(4)
    columns = Columns(("a", "b"), {"c": ("x", "y", "z")})
    return Dataset("graded", train, None, None, *names, columns=columns), test


def check_grader(name: str, data: Dataset, held: Graded, more: Settings) -> bool:
    """How often held-out rows are in order, on both devices."""
    on_cpu, on_cuda = (
        in_order(METHODS[name].open(fit(name, data, device, settings)).rows(held), held.grades)
        for device, settings in (("cpu", {**more, "precision": "float32"}), ("cuda", more))
    )
    text = f"{name} {more}: pairs in order, cpu {on_cpu:.4f} cuda {on_cuda:.4f}"
    return say(text, on_cpu > 0.9 and on_cuda > on_cpu - 0.02)


def in_order(scores: Tensor, grades: Tensor) -> float:
    """The share of pairs of different grades that are scored in the right order."""
    higher = grades[:, None] > grades
    return float((scores[:, None] > scores)[higher].double().mean())


def check_ranks(n_grades: int, width: int) -> bool:
    """Ranks of a batch after some others; some grades fit into the cache, some do not.

    By rounding, a few rows may be above an entry on one device only.
    """
    rng = torch.Generator().manual_seed(0)
    counts = torch.randint(1, 1000, (n_grades,), generator=rng)
    grades = torch.arange(n_grades).repeat_interleave(counts)
    vectors = torch.randn(len(grades), width, generator=rng).relu()
    head, order = torch.randn(width, generator=rng), torch.randperm(len(grades), generator=rng)
    result = []
    for device in ("cpu", "cuda"):
        shares = (counts / len(grades)).to(device)
        cache = CrossBatchCache(grades.to(device), shares, 512, width)
        for rows in order.split(256):
            cache.push(vectors[rows].to(device), rows.to(device))
        asked = vectors[rows].to(device), head.to(device)
        result.append([cache.ranks(*asked, by_likeness=b).cpu() for b in (True, False)])
    gaps = [(x - y).abs() for x, y in zip(*result, strict=True)]
    text = ", ".join(f"{float(gap.mean()):.1e} ({float(gap.max()):.1e} at most)" for gap in gaps)
    same = all(float(gap.mean()) < 1e-4 and float(gap.max()) < 0.01 for gap in gaps)
    return say(f"ranks of {n_grades} grades, width {width}: {text}", same)


# ---------------------------------------------------------------------------------- kernels

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = (
    (1, 1, 1),
    (5, 130, 16),
    (300, 5000, 64),
    (129, 700, 100),
    (70, 300, 256),
    (4096, 50_000, 64),
)


def check_fused(dtype: torch.dtype, b: int, n: int, d: int) -> bool:
    made = [(torch.randn(m, d, device="cuda") / d**0.25).to(dtype) for m in (b, n)]
    exact = [t.double().requires_grad_() for t in made]
    fused = [t.clone().requires_grad_() for t in made]
    expected, result = log_sum_exp_plain(*exact), log_sum_exp(*fused)
    pairs = [(result, expected)]
    pairs += zip(
        torch.autograd.grad(result.sum(), fused),
        torch.autograd.grad(expected.sum(), exact),
        strict=True,
    )
    errors = [float((x.double() - y).norm() / y.norm().clamp(min=1e-30)) for x, y in pairs]
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    text = f"log-sum-exp {str(dtype)[6:]} {b} x {n} x {d}: " + ", ".join(f"{e:.1e}" for e in errors)
    return say(text, max(errors) < limit)


def say(text: str, good: bool) -> bool:  # noqa: FBT001
    print(f"{'ok' if good else 'FAILED'}  {text}", flush=True)
    return good


if __name__ == "__main__":
    main()
