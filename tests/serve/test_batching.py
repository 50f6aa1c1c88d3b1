"""Requests that share a batch get the same results as requests on their own."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from linear_grades import LINEAR, data_of, grader_of
from rankings import assert_same_keys
from serving import Client, item, ranked

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import SearchSpec
from rankfold.models.reranking import Rules
from rankfold.serve import batching
from rankfold.serve.batching import Job, Worker
from rankfold.serve.errors import HttpError
from rankfold.serve.grade import grade
from rankfold.serve.schema import GradeRequest
from rankfold.serve.search import answer, group_of, is_small

Start = Callable[..., Client]


def together(worker: Worker, jobs: Sequence[Job]) -> list[Any]:
    """The results of jobs that all wait before the first one starts."""
    go = threading.Event()

    async def run() -> list[Any]:
        held = asyncio.create_task(worker.submit(Job("hold", None, 1, lambda _q: [go.wait(20)])))
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(worker.submit(job)) for job in jobs]
        await asyncio.sleep(0.05)
        go.set()
        await held
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture
def sizes() -> list[int]:
    return []


@pytest.fixture
def worker(sizes: list[int]) -> Any:
    made = Worker("test", 100, sizes.append)
    yield made
    made.close()


def test_jobs_of_a_group_share_a_batch_in_order(worker: Worker, sizes: list[int]) -> None:
    def double(numbers: Sequence[Any]) -> list[Any]:
        return [2 * number for number in numbers]

    jobs = [Job(n % 2, n, 1, double) for n in range(10)]
    assert together(worker, jobs) == [2 * n for n in range(10)]
    assert sizes == [1, 5, 5]


def test_a_batch_is_limited_in_size(
    worker: Worker, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MAX_BATCH_SIZE", 6)
    jobs = [Job("a", n, size, list) for n, size in enumerate([4, 1, 4, 1, 1, 9])]
    assert together(worker, jobs) == [0, 1, 2, 3, 4, 5]
    assert sizes == [1, 3, 2, 1]  # 4 + 1 + 1, 4 + 1, 9


def test_one_failure_does_not_affect_others(worker: Worker) -> None:
    def divide(numbers: Sequence[Any]) -> list[Any]:
        return [100 // number for number in numbers]

    results = together(worker, [Job("a", n, 1, divide) for n in (1, 0, 5)])
    assert results[0] == 100
    assert isinstance(results[1], ZeroDivisionError)
    assert results[2] == 20


def test_cancelled_jobs_are_not_run(worker: Worker) -> None:
    run_jobs: list[Any] = []
    go = threading.Event()

    def record(requests: Sequence[Any]) -> list[Any]:
        run_jobs.extend(requests)
        return list(requests)

    async def run() -> None:
        held = asyncio.create_task(worker.submit(Job("hold", None, 1, lambda _q: [go.wait(20)])))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(worker.submit(Job("a", "gone", 1, record)))
        stays = asyncio.create_task(worker.submit(Job("a", "stays", 1, record)))
        await asyncio.sleep(0.05)
        gone.cancel()
        go.set()
        await held
        assert await stays == "stays"

    asyncio.run(run())
    assert run_jobs == ["stays"]


def thread_of(requests: Sequence[Any]) -> list[Any]:
    return [threading.current_thread().name] * len(requests)


async def small_jobs(worker: Worker, n: int) -> list[str]:
    """The threads that answer n small jobs, one after another."""
    return [await worker.submit(Job("a", None, 1, thread_of, small=True)) for _ in range(n)]


def test_the_event_loop_answers_a_small_job_of_a_quick_model(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "QUICK_SECONDS", 10.0)  # however busy the machine is
    quick, own = batching.QUICK_JOBS, threading.current_thread().name

    async def run() -> None:
        assert await small_jobs(worker, quick + 2) == ["worker test"] * quick + [own] * 2
        assert await worker.submit(Job("a", None, 1, thread_of)) == "worker test"
        several = asyncio.gather(small_jobs(worker, 1), small_jobs(worker, 1))
        assert await several == [["worker test"]] * 2  # they may share a batch

        def fail(_requests: Sequence[Any]) -> list[Any]:
            raise UserError("no")

        with pytest.raises(UserError):
            await worker.submit(Job("a", None, 1, fail, small=True))
        monkeypatch.setattr(batching, "QUICK_SECONDS", 0.0)  # the next one is slow
        assert await small_jobs(worker, 2) == [own, "worker test"]

    asyncio.run(run())


def test_a_busy_model_answers_no_second_job_in_the_event_loop(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "QUICK_SECONDS", 10.0)
    go = threading.Event()

    async def run() -> None:
        await small_jobs(worker, batching.QUICK_JOBS)
        held = asyncio.create_task(worker.submit(Job("hold", None, 1, lambda _q: [go.wait(20)])))
        await asyncio.sleep(0.05)
        other = asyncio.create_task(small_jobs(worker, 1))
        await asyncio.sleep(0.05)
        assert not other.done()
        go.set()
        assert await held
        assert await other == ["worker test"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("small", "options"),
    [
        (True, {}),
        (False, {"k": 1000}),
        (False, {"inputs": [1, 2]}),
        (False, {"by": "text", "inputs": ["word " * 100]}),
        (False, {"by": "history", "inputs": [[1] * 200]}),
        (False, {"allow": []}),
        (False, {"exclude": [1]}),
        (False, {"where": "price < 2"}),
        (False, {"rules": Rules(pin=[1])}),
        (False, {"explain": 2}),
    ],
)
def test_a_small_search_is_one_short_list(*, small: bool, options: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"by": "queries", "inputs": [1], "k": 10, **options}
    assert is_small(SearchSpec(**arguments)) == small


@pytest.fixture
def ranker(folders: dict[str, Path]) -> Ranker:
    return rf.load(folders["shop"])


def test_shared_searches_equal_single_ones(ranker: Ranker) -> None:
    requests = [
        SearchSpec("queries", [3], 4),
        SearchSpec("queries", [4, 5], 10),
        SearchSpec("queries", ["nobody"], 10),
        SearchSpec("queries", [6], 7, exclude=[item(n) for n in range(0, 60, 2)]),
        SearchSpec("queries", [3, 3], 1, exclude=["nobody"]),
    ]
    assert len({group_of(request) for request in requests}) == 1
    shared = answer(ranker, requests)
    alone = [answer(ranker, [request])[0] for request in requests]
    assert isinstance(shared[2], HttpError)
    assert isinstance(alone[2], HttpError)
    del shared[2], alone[2]
    for one, other in zip(shared, alone, strict=True):
        rankings, expected = (json.loads(each)["results"] for each in (one, other))
        assert [e["query"] for e in rankings] == [e["query"] for e in expected]
        counts = [[len(e["candidates"]) for e in each] for each in (rankings, expected)]
        assert counts[0] == counts[1]
        assert_same_keys(ranked(rankings), ranked(expected))


def test_requests_with_other_results_are_not_shared() -> None:
    plain = SearchSpec("queries", [3], 10)
    assert group_of(plain) == group_of(SearchSpec("queries", [4], 5))
    others = [
        SearchSpec("history", [[3]], 10),
        SearchSpec("queries", [3], 11),
        SearchSpec("queries", [3], 10, include_seen=True),
        SearchSpec("queries", [3], 10, allow=[1]),
        SearchSpec("queries", [3], 10, allow=[1]),
    ]
    assert len({group_of(request) for request in [plain, *others]}) == 6


@pytest.mark.parametrize("k", [1, 9, 10, 11, 60, 500, 999])
def test_any_k(ranker: Ranker, k: int) -> None:
    (document,) = answer(ranker, [SearchSpec("queries", [3], k, include_seen=True)])
    assert isinstance(document, bytes)
    (ranking,) = json.loads(document)["results"]
    expected = ranker.search([3], k=k, include_seen=True)
    assert len(ranking["candidates"]) == len(expected.keys[0])
    assert_same_keys(ranked([ranking]), expected)


def test_a_panic_of_a_library_does_not_end_the_thread(worker: Worker) -> None:
    def panic(_requests: Sequence[Any]) -> list[Any]:
        raise pl.exceptions.PanicException("index out of bounds")

    first, second = together(
        worker, [Job("a", 1, 1, panic), Job("b", 2, 1, lambda requests: [requests[0]])]
    )
    assert isinstance(first, RuntimeError)
    assert "index out of bounds" in str(first)
    assert second == 2


def test_a_row_that_cannot_be_read_fails_its_own_request_only(
    worker: Worker, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "linear", LINEAR)
    grader, ages = grader_of(data_of()), (1.0, "old", 5.0)
    rows = [[{"age": 0.0, "dose": 0.5}, {"age": age, "dose": 2.0, "site": "b"}] for age in ages]
    requests = [GradeRequest(rows=each) for each in rows]
    results = together(worker, [Job("g", each, 2, partial(grade, grader)) for each in requests])
    assert sizes == [1, 3]  # the first holds the worker
    assert isinstance(results[1], UserError)
    assert str(results[1]) == "row 1: 'age' must be a number, got 'old'"
    for result, second in ((results[0], 4.0), (results[2], 8.0)):
        scores = [entry["score"] for entry in json.loads(result)["results"]]
        assert scores == pytest.approx([0.5 - 1, second])
