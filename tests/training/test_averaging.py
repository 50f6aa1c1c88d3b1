"""The mean state is what its docstring says, and is the model's, not the training's."""

import pytest
import torch
from torch import nn

from rankfold.training.averaging import Average


def module_of(seed: int) -> nn.Module:
    """Parameters, buffers, and one that is a whole number."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def moved(module: nn.Module, rng: torch.Generator) -> dict[str, torch.Tensor]:
    """The state after a step that changes all of it in place."""
    with torch.no_grad():
        for value in module.state_dict().values():
            value += torch.randint(1, 5, value.shape, generator=rng)
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("horizon", [0.3, 1.0, 2.5, 4.0, 100.0])
def test_the_mean_is_the_written_formula(horizon: float) -> None:
    module, rng = module_of(0), torch.Generator().manual_seed(0)
    average, steps = Average(module, horizon), []
    for number in range(1, 9):
        steps.append(moved(module, rng))
        average.follow(number)
    for name, mean in average.state().items():
        expected = torch.zeros_like(mean)
        for number, state in enumerate(steps, 1):
            expected += (state[name] - expected) / min(number, max(1.0, horizon))
        torch.testing.assert_close(mean, expected)
    assert average.state().keys() == {*steps[0]} - {"1.num_batches_tracked"}
    weight = average.state()["0.weight"]
    if horizon == 100:
        torch.testing.assert_close(weight, torch.stack([s["0.weight"] for s in steps]).mean(dim=0))
    assert torch.equal(weight, steps[-1]["0.weight"]) == (horizon <= 1)


def test_the_module_is_in_the_mean_state_for_a_while() -> None:
    module, rng = module_of(0), torch.Generator().manual_seed(0)
    average = Average(module, 10)
    for number in (1, 2, 3):
        state = moved(module, rng)
        average.follow(number)
    whole = state["1.num_batches_tracked"]
    with average.in_place():
        for name, value in module.state_dict().items():
            assert torch.equal(value, {**average.state(), "1.num_batches_tracked": whole}[name])
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name])


def test_it_goes_on_from_its_state() -> None:
    modules = module_of(0), module_of(1)
    first, second = (Average(module, 3) for module in modules)
    moved(modules[0], torch.Generator().manual_seed(0))
    first.follow(1)
    modules[1].load_state_dict(modules[0].state_dict())
    second.load({name: value.clone() for name, value in first.state().items()})
    for number in (2, 3, 4, 5):
        for module, average in zip(modules, (first, second), strict=True):
            moved(module, torch.Generator().manual_seed(number))
            average.follow(number)
    for name, mean in first.state().items():
        assert torch.equal(mean, second.state()[name])
