"""Whether all processes of a run live: when one dies, the others end, and one of them says so.

Each process has a heartbeat, a thread. Every second it beats in the rendezvous store, looks at the
beats of the next rank, and asks whether somebody told of an end. It looks at the processes of its
own machine at once where something has gone wrong: a collective failed, or the launcher, which ends
the others when one dies, sends SIGTERM. The first to tell of an end is the one that says it aloud.
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

from rankfold.errors import UserError, printable

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

BEAT = 1.0  # seconds between two beats
SILENT = 20.0  # without a beat of a rank, after which it is dead
DOUBTED = 5.0  # likewise, once something has gone wrong
GRACE = 5.0  # for the main thread to end as it should, before the process is ended
RESUME = "run the same command with --resume, also on fewer ranks"


class Ended(UserError):
    """The run ended because of another process, or of what is told by another."""

    def __init__(self, end: End, *, spoken: bool) -> None:
        super().__init__(end.message, hint=end.hint)
        self.code = end.code
        self.spoken = spoken  # somebody else says it


@dataclass(frozen=True, slots=True)
class End:
    """Why a run ends."""

    message: str
    hint: str
    code: int  # with which all processes exit
    died: int = 0  # how many will not hear of it


class Who(NamedTuple):
    """A process: where it runs, and enough to tell whether it still does."""

    host: str
    pid: int
    space: str  # of process numbers; "": they tell nothing
    born: str  # so that a number that is used again is told apart

    def __str__(self) -> str:
        return f"{self.host}, pid {self.pid}"


class Heartbeat:
    """The heartbeat of one rank; it begins to look when it is started."""

    def __init__(self, store: Store, rank: int, size: int, *, is_host: bool) -> None:
        self._store, self.rank, self.size = store, rank, size
        self._is_host = is_host  # the store goes with this process
        self.end: End | None = None
        self._first = self._raised = False  # we told of the end; the main thread knows it
        self._known, self._over = threading.Event(), threading.Event()
        self._doubt_since: float | None = None
        self._told_to_stop = False  # by SIGTERM
        self._pipe = os.pipe()
        store.set(f"who/{rank}", json.dumps(who_am_i()))
        names = [f"who/{other}" for other in range(size)]
        store.wait(names)
        self.who = [Who(*json.loads(text)) for text in store.multi_get(names)]
        self._beats = {rank: (-1, monotonic()) for rank in range(size)}
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._looked = monotonic()  # when the last look ended

    def start(self) -> None:
        os.set_blocking(self._pipe[1], False)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._thread.start()
        threading.Thread(target=self._guard, name="guard", daemon=True).start()

    def stop(self) -> None:
        """Look no more; the process ends, or goes on alone."""
        if self.end is not None and self._is_host:
            self._wait_for_others(self.size - self.end.died)
        self._over.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout=GRACE)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)
            ends = self.end is not None  # the launcher may say so too: we are about to
            signal.signal(signal.SIGTERM, signal.SIG_IGN if ends else signal.SIG_DFL)

    def _wait_for_others(self, n: int) -> None:
        """Until all that live know of the end, which they ask for every second."""
        until = monotonic() + GRACE
        with suppress(RuntimeError):
            while self._store.add("known", 0) < n and monotonic() < until:
                sleep(0.05)

    def leave(self) -> None:
        """Say that this rank is about to end well: its silence means nothing from now on."""
        self._store.set(f"left/{self.rank}", "1")

    def tell(self, end: End) -> bool:
        """Say to all why this rank ends the run; True where nobody was faster."""
        try:
            return self._tell(end)
        except RuntimeError:  # without the store each says it
            return True

    def wait(self, seconds: float) -> None:
        """Wait until the end is known, but not longer."""
        self._known.wait(seconds)

    def doubt(self) -> NoReturn:
        """A collective failed: wait until it is known why, and raise that."""
        self._doubt_since = self._doubt_since or monotonic()
        self._wake()
        self._known.wait()
        self._raise()

    def describe(self, rank: int) -> str:
        return f"rank {rank} of {self.size} ({self.who[rank]})"

    def _raise(self) -> NoReturn:
        assert self.end is not None
        self._raised = True
        raise Ended(self.end, spoken=not self._first)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """In the main thread; the heartbeat was woken by the signal itself."""
        if self.end is not None and not self._raised and not self._over.is_set():
            self._raise()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._pipe[1], b"\0")

    def _run(self) -> None:
        last = monotonic()
        while not self._over.is_set():
            try:
                self._look(last)
            except RuntimeError:  # of any kind: the store cannot be reached
                if self._over.is_set():
                    return
                self._lose_store()
            if self.end is not None:
                self._finish()
                return
            last = self._looked = monotonic()
            self._sleep(0.1 if self._doubt_since is not None else BEAT)

    def _guard(self) -> None:
        """End the run where a look does not: a cable that is cut leaves the store silent."""
        last = monotonic()
        while not self._over.wait(BEAT) and self.end is None:
            now = monotonic()
            if now - last > DOUBTED:  # we slept ourselves
                self._looked = now
            if now - self._looked > SILENT:
                self._lose_store()
                self._finish()
                return
            last = now

    def _lose_store(self) -> None:
        """Without the store nobody can be told: on each machine the lowest rank says it."""
        here = self._same_machine(0)
        until = monotonic() + 2 * BEAT  # a process that is killed loses its connections first
        while here and _lives(self.who[0]) and monotonic() < until:
            sleep(0.05)
        gone = here and not _lives(self.who[0])
        what = "died" if gone else "cannot be reached"
        others = [rank for rank in range(1, self.rank) if self._same_machine(rank)]
        self._first = self.rank == 0 or not (others or (here and not gone))
        self.end = End(f"{self.describe(0)} {what}", RESUME, 2, died=1)

    def _sleep(self, seconds: float) -> None:
        if select.select([self._pipe[0]], [], [], seconds)[0]:
            for number in os.read(self._pipe[0], 4096):
                if number == signal.SIGTERM:
                    self._told_to_stop = True
                    self._doubt_since = self._doubt_since or monotonic()

    def _look(self, last: float) -> None:
        """One look: beat, ask for an end, find the dead."""
        self._store.add(f"beat/{self.rank}", 1)
        if self._store.check(["end"]):
            self._learn(self._store.get("end"))
            return
        if monotonic() - last > DOUBTED:  # we slept ourselves: nobody is judged by that
            self._beats = {rank: (count, monotonic()) for rank, (count, _) in self._beats.items()}
        doubted = self._doubt_since is not None
        everyone = range(self.size) if doubted else [(self.rank + 1) % self.size]
        for rank in everyone:
            if rank != self.rank and self._is_dead(rank, DOUBTED if doubted else SILENT):
                self._tell(End(f"{self.describe(rank)} died", RESUME, 2, died=1))
                return
        if doubted and monotonic() - (self._doubt_since or 0.0) > 2 * DOUBTED:
            what = "was told to end (SIGTERM)" if self._told_to_stop else "lost the others"
            self._tell(End(f"{self.describe(self.rank)} {what}", RESUME, 2))

    def _is_dead(self, rank: int, patience: float) -> bool:
        if self._same_machine(rank):
            if not _lives(self.who[rank]):
                return not self._store.check([f"left/{rank}"])
            return False
        count, since = self._beats[rank]
        now = self._store.add(f"beat/{rank}", 0)
        if now != count:
            self._beats[rank] = now, monotonic()
            return False
        return monotonic() - since > patience and not self._store.check([f"left/{rank}"])

    def _same_machine(self, rank: int) -> bool:
        """Whether the number of a rank's process means something here."""
        return self.who[rank].space == self.who[self.rank].space != ""

    def _tell(self, end: End) -> bool:
        text = json.dumps(asdict(end))
        told = self._store.compare_set("end", "", text)
        self._first = told.decode() == text and self._store.add("first", 1) == 1
        self._learn(told)
        return self._first

    def _learn(self, text: bytes) -> None:
        if self.end is None:
            self.end = End(**json.loads(text))
            self._store.add("known", 1)

    def _finish(self) -> None:
        """Let the main thread raise the end; where it does not come to it, end the process."""
        self._known.set()
        if self._over.wait(0.2):  # it knew already
            return
        with suppress(ProcessLookupError, ValueError):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        if self._over.wait(GRACE):
            return
        assert self.end is not None
        if self._first:
            sys.__stderr__.write(say(self.end.message, self.end.hint))  # type: ignore[union-attr]
            sys.__stderr__.flush()  # type: ignore[union-attr]
        os._exit(self.end.code)


def say(message: str, hint: str | None) -> str:
    """An error as people see it."""
    return printable(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))


def who_am_i() -> Who:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return Who(socket.gethostname(), os.getpid(), "", "")
    return Who(socket.gethostname(), os.getpid(), space, _stat(os.getpid())[1])


def _lives(who: Who) -> bool:
    state, born = _stat(who.pid)
    return state not in ("", "Z", "X") and born == who.born


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process and when it began; empty where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
