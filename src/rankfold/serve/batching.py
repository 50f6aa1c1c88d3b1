"""Requests that arrive while one is answered are answered together, by the one thread of a model.

So the event loop never computes, a model computes one thing at a time, and the busier the server
is, the more a search answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankfold.serve.limits import too_much

TOGETHER = 256  # lists or rows of results, at most where several requests share a search


@dataclass(slots=True)
class Job:
    """A request that waits for its answer. Those of an equal ``group`` are answered together."""

    group: Hashable
    question: Any
    size: int  # how many lists or rows it wants
    answer: Callable[[Sequence[Any]], list[Any]]  # of questions: a result or an exception for each
    future: asyncio.Future[Any] = field(init=False)


class Worker:
    """A thread and what waits for it."""

    def __init__(
        self, name: str, most: int, answered: Callable[[int], None] = lambda _n: None
    ) -> None:
        self.name = name
        self.most = most  # that wait
        self.answered = answered  # told how many were answered together
        self._waiting: deque[Job] = deque()
        self._change = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"answers {name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, job: Job) -> Any:
        """The result of a job; what it raised is raised."""
        if len(self._waiting) >= self.most:
            raise too_much(f"the model {self.name}")
        job.future = asyncio.get_running_loop().create_future()
        with self._change:
            self._waiting.append(job)
            self._change.notify()
        return await job.future

    def close(self) -> None:
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(timeout=5)

    def _work(self) -> None:
        while jobs := self._next():
            wanted = [job for job in jobs if not job.future.cancelled()]
            if wanted:
                results = _answers(wanted)
                self.answered(len(wanted))
                _deliver(wanted, results)
            del jobs, wanted  # a thread that waits must not hold a model that was replaced

    def _next(self) -> list[Job]:
        """The first that waits, and those of its group; none when it is over."""
        with self._change:
            while not self._waiting and not self._closing:
                self._change.wait()
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            taken, others, size = [first], [], first.size
            while self._waiting and size < TOGETHER:
                job = self._waiting.popleft()
                if job.group == first.group and size + job.size <= TOGETHER:
                    taken.append(job)
                    size += job.size
                else:
                    others.append(job)
            self._waiting.extendleft(reversed(others))
            return taken


def _answers(jobs: Sequence[Job]) -> list[Any]:
    """A result or an exception for each; where all fail together, each is asked alone."""
    try:
        return jobs[0].answer([job.question for job in jobs])
    except Exception as error:
        return [error] if len(jobs) == 1 else [_answers([job])[0] for job in jobs]


def _deliver(jobs: Sequence[Job], results: Sequence[Any]) -> None:
    """Hand the results to the event loop, all at once."""

    def settle() -> None:
        for job, result in zip(jobs, results, strict=True):
            if job.future.done():
                continue  # who asked has gone
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    loop = jobs[0].future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
