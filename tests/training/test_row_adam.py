"""Adam with one second moment per row."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from rankfold.training import optimisers, row_adam
from rankfold.training.row_adam import BETAS, EPSILON, RowAdam


def by_loops(start: Tensor, gradients: list[dict[int, Tensor]], lr: float) -> Tensor:
    """The definition, a row at a time."""
    table, (first, second) = start.clone(), BETAS
    momentum, squares = torch.zeros_like(start), torch.zeros(len(start), dtype=start.dtype)
    times = [0] * len(start)
    for step in gradients:
        for row, grad in step.items():
            times[row] += 1
            momentum[row] = first * momentum[row] + (1 - first) * grad
            squares[row] = second * squares[row] + (1 - second) * (grad @ grad) / len(grad)
            size = (squares[row] / (1 - second ** times[row])).sqrt() + EPSILON
            table[row] -= lr * momentum[row] / (1 - first ** times[row]) / size
    return table


def sparse(shape: tuple[int, int], rows: dict[int, Tensor]) -> Tensor:
    ids = torch.tensor(list(rows))
    return torch.sparse_coo_tensor(
        ids[None], torch.stack(list(rows.values())), shape, check_invariants=True
    )


@pytest.mark.parametrize("row_block", [2, row_adam.ROW_BLOCK])
def test_step_matches_the_formula(row_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_adam, "ROW_BLOCK", row_block)
    start = torch.randn(7, 4, dtype=torch.float64)
    steps = [
        {int(row): torch.randn(4, dtype=torch.float64) for row in torch.randperm(7)[:3]}
        for _ in range(10)
    ]
    table = nn.Parameter(start.clone())
    optimiser = RowAdam([table], lr=0.05)
    for rows in steps:
        table.grad = sparse((7, 4), rows)
        optimiser.step()
    torch.testing.assert_close(table.data, by_loops(start, steps, 0.05))


def test_rows_without_a_gradient_stay() -> None:
    table = nn.Parameter(torch.randn(5, 3))
    before = table.detach().clone()
    table.grad = sparse((5, 3), {2: torch.ones(3)})
    RowAdam([table], lr=0.1).step()
    changed = (table.detach() != before).any(dim=1)
    assert changed.tolist() == [False, False, True, False, False]


def test_a_repeated_row_counts_once_with_the_sum() -> None:
    tables = [nn.Parameter(torch.zeros(2, 3)) for _ in range(2)]
    twice = torch.sparse_coo_tensor(
        torch.tensor([[1, 1]]), torch.tensor([[1.0, 0, 2]] * 2), (2, 3), check_invariants=True
    )
    tables[0].grad, tables[1].grad = twice, sparse((2, 3), {1: torch.tensor([2.0, 0, 4])})
    for table in tables:
        RowAdam([table], lr=0.1).step()
    assert torch.equal(tables[0], tables[1])


def test_resumed_optimiser_equals_an_uninterrupted_one() -> None:
    module = nn.Embedding(6, 4, sparse=True)
    again = nn.Embedding(6, 4, sparse=True)
    ours, theirs = (optimisers.make("row-adam", m, 0.1, 0.0) for m in (module, again))

    def learn(table: nn.Embedding, with_: list[torch.optim.Optimizer], seed: int) -> None:
        rows = torch.randint(0, 6, (5,), generator=torch.Generator().manual_seed(seed))
        table(rows).pow(3).sum().backward()
        for optimiser in with_:
            optimiser.step()
            optimiser.zero_grad()

    for seed in range(4):
        learn(module, ours, seed)
    again.load_state_dict(module.state_dict())
    optimisers.load(theirs, optimisers.state(ours))
    for seed in range(4, 8):
        learn(module, ours, seed)
        learn(again, theirs, seed)
    assert torch.equal(module.weight, again.weight)


def test_table_in_half_precision_has_exact_counts() -> None:
    """Each gradient vanishes when squared in half precision, and 2049 does not exist there."""
    table = nn.Parameter(torch.zeros(3, 2, dtype=torch.float16))
    optimiser = RowAdam([table], lr=0.001)
    table.grad = sparse((3, 2), {1: torch.full((2,), 1e-4, dtype=torch.float16)})
    optimiser.step()
    assert table.tolist() == [[0, 0], [pytest.approx(-0.001, rel=1e-3)] * 2, [0, 0]]
    optimiser.state[table]["times"][1] = 2048
    again = RowAdam([table], lr=0.001)
    again.load_state_dict(optimiser.state_dict())
    again.step()
    kept, before = again.state[table], optimiser.state[table]
    assert kept["momentum"].dtype == torch.float16
    assert kept["times"][1].item() == 2049
    assert before["times"][1].item() == 2048  # its own, not shared
    assert 1e-10 < kept["second"][1].item() < 1e-8


def test_mean_of_halves_over_turns_is_the_value() -> None:
    """Each value is one of the two halves around it; over many turns their mean is the value."""
    values = torch.cat([(0.5 + torch.rand(6, 32)) * 10.0**-power for power in range(4)])
    values[::2] *= -1
    turns = [
        row_adam.halves(values, torch.full((len(values), 1), float(turn))) for turn in range(2**13)
    ]
    step = torch.exp2(values.abs().log2().floor() - 10)
    every = torch.stack(turns).float()
    assert bool(((every - values).abs() < step).all())
    assert bool(((every.mean(dim=0) - values).abs() < 0.01 * step).all())


def test_half_precision_learns_from_updates_below_its_resolution() -> None:
    """Rounding to nearest would lose half of the way here."""
    ends = []
    for kind in (torch.float32, torch.float16):
        rng = torch.Generator().manual_seed(0)
        table = nn.Parameter(torch.zeros(1, 32, dtype=kind))
        optimiser = RowAdam([table], lr=0.01)
        way = torch.randn(1, 32, generator=rng)
        for number in range(4000):
            grad = 0.3 * way + torch.randn(1, 32, generator=rng)
            table.grad = sparse((1, 32), {0: grad[0].to(kind)})
            optimisers.set_rate([optimiser], 0.01 * (1 - number / 4000))
            optimiser.step()
        ends.append(table.detach().float())
    torch.testing.assert_close(ends[1], ends[0], atol=0.02 * float(ends[0].abs().max()), rtol=0.02)


def test_no_compiler_is_imported() -> None:
    """It takes seconds. A fresh process: other tests import it."""
    code = """
import sys, torch
from rankfold.training.row_adam import RowAdam
table = torch.nn.Embedding(3, 2, sparse=True)
table(torch.tensor([1])).sum().backward()
optimiser = RowAdam([table.weight], 0.1)
optimiser.step()
optimiser.zero_grad()
optimiser.load_state_dict(optimiser.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
