"""A blend adds the scores of two models, with a share chosen on validation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import dense, split_groups
from rankings import assert_same_keys
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.closed_form import blend
from rankfold.methods.closed_form.blend import SHARES
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Interactions, Step

QUICK: dict[str, Any] = {"width": 6, "seed": 3}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


@pytest.fixture(scope="module")
def ranker(data: Dataset) -> Ranker:
    model = rf.fit("blend", data, **QUICK)
    assert isinstance(model, Ranker)
    return model


def part_scores(name: str, ranker: Ranker, data: Dataset) -> Tensor:
    """Of all candidates for all queries, by a fit of the part alone; unit deviation per query."""
    settings = json.loads(ranker.model.config["settings"])[name]
    model = rf.fit(name, data, seed=3, **settings)
    ranking = model.search(data.queries.keys.to_list(), k=len(data.candidates), include_seen=True)
    scores = torch.zeros(len(data.queries), len(data.candidates), dtype=torch.float64)
    for row, (keys, values) in enumerate(zip(ranking.keys, ranking.scores, strict=True)):
        scores[row, data.candidates.find(keys)] = torch.from_numpy(values).double()
    return scores / scores.std(dim=1, keepdim=True, correction=0)


def all_scores(ranker: Ranker, rows: Interactions) -> Tensor:
    scores = METHODS["blend"].open(ranker.model).scores
    assert scores is not None
    return scores(rows).double()


def test_scores_are_the_weighted_sum_of_the_parts(data: Dataset, ranker: Ranker) -> None:
    first, second = (part_scores(name, ranker, data) for name in ("rg2", "ease"))
    mixed = rf.fit("blend", data, **{**ranker.model.config, "share": 0.3}, seed=3)
    found = all_scores(mixed, data.split("train"))
    torch.testing.assert_close(found, 0.7 * first + 0.3 * second, atol=2e-3, rtol=0)


@pytest.mark.parametrize(("share", "name"), [(0.0, "rg2"), (1.0, "ease")])
def test_all_of_one_part_ranks_like_it(
    data: Dataset, ranker: Ranker, share: float, name: str
) -> None:
    settings = json.loads(ranker.model.config["settings"])
    alone = rf.fit("blend", data, share=share, settings=json.dumps(settings), seed=3)
    expected = part_scores(name, ranker, data)
    torch.testing.assert_close(all_scores(alone, data.split("train")), expected, atol=2e-3, rtol=0)
    assert "chosen_by" not in alone.model.notes


def test_share_is_the_best_on_validation(data: Dataset, ranker: Ranker) -> None:
    notes, config = ranker.model.notes, dict(ranker.model.config)
    points = {entry["share"]: entry for entry in notes["points"]}
    assert set(SHARES) <= set(points)
    for share in SHARES:
        model = rf.fit("blend", data, **{**config, "share": share}, seed=3)
        found = rf.evaluate(model, data, split="validation", metrics="ndcg@10")["ndcg@10"]
        assert found == pytest.approx(points[share]["score"], abs=0.01)
    best = max(entry["score"] for entry in points.values())
    assert notes["score"] >= best - max(entry["error"] for entry in points.values())
    described = METHODS["blend"].describe(ranker.model)
    assert described is not None
    assert f"share {config['share']:g}" in described


def test_search_hides_what_was_chosen(data: Dataset, ranker: Ranker) -> None:
    rows = data.split("train").union(data.split("validation"))
    scores = all_scores(ranker, data.split("train"))
    scores[dense(rows) > 0] = -torch.inf
    best = data.candidates.take(scores.argmax(dim=1)).to_list()
    found = ranker.search(data.queries.keys.to_list(), k=1).keys
    assert sum(keys == [key] for keys, key in zip(found, best, strict=True)) >= len(best) - 1


def test_history_and_query_agree_after_saving(
    ranker: Ranker, data: Dataset, tmp_path: Path
) -> None:
    ranker.save(tmp_path / "model")
    again = rf.load(tmp_path / "model")
    assert isinstance(again, Ranker)
    key = data.queries.keys.to_list()[4]
    chosen = data.split("train").select(torch.tensor([4])).candidates
    history = data.candidates.take(chosen).to_list()
    by_query = ranker.search([key], k=5, include_seen=True)
    assert_same_keys(again.search(history=history, k=5, include_seen=True), by_query)


def test_a_refit_keeps_settings_and_share(data: Dataset, ranker: Ranker) -> None:
    refit = rf.fit("blend", data, refit=True, **QUICK).model
    assert refit.config == ranker.model.config
    both = data.split("train").union(data.split("validation"))
    assert torch.equal(refit.tensors["candidates_of_queries"], both.candidates)
    whole = replace(data, train=both, validation=None)
    ease = rf.fit("ease", whole, **json.loads(refit.config["settings"])["ease"])
    torch.testing.assert_close(refit.tensors["second.weights"], ease.model.tensors["weights"])


def test_without_validation_the_parts_are_equal() -> None:
    model = rf.fit("blend", ([1, 2, 3, 1, 2], [7, 7, 7, 5, 6])).model
    assert model.config["share"] == 0.5
    assert model.notes["chosen_by"] == "the defaults"


def test_sweeps_of_a_part_end_where_validation_did(data: Dataset) -> None:
    given = json.dumps({"ials": {"reg": 0.01, "background": 0.1}})
    model = rf.fit("blend", data, first="ials", second="popularity", width=4, settings=given).model
    settings = json.loads(model.config["settings"])
    assert settings["ials"]["sweeps"] < METHODS["ials"].config().sweeps
    assert settings["ials"]["width"] == 4
    again = rf.fit("blend", data, **model.config).model
    torch.testing.assert_close(
        again.tensors["first.candidates"], model.tensors["first.candidates"], atol=1e-5, rtol=1e-4
    )


def test_added_pairs_change_the_answer(data: Dataset, ranker: Ranker) -> None:
    keys = data.candidates.keys.to_list()
    grown = ranker.add((["new"] * 3, keys[:3]))
    assert_same_keys(grown.search(["new"], k=4), ranker.search(history=keys[:3], k=4))


def test_few_scores_at_a_time_give_the_same_share(
    data: Dataset, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blend, "_MOST_QUERIES", 3)
    assert rf.fit("blend", data, **QUICK).model.config == ranker.model.config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"second": "rg2"}, "two methods, got rg2 twice"),
        ({"first": "blend"}, "blend cannot be blended"),
        ({"first": "bpr"}, "bpr cannot be blended"),
        ({"first": "rg3"}, "no method 'rg3'"),
        ({"settings": "width=3"}, "must be JSON"),
        ({"settings": "[1]"}, "must be JSON"),
        ({"settings": '{"ials": {}}'}, "'ials', which is not a method of this blend"),
        ({"settings": '{"rg2": {"rag": 1}}'}, "no option 'rag'"),
    ],
)
def test_wrong_settings_are_refused(data: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rf.fit("blend", data, **options)


def test_progress_is_reported_within_the_step(data: Dataset) -> None:
    shares: list[float | None] = []
    rf.fit("blend", data, **QUICK, report=lambda _history, step: shares.append(step.share))
    inside = [share for share in shares[:-1] if share is not None]
    assert len(inside) == len(shares) - 1 > 10
    assert inside == sorted(inside)
    assert inside[0] < 0.3 < 0.9 <= inside[-1] <= 1


def test_an_interrupted_fit_starts_again(data: Dataset, ranker: Ranker, tmp_path: Path) -> None:
    """Its checkpoint has nothing that the methods could go on from."""

    def stop(_history: object, step: Step) -> None:
        if step.share is not None and step.share > 0.6:
            raise KeyboardInterrupt

    options: dict[str, Any] = {**QUICK, "out": tmp_path / "model", "checkpoint_seconds": 0}
    with pytest.raises(KeyboardInterrupt):
        rf.fit("blend", data, **options, report=stop)
    resumed = rf.fit("blend", data, **options, resume=True)
    assert resumed.model.config == ranker.model.config
    for name, tensor in ranker.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor), name
