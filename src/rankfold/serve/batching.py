"""Batching: each model has one thread, which answers all compatible waiting requests at once.

A model runs one batch at a time, and batches grow with the load. The event loop answers a small
request itself if the model is idle and has been quick: to wake the thread would take longer. It
computes nothing else.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from rankfold.serve.errors import too_busy

MAX_BATCH_SIZE = 256  # rankings or rows in a batch of several requests
QUICK_SECONDS = 0.001  # for a small job: longer ones would delay other connections
QUICK_JOBS = 20  # small jobs in a row that must have been quick


@dataclass(slots=True)
class Job:
    """A request that waits for its result. Jobs of an equal ``group`` may share a batch."""

    group: Hashable
    request: Any
    size: int  # rankings or rows
    answer: Callable[[Sequence[Any]], list[Any]]  # a result or an exception for each request
    small: bool = False  # its time depends on the model, and hardly on the request
    future: asyncio.Future[Any] = field(init=False)


class Worker:
    """A thread and its queue of jobs. ``on_batch`` is called with the number of jobs in each."""

    def __init__(
        self, name: str, max_waiting: int, on_batch: Callable[[int], None] = lambda _n: None
    ) -> None:
        self.name, self.max_waiting, self.on_batch = name, max_waiting, on_batch
        self._arriving: SimpleQueue[Job | None] = SimpleQueue()  # None: the worker is closed
        self._waiting: deque[Job] = deque()
        self._submitted: list[Job] = []  # in this turn of the event loop
        self._answering = threading.Lock()
        self._quick_jobs = 0  # small ones since the last slow one
        self._thread = threading.Thread(target=self._run, name=f"worker {name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return self._arriving.qsize() + len(self._waiting) + len(self._submitted)

    async def submit(self, job: Job) -> Any:
        """The result of a job; its exception is raised here."""
        if len(self) >= self.max_waiting:
            raise too_busy(f"the model {self.name}")
        loop = asyncio.get_running_loop()
        job.future = loop.create_future()
        if not self._submitted:
            loop.call_soon(self._distribute)  # after all requests that arrived with this one
        self._submitted.append(job)
        return await job.future

    def _distribute(self) -> None:
        """Answer a small job that is alone, or leave all to the thread."""
        jobs, self._submitted = self._submitted, []
        alone = len(jobs) == 1 and jobs[0].small and self._quick_jobs >= QUICK_JOBS
        if alone and len(self) == 0 and self._answering.acquire(blocking=False):
            try:
                results = self._answer(jobs)
            finally:
                self._answering.release()
            _settle(jobs, results)
        else:
            for job in jobs:
                self._arriving.put(job)

    def close(self) -> None:
        """Finish the waiting jobs, and stop."""
        self._arriving.put(None)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while batch := self._next_batch():
            jobs = [job for job in batch if not job.future.cancelled()]
            if jobs:
                with self._answering:
                    results = self._answer(jobs)
                _deliver(jobs, results)
            del batch, jobs  # a waiting thread must not keep a replaced model alive

    def _answer(self, jobs: Sequence[Job]) -> list[Any]:
        start = time.perf_counter()
        results = _answer(jobs)
        if len(jobs) == 1 and jobs[0].small:
            quick = time.perf_counter() - start < QUICK_SECONDS
            self._quick_jobs = self._quick_jobs + 1 if quick else 0
        self.on_batch(len(jobs))
        return results

    def _next_batch(self) -> list[Job]:
        """The first waiting job and others of its group; empty when the worker is closed."""
        while not self._waiting or not self._arriving.empty():
            job = self._arriving.get()
            if job is None:
                self._arriving.put(None)  # for the next call
                break
            self._waiting.append(job)
        if not self._waiting:
            return []
        first = self._waiting.popleft()
        batch, others, size = [first], [], first.size
        while self._waiting and size < MAX_BATCH_SIZE:
            job = self._waiting.popleft()
            if job.group == first.group and size + job.size <= MAX_BATCH_SIZE:
                batch.append(job)
                size += job.size
            else:
                others.append(job)
        self._waiting.extendleft(reversed(others))
        return batch


def _answer(jobs: Sequence[Job]) -> list[Any]:
    """A result or an exception for each job. If a batch fails, each job is run alone."""
    try:
        return jobs[0].answer([job.request for job in jobs])
    except BaseException as error:  # a panic of polars is no Exception: it must not end the thread
        if len(jobs) > 1:
            return [_answer([job])[0] for job in jobs]
        return [error if isinstance(error, Exception) else RuntimeError(repr(error))]


def _deliver(jobs: Sequence[Job], results: Sequence[Any]) -> None:
    """Hand all results to the event loop in one call."""
    loop = jobs[0].future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, jobs, results)


def _settle(jobs: Sequence[Job], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.future.done():
            continue  # the client has gone
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
