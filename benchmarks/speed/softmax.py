"""Softmax over all candidates, forward and backward: seconds and memory against the plain form.

    PYTHONPATH=src python -m benchmarks.speed.softmax [--write]                  # 2 minutes
    PYTHONPATH=src python -m benchmarks.speed.softmax --device cuda [--write]

CPU: blocked against plain in alternating rounds where both fit in memory, and the memory of the
blocked form, in its own process, at a size where the scores alone are 16 GB. GPU: the fused kernels
against blocked torch, plain torch and compiled plain torch, up to 10 million candidates.
``--write`` updates the entries of this device in results/speed/softmax.json. Requires only torch
and numpy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from benchmarks.paths import RESULTS
from rankfold.kernels.softmax import DEVICE_BLOCK_BYTES, log_sum_exp, log_sum_exp_plain
from rankfold.kernels.sparsemax import sparsemax_value

Form = Callable[[Tensor, Tensor], Tensor]
Row = dict[str, object]
WIDTH = 64
LARGE = 4096, 1_000_000
RESULT = RESULTS / "speed" / "softmax.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-of", nargs=2, type=int, metavar=("B", "N"), help="one step alone")
    args = parser.parse_args()
    if args.memory_of:
        print(memory_of(*args.memory_of))
        return
    rows = on_cpu(args.rounds) if args.device == "cpu" else on_cuda(args.rounds)
    if args.write:
        write(args.device, rows)


# ---------------------------------------------------------------------------------- CPU


def on_cpu(rounds: int) -> list[Row]:
    rows = []
    for b, n in [(1024, 20_000), (1024, 100_000)]:
        inputs = vectors(b, n, torch.device("cpu"), torch.float32)
        forms = {"plain": log_sum_exp_plain, "blocked": log_sum_exp, "sparsemax": sparsemax_value}
        works = {name: partial(step, form, inputs) for name, form in forms.items()}
        seconds = alternate(works, rounds)
        for name, value in seconds.items():
            ratio = value / seconds["plain"]
            rows.append(report(form=name, B=b, N=n, ms=value * 1e3, of_plain=ratio))
    b, n = LARGE
    command = [sys.executable, "-m", "benchmarks.speed.softmax", "--memory-of", str(b), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows.append(report(form="blocked", B=b, N=n, MiB_beyond_gradients=float(done.stdout)))
    return rows


def alternate(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each, alternating, so that other load affects all equally."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - began)
    return {name: median(values[1:]) for name, values in seconds.items()}  # the first warms up


def memory_of(b: int, n: int) -> float:
    """MiB at the peak of a step beyond the vectors and their gradients; on Linux."""
    inputs = vectors(b, n, torch.device("cpu"), torch.float32)
    step(
        log_sum_exp, vectors(8, 8, torch.device("cpu"), torch.float32)
    )  # modules that torch loads late
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = resident("VmRSS")
    step(log_sum_exp, inputs)
    return resident("VmHWM") - before - sum(t.nbytes for t in inputs) / 2**20


def resident(what: str) -> float:
    """MiB in memory now (``VmRSS``) or at the peak (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(what))) / 2**10


# ---------------------------------------------------------------------------------- CUDA


def on_cuda(rounds: int) -> list[Row]:
    device = torch.device("cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        for n in (100_000, 1_000_000, 4_000_000, 10_000_000):
            inputs = vectors(LARGE[0], n, device, dtype)
            for name, form in cuda_forms().items():
                result = on_device(form, inputs, rounds)
                rows.append(report(form=name, dtype=str(dtype)[6:], B=LARGE[0], N=n, **result))
    return rows


def cuda_forms() -> dict[str, Form]:
    """``log_sum_exp`` uses the fused kernels by default, and blocks if their size is given."""
    return {
        "fused": log_sum_exp,
        "blocked": lambda p, q: log_sum_exp(p, q, DEVICE_BLOCK_BYTES),
        "plain": log_sum_exp_plain,
        "compiled": torch.compile(log_sum_exp_plain),
        "sparsemax": sparsemax_value,
    }


def on_device(form: Form, inputs: list[Tensor], rounds: int) -> Row:
    """Milliseconds, and peak GiB beyond the vectors; or the error."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        step(form, inputs)
        values = [timed_on_device(form, inputs) for _ in range(rounds)]
    except torch.cuda.OutOfMemoryError:
        return {"failed": "out of memory"}
    except Exception as error:  # a kernel that does not compile must not hide the other figures
        return {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    peak = torch.cuda.max_memory_allocated() - before
    return {"ms": median(values), "GiB": peak / 2**30}


def timed_on_device(form: Form, inputs: list[Tensor]) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step(form, inputs)
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop))


# ---------------------------------------------------------------------------------- both


def vectors(b: int, n: int, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Scores have a standard deviation of about 1."""
    rng = torch.Generator(device).manual_seed(0)
    made = (torch.randn(m, WIDTH, generator=rng, device=device) for m in (b, n))
    return [m.mul_(WIDTH**-0.25).to(dtype).requires_grad_() for m in made]


def step(form: Form, inputs: list[Tensor]) -> None:
    """Forward and backward; the gradients are dropped."""
    torch.autograd.grad(form(*inputs).mean(), inputs)


def report(**row: object) -> Row:
    shown = (f"{k} {v:,.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
    print("  ".join(shown), flush=True)
    return row


def write(device: str, rows: list[Row]) -> None:
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    name = (
        torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    result[device] = {"device": name, "torch": torch.__version__, "width": WIDTH, "rows": rows}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
