"""SiameseXML as released: each part against a slow loop, and the whole search."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import exp, log
from typing import Any

import pytest
import torch
from rankings import assert_same_ranking, sorted_by
from released_samples import dense, module_of, near_by_loops, rng_of
from text_samples import TruthJudge, check_exclusions, random_data, run_of
from text_samples import search as search_texts
from torch import Tensor
from torch.nn.functional import gelu

from rankfold.encoders.bag_encoder import add_residual, unit
from rankfold.encoders.bags import weigh
from rankfold.index.exact import Exact
from rankfold.methods.text import neighbours
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.corpus import build_corpus
from rankfold.methods.text.siamesexml.modules import Stage
from rankfold.methods.text.siamesexml.released import fit as recipe
from rankfold.methods.text.siamesexml.released import modules, shortlists
from rankfold.training.batches import Rows
from rankfold.types import Dataset, Interactions, Judge, Model, Run, TopK, from_pairs

SHORT: dict[str, Any] = {"encoder_epochs": 3, "classifier_epochs": 3, "width": 8}


def fitted(data: Dataset, judge: Judge | None = None, **settings: Any) -> Model:
    config = ReleasedConfig(**{**SHORT, **settings})
    *_, last = recipe.fit(data, config, run_of(judge=judge))
    assert last.model is not None
    return last.model


# ---------------------------------------------------------------------------------- module I


def test_candidates_are_drawn_by_the_power_of_their_frequency() -> None:
    counts = torch.tensor([0, 1, 4, 20])
    documents = torch.cat([torch.arange(int(count)) for count in counts])
    rows = from_pairs(torch.repeat_interleave(counts), documents, None, (4, 20))
    batches, rng = modules.FrequencyBatches(rows, 2), rng_of()
    assert len(batches) == 2
    orders = torch.stack([batches.order(rng) for _ in range(8000)])
    assert orders.shape == (8000, 3)
    expected = counts.double() ** 0.45
    shares = torch.bincount(orders.flatten(), minlength=4) / orders.numel()
    torch.testing.assert_close(shares.double(), expected / expected.sum(), atol=0.015, rtol=0)
    last = batches.take(torch.tensor([3, 1, 2]), 1)
    assert last.queries.tolist() == [2]
    assert last.positives.candidates.tolist() == [0, 1, 2, 3]


@torch.no_grad()
def loss_by_loops(rows: Tensor, columns: Tensor, true: Tensor, valid: Tensor) -> Tensor:
    """The likelihood of true pairs and of the two nearest others, row by row."""
    result = []
    for row, a in enumerate(rows):
        cosines = [float(unit(a) @ unit(b)) for b in columns]
        own = [v for v, y, ok in zip(cosines, true[row], valid[row], strict=True) if y and ok]
        others = [
            v for v, y, ok in zip(cosines, true[row], valid[row], strict=True) if not y and ok
        ]
        up = sum(-log(0.9) + 1.5 * (1 - v) for v in own)
        down = [-log(1 - 0.9 * exp(1.5 * (v - 1))) for v in sorted(others)[-2:]]
        result.append((up + sum(down)) / len(own) if own else 0.0)
    return torch.tensor(result)


@pytest.mark.parametrize("with_excluded", [False, True])
def test_the_loss_of_module_one_matches_the_formula(*, with_excluded: bool) -> None:
    data = random_data(1)
    train = dense(data.split("train"))
    if with_excluded:
        hidden = ((torch.rand(train.shape, generator=rng_of(5)) < 0.3) & (train == 0)).nonzero()
        excluded = from_pairs(hidden[:, 0], hidden[:, 1], None, tuple(train.shape))  # type: ignore[arg-type]
        data = replace(data, excluded=excluded)
    module, corpus = module_of(data)
    task = modules.encoder_task(module, corpus, ReleasedConfig(width=8))
    of_labels = corpus.rows.transpose()
    labels = (of_labels.counts() > 0).nonzero().flatten()[:7]
    result = task.losses(Rows(labels, of_labels.select(labels)), rng_of(9))

    rng = rng_of(9)
    own, other = (modules.draw_one(of_labels, labels, rng) for _ in range(2))
    texts = module.features(corpus.labels.select(labels))
    documents, others = (module.features(corpus.documents.select(d)) for d in (own, other))
    true = train[own][:, labels].T > 0
    valid = torch.ones_like(true)
    if data.excluded is not None:
        valid = dense(data.excluded)[own][:, labels].T == 0
    first = loss_by_loops(texts, documents, true, valid)
    second = loss_by_loops(documents, texts + others, true.T, valid.T)
    torch.testing.assert_close(result, 0.7 * first + 0.3 * second, atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------------------------- module III


def test_the_loss_of_module_three_matches_the_formula() -> None:
    scores = torch.rand(20, 9, generator=rng_of()) * 2 - 1
    positive = torch.rand(20, 9, generator=rng_of(1)) < 0.3
    valid = torch.rand(20, 9, generator=rng_of(2)) < 0.8
    result = modules.classifier_loss(scores, positive, valid)
    for row in range(20):
        up, down = [], []
        for v, y, ok in zip(*(t[row].tolist() for t in (scores, positive, valid)), strict=True):
            if ok and y:
                up.append((-log(0.75) + 3 * (1 - v)) / 3)
            elif ok:
                loss = -log(1 - 0.75 * exp(3 * (v - 1))) / 3
                down.append(loss if loss >= 0.05 else 0.0)
        expected = (sum(up) + sum(down)) / len(up) if up else 0.0
        assert float(result[row]) == pytest.approx(expected, abs=1e-5)


def test_the_residual_starts_as_the_identity() -> None:
    module, _ = module_of(random_data(0))
    features = torch.randn(2000, 8, generator=rng_of())
    plain = add_residual(features, module.scaled_mixing(), module.bias)
    torch.testing.assert_close(plain, unit(features + features.relu()))
    with torch.no_grad():
        thinned = module.documents(features, rng_of(1))
    # each coordinate of the residual is either doubled or dropped: values below 0 do not change
    direction = thinned / thinned.norm(dim=1, keepdim=True)
    ratio = direction * (features[:, :1] / direction[:, :1])
    negative = (features[:, 0] < 0).nonzero().flatten()
    factors = (ratio / features)[negative][features[negative] > 0]
    assert set(factors.round().int().tolist()) == {1, 3}
    assert float((factors > 2).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_the_spectral_norm_of_the_residual_is_its_radius() -> None:
    module, _ = module_of(random_data(0))
    with torch.no_grad():
        module.mixing.copy_(torch.randn(8, 8, generator=rng_of()))
        module.radius.fill_(0.7)
        for _ in range(200):
            module.documents(torch.ones(1, 8), rng_of())
        norm = torch.linalg.matrix_norm(module.scaled_mixing(), 2)
    assert float(norm) == pytest.approx(0.7, rel=1e-3)


def test_classifiers_start_at_smoothed_texts_and_only_once() -> None:
    module, corpus = module_of(random_data(7))
    walk = shortlists.random_walks(corpus.rows, 50, 3, rng_of())
    config = ReleasedConfig(width=8, classifier_epochs=1, joint_epochs=1)
    modules.task_of(module, Stage("classifiers", 1), corpus, walk, config, Exact)
    expected = dense(walk) @ gelu(module.encoder.sums(corpus.labels))
    torch.testing.assert_close(module.classifiers.weight, expected)
    with torch.no_grad():
        module.classifiers.weight.add_(1)
    modules.task_of(module, Stage("joint", 1), corpus, walk, config, Exact)
    torch.testing.assert_close(module.classifiers.weight, expected + 1)
    modules.task_of(
        module, Stage("joint", 1), corpus, walk, replace(config, classifier_epochs=0), Exact
    )
    torch.testing.assert_close(module.classifiers.weight, expected)


def test_module_three_keeps_the_encoder_fixed() -> None:
    data = random_data(8)
    without, some = (fitted(data, classifier_epochs=n) for n in (0, 4))
    assert torch.equal(without.tensors["0.tokens"], some.tensors["0.tokens"])
    assert not torch.equal(some.tensors["0.mixing"], torch.eye(8))
    joint = fitted(data, classifier_epochs=0, joint_epochs=4)
    assert not torch.equal(without.tensors["0.tokens"], joint.tensors["0.tokens"])


# ---------------------------------------------------------------------------------- search


def scores_by_loops(model: Model, data: Dataset, row: int) -> list[float]:
    """Of all candidates."""
    tensors, members = model.tensors, range(model.config["members"])
    n = tensors["0.near"].shape[0]
    pairs = Interactions(tensors["known_offsets"], tensors["known_candidates"], None, n)
    chosen, beta = dense(pairs), model.config["beta"]
    assert data.query_texts is not None
    bag = weigh(data.query_texts.select(torch.tensor([row])), tensors["rarity"])
    near, learnt = torch.zeros(n), torch.zeros(n)
    for m in members:
        tokens = tensors[f"{m}.tokens"].float()
        assert bag.weights is not None
        f = gelu((tokens[bag.tokens.long()] * bag.weights[:, None]).sum(dim=0))
        space = shortlists.NearSpace(tensors[f"{m}.near"], tensors[f"{m}.known"].float())
        near += torch.tensor(near_by_loops(unit(f), space, chosen, model.config["neighbours"]))
        more = (tensors[f"{m}.mixing"] @ f + tensors[f"{m}.bias"]).relu()
        cosines = tensors[f"{m}.classifiers"] @ unit(f + more)
        learnt += torch.tensor([exp(5 * (float(v) - 1)) for v in cosines])
    near, learnt = near / len(members), learnt / len(members)
    return [
        beta * float(a) + (1 - beta) / (1 + exp(-float(s)))
        for a, s in zip(learnt, near, strict=True)
    ]


@pytest.mark.parametrize("settings", [{}, {"members": 2, "neighbours": 3, "beta": 0.3}])
def test_scores_match_the_formula(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)  # several blocks
    data = random_data(9)
    model = fitted(data, **settings)
    assert data.query_texts is not None
    result = search_texts(model, data.query_texts, 50, None)
    n = len(data.candidates)
    assert torch.equal(result.ids.sort(dim=1).values, torch.arange(n).expand(len(result.ids), -1))
    assert bool((result.scores.diff(dim=1) <= 0).all())
    for row in range(len(result.ids)):
        expected = torch.tensor(scores_by_loops(model, data, row))[result.ids[row]]
        torch.testing.assert_close(result.scores[row], expected, atol=1e-4, rtol=1e-3)


def test_only_the_shortlist_is_ranked() -> None:
    data = random_data(10)
    model, short = (fitted(data, shortlist=size) for size in (50, 4))
    model = replace(model, tensors=short.tensors)
    assert data.query_texts is not None
    few = search_texts(short, data.query_texts, 4, None)
    every = search_texts(model, data.query_texts, 50, None)
    assert few.ids.shape == (len(data.queries), 4)
    # in the order of all, without those that are off the list
    listed = (every.ids.unsqueeze(2) == few.ids.unsqueeze(1)).any(dim=2)
    assert_same_ranking(few, sorted_by(every.scores.where(listed, -torch.inf), every.ids))
    assert not torch.equal(few.ids, every.ids[:, :4])
    longer = search_texts(short, data.query_texts, 7, None)  # than the shortlist
    assert bool((longer.ids >= 0).all())


def test_shortlists_ascend_so_that_ties_go_by_id() -> None:
    data = random_data(10)
    model, corpus = fitted(data, shortlist=5), build_corpus(data, ReleasedConfig(), run_of())
    config = ReleasedConfig(**model.config)
    members = recipe.members_of(model.tensors, config)
    chosen = corpus.rows.select(corpus.labelled)
    result = recipe.shortlist(members, corpus.documents, chosen, config, 3, None)
    assert result.ids.shape == (40, 5)
    assert bool((result.ids.diff(dim=1) > 0).all())


def test_excluded_candidates_are_not_returned_and_pads_follow() -> None:
    data = random_data(11)
    check_exclusions(data, partial(search_texts, fitted(data)))


def test_the_mix_matches_the_formula_and_ties_go_by_id() -> None:
    near = torch.tensor([[0.0, 1.0, 1.0, 9.0]])
    learnt = torch.tensor([[0.9, 0.2, 0.2, 1.0]])
    ids = torch.tensor([[2, 5, 7, -1]])
    result: TopK = recipe.mixed(recipe.ScoredShortlist(ids, near, learnt), 0.75, 9)
    assert result.ids.tolist() == [[2, 5, 7, -1]]
    second = 0.75 * 0.2 + 0.25 / (1 + exp(-1))
    expected = [0.75 * 0.9 + 0.125, second, second, -float("inf")]
    assert result.scores[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("place", [0, 2])
def test_beta_is_chosen_on_validation(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right candidate is first for only one of the betas."""
    data = random_data(12)
    monkeypatch.setattr(recipe, "BETAS", (0.0, 0.5, 1.0))
    firsts = []
    for beta in recipe.BETAS:
        model = fitted(data, beta=beta)
        assert data.query_texts is not None
        firsts.append(search_texts(model, data.query_texts, 1, None).ids[:, 0])
    differ = (firsts[0] != firsts[2]).nonzero().flatten()
    assert len(differ) > 0
    judge = TruthJudge(differ, firsts[place][differ], 12)
    model = fitted(data, judge)
    assert model.config["beta"] == recipe.BETAS[place]
    assert [entry["beta"] for entry in model.notes["mixes"]] == [0.0, 0.5, 1.0]
    assert max(entry["score"] for entry in model.notes["mixes"]) == 1.0


def test_without_validation_beta_is_the_default() -> None:
    run: Run = run_of()
    assert run.judge is None
    assert fitted(random_data(0)).config["beta"] == recipe.DEFAULT_BETA
