"""Several processes on CUDA, as far as one device allows.

    PYTHONPATH=src python -m benchmarks.checks.ranks [--device cpu]

NCCL needs one device per process. So each of its collectives is called the way ``comm`` calls it,
in a group of one. Every distributed method is fitted by two processes that share the device, with
gloo between them: both must reach the loss of one process. ``rg2`` has no loss without validation;
the norm of all its vectors is compared. ALS with divided candidates is validated as well, with the
full table on the device and in a file: its scores must be those of one process.
Requires only torch and numpy. Prints one line per check; exit code 1 if one fails. On a CPU only
the second part runs, to try out the program.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, cast
from unittest.mock import MagicMock

import torch
from torch import Tensor
from torch import distributed as dist
from torch import multiprocessing as mp

from benchmarks.checks.gpu import planted
from rankfold.distributed.collectives import SINGLE_PROCESS, TorchProcesses
from rankfold.distributed.connection import connect
from rankfold.distributed.heartbeat import Heartbeat
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.types import Comm, Dataset, Graded, Run, Step, Texts, Vocabulary

CLOSE = 1e-3  # relative: sums of another order, over a few epochs
PICKING = {"bir": 0.05, "xir": 0.05}  # a pick that flips by rounding changes what follows
FITS: list[tuple[str, dict[str, Any]]] = [
    ("rg2", {}),
    ("rg2-plain", {}),
    ("puresvd", {}),
    *((name, {"sweeps": 3}) for name in ("ials", "wrmf", "rg2-weighted", "rgx")),
    *((name, {"epochs": 3}) for name in ("bpr", "bce", "ssl-pop", "mns", "g-tower", "bir", "xir")),
    *((name, {"epochs": 3}) for name in ("softmax", "sparsemax", "uib", "sml")),
    ("siamesexml", {"width": 16, "joint_epochs": 2}),
    ("siamesexml-paper", {"width": 16, "encoder_epochs": 2, "classifier_epochs": 2}),
    *((name, {"epochs": 2, "dropout": 0.0}) for name in ("cba", "ce", "eban", "pauc")),
]
DIVIDED = ("rg2", "ials", "rgx", "bpr", "ssl-pop", "xir")  # with candidates divided, too
VALIDATED = {"on the device": 2**30, "in a file": 1000}  # by the memory budget, in bytes
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    device = torch.device(parser.parse_args().device)
    good: list[bool] = []
    if device.type == "cuda":
        print(torch.__version__, torch.cuda.get_device_name(), flush=True)
        good += in_processes(1, nccl)[0]
    alone, both = everything(SINGLE_PROCESS, device), in_processes(2, partial(fits, device))
    for name, expected in alone.items():
        for result in (one[name] for one in both):
            close = PICKING.get(name.split()[0], CLOSE)
            good.append(is_close(result, expected, close))
        print("ok  " if all(good[-2:]) else "FAILED ", name, expected, *(one[name] for one in both))
    print(f"{sum(good)} of {len(good)} checks passed")
    sys.exit(not all(good))


def is_close(result: float | str, expected: float | str, close: float) -> bool:
    """Whether both are numbers and nearly equal."""
    if isinstance(result, str) or isinstance(expected, str):
        return False
    return abs(result - expected) <= close * abs(expected)


# ---------------------------------------------------------------------------------- processes


def in_processes(size: int, work: Callable[[], Any]) -> list[Any]:
    """The result of each process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    ends = [context.Pipe(duplex=False) for _ in range(size)]
    started = []
    for rank, (_, end) in enumerate(ends):
        process = context.Process(target=_process, args=(rank, size, port, end, work))
        process.start()
        started.append(process)
    result = [end.recv() for end, _ in ends]
    for process in started:
        process.join()
    return result


def _process(rank: int, size: int, port: int, end: Any, work: Callable[[], Any]) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()}
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    end.send(work())


# ---------------------------------------------------------------------------------- NCCL


class _Nobody:
    """A watchdog for one process."""

    rank, size = 0, 1


def nccl() -> list[bool]:
    """Every collective for every type that is sent, on a device, in a group of one."""
    dist.init_process_group("cpu:gloo,cuda:nccl")
    comm, good = TorchProcesses(cast(Heartbeat, _Nobody())), []
    for dtype in DTYPES:
        given = torch.arange(12, device="cuda").reshape(6, 2).to(dtype)
        for name in ("sum", "gather", "collect", "scatter_sum", "broadcast"):
            try:
                result = getattr(comm, name)(given.clone())
                good.append(bool((result == given).all()) and result.is_cuda)
                note = "" if good[-1] else str(result)
            except RuntimeError as error:
                good.append(False)
                note = str(error).splitlines()[0]
            print("ok  " if good[-1] else "FAILED ", f"nccl {name} {dtype} {note}", flush=True)
    dist.destroy_process_group()
    return good


# ---------------------------------------------------------------------------------- methods


class ThroughCpu:
    """The collectives of a run, for tensors of any device, carried by gloo."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._comm, name)
        if name not in ("sum", "gather", "collect", "scatter_sum", "broadcast"):
            return result

        def carried(tensor: Tensor, *more: Any) -> Tensor:
            moved: Tensor = result(tensor.cpu(), *more)
            return moved.to(tensor.device)

        return carried


def fits(device: torch.device) -> dict[str, float | str]:
    return everything(cast(Comm, ThroughCpu(connect())), device)


def everything(comm: Comm, device: torch.device) -> dict[str, float | str]:
    """The last loss of each fit, or its error."""
    kinds = {"interactions": planted()[0], "texts": worded(), "graded": graded()}
    result: dict[str, float | str] = {}
    for name, settings in FITS:
        data = part(kinds[METHODS[name].data_kind], comm)
        result[name] = loss(name, settings, data, Run(_seed(), device, comm, build_index=Exact))
    for name in DIVIDED:
        run = Run(_seed(), device, comm, candidate_memory=400)
        data = part(kinds["interactions"], comm)
        result[f"{name} divided"] = loss(name, dict(FITS)[name], data, run)
    for where, budget in VALIDATED.items():
        for name in ("ials", "rgx"):
            result[f"{name} validated {where}"] = validated(name, budget, comm, device)
    return result


def _seed() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def worded() -> Dataset:
    """The planted pairs, between texts with a few words of one group."""
    data, rng = planted()[0], _seed()

    def texts(n: int) -> Texts:
        words = torch.randint(0, 10, (n, 4), generator=rng) * 6 + torch.arange(n)[:, None] % 6
        return Texts(torch.arange(0, 4 * n + 1, 4), words.flatten().int())

    sides = texts(data.n_queries), texts(len(data.candidates))
    return replace(data, kind="texts", query_texts=sides[0], candidate_texts=sides[1], n_tokens=60)


def graded(n: int = 3000) -> Dataset:
    """Rows whose grade follows from a number."""
    rng = _seed()
    grades = torch.randint(0, 4, (n,), generator=rng)
    numbers = torch.randn(n, 5, generator=rng) + grades[:, None]
    rows = Graded(numbers, torch.zeros(n, 0, dtype=torch.int32), None, grades)
    return Dataset("graded", rows, None, None, Vocabulary.numbered(n), Vocabulary.numbered(4))


def part(data: Dataset, comm: Comm) -> Dataset:
    """The rows of this process."""
    if isinstance(data.train, Graded):
        return replace(data, train=data.train.part(*comm.share(len(data.train))))
    start, stop = comm.share(data.n_queries)
    texts = data.query_texts
    return replace(
        data,
        train=data.split("train").part(start, stop),
        test=None,
        query_texts=None if texts is None else texts.part(start, stop),
        first=start,
    )


def loss(name: str, settings: dict[str, Any], data: Dataset, run: Run) -> float | str:
    method, last = METHODS[name], 0.0
    try:
        for step in method.fit(data, method.config(**settings), run):
            last = last if step.loss == 0 else float(step.loss)
        return last if name != "rg2" else length(step, len(data.candidates), run.comm)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def validated(name: str, budget: int, comm: Comm, device: torch.device) -> float | str:
    """The score of held-out pairs after a few sweeps, each with validation."""
    fit, (whole, held) = _fit_module(), planted()
    start, stop = comm.share(whole.n_queries)
    data = replace(part(whole, comm), validation=held.part(start, stop))
    method = METHODS[name]
    settings = method.config(sweeps=3)
    from rankfold.tasks.options import FitOptions

    options = FitOptions(memory_budget=budget, candidate_memory=400)
    plan = fit.plan.FitPlan(name, method, settings, data, options, comm, None)
    run = Run(_seed(), device, comm, memory_budget=budget, candidate_memory=400)
    judge = fit.validation.make_judge(plan, data)
    validate = fit.validation.make_validator(plan, data, judge)
    try:
        return float([validate(step.model) for step in method.fit(data, settings, run)][-1])
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _fit_module() -> Any:
    """The module; mocks replace readers of tables and files if they are not installed."""
    for name in ("polars", "zstandard"):
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = MagicMock(name=name)
    from rankfold.tasks import fit

    return fit


def length(step: Step, n: int, comm: Comm) -> float:
    """The norm of all candidate vectors, which each process has completely or in part."""
    assert step.model is not None
    own = step.model.tensors["candidates"]
    squares = float(comm.sum(own.double().square().sum()))
    return float((squares / (comm.size if len(own) == n else 1)) ** 0.5)


if __name__ == "__main__":
    main()
