"""Collectives of the processes of a run: one process by default, several under torchrun.

Each process counts the bytes that it sends, by formula. For R ranks and b bytes: a sum 2 b (R-1)/R,
as in a ring; a gather (R-1) times the longest part; a scattered sum b (R-1)/R; a broadcast b (R-1)
at its source; a collect b, and nothing at rank 0. Gloo carries CPU tensors, NCCL carries CUDA
tensors.

Sums and sends may overwrite their argument: they leave it equal to the result or undefined.
``SingleProcess`` returns its argument.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch import distributed as dist

from rankfold.distributed.heartbeat import Heartbeat
from rankfold.errors import UserError
from rankfold.types import Comm, OwnRows


@dataclass(frozen=True)
class SingleProcess:
    """A run of one process: there is nothing to exchange."""

    rank: int = 0
    size: int = 1
    sent: int = 0

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    gather = collect = scatter_sum = sum

    def texts(self, text: str) -> list[str]:
        return [text]

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
    """Several processes, each with its rank; ``connect`` creates it."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.rank, self.size, self.heartbeat = heartbeat.rank, heartbeat.size, heartbeat
        self.sent = 0

    def sum(self, tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        self.sent += 2 * tensor.nbytes * (self.size - 1) // self.size
        with self.failures():
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        lengths = self._lengths(len(tensor))
        own = _padded(tensor, max(lengths))
        self.sent += own.nbytes * (self.size - 1)
        gathered = own.new_empty(len(own) * self.size, *own.shape[1:])
        parts = gathered.split(len(own)) if len(own) > 0 else [gathered] * self.size
        with self.failures():
            dist.all_gather(list(parts), own)
        if min(lengths) == len(own):
            return gathered
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def collect(self, tensor: Tensor) -> Tensor:
        lengths = self._lengths(len(tensor))
        own = _padded(tensor, max(lengths))
        first = self.rank == 0
        self.sent += 0 if first else own.nbytes
        parts = [torch.empty_like(own) for _ in lengths] if first else None
        with self.failures():
            dist.gather(own, parts)
        if parts is None:
            return tensor[:0]
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def texts(self, text: str) -> list[str]:
        raw = text.encode()
        lengths = self._lengths(len(raw))
        joined = self.gather(
            torch.frombuffer(bytearray(raw or b" "), dtype=torch.uint8)[: len(raw)]
        )
        return [bytes(part.tolist()).decode() for part in joined.split(lengths)]

    def scatter_sum(self, tensor: Tensor) -> Tensor:
        ends = [len(tensor) * rank // self.size for rank in range(self.size + 1)]
        longest = max(stop - start for start, stop in pairwise(ends))
        parts = [_padded(tensor[start:stop], longest) for start, stop in pairwise(ends)]
        own = torch.empty_like(parts[0])
        self.sent += own.nbytes * (self.size - 1)
        with self.failures():
            dist.reduce_scatter(own, parts)
        return own[: ends[self.rank + 1] - ends[self.rank]]

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        tensor = tensor.contiguous()
        if self.rank == source:
            self.sent += tensor.nbytes * (self.size - 1)
        with self.failures():
            dist.broadcast(tensor, source)
        return tensor

    def barrier(self) -> None:
        self.sum(torch.zeros(1))

    def share(self, n: int) -> tuple[int, int]:
        return n * self.rank // self.size, n * (self.rank + 1) // self.size

    def agree(self, facts: Mapping[str, Any]) -> None:
        by_rank = [json.loads(text) for text in self.texts(json.dumps(facts, default=str))]
        for name in dict.fromkeys(name for one in by_rank for name in one):
            values = [json.dumps(one.get(name), sort_keys=True) for one in by_rank]
            if len(set(values)) > 1:
                self._raise_difference(name, values)

    def _raise_difference(self, name: str, values: list[str]) -> NoReturn:
        """Name the first rank that differs from the most frequent value; in a tie, not rank 0."""
        counts = Counter(values)
        usual = max(values, key=counts.__getitem__)  # the first of the most frequent
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
        with self.failures():
            dist.all_gather(parts, own)
        return [int(part) for part in parts]

    @contextmanager
    def failures(self) -> Iterator[None]:
        """When a collective fails, raise the cause that the heartbeat finds."""
        try:
            yield
        except RuntimeError as error:
            if _is_misuse(error):
                raise
            self.heartbeat.raise_cause()


def _padded(tensor: Tensor, length: int) -> Tensor:
    """The rows, followed by zeros up to ``length`` rows."""
    tensor = tensor.contiguous()
    if len(tensor) == length:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(length - len(tensor), *tensor.shape[1:])])


def _is_misuse(error: RuntimeError) -> bool:
    """Whether a collective failed because of its arguments: a bug, not a fault elsewhere."""
    faults = ("connection", "peer", "timed out", "timeout", "socket", "nccl", "gloo", "application")
    return not any(word in str(error).lower() for word in faults)


def uniforms(
    shape: Sequence[int],
    rng: torch.Generator,
    own: OwnRows | None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Uniform numbers for rows; own rows of a batch get theirs from a draw for the whole batch."""
    rows = shape[0] if own is None else own.total
    every = torch.rand((rows, *shape[1:]), generator=rng, device=rng.device, dtype=dtype)
    return every if own is None else every[own.places]


def row_offset(count: int, comm: Comm) -> tuple[int, int]:
    """Where the ``count`` rows of this process start among those of all, and the total.

    The rows of a process follow those of the ranks before it.
    """
    counts = comm.gather(torch.tensor([count]))
    return int(counts[: comm.rank].sum()), int(counts.sum())


def sum_over_ranks(number: float | Tensor, comm: Comm) -> float:
    """The sum of a number over all processes."""
    return float(comm.sum(torch.as_tensor(number, dtype=torch.float64).clone()))


def count_over_ranks(number: int | Tensor, comm: Comm) -> int:
    """The sum of a whole number over all processes."""
    return int(comm.sum(torch.as_tensor(number, dtype=torch.int64).clone()))


def rounds(count: int, comm: Comm, most: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of each process's ``count`` rows; in each round at most ``most`` over all processes.

    Yields the own rows of a round, and where they are among the rows of all processes. All
    processes have the same number of rounds.
    """
    step = max(1, most // comm.size)
    counts = comm.gather(torch.tensor([count])).tolist()
    for start in range(0, max(counts), step):
        sizes = [min(max(0, one - start), step) for one in counts]
        before, size = sum(sizes[: comm.rank]), sizes[comm.rank]
        yield slice(start, start + size), slice(before, before + size)
