"""The loop: its objective, its stops, and that a resumed run equals an uninterrupted one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from planted import split_groups
from torch import Tensor, nn

from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.training import loop, optimisers
from rankfold.training.batches import PairBatches, QueryBatches
from rankfold.training.loop import Task, Training, train
from rankfold.types import Batch, Interactions, Model, Run, Step

TRAINED = [  # on pairs; methods for graded rows have separate contracts
    name
    for name, method in METHODS.items()
    if issubclass(method.config, Training) and method.data_kind != "graded"
]


class Plain(Training):
    """The loop's own settings."""


def run(resume: dict[str, Tensor] | None = None, seed: int = 0) -> Run:
    rng = torch.Generator().manual_seed(seed)
    return Run(rng=rng, device=torch.device("cpu"), comm=SingleProcess(), resume=resume)


def pairs() -> Interactions:
    offsets = torch.tensor([0, 3, 4, 8, 10])
    return Interactions(offsets, torch.tensor([0, 1, 2, 0, 0, 1, 2, 3, 1, 3]).int(), None, 4)


def distances(module: nn.Embedding) -> Callable[[Any, torch.Generator], Tensor]:
    """A loss whose minimum is known: the distance of a query's number to its candidate's."""

    def losses(batch: Batch, _rng: torch.Generator) -> Tensor:
        return (module(batch.queries)[:, 0] - batch.candidates) ** 2

    return losses


def numbers(size: int = 4) -> nn.Embedding:
    return nn.Embedding(size, 1, _weight=torch.zeros(size, 1))


def task(module: nn.Embedding, batch_size: int = 3) -> Task:
    def export() -> Model:
        return Model("none", {}, {"queries": module.weight.detach().clone()})

    return Task(module, PairBatches(pairs(), batch_size, "none"), distances(module), export)


def last(steps: Iterator[Step]) -> Step:
    *_, step = steps
    return step


def test_state_with_other_parameters_is_refused() -> None:
    state = last(train(task(numbers()), Plain(epochs=1), run())).state()
    state["module.bias"] = state.pop("module.weight")
    with pytest.raises(UserError, match="other parameters: it was made by another version"):
        last(train(task(numbers()), Plain(epochs=2), run(state)))


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "adam"},
        {"optimiser": "adamw"},
        {"optimiser": "sgd", "lr": 0.05},
        {"optimiser": "adam", "schedule": "cosine", "warmup": 5.0},
        {"optimiser": "adam", "clip": 1.0},
    ],
)
def test_loop_reaches_the_minimum(settings: dict[str, Any]) -> None:
    settings = {"lr": 0.05, "epochs": 300, "weight_decay": 0.0, **settings}
    module = numbers()
    step = last(train(task(module, 10), Plain(**settings), run()))
    assert step.final
    assert step.number == 300
    assert torch.allclose(module.weight[:, 0], torch.tensor([1.0, 0.0, 1.5, 2.0]), atol=0.02)


def test_loss_is_one_mean_over_pairs_for_any_batch_size() -> None:
    for batch_size in (1, 3, 10):
        result = next(train(task(numbers(), batch_size), Plain(lr=1e-12, weight_decay=0.0), run()))
        assert result.loss == pytest.approx((pairs().candidates.double() ** 2).mean().item())


def test_query_counts_once_per_choice() -> None:
    module = numbers()
    mine = replace(
        task(module),
        batches=QueryBatches(pairs(), 3),
        losses=lambda batch, _rng: module(batch.queries)[:, 0] + batch.queries.double(),
    )
    expected = (pairs().query_of_pair().double()).mean().item()
    assert next(train(mine, Plain(lr=1e-12), run())).loss == pytest.approx(expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_divergence_is_reported_with_its_batch(bad: float) -> None:
    module, count = numbers(), 0

    def losses(batch: Batch, _rng: torch.Generator) -> Tensor:
        nonlocal count
        count += 1
        result: Tensor = module(batch.queries)[:, 0] ** 2
        return result * bad if count == 6 else result  # four batches an epoch

    steps = train(replace(task(module), losses=losses), Plain(lr=0.25), run())
    with pytest.raises(
        UserError, match=r"^the loss became (nan|inf) at batch 2 of epoch 2"
    ) as caught:
        list(steps)
    assert caught.value.hint == "lower lr, now 0.25, or set clip=1"


def test_only_rows_in_the_batch_decay_with_sparse_gradients() -> None:
    dense, sparse = numbers(), nn.Embedding(4, 1, _weight=torch.zeros(4, 1), sparse=True)
    for module in (dense, sparse):
        module.weight.data[:] = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
        config = Plain(weight_decay=0.1, epochs=3)
        list(train(task(module, 10), config, run()))  # every row is touched in every batch
    assert torch.allclose(dense.weight, sparse.weight)


@pytest.mark.parametrize("rows", [[0, 2, 3], [3, 0, 2], [0, 2, 2], []])
def test_coalesced_gradients_have_each_row_once(rows: list[int]) -> None:
    """Also if the rows ascend, where no copy is made."""
    table = nn.Embedding(4, 2, sparse=True)
    (table(torch.tensor(rows, dtype=torch.int64)) ** 2).sum().backward()
    assert table.weight.grad is not None
    before = table.weight.grad.clone()
    optimisers.coalesce(table)
    after = table.weight.grad
    assert after.is_coalesced()
    assert after.indices()[0].tolist() == sorted(set(rows))
    torch.testing.assert_close(after.to_dense(), before.to_dense())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("largest", "expected"), [(1.0, 1.0), (100.0, 6.0)])
def test_gradients_are_clipped_by_their_joint_norm(
    sparse: bool,  # noqa: FBT001
    largest: float,
    expected: float,
) -> None:
    module = nn.Module()
    module.table = nn.Embedding(4, 2, sparse=sparse)
    module.line = nn.Linear(2, 1, bias=False)
    rows, pull = torch.tensor([1, 1, 3]), torch.tensor([2.0, 2.0, 2.0])
    (module.table(rows)[:, 0] * pull).sum().backward()
    module.line.weight.grad = torch.tensor([[4.0, 0.0]])
    optimisers.coalesce(module)
    optimisers.clip(module, largest)
    table = module.table.weight.grad
    assert table is not None
    actual = [table.to_dense() if sparse else table, module.line.weight.grad]
    assert torch.cat([part.flatten() for part in actual]).norm().item() == pytest.approx(expected)
    assert actual[0][1, 0] == pytest.approx(2 * actual[0][3, 0].item())
    assert actual[1][0, 0] == pytest.approx(actual[0][1, 0].item())


def data_and_config(name: str) -> tuple[Any, Any]:
    options: dict[str, Any] = {"epochs": 3, "batch_size": 64, "width": 4}
    return split_groups(), METHODS[name].config(**options)


@pytest.mark.parametrize("name", TRAINED)
def test_run_resumed_inside_an_epoch_equals_an_uninterrupted_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every batch of the second epoch, through plain tensors, bit by bit."""
    monkeypatch.setattr(loop, "PAUSE_SECONDS", -1.0)  # a step after every batch
    data, config = data_and_config(name)
    steps, states = [], []
    for step in METHODS[name].fit(data, config, run()):
        steps.append(step)
        states.append({key: value.clone() for key, value in step.state().items()})
    final = steps[-1].model
    assert final is not None
    inside = [i for i, step in enumerate(steps) if not step.whole and step.number == 2]
    assert inside
    for place in inside[:: max(1, len(inside) // 2)]:
        resumed = last(METHODS[name].fit(data, config, run(states[place])))
        assert resumed.model is not None
        assert resumed.loss == steps[-1].loss
        for key, tensor in final.tensors.items():
            assert torch.equal(resumed.model.tensors[key], tensor), key


@pytest.mark.parametrize("name", TRAINED)
def test_steps_inside_an_epoch_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, config = data_and_config(name)
    plain = last(METHODS[name].fit(data, config, run()))
    monkeypatch.setattr(loop, "PAUSE_SECONDS", -1.0)
    ticking = list(METHODS[name].fit(data, config, run()))
    assert plain.model is not None
    assert ticking[-1].model is not None
    assert [step.number for step in ticking if step.whole] == [1, 2, 3]
    assert ticking[-1].loss == plain.loss
    for key, tensor in plain.model.tensors.items():
        assert torch.equal(ticking[-1].model.tensors[key], tensor)


def test_yielded_model_does_not_change_later() -> None:
    data, config = data_and_config("bpr")
    first, *_ = kept = [
        (step, step.model.tensors["queries"].clone())
        for step in islice(METHODS["bpr"].fit(data, config, run()), 3)
        if step.model is not None
    ]
    assert len(kept) == 3
    assert first[0].model is not None
    assert torch.equal(first[0].model.tensors["queries"], first[1])
