"""Every setting of the gradient-trained methods does something, and what it says."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import split_groups

from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.gradient.comparison import odds, sampler_setting
from rankfold.training import optimisers
from rankfold.training.loop import seed_of
from rankfold.types import Dataset, Interactions, Run, Step

BASE: dict[str, Any] = {"epochs": 2, "batch_size": 64, "width": 4}
CHANGES = [
    ("bpr", {"schedule": "step", "epochs": 7}),
    ("bpr", {"schedule": "cosine"}),
    ("bpr", {"warmup": 1.0}),
    ("bpr", {"clip": 0.001}),
    ("bpr", {"weight_decay": 0.1}),
    ("bpr", {"optimiser": "sgd"}),
    ("bpr", {"optimiser": "adamw", "weight_decay": 0.1}),
    ("bpr", {"optimiser": "sparse-adam"}),
    ("bpr", {"lr": 0.02}),
    ("bpr", {"negatives": 3}),
    ("bpr", {"similarity": "cosine"}),
    ("bpr", {"temperature": 0.5}),
    ("bpr", {"encoder": "towers"}),
    ("bpr", {"mask": "all"}),
    ("bpr", {"mask": "none"}),
    ("bpr", {"weights": "grade"}),
    ("softmax", {"weights": "grade"}),
    ("softmax", {"temperature": 0.5}),
    ("sparsemax", {"similarity": "cosine"}),
    ("ssl-pop", {"popularity": "power"}),
    ("ssl-pop", {"weights": "grade"}),
    ("mns", {"popularity": "log"}),
    ("bir", {"correction": "appendix"}),
    ("bir", {"correction": "sir"}),
    ("bir", {"draw": "multinomial"}),
    ("bir", {"mask": "own"}),
    ("xir", {"cache_share": 0.7}),
    ("sampled", {"loss": "hinge"}),
    ("sampled", {"sampler": "shared"}),
    ("sampled", {"proposed": "none"}),
    ("full", {"loss": "rgx"}),
    ("sml", {"candidate_weight": 1.0}),
    ("sml", {"margin_weight": 1.0, "epochs": 40}),
]


def run(seed: int = 0) -> Run:
    rng = torch.Generator().manual_seed(seed)
    return Run(rng=rng, device=torch.device("cpu"), comm=SingleProcess())


def graded() -> Dataset:
    return split_groups(graded=True)


def last(name: str, settings: dict[str, Any], data: Dataset | None = None, seed: int = 0) -> Step:
    config = METHODS[name].config(**{**BASE, **settings})
    *_, step = METHODS[name].fit(data or graded(), config, run(seed))
    assert step.model is not None
    return step


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=str)
def test_a_setting_is_not_ignored(name: str, change: dict[str, Any]) -> None:
    same = {"epochs": change["epochs"]} if "epochs" in change else {}
    plain, changed = last(name, same).model, last(name, change).model
    assert plain is not None
    assert changed is not None
    ours, theirs = plain.tensors["candidates"], changed.tensors["candidates"]
    assert ours.shape != theirs.shape or not torch.allclose(ours, theirs, atol=1e-6, rtol=1e-5)


def test_momentum_carries_on() -> None:
    """A gradient of one step moves the parameter in the next, too."""
    parameter = torch.nn.Linear(1, 1, bias=False)
    (optimiser,) = optimisers.make("sgd", parameter, 0.1, 0.0)
    places = [parameter.weight.item()]
    for pull in (1.0, 0.0):
        parameter.weight.grad = torch.tensor([[pull]])
        optimiser.step()
        places.append(parameter.weight.item())
    assert places[1] - places[0] == pytest.approx(-0.1)
    assert places[2] - places[1] == pytest.approx(-0.09)


def test_large_tables_have_sparse_gradients() -> None:
    assert not optimisers.is_sparse("auto", optimisers.MAX_DENSE_NUMBERS)
    assert optimisers.is_sparse("auto", optimisers.MAX_DENSE_NUMBERS + 1)
    assert not optimisers.is_sparse("adam", 10 * optimisers.MAX_DENSE_NUMBERS)


def test_mixed_has_as_many_uniform_candidates_as_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankfold.samplers.mixed import Mixed

    sizes = []
    propose = Mixed.propose

    def spy(self: Mixed, batch: Any, rng: torch.Generator) -> Any:
        pool = propose(self, batch, rng)
        sizes.append(len(pool.ids) - len(batch.queries))
        return pool

    monkeypatch.setattr(Mixed, "propose", spy)
    last("mns", {})
    assert set(sizes) == {64}


def test_grades_say_how_often_a_candidate_is_drawn() -> None:
    grades = torch.tensor([1.0, 9.0])
    rows = Interactions(torch.tensor([0, 1, 2]), torch.tensor([0, 1]).int(), grades, 2)
    config = METHODS["ssl-pop"].config()
    assert sampler_setting(rows, config).counts.tolist() == pytest.approx([0.2, 1.8])
    found = odds(rows, 1)
    assert float(found[1] - found[0]) == pytest.approx(torch.tensor(1.8 / 0.5).log().item())
    plain = replace(rows, grades=None)
    assert sampler_setting(plain, config).counts.tolist() == [1, 1]


def test_no_two_seeds_and_no_two_purposes_share_a_seed() -> None:
    made = {
        seed_of(run(seed), f"order of epoch {epoch}") for seed in range(20) for epoch in range(20)
    }
    assert len(made) == 400
    assert seed_of(run(), "draws") not in made
    assert seed_of(run(3), "draws") == seed_of(run(3), "draws")


def test_half_precision_is_for_cuda() -> None:
    with pytest.raises(UserError, match="bfloat16 needs a CUDA device, got cpu"):
        last("bpr", {"precision": "bfloat16"})


def test_a_checkpoint_of_another_kind_of_device_is_refused() -> None:
    state = last("bpr", {}).state()
    state["draws"] = state["draws"][:16]
    config = METHODS["bpr"].config(**{**BASE, "epochs": 3})
    with pytest.raises(UserError, match="another kind of device"):
        next(METHODS["bpr"].fit(graded(), config, replace(run(), resume=state)))


@pytest.mark.parametrize("encoder", ["tables", "towers"])
def test_newton_goes_on_as_if_it_had_never_stopped(encoder: str) -> None:
    """Also from where it had arrived."""
    data = split_groups()
    config = METHODS["rg2-newton"].config(width=3, steps=6, encoder=encoder, reg=1.0)
    steps = list(METHODS["rg2-newton"].fit(data, config, run()))
    final = steps[-1].model
    assert final is not None
    for step in steps[:-1]:
        state = {**step.state(), "number": torch.tensor(step.number)}
        *_, resumed = METHODS["rg2-newton"].fit(data, config, replace(run(), resume=state))
        assert resumed.model is not None
        assert resumed.number == steps[-1].number
        for key, tensor in final.tensors.items():
            assert torch.equal(resumed.model.tensors[key], tensor)


def test_newton_that_has_arrived_stays() -> None:
    data = split_groups()
    config = METHODS["rg2-newton"].config(width=2, steps=300, reg=1e4)  # all vectors are 0 then
    steps = list(METHODS["rg2-newton"].fit(data, config, run()))
    assert steps[-1].final
    assert steps[-1].number < 300
    state = {**steps[-2].state(), "number": torch.tensor(steps[-2].number)}
    *_, resumed = METHODS["rg2-newton"].fit(data, config, replace(run(), resume=state))
    assert steps[-1].model is not None
    assert resumed.model is not None
    for key, tensor in steps[-1].model.tensors.items():
        assert torch.equal(resumed.model.tensors[key], tensor)


def test_warm_up_never_goes_beyond_the_rate() -> None:
    from rankfold.training.schedules import constant, rate

    for warmup in (1e-5, 1e-3, 0.1, 3.0):
        assert all(rate(constant, warmup * part / 50, 10, warmup) <= 1 for part in range(51))
