"""Requests that wait together are answered together, each as if it were alone."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rankings import assert_same_keys
from serving import Client, item, ranked

import rankfold as rf
from rankfold.models.ranker import Ranker
from rankfold.serve import batching
from rankfold.serve.batching import Job, Worker
from rankfold.serve.limits import Problem
from rankfold.serve.search import Question, answer

Start = Callable[..., Client]


def together(worker: Worker, jobs: Sequence[Job]) -> list[Any]:
    """The results of jobs that all wait before the first is begun."""
    go = threading.Event()

    async def run() -> list[Any]:
        held = asyncio.create_task(worker.ask(Job("hold", None, 1, lambda _q: [go.wait(20)])))
        await asyncio.sleep(0.05)
        asks = [asyncio.create_task(worker.ask(job)) for job in jobs]
        await asyncio.sleep(0.05)
        go.set()
        await held
        return await asyncio.gather(*asks, return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture
def sizes() -> list[int]:
    return []


@pytest.fixture
def worker(sizes: list[int]) -> Any:
    made = Worker("test", 100, sizes.append)
    yield made
    made.close()


def test_jobs_of_a_group_share_a_call_in_their_order(worker: Worker, sizes: list[int]) -> None:
    def double(questions: Sequence[Any]) -> list[Any]:
        return [2 * question for question in questions]

    jobs = [Job(n % 2, n, 1, double) for n in range(10)]
    assert together(worker, jobs) == [2 * n for n in range(10)]
    assert sizes == [1, 5, 5]


def test_a_call_has_no_more_than_it_may(
    worker: Worker, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "TOGETHER", 6)
    jobs = [Job("a", n, size, list) for n, size in enumerate([4, 1, 4, 1, 1, 9])]
    assert together(worker, jobs) == [0, 1, 2, 3, 4, 5]
    assert sizes == [1, 3, 2, 1]  # 4 + 1 + 1, 4 + 1, 9


def test_one_that_fails_does_not_take_others_with_it(worker: Worker) -> None:
    def picky(questions: Sequence[Any]) -> list[Any]:
        return [100 // question for question in questions]

    found = together(worker, [Job("a", n, 1, picky) for n in (1, 0, 5)])
    assert found[0] == 100
    assert isinstance(found[1], ZeroDivisionError)
    assert found[2] == 20


def test_who_has_gone_is_not_answered(worker: Worker) -> None:
    asked: list[Any] = []
    go = threading.Event()

    def note(questions: Sequence[Any]) -> list[Any]:
        asked.extend(questions)
        return list(questions)

    async def run() -> None:
        held = asyncio.create_task(worker.ask(Job("hold", None, 1, lambda _q: [go.wait(20)])))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(worker.ask(Job("a", "gone", 1, note)))
        stays = asyncio.create_task(worker.ask(Job("a", "stays", 1, note)))
        await asyncio.sleep(0.05)
        gone.cancel()
        go.set()
        await held
        assert await stays == "stays"

    asyncio.run(run())
    assert asked == ["stays"]


@pytest.fixture
def ranker(folders: dict[str, Path]) -> Ranker:
    return rf.load(folders["shop"])


def test_shared_searches_answer_as_lone_ones(ranker: Ranker) -> None:
    asked = [
        Question("queries", [3], 4),
        Question("queries", [4, 5], 10),
        Question("queries", ["nobody"], 10),
        Question("queries", [6], 7, exclude=[item(n) for n in range(0, 60, 2)]),
        Question("queries", [3, 3], 1, exclude=["nobody"]),
    ]
    assert len({question.group for question in asked}) == 1
    shared = answer(ranker, asked)
    alone = [answer(ranker, [question])[0] for question in asked]
    assert isinstance(shared[2], Problem)
    assert isinstance(alone[2], Problem)
    del shared[2], alone[2]
    for one, other in zip(shared, alone, strict=True):
        found, expected = (json.loads(each)["results"] for each in (one, other))
        assert [e["query"] for e in found] == [e["query"] for e in expected]
        counts = [[len(e["candidates"]) for e in each] for each in (found, expected)]
        assert counts[0] == counts[1]
        assert_same_keys(ranked(found), ranked(expected))


def test_what_changes_a_list_is_not_shared() -> None:
    plain = Question("queries", [3], 10)
    assert plain.group == Question("queries", [4], 5).group
    others = [
        Question("history", [[3]], 10),
        Question("queries", [3], 11),
        Question("queries", [3], 10, include_seen=True),
        Question("queries", [3], 10, allow=[1]),
        Question("queries", [3], 10, allow=[1]),
    ]
    assert len({question.group for question in [plain, *others]}) == 6


@pytest.mark.parametrize("k", [1, 9, 10, 11, 60, 500, 999])
def test_k_may_be_any(ranker: Ranker, k: int) -> None:
    (document,) = answer(ranker, [Question("queries", [3], k, include_seen=True)])
    assert isinstance(document, bytes)
    (found,) = json.loads(document)["results"]
    expected = ranker.search([3], k=k, include_seen=True)
    assert len(found["candidates"]) == len(expected.keys[0])
    assert_same_keys(ranked([found]), expected)
