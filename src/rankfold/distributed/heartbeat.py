"""Whether all processes of a run are alive. When one dies, the others end, and one reports it.

Each process has a heartbeat thread. Once a second it beats in the rendezvous store, checks the
beats of the next rank, and asks whether a rank has announced a shutdown. After a failed collective
it checks all ranks at once, and so it does after SIGTERM, which the launcher sends to the others
when one process dies. The first rank to announce a shutdown is the one that reports it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rankfold.errors import UserError, format_error

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

_BEAT_SECONDS = 1.0  # between two beats
_DEAD_AFTER = 20.0  # seconds without a beat, after which a rank is dead
_SUSPECT_DEAD_AFTER = 5.0  # the same, after something has gone wrong
GRACE_SECONDS = 5.0  # for the main thread to end by itself, before the process is ended
RESUME_HINT = "run the same command with --resume, also on fewer ranks"


class RunEnded(UserError):
    """The run ended because of another process."""

    def __init__(self, shutdown: Shutdown, *, reported: bool) -> None:
        super().__init__(shutdown.message, hint=shutdown.hint)
        self.code = shutdown.code
        self.reported = reported  # by another rank


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Why a run ends."""

    message: str
    hint: str
    code: int  # the exit code of all processes
    dead: int = 0  # ranks that will not receive this


class ProcessId(NamedTuple):
    """Where a process runs, and enough to know whether it still does."""

    host: str
    pid: int
    namespace: str  # of the pid; "": unknown, so the pid cannot be checked
    started: str  # distinguishes processes that reuse a pid

    def __str__(self) -> str:
        return f"{self.host}, pid {self.pid}"


class Heartbeat:
    """The heartbeat of one rank; it checks the others once it is started."""

    def __init__(self, store: Store, rank: int, size: int, *, is_host: bool) -> None:
        self._store, self.rank, self.size = store, rank, size
        self._is_host = is_host  # the store ends with this process
        self.shutdown: Shutdown | None = None
        self._is_first = False  # this rank announced the shutdown
        self._raised = False  # in the main thread
        self._known, self._stopped = threading.Event(), threading.Event()
        self._suspect_since: float | None = None
        self._terminated = False  # by SIGTERM
        self._pipe = os.pipe()
        store.set(f"process/{rank}", json.dumps(_this_process()))
        names = [f"process/{other}" for other in range(size)]
        store.wait(names)
        self.processes = [ProcessId(*json.loads(text)) for text in store.multi_get(names)]
        self._beats = {rank: (-1, monotonic()) for rank in range(size)}
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._checked = monotonic()  # when the last check ended

    def start(self) -> None:
        os.set_blocking(self._pipe[1], False)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._thread.start()
        threading.Thread(target=self._end_if_stuck, name="heartbeat timeout", daemon=True).start()

    def stop(self) -> None:
        """Stop checking; the process ends, or continues alone."""
        if self.shutdown is not None and self._is_host:
            self._wait_for_others(self.size - self.shutdown.dead)
        self._stopped.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout=GRACE_SECONDS)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)
            ends = self.shutdown is not None  # SIGTERM may still come, but we end anyway
            signal.signal(signal.SIGTERM, signal.SIG_IGN if ends else signal.SIG_DFL)

    def leave(self) -> None:
        """Mark this rank as done: its silence no longer means that it died."""
        self._store.set(f"left/{self.rank}", "1")

    def announce(self, shutdown: Shutdown) -> bool:
        """Announce to all ranks why this rank ends the run; True if no rank was faster."""
        try:
            return self._announce(shutdown)
        except RuntimeError:  # without the store each rank reports it
            return True

    def wait(self, seconds: float) -> None:
        """Wait until a shutdown is known, at most this long."""
        self._known.wait(seconds)

    def raise_cause(self) -> NoReturn:
        """A collective failed: wait until the cause is known, and raise it."""
        self._suspect_since = self._suspect_since or monotonic()
        self._wake()
        self._known.wait()
        self._raise()

    def describe(self, rank: int) -> str:
        return f"rank {rank} of {self.size} ({self.processes[rank]})"

    def _wait_for_others(self, n: int) -> None:
        """Until all live ranks know of the shutdown; they ask once a second."""
        until = monotonic() + GRACE_SECONDS
        with suppress(RuntimeError):
            while self._store.add("known", 0) < n and monotonic() < until:
                sleep(0.05)

    def _raise(self) -> NoReturn:
        assert self.shutdown is not None
        self._raised = True
        raise RunEnded(self.shutdown, reported=not self._is_first)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """In the main thread; the signal itself has woken the heartbeat."""
        if self.shutdown is not None and not self._raised and not self._stopped.is_set():
            self._raise()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._pipe[1], b"\0")

    def _run(self) -> None:
        last = monotonic()
        while not self._stopped.is_set():
            try:
                self._check(last)
            except RuntimeError:  # of any type: the store cannot be reached
                if self._stopped.is_set():
                    return
                self._lose_store()
            if self.shutdown is not None:
                self._finish()
                return
            last = self._checked = monotonic()
            self._sleep(0.1 if self._suspect_since is not None else _BEAT_SECONDS)

    def _end_if_stuck(self) -> None:
        """End the run when a check hangs: with a cut cable the store does not answer."""
        last = monotonic()
        while not self._stopped.wait(_BEAT_SECONDS) and self.shutdown is None:
            now = monotonic()
            if now - last > _SUSPECT_DEAD_AFTER:  # this process was suspended
                self._checked = now
            if now - self._checked > _DEAD_AFTER:
                self._lose_store()
                self._finish()
                return
            last = now

    def _lose_store(self) -> None:
        """Without the store nothing can be announced: on each machine the lowest rank reports."""
        here = self._same_machine(0)
        until = monotonic() + 2 * _BEAT_SECONDS  # a killed process loses its connections first
        while here and _is_alive(self.processes[0]) and monotonic() < until:
            sleep(0.05)
        died = here and not _is_alive(self.processes[0])
        what = "died" if died else "cannot be reached"
        others = [rank for rank in range(1, self.rank) if self._same_machine(rank)]
        self._is_first = self.rank == 0 or not (others or (here and not died))
        self.shutdown = Shutdown(f"{self.describe(0)} {what}", RESUME_HINT, 2, dead=1)

    def _sleep(self, seconds: float) -> None:
        if select.select([self._pipe[0]], [], [], seconds)[0]:
            for number in os.read(self._pipe[0], 4096):
                if number == signal.SIGTERM:
                    self._terminated = True
                    self._suspect_since = self._suspect_since or monotonic()

    def _check(self, last: float) -> None:
        """Beat, ask for a shutdown, and look for dead ranks."""
        self._store.add(f"beat/{self.rank}", 1)
        if self._store.check(["shutdown"]):
            self._receive(self._store.get("shutdown"))
            return
        if monotonic() - last > _SUSPECT_DEAD_AFTER:  # this process was suspended: start afresh
            self._beats = {rank: (count, monotonic()) for rank, (count, _) in self._beats.items()}
        suspect = self._suspect_since is not None
        checked = range(self.size) if suspect else [(self.rank + 1) % self.size]
        for rank in checked:
            limit = _SUSPECT_DEAD_AFTER if suspect else _DEAD_AFTER
            if rank != self.rank and self._is_dead(rank, limit):
                self._announce(Shutdown(f"{self.describe(rank)} died", RESUME_HINT, 2, dead=1))
                return
        if suspect and monotonic() - (self._suspect_since or 0.0) > 2 * _SUSPECT_DEAD_AFTER:
            what = "was terminated (SIGTERM)" if self._terminated else "lost the other ranks"
            self._announce(Shutdown(f"{self.describe(self.rank)} {what}", RESUME_HINT, 2))

    def _is_dead(self, rank: int, limit: float) -> bool:
        if self._same_machine(rank):
            if not _is_alive(self.processes[rank]):
                return not self._store.check([f"left/{rank}"])
            return False
        count, since = self._beats[rank]
        now = self._store.add(f"beat/{rank}", 0)
        if now != count:
            self._beats[rank] = now, monotonic()
            return False
        return monotonic() - since > limit and not self._store.check([f"left/{rank}"])

    def _same_machine(self, rank: int) -> bool:
        """Whether the pid of a rank can be checked here."""
        return self.processes[rank].namespace == self.processes[self.rank].namespace != ""

    def _announce(self, shutdown: Shutdown) -> bool:
        text = json.dumps(asdict(shutdown))
        stored = self._store.compare_set("shutdown", "", text)
        self._is_first = stored.decode() == text and self._store.add("first", 1) == 1
        self._receive(stored)
        return self._is_first

    def _receive(self, text: bytes) -> None:
        if self.shutdown is None:
            self.shutdown = Shutdown(**json.loads(text))
            self._store.add("known", 1)

    def _finish(self) -> None:
        """Let the main thread raise the shutdown; if it does not in time, end the process."""
        self._known.set()
        if self._stopped.wait(0.2):  # the main thread knew already
            return
        with suppress(ProcessLookupError, ValueError):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        if self._stopped.wait(GRACE_SECONDS):
            return
        assert self.shutdown is not None
        if self._is_first:
            text = format_error(self.shutdown.message, self.shutdown.hint)
            sys.__stderr__.write(text)  # type: ignore[union-attr]
            sys.__stderr__.flush()  # type: ignore[union-attr]
        os._exit(self.shutdown.code)


def _this_process() -> ProcessId:
    host, pid = socket.gethostname(), os.getpid()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ProcessId(host, pid, "", "")
    return ProcessId(host, pid, namespace, _stat(pid)[1])


def _is_alive(process: ProcessId) -> bool:
    state, started = _stat(process.pid)
    return state not in ("", "Z", "X") and started == process.started


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process and its start time; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
