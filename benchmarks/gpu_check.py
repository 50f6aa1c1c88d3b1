"""What the tests cannot see without a GPU: every method there, and the fused kernels.

    PYTHONPATH=src python benchmarks/gpu_check.py

Each gradient-trained method is fitted on planted groups on the CPU and on CUDA (in bfloat16, too):
both must rank what was held out alike, and a fit that goes on from a state inside an epoch must end
where the whole one ends. The fused log-sum-exp must equal the plain one, value and gradients.
Needs torch and numpy alone; prints a line per check and ends with 1 if one failed.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import torch

from rankfold.comm import Alone
from rankfold.kernels.softmax import log_sum_exp, log_sum_exp_plain
from rankfold.methods import METHODS
from rankfold.training import loop
from rankfold.training.loop import Training
from rankfold.types import Dataset, Interactions, Model, Run, Vocabulary, from_pairs

M, N, GROUPS = 600, 300, 6


def main() -> None:
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    data, held = planted()
    good = [check_fused(dtype, *shape) for dtype in DTYPES for shape in SHAPES]
    for name, method in METHODS.items():
        if issubclass(method.config, Training) and method.data_kind == "interactions":
            good.append(check_method(name, data, held, {}))
            good.append(check_method(name, data, held, {"precision": "bfloat16"}))
            good.append(check_resume(name, data))
    print(f"{sum(good)} of {len(good)} checks passed")
    sys.exit(not all(good))


# ---------------------------------------------------------------------------------- methods


def planted() -> tuple[Dataset, Interactions]:
    """Queries and candidates in groups; a tenth of the pairs held out."""
    rng = torch.Generator().manual_seed(0)
    same = (torch.arange(M)[:, None] % GROUPS) == (torch.arange(N)[None] % GROUPS)
    chosen = torch.rand(M, N, generator=rng) < torch.where(same, 0.4, 0.02)
    held = chosen & (torch.rand(M, N, generator=rng) < 0.1)
    parts = [(chosen & ~held).nonzero(), held.nonzero()]
    train, test = (from_pairs(p[:, 0], p[:, 1], None, (M, N)) for p in parts)
    names = Vocabulary.numbered(M), Vocabulary.numbered(N)
    return Dataset("interactions", train, None, test, *names), test


def check_method(name: str, data: Dataset, held: Interactions, more: dict[str, Any]) -> bool:
    """Recall of what was held out, on both devices."""
    on_cpu = recall(fit(name, data, "cpu", {}), data, held)
    on_cuda = recall(fit(name, data, "cuda", more), data, held)
    return say(
        f"{name} {more}: recall@50 cpu {on_cpu:.3f} cuda {on_cuda:.3f}", on_cuda > on_cpu - 0.05
    )


def check_resume(name: str, data: Dataset) -> bool:
    """A state from inside the second epoch leads where the whole fit led, nearly."""
    loop.TICK = -1.0
    states = []
    for step in steps(name, data, "cuda", {}, None):
        if not step.whole and step.number == 2:
            states.append({key: value.clone() for key, value in step.state().items()})
        final = step
    loop.TICK = 1.0
    *_, resumed = steps(name, data, "cuda", {}, states[len(states) // 2])
    assert final.model is not None
    assert resumed.model is not None
    key = "candidates"
    gap = (final.model.tensors[key] - resumed.model.tensors[key]).abs().max()
    return say(f"{name} resumed: largest difference {float(gap):.2e}", float(gap) < 1e-3)


def fit(name: str, data: Dataset, device: str, more: dict[str, Any]) -> Model:
    *_, step = steps(name, data, device, more, None)
    assert step.model is not None
    return step.model


def steps(name: str, data: Dataset, device: str, more: dict[str, Any], resume: Any) -> Any:
    method = METHODS[name]
    known = {field.name for field in fields(method.config)}
    settings = {"width": 16, "epochs": 6, "batch_size": 256, "lr": 0.02, **more}
    config = method.config(**{key: value for key, value in settings.items() if key in known})
    run = Run(
        rng=torch.Generator().manual_seed(0),
        device=torch.device(device),
        comm=Alone(),
        resume=resume,
    )
    return method.fit(data, config, run)


def recall(model: Model, data: Dataset, held: Interactions) -> float:
    queries, candidates = (model.tensors[key].float().cpu() for key in ("queries", "candidates"))
    scores = queries @ candidates.T
    seen = data.split("train")
    scores[seen.query_of_pair().long(), seen.candidates.long()] = -torch.inf
    best = scores.topk(50, dim=1).indices
    found = (best[held.query_of_pair().long()] == held.candidates[:, None]).any(dim=1)
    return float(found.double().mean())


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
    expected, found = log_sum_exp_plain(*exact), log_sum_exp(*fused)
    pairs = [(found, expected)]
    pairs += zip(
        torch.autograd.grad(found.sum(), fused),
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
