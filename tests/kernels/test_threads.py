"""Blocks in threads: each is processed once, and the number of threads is restored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from rankfold.kernels.threads import in_threads, inner, product, scratch
from rankfold.objectives.implicit import ials
from rankfold.objectives.quadratic import candidate_half, query_half
from rankfold.solvers import pairs
from rankfold.solvers.als import sweep
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.types import from_pairs


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_block_is_processed_once_by_one_thread(
    threads: int,
) -> None:
    done, with_threads = torch.zeros(50), []

    def work(block: int) -> None:
        done[block] += 1
        with_threads.append(torch.get_num_threads())

    in_threads(work, range(50))
    assert bool((done == 1).all())
    assert set(with_threads) == {1}
    assert torch.get_num_threads() == threads


def test_error_reaches_the_caller(threads: int) -> None:
    def work(block: int) -> None:
        if block == 7:
            raise ValueError("block 7")

    with pytest.raises(ValueError, match="block 7"):
        in_threads(work, range(20))
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("inference", [False, True])
def test_inference_tensors_can_be_written_to(*, inference: bool) -> None:
    with torch.inference_mode(inference):
        table = torch.zeros(20)
        in_threads(lambda block: table[block : block + 1].fill_(block), range(20))
    assert torch.equal(table, torch.arange(20.0))


def test_sweep_by_several_threads_equals_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "BLOCK_ENTRIES", {"cpu": 64})  # blocks of 64 rows
    rng = torch.Generator().manual_seed(0)
    queries, candidates = (torch.randint(0, n, (4000,), generator=rng) for n in (300, 200))
    rows = from_pairs(queries, candidates, None, (300, 200))
    objective = ials(rows, 0.01, 0.1)
    halves = query_half(objective), candidate_half(objective, rows.transpose())
    start = [torch.randn(n, 8, generator=rng) for n in (300, 200)]
    before, result = torch.get_num_threads(), []
    for n in (1, 3):
        torch.set_num_threads(n)
        p, q = sweep(halves, start[0].clone(), start[1].clone(), by_conjugate_gradients(2))
        result.append(p @ q.T)
    torch.set_num_threads(before)
    assert torch.allclose(*result, atol=1e-5)


@pytest.mark.parametrize(("n", "width"), [(0, 3), (1, 1), (5000, 64), (70_000, 5)])
def test_products_are_those_of_torch_with_any_number_of_threads(n: int, width: int) -> None:
    rng = torch.Generator().manual_seed(0)
    left, right = torch.randn(n, width, generator=rng), torch.randn(n, 7, generator=rng)
    small = torch.randn(width, 7, generator=rng)
    results, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        added = product(left, small, out=right.clone(), alpha=-1)
        results.append((product(left, small), added, inner(left, right)))
    torch.set_num_threads(before)
    left, right, small = left.double(), right.double(), small.double()
    expected = left @ small, right - left @ small, left.T @ right
    for one, of_torch, other in zip(results[0], expected, results[2], strict=True):
        torch.testing.assert_close(one.double(), of_torch, atol=5e-3, rtol=1e-4)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)  # the same blocks


def test_work_in_threads_may_itself_use_threads(threads: int) -> None:
    done = torch.zeros(40, 40)

    def work(row: int) -> None:
        in_threads(lambda column: done[row, column].add_(1), range(40))

    for _ in range(5):
        in_threads(work, range(40))
    assert bool((done == 5).all())
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("threads")
def test_a_thread_keeps_its_memory_from_block_to_block() -> None:
    places = set()

    def work(block: int) -> None:
        table = scratch("table", (block + 1, 10), torch.zeros(0)).fill_(block)
        assert table.shape == (block + 1, 10)
        places.add(table.data_ptr())

    in_threads(work, range(9, -1, -1))
    assert len(places) <= torch.get_num_threads()
    assert scratch("table", (2, 3), torch.zeros(0)).shape == (2, 3)
