"""How a process joins a run, and how it leaves."""

import os
from datetime import timedelta

import torch
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from rankfold.distributed import is_distributed
from rankfold.distributed.collectives import SINGLE_PROCESS, TorchProcesses
from rankfold.distributed.heartbeat import GRACE_SECONDS, RESUME_HINT, Heartbeat, RunEnded, Shutdown
from rankfold.errors import UserError
from rankfold.types import Comm

_JOIN_TIMEOUT = timedelta(minutes=5)  # for all ranks to arrive
_COLLECTIVE_TIMEOUT = timedelta(days=7)  # a slow rank is not dead: the heartbeat decides

_joined: TorchProcesses | None = None
_alone = False


def connect() -> Comm:
    """The processes of this run: all that torchrun started, or this one alone.

    Further calls return the same object.
    """
    if _alone:
        return SINGLE_PROCESS
    global _joined  # a process is part of one run
    if _joined is None and is_distributed():
        _joined = _join()
    return SINGLE_PROCESS if _joined is None else _joined


def work_alone() -> None:
    """From now on this process works alone, while the others wait: nothing is divided."""
    global _alone
    _alone = True


def close() -> None:
    """Disconnect after a run that succeeded on all ranks."""
    global _joined
    if _joined is None:
        return
    _joined.heartbeat.leave()
    _joined.barrier()
    _joined.heartbeat.stop()
    _joined = None
    dist.destroy_process_group()


def abort(error: BaseException) -> bool:
    """Announce to the others why this rank ends; True if this rank must report the error."""
    if _joined is None:
        return True
    heartbeat = _joined.heartbeat
    if isinstance(error, RunEnded):
        reports = not error.reported
    elif isinstance(error, SystemExit):  # rank 0 has reported it; the others end silently
        heartbeat.wait(0.0 if _joined.rank == 0 else GRACE_SECONDS)
        reports = heartbeat.announce(Shutdown("", "", int(error.code or 0)))
    elif isinstance(error, UserError):
        reports = heartbeat.announce(Shutdown(str(error), error.hint or "", 2))
    else:
        what = f"{heartbeat.describe(_joined.rank)} failed: {type(error).__name__}: {error}"
        reports = heartbeat.announce(Shutdown(what, RESUME_HINT, 1))
    heartbeat.stop()
    return reports


def device_of(kind: str, comm: Comm) -> torch.device:
    """The device of this rank. On a machine with several CUDA devices each rank has its own."""
    if kind != "cuda" or comm.size == 1:
        return torch.device(kind)
    place = int(os.environ.get("LOCAL_RANK", comm.rank))
    if place >= torch.cuda.device_count():
        raise UserError(
            f"this machine has {torch.cuda.device_count()} CUDA devices for {place + 1} or more "
            "ranks",
            hint="start one rank per device, or use --device cpu",
        )
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


def _join() -> TorchProcesses:
    try:
        store, rank, size = next(rendezvous("env://", timeout=_JOIN_TIMEOUT))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        own = store.clone()
        own.set_timeout(_JOIN_TIMEOUT)
        own = dist.PrefixStore(f"rankfold/{attempt}", own)  # type: ignore[attr-defined]
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        heartbeat = Heartbeat(own, rank, size, is_host=rank == 0 and not agent)
    except dist.DistStoreError as error:
        rank, size = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
        raise UserError(
            f"rank {rank} of {size} waited {_JOIN_TIMEOUT} for the other ranks",
            hint="check that all machines were started and reach MASTER_ADDR and MASTER_PORT",
        ) from error
    heartbeat.start()
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    processes = TorchProcesses(heartbeat)
    with processes.failures():
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=_COLLECTIVE_TIMEOUT
        )
    return processes
