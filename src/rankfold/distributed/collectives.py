"""The processes of a run: one by default, several under torchrun.

What each sends is counted by formula, for R ranks and b bytes: a sum 2 b (R-1)/R, as a ring does
it; a gather (R-1) times the longest part; a scattered sum b (R-1)/R; a broadcast b (R-1), at its
source; a collection b, but nothing at rank 0. Gloo carries what is on a CPU, NCCL what is on CUDA.

Sums and sends may overwrite what they are given: like ``SingleProcess``, which returns its
argument, they leave it equal to the result or undefined.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from rankfold.distributed.heartbeat import GRACE, RESUME, End, Ended, Heartbeat
from rankfold.errors import UserError
from rankfold.types import Comm

ARRIVAL = timedelta(minutes=5)  # within which all ranks are there
LARGE, SPARE = 2**21, 2**24  # bytes of a table, and of free memory that a process keeps at most
SLOW = timedelta(days=7)  # a rank that is slow is not dead: the heartbeat tells, not a timeout


@dataclass(frozen=True)
class SingleProcess:
    """A run of one process: nothing to exchange."""

    rank: int = 0
    size: int = 1
    sent: int = 0

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def collect(self, tensor: Tensor) -> Tensor:
        return tensor

    def texts(self, text: str) -> list[str]:
        return [text]

    def scatter_sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:  # noqa: ARG002
        return tensor

    def barrier(self) -> None:
        pass

    def share(self, n: int) -> tuple[int, int]:
        return 0, n

    def agree(self, facts: Mapping[str, Any]) -> None:
        pass


SINGLE_PROCESS = SingleProcess()


class TorchProcesses:
    """Several processes, each with its rank; made by ``connect``."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.rank, self.size, self.heartbeat = heartbeat.rank, heartbeat.size, heartbeat
        self.sent = 0

    def sum(self, tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        self.sent += 2 * tensor.nbytes * (self.size - 1) // self.size
        with self._told():
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        lengths = self._lengths(len(tensor))
        own = _padded(tensor, max(lengths))
        self.sent += own.nbytes * (self.size - 1)
        found = own.new_empty(len(own) * self.size, *own.shape[1:])
        parts = found.split(len(own)) if len(own) > 0 else [found] * self.size
        with self._told():
            dist.all_gather(list(parts), own)
        if min(lengths) == len(own):
            return found
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def collect(self, tensor: Tensor) -> Tensor:
        lengths = self._lengths(len(tensor))
        own = _padded(tensor, max(lengths))
        first = self.rank == 0
        self.sent += 0 if first else own.nbytes
        parts = [torch.empty_like(own) for _ in lengths] if first else None
        with self._told():
            dist.gather(own, parts)
        if parts is None:
            return tensor[:0]
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def texts(self, text: str) -> list[str]:
        raw = text.encode()
        lengths = self._lengths(len(raw))
        both = self.gather(torch.frombuffer(bytearray(raw or b" "), dtype=torch.uint8)[: len(raw)])
        return [bytes(part.tolist()).decode() for part in both.split(lengths)]

    def scatter_sum(self, tensor: Tensor) -> Tensor:
        ends = [len(tensor) * rank // self.size for rank in range(self.size + 1)]
        longest = max(stop - start for start, stop in pairwise(ends))
        parts = []
        for start, stop in pairwise(ends):
            parts.append(_padded(tensor[start:stop], longest))
        own = torch.empty_like(parts[0])
        self.sent += own.nbytes * (self.size - 1)
        with self._told():
            dist.reduce_scatter(own, parts)
        return own[: ends[self.rank + 1] - ends[self.rank]]

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        tensor = tensor.contiguous()
        if self.rank == source:
            self.sent += tensor.nbytes * (self.size - 1)
        with self._told():
            dist.broadcast(tensor, source)
        return tensor

    def barrier(self) -> None:
        self.sum(torch.zeros(1))

    def share(self, n: int) -> tuple[int, int]:
        return n * self.rank // self.size, n * (self.rank + 1) // self.size

    def agree(self, facts: Mapping[str, Any]) -> None:
        found = [json.loads(text) for text in self.texts(json.dumps(facts, default=str))]
        for name in dict.fromkeys(name for one in found for name in one):
            values = [json.dumps(one.get(name), sort_keys=True) for one in found]
            if len(set(values)) > 1:
                self._disagree(name, values)

    def _disagree(self, name: str, values: list[str]) -> NoReturn:
        """Name the first rank whose value is not that of most; of as many, not rank 0's."""
        counts = Counter(values)
        usual = max(values, key=counts.__getitem__)  # the first of those
        rank = next(rank for rank, value in enumerate(values) if value != usual)
        who, other = self.heartbeat.describe(rank), values.index(usual)
        raise UserError(
            f"{who} has {name} {values[rank]}, and rank {other} has {usual}",
            hint="all ranks need the same versions, data and command",
        )

    def _lengths(self, length: int) -> list[int]:
        own = torch.tensor([length])
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self.sent += own.nbytes * (self.size - 1)
        with self._told():
            dist.all_gather(parts, own)
        return [int(part) for part in parts]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Where a collective fails, what the heartbeat finds is raised instead."""
        try:
            yield
        except RuntimeError as error:
            if _is_misuse(error):
                raise
            self.heartbeat.doubt()


def _padded(tensor: Tensor, length: int) -> Tensor:
    """The rows and zeros after them, so many in all."""
    tensor = tensor.contiguous()
    if len(tensor) == length:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(length - len(tensor), *tensor.shape[1:])])


def _is_misuse(error: RuntimeError) -> bool:
    """Whether a collective failed on what it was given: a bug, and not a fault elsewhere."""
    faults = ("connection", "peer", "timed out", "timeout", "socket", "nccl", "gloo", "application")
    return not any(word in str(error).lower() for word in faults)


def standing(count: int, comm: Comm) -> tuple[int, int]:
    """Where rows of this process begin among those of all, and how many all have; it has so many.

    The rows of a process stand after those of the processes before it.
    """
    counts = comm.gather(torch.tensor([count]))
    return int(counts[: comm.rank].sum()), int(counts.sum())


_joined: TorchProcesses | None = None
_aside = False


def connect() -> Comm:
    """The processes of this run: under torchrun all that it started, else this one alone.

    Called again, it returns the same.
    """
    if _aside:
        return SINGLE_PROCESS
    global _joined  # a process is part of one run
    if _joined is None and is_launched():
        _joined = _join()
    return SINGLE_PROCESS if _joined is None else _joined


def stand_aside() -> None:
    """From now on this process works alone, though others wait for it: nothing is divided."""
    global _aside
    _aside = True


def is_launched() -> bool:
    """Whether a launcher like torchrun started several processes."""
    names = ("RANK", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and all(name in os.environ for name in names)


def _join() -> TorchProcesses:
    try:
        store, rank, size = next(rendezvous("env://", timeout=ARRIVAL))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        own = store.clone()
        own.set_timeout(ARRIVAL)
        own = dist.PrefixStore(f"rankfold/{attempt}", own)  # type: ignore[attr-defined]
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        heartbeat = Heartbeat(own, rank, size, is_host=rank == 0 and not agent)
    except dist.DistStoreError as error:
        rank, size = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
        raise UserError(
            f"rank {rank} of {size} waited {ARRIVAL} for the others",
            hint="were all machines started, and do they reach MASTER_ADDR and MASTER_PORT?",
        ) from error
    heartbeat.start()
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    together = TorchProcesses(heartbeat)
    with together._told():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=SLOW)
    return together


def give_back_memory() -> None:
    """From now on let the system have tables back once they are freed.

    Left to itself, glibc keeps what was freed of up to 32 MiB at a time, in holes: with shares of
    tables and groups of that size, a rank would hold twice what it uses. It costs the time to get
    such memory anew, and so is for those that divide what they cannot hold.
    """
    if sys.platform != "linux":
        return
    trim_threshold, mmap_threshold = -1, -3
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # not in musl
        library.mallopt(mmap_threshold, LARGE)
        library.mallopt(trim_threshold, SPARE)


def close() -> None:
    """Part from the others, after a run that ended well on all of them."""
    global _joined
    if _joined is None:
        return
    _joined.heartbeat.leave()
    _joined.barrier()
    _joined.heartbeat.stop()
    _joined = None
    dist.destroy_process_group()


def abandon(error: BaseException) -> bool:
    """Tell the others that this rank ends, and why; True where this rank is the one to say it."""
    if _joined is None:
        return True
    if isinstance(error, Ended):
        speaks = not error.spoken
    elif isinstance(error, SystemExit):  # it was said, by rank 0: the others end in silence
        _joined.heartbeat.wait(0.0 if _joined.rank == 0 else GRACE)
        speaks = _joined.heartbeat.tell(End("", "", int(error.code or 0)))
    elif isinstance(error, UserError):
        speaks = _joined.heartbeat.tell(End(str(error), error.hint or "", 2))
    else:
        what = f"{_joined.heartbeat.describe(_joined.rank)} failed: {type(error).__name__}: {error}"
        speaks = _joined.heartbeat.tell(End(what, RESUME, 1))
    _joined.heartbeat.stop()
    return speaks


def device_of(kind: str, comm: Comm) -> torch.device:
    """The device of this rank: on a machine with several of a kind each rank has its own."""
    if kind != "cuda" or comm.size == 1:
        return torch.device(kind)
    place = int(os.environ.get("LOCAL_RANK", comm.rank))
    if place >= torch.cuda.device_count():
        raise UserError(
            f"{place + 1} or more ranks share a machine with {torch.cuda.device_count()} CUDA "
            "devices",
            hint="start one rank for each, or use --device cpu",
        )
    torch.cuda.set_device(place)
    return torch.device("cuda", place)
