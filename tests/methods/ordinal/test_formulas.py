"""Losses and scores of the ordinal methods, within a fit, equal their formulas."""

from collections.abc import Callable, Iterable
from itertools import combinations
from math import exp, inf
from typing import Any

import pytest
import torch
from torch import Tensor

from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.methods.ordinal import training
from rankfold.training.loop import Task
from rankfold.types import Columns, Dataset, Graded, Run, Vocabulary

Start = Callable[..., Task]
Estimates = dict[tuple[int, int], float]  # u of a threshold and a row

SMALL: dict[str, Any] = {"encoder": "linear", "width": 6, "dropout": 0.0}


def some_rows(n_grades: int, n: int = 30) -> Graded:
    rng = torch.Generator().manual_seed(n_grades)
    grades = torch.arange(n) % n_grades
    numbers = torch.randn(n, 4, generator=rng) + 0.3 * grades[:, None]
    return Graded(numbers, torch.empty(n, 0, dtype=torch.int32), None, grades)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """``(name, number of grades, settings) -> `` the task of a fit, with large outputs."""

    def begun(name: str, n_grades: int, **settings: Any) -> Task:
        rows, names = some_rows(n_grades), Vocabulary.numbered(n_grades)
        columns = Columns(("a", "b", "c", "d"), {})
        numbered = Vocabulary.numbered(len(rows))
        data = Dataset("graded", rows, None, rows, numbered, names, columns=columns)
        run = Run(torch.Generator().manual_seed(5), torch.device("cpu"), SingleProcess())
        task: Any = METHODS[name].fit(data, METHODS[name].config(**SMALL, **settings), run)
        rng = torch.Generator().manual_seed(6)
        with torch.no_grad():
            for parameter in task.module.parameters():
                parameter.copy_(0.6 * torch.randn(parameter.shape, generator=rng))
        return task  # type: ignore[no-any-return]

    monkeypatch.setattr(training, "train", lambda task, _config, _run: task)
    return begun


def outputs_of(task: Task, batch: Tensor, n_grades: int) -> tuple[Tensor, list[int]]:
    """The head's outputs of some rows, and their grades."""
    module: Any = task.module
    rows = some_rows(n_grades).select(batch)
    return module.head(module.vectors(rows)), rows.grades.tolist()


def batches_of(n_grades: int) -> dict[str, Tensor]:
    """Overlapping batches, so that rows repeat among other rows; two lack a side."""
    mixed = torch.randperm(30, generator=torch.Generator().manual_seed(7))
    grades = some_rows(n_grades).grades[mixed]
    return {
        "all grades": mixed[:16],
        "no lowest": mixed[8:][grades[8:] > 0],
        "no highest": mixed[:22][grades[:22] < n_grades - 1],
        "others": mixed[12:],
    }


def assert_same(task: Task, result: Tensor, expected: Tensor) -> None:
    """Compare the values of a batch, and the gradients of their mean."""
    torch.testing.assert_close(result, expected)
    weights = list(task.module.parameters())
    ours, theirs = (
        torch.autograd.grad(values.mean(), weights, retain_graph=True)
        for values in (result, expected)
    )
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-5, rtol=1e-4)


def losses_of(task: Task, batch: Tensor) -> Tensor:
    return task.losses(batch, torch.Generator())


def mean(values: Iterable[Tensor]) -> Tensor:
    """0 of none."""
    result = list(values)
    return torch.stack(result).mean() if result else torch.zeros(())


def logistic(x: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(-x))


def softmax(s: Tensor) -> Tensor:
    return torch.exp(s) / torch.exp(s).sum()


def sides(y: list[int], k: int) -> tuple[list[int], list[int]]:
    """Places of positives and of negatives."""
    return [i for i, g in enumerate(y) if g > k], [i for i, g in enumerate(y) if g <= k]


# ---------------------------------------------------------------------------------- heads


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ce", 5),
        ("focal", 5),
        ("soft-label", 5),
        ("nnrank", 4),
        ("fh", 4),
        ("fh-auc", 4),
        ("ddag", 10),
        ("eban", 4),
        ("pauc", 1),
    ],
)
def test_number_of_outputs_for_five_grades(start: Start, name: str, count: int) -> None:
    outputs, _ = outputs_of(start(name, 5), torch.arange(30), 5)
    assert outputs.shape == (30, count)
    if name != "eban":  # each by its own weights
        spread = outputs - outputs.mean(dim=0)
        assert torch.linalg.matrix_rank(spread) == min(count, 4)  # of four numbers


def test_outputs_of_eban_are_one_score_and_a_bias_of_each_threshold(start: Start) -> None:
    outputs, _ = outputs_of(start("eban", 5), torch.arange(30), 5)
    gaps = outputs - outputs[:, :1]
    torch.testing.assert_close(gaps, gaps[:1].expand(30, -1))
    assert len(gaps[0].unique()) == 4
    assert outputs[:, 0].std() > 0.1


# ---------------------------------------------------------------------------------- losses


def ce(s: Tensor, y: int, _n: int) -> Tensor:
    return -softmax(s)[y].log()


def focal(s: Tensor, y: int, _n: int, focus: float = 2.0) -> Tensor:
    p = softmax(s)[y]
    return -((1 - p) ** focus) * p.log()


def soft_label(s: Tensor, y: int, n: int) -> Tensor:
    weights = [exp(-abs(g - y)) for g in range(n)]
    terms = [w / sum(weights) * p.log() for w, p in zip(weights, softmax(s), strict=True)]
    return -torch.stack(terms).sum()


def nnrank(s: Tensor, y: int, n: int) -> Tensor:
    return mean((1 / (1 + torch.exp(-s[k])) - (1 if y > k else 0)) ** 2 for k in range(n - 1))


def fh(s: Tensor, y: int, n: int) -> Tensor:
    return mean(logistic(s[k] if y > k else -s[k]) for k in range(n - 1))


def ddag(s: Tensor, y: int, n: int) -> Tensor:
    """The mean over the n - 1 pairs with the row's grade; an output is high for the higher one."""
    pairs = list(combinations(range(n), 2))
    return mean(
        logistic(s[place] if y == high else -s[place])
        for place, (low, high) in enumerate(pairs)
        if y in (low, high)
    )


PER_ROW = {
    "ce": ce,
    "focal": focal,
    "soft-label": soft_label,
    "nnrank": nnrank,
    "fh": fh,
    "ddag": ddag,
}


@pytest.mark.parametrize("kind", ["all grades", "no lowest", "no highest"])
@pytest.mark.parametrize("n_grades", [3, 5])
@pytest.mark.parametrize("name", PER_ROW)
def test_the_loss_of_a_row_matches_its_formula(
    start: Start, name: str, n_grades: int, kind: str
) -> None:
    task, batch = start(name, n_grades), batches_of(n_grades)[kind]
    outputs, grades = outputs_of(task, batch, n_grades)
    rows = zip(outputs, grades, strict=True)
    expected = torch.stack([PER_ROW[name](s, y, n_grades) for s, y in rows])
    assert_same(task, losses_of(task, batch), expected)


def test_focal_uses_the_given_power(start: Start) -> None:
    task, batch = start("focal", 4, focus=0.7), batches_of(4)["all grades"]
    rows = zip(*outputs_of(task, batch, 4), strict=True)
    assert_same(task, losses_of(task, batch), torch.stack([focal(s, y, 4, 0.7) for s, y in rows]))


@pytest.mark.parametrize("kind", ["all grades", "no lowest", "no highest"])
@pytest.mark.parametrize("n_grades", [3, 5])
def test_fh_auc_costs_the_mean_over_pairs_at_each_threshold(
    start: Start, n_grades: int, kind: str
) -> None:
    task, batch = start("fh-auc", n_grades), batches_of(n_grades)[kind]
    s, y = outputs_of(task, batch, n_grades)
    expected = []
    for k in range(n_grades - 1):
        up, down = sides(y, k)
        expected.append(mean(logistic(s[i, k] - s[j, k]) for i in up for j in down))
    assert (expected[0] == 0) == (kind == "no lowest")
    assert (expected[-1] == 0) == (kind == "no highest")
    assert_same(task, losses_of(task, batch), torch.stack(expected))


@pytest.mark.parametrize("name", ["fh-auc", "eban", "pauc"])
def test_a_batch_of_one_grade_costs_nothing_and_is_not_remembered(start: Start, name: str) -> None:
    task = start(name, 4)
    before = {key: tensor.clone() for key, tensor in task.memory.state().items()}
    batch = (some_rows(4).grades == 1).nonzero().flatten()
    assert losses_of(task, batch).tolist() == [0, 0, 0]
    after = task.memory.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


# ---------------------------------------------------------------------------------- memory


def eban(
    u: Tensor, y: list[int], duals: list[float], fpr: float
) -> tuple[list[Tensor], list[float]]:
    """loss_k = mean+ l(u_k) + dual_k (mean- l(-u_k) - fpr), l(x) = log_2(1 + e^-x); the excess."""
    values, excess = [], []
    for k, dual in enumerate(duals):
        up, down = sides(y, k)
        above = mean(torch.log2(1 + torch.exp(-u[i, k])) for i in up)
        below = mean(torch.log2(1 + torch.exp(u[j, k])) for j in down)
        both = bool(up and down)
        values.append(above + dual * (below - fpr) if both else torch.zeros(()))
        excess.append(below.item() - fpr if both else 0.0)
    return values, excess


@pytest.mark.parametrize("settings", [{}, {"dual_lr": 0.3, "fpr": 0.2}])
@pytest.mark.parametrize("n_grades", [3, 5])
def test_duals_of_eban_weigh_the_excess_then_climb_by_it(
    start: Start, n_grades: int, settings: dict[str, float]
) -> None:
    task = start("eban", n_grades, **settings)
    lr, fpr = settings.get("dual_lr", 1e-3), settings.get("fpr", 0.01)
    duals = [1.0] * (n_grades - 1)
    assert task.memory.state()["values"].tolist() == duals
    for batch in batches_of(n_grades).values():
        values, excess = eban(*outputs_of(task, batch, n_grades), duals, fpr)
        assert_same(task, losses_of(task, batch), torch.stack(values))
        duals = [dual + lr * e for dual, e in zip(duals, excess, strict=True)]
        kept = task.memory.state()["values"]
        torch.testing.assert_close(kept, torch.tensor(duals), rtol=1e-6, atol=0)
    assert min(abs(dual - 1) for dual in duals) > lr / 100  # every dual changed


def test_duals_of_eban_are_kept_between_0_and_1e5(start: Start) -> None:
    task, batch = start("eban", 3, dual_lr=1e5, fpr=0.5), batches_of(3)["all grades"]
    module: Any = task.module
    with torch.no_grad():
        module.head.biases.copy_(torch.tensor([-30.0, 30.0]))  # no false positives, then only those
    losses_of(task, batch)
    assert task.memory.state()["values"].tolist() == [0.0, 1e5]
    values, _ = eban(*outputs_of(task, batch, 3), [0.0, 1e5], 0.5)
    assert_same(task, losses_of(task, batch) / 1e5, torch.stack(values) / 1e5)


def pauc(
    s: Tensor, y: list[int], rows: list[int], u: Estimates, n: int, settings: dict[str, float]
) -> list[Tensor]:
    """Mean over i of sum_j p_ij l_ij, p_ij = exp(l_ij / lambda) / u_i / n-; ``u`` moves on."""
    temperature, memory = settings.get("temperature", 1.0), settings.get("memory", 0.9)
    values = []
    for k in range(n - 1):
        up, down = sides(y, k)
        of_rows = []
        for i in up if down else []:
            costs = [logistic(s[i, 0] - s[j, 0]) for j in down]
            powers = [exp(cost.item() / temperature) for cost in costs]
            result, at = sum(powers) / len(down), (k, rows[i])
            u[at] = (1 - memory) * u[at] + memory * result if at in u else result
            p = [power / u[at] / len(down) for power in powers]
            of_rows.append(torch.stack([a * b for a, b in zip(p, costs, strict=True)]).sum())
        values.append(mean(of_rows))
    return values


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5, "memory": 0.3}])
@pytest.mark.parametrize("n_grades", [3, 5])
def test_estimates_of_pauc_move_with_each_batch_and_weigh_its_negatives(
    start: Start, n_grades: int, settings: dict[str, float]
) -> None:
    task = start("pauc", n_grades, **settings)
    u: Estimates = {}
    assert task.memory.state()["logs"].tolist() == [[-inf] * 30] * (n_grades - 1)
    for batch in batches_of(n_grades).values():
        s, y = outputs_of(task, batch, n_grades)
        values = pauc(s, y, batch.tolist(), u, n_grades, settings)
        assert_same(task, losses_of(task, batch), torch.stack(values))
        kept = [[u.get((k, row), 0.0) for row in range(30)] for k in range(n_grades - 1)]
        torch.testing.assert_close(task.memory.state()["logs"].exp(), torch.tensor(kept))


# ---------------------------------------------------------------------------------- scores


def expected_grade(s: list[float], n: int) -> float:
    return sum(g * exp(s[g]) for g in range(n)) / sum(exp(s[g]) for g in range(n)) / (n - 1)


def sum_of_sigmoids(s: list[float], n: int) -> float:
    return sum(1 / (1 + exp(-s[k])) for k in range(n - 1))


def over_paths(s: list[float], n: int) -> float:
    """From (0, n - 1): an output is how surely the lower of two grades is ruled out."""
    place = {pair: number for number, pair in enumerate(combinations(range(n), 2))}

    def grade_from(low: int, high: int) -> float:
        if low == high:
            return low
        p = 1 / (1 + exp(-s[place[low, high]]))
        return p * grade_from(low + 1, high) + (1 - p) * grade_from(low, high - 1)

    return grade_from(0, n - 1) / (n - 1)


def mean_output(s: list[float], n: int) -> float:
    return sum(s[k] for k in range(n - 1)) / (n - 1)


def the_output(s: list[float], _n: int) -> float:
    return s[0]


@pytest.mark.parametrize("n_grades", [3, 5])
@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("ce", expected_grade),
        ("focal", expected_grade),
        ("soft-label", expected_grade),
        ("nnrank", sum_of_sigmoids),
        ("fh", sum_of_sigmoids),
        ("fh-auc", sum_of_sigmoids),
        ("ddag", over_paths),
        ("eban", mean_output),
        ("pauc", the_output),
    ],
)
def test_the_score_of_a_row_matches_its_formula(
    start: Start, name: str, n_grades: int, formula: Callable[[list[float], int], float]
) -> None:
    task = start(name, n_grades)
    model = task.export()
    assert model is not None
    score = METHODS[name].open(model).rows
    assert score is not None
    outputs, _ = outputs_of(task, torch.arange(30), n_grades)
    expected = [formula(s, n_grades) for s in outputs.tolist()]
    assert score(some_rows(n_grades)).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
