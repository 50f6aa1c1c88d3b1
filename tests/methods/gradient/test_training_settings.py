"""Every setting of the gradient-trained methods has its effect."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import groups, split_groups

import rankfold as rf
from rankfold.distributed.collectives import SINGLE_PROCESS, SingleProcess
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.gradient.comparison import odds, sampler_context
from rankfold.methods.noise_defaults import noise_of
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
def test_setting_changes_the_model(name: str, change: dict[str, Any]) -> None:
    same = {"epochs": change["epochs"]} if "epochs" in change else {}
    plain, changed = last(name, same).model, last(name, change).model
    assert plain is not None
    assert changed is not None
    ours, theirs = plain.tensors["candidates"], changed.tensors["candidates"]
    assert ours.shape != theirs.shape or not torch.allclose(ours, theirs, atol=1e-6, rtol=1e-5)


def test_mixed_pool_has_a_uniform_candidate_per_pair(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_grades_determine_how_often_a_candidate_is_drawn() -> None:
    grades = torch.tensor([1.0, 9.0])
    rows = Interactions(torch.tensor([0, 1, 2]), torch.tensor([0, 1]).int(), grades, 2)
    config = METHODS["ssl-pop"].config()
    assert sampler_context(rows, config).counts.tolist() == pytest.approx([0.2, 1.8])
    log_odds = odds(rows, 1)
    assert float(log_odds[1] - log_odds[0]) == pytest.approx(torch.tensor(1.8 / 0.5).log().item())
    plain = replace(rows, grades=None)
    assert sampler_context(plain, config).counts.tolist() == [1, 1]


def test_seeds_differ_by_run_and_purpose() -> None:
    made = {
        seed_of(run(seed), f"order of epoch {epoch}") for seed in range(20) for epoch in range(20)
    }
    assert len(made) == 400
    assert seed_of(run(), "draws") not in made
    assert seed_of(run(3), "draws") == seed_of(run(3), "draws")


def test_half_precision_needs_cuda() -> None:
    with pytest.raises(UserError, match="bfloat16 needs a CUDA device, got cpu"):
        last("bpr", {"precision": "bfloat16"})


def test_checkpoint_of_another_kind_of_device_is_refused() -> None:
    state = last("bpr", {}).state()
    state["draws"] = state["draws"][:16]
    config = METHODS["bpr"].config(**{**BASE, "epochs": 3})
    with pytest.raises(UserError, match="another kind of device"):
        next(METHODS["bpr"].fit(graded(), config, replace(run(), resume=state)))


@pytest.mark.parametrize(
    ("name", "factor"), [("bpr", 0.15), ("ssl-pop", 0.5), ("mns", 0.5), ("bir", 0.5), ("xir", 0.5)]
)
def test_an_open_decay_follows_from_the_noise(name: str, factor: float) -> None:
    rows = rf.prepare(groups()).split("train")
    config = METHODS[name].config()
    expected = factor * noise_of(rows, SINGLE_PROCESS).decay
    assert config.for_data(rows, SINGLE_PROCESS).weight_decay == pytest.approx(expected)
    given = METHODS[name].config(weight_decay=1e-5)
    assert given.for_data(rows, SINGLE_PROCESS).weight_decay == 1e-5
