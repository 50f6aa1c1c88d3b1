"""text-linear: its classifiers and scores match the formulas, and it learns."""

from dataclasses import replace
from functools import partial
from math import exp
from typing import Any

import numpy as np
import pytest
import text_samples as samples
import torch
from rankings import assert_same_ranking
from torch import Tensor

from rankfold.errors import UserError
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.linear import Classifiers, Config, Learner, choose_mix
from rankfold.types import Dataset, Judge, Model, Step, Texts, from_pairs


def steps_of(data: Dataset, judge: Judge | None = None, **settings: Any) -> list[Step]:
    return list(linear.fit(data, Config(**settings), samples.run_of(judge=judge)))


def fitted(data: Dataset, judge: Judge | None = None, **settings: Any) -> Model:
    model = steps_of(data, judge, **settings)[-1].model
    assert model is not None
    return model


def learner_of(data: Dataset, **settings: Any) -> Learner:
    config = Config(**{"least": 1, "threshold": 0.0, **settings})
    index = neighbours.build_index(data, torch.device("cpu"), bigrams=config.bigrams)
    return Learner(index, data.seen("validation"), config, samples.run_of())


def dense(bags: Texts, n_words: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    assert bags.weights is not None
    result = np.zeros((len(bags), n_words))
    rows = torch.repeat_interleave(bags.counts()).tolist()
    for row, token, weight in zip(rows, bags.tokens.tolist(), bags.weights.tolist(), strict=True):
        result[row, token] = weight
    return result


# ---------------------------------------------------------------------------------- learning


def gradient(learner: Learner, index: neighbours.TextIndex, cost: float) -> tuple[Tensor, Tensor]:
    """The gradient of the loss of all classifiers, word by word, and their biases'."""
    found = learner.classifiers()
    assert found.weights.grades is not None
    weights = torch.zeros(len(index.idf), len(found.bias))
    words = found.weights.query_of_pair().long()
    weights[words, found.weights.candidates.long()] = found.weights.grades
    every = index.queries.transpose()
    x = torch.tensor(dense(Texts(every.offsets, every.candidates, every.grades), len(index.idf)))
    x = x[index.chosen.counts() > 0].float()
    signs = learner.signs(torch.arange(len(found.bias)))
    short = (1 - signs * (x @ weights + found.bias)).clamp(min=0) * signs.abs()
    slopes = -2 * cost * signs * short
    return weights + x.T @ slopes, found.bias + slopes.sum(0)


@pytest.mark.parametrize("seed", range(2))
def test_classifiers_minimise_the_squared_hinge(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of one text are left out; the others, and the biases, have a gradient near 0."""
    monkeypatch.setattr(linear, "_MOST_LABELS", 5)  # several blocks
    data = samples.random_data(seed)
    learner = learner_of(data, bigrams=False)
    assert sum(1 for _ in learner.learn()) < 3
    index = neighbours.build_index(data, torch.device("cpu"), bigrams=False)
    of_words, of_biases = gradient(learner, index, 1.0)
    often = index.queries.counts() > 1
    assert float(of_words[often].abs().max()) < 0.2
    assert float(of_biases.abs().max()) < 0.3


def test_a_divided_problem_has_nearly_the_same_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few texts at first, then the hardest: the margins of all texts are nearly the same."""
    data, queries, _ = samples.topics_data(1)
    whole = learner_of(data)
    list(whole.learn())
    monkeypatch.setattr(linear, "_DRAWN", 20)
    monkeypatch.setattr(linear, "_HARDEST", 300)
    monkeypatch.setattr(linear, "_MOST_LABELS", 1)
    parts = learner_of(data)
    list(parts.learn())
    assert "whole" not in vars(parts)
    index = neighbours.build_index(data, torch.device("cpu"), bigrams=True)
    bags = neighbours.bags_of(queries, index)
    ours, theirs = (one.classifiers().chances(bags) for one in (parts, whole))
    assert float((ours.argmax(1) == theirs.argmax(1)).float().mean()) > 0.98
    assert float((ours - theirs).abs().mean()) < 0.02


def test_excluded_pairs_are_ignored_and_rare_candidates_have_no_classifier() -> None:
    data = samples.data_of([[0], [0], [1], [1]], [[]] * 3, [(0, 0), (1, 0), (2, 1), (3, 0), (3, 2)])
    hidden = from_pairs(torch.tensor([2]), torch.tensor([0]), None, (4, 3))
    data = replace(data, excluded=hidden)
    learner = learner_of(data, least=2)
    assert learner.order.tolist() == [0]
    expected = [[1.0, -1, -1], [1, -1, -1], [0, 1, -1], [1, -1, 1]]
    assert learner.signs(torch.arange(3)).tolist() == expected
    list(learner.learn())
    assert learner.bias[0] > 0
    assert learner.classifiers().chances(samples_bags(data))[:, 1:].max() == 0


def samples_bags(data: Dataset) -> Texts:
    index = neighbours.build_index(data, torch.device("cpu"), bigrams=True)
    assert data.query_texts is not None
    return neighbours.bags_of(data.query_texts, index)


def test_texts_of_a_topic_get_its_candidate() -> None:
    """With alpha near 1 the classifiers decide; reversed ones are no better than chance."""
    data, queries, topics = samples.topics_data(0)
    model = fitted(data, alpha=0.99)
    result = samples.search(model, queries, 1, None)
    assert float((result.ids[:, 0] == topics).float().mean()) > 0.97
    blind = replace(model, tensors={**model.tensors, "weights": -model.tensors["weights"]})
    result = samples.search(blind, queries, 1, None)
    assert float((result.ids[:, 0] == topics).float().mean()) < 0.2


def test_a_resumed_fit_equals_an_uninterrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(linear, "_MOST_LABELS", 3)
    data = samples.random_data(2)
    whole = steps_of(data, least=1)
    assert len(whole) > 3
    assert all(step.model is None and not step.whole for step in whole[:-1])
    assert whole[-1].final
    state: dict[str, Tensor] = {}
    for place, step in enumerate(linear.fit(data, Config(least=1), samples.run_of())):
        if place == 1:
            state = {name: tensor.clone() for name, tensor in step.state().items()}
    rest = list(linear.fit(data, Config(least=1), samples.run_of(resume=state)))
    assert len(rest) == len(whole) - 2
    ours, theirs = rest[-1].model, whole[-1].model
    assert ours is not None
    assert theirs is not None
    assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in theirs.tensors)


# ---------------------------------------------------------------------------------- searching


@pytest.mark.parametrize(("alpha", "rare"), [(0.0, 0.5), (0.3, 0.0), (0.9, 1.0)])
def test_scores_match_the_formula(
    alpha: float, rare: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)  # several blocks
    monkeypatch.setattr(linear, "_FREQUENT", 6)
    data = samples.random_data(4)
    assert data.query_texts is not None
    n, counts = len(data.candidates), data.split("train").candidate_counts().tolist()
    model = fitted(data, alpha=alpha, rare_weight=rare, label_weight=0.5)
    index = neighbours.from_tensors(model.tensors)
    bags = dense(neighbours.bags_of(data.query_texts, index), len(index.idf))
    config = neighbours.Config(neighbours=20, label_weight=0.5)
    near = neighbours.search(index, config, data.query_texts, n, None)
    weights, tensors = np.zeros((len(index.idf), n)), model.tensors
    words = torch.repeat_interleave(tensors["weight_offsets"].diff()).numpy()
    weights[words, tensors["weight_candidates"].numpy()] = tensors["weights"].numpy()
    result = samples.search(model, data.query_texts, n, None)
    for row, known in enumerate(samples.words_of(data.query_texts)):
        expected = [0.0] * n
        for y, score in zip(*(x[row].tolist() for x in near), strict=True):
            s = float(weights[:, y] @ bags[row]) + float(tensors["bias"][y])
            chance = exp(-(max(0.0, 1 - s) ** 3)) + (counts[y] < 6) * rare * score
            expected[y] = (1 - alpha) * score + alpha * chance if known else score
        scores = torch.tensor([expected[y] for y in result.ids[row].tolist()])
        torch.testing.assert_close(result.scores[row], scores, atol=1e-5, rtol=1e-5)
        assert sorted(result.ids[row].tolist()) == list(range(n))


@pytest.mark.parametrize("alpha", [0.25, 0.99])
def test_fewer_results_are_the_first_of_more(alpha: float) -> None:
    data = samples.random_data(5)
    assert data.query_texts is not None
    model = fitted(data, alpha=alpha)
    more = samples.search(model, data.query_texts, 50, None)
    few = samples.search(model, data.query_texts, 5, None)
    assert more.ids.shape[1] == len(data.candidates)
    assert_same_ranking(few, more)


@pytest.mark.parametrize("alpha", [0.5, 0.99])
def test_excluded_candidates_are_not_returned_and_pads_follow(alpha: float) -> None:
    data = samples.random_data(6)
    samples.check_exclusions(data, partial(samples.search, fitted(data, alpha=alpha)))


def test_a_text_without_known_words_gets_the_most_popular() -> None:
    samples.check_unknown_words(fitted)


def test_one_query_one_candidate() -> None:
    data = samples.data_of([[0]], [[]], [(0, 0)])
    assert data.query_texts is not None
    model = fitted(data)
    assert samples.search(model, data.query_texts, 5, None).ids.tolist() == [[0]]
    none = Texts(torch.zeros(1).long(), torch.empty(0).int())
    assert samples.search(model, none, 5, None).ids.shape == (0, 1)


def test_texts_without_words_are_harmless() -> None:
    data = samples.data_of([[], []], [[], []], [(0, 1), (1, 1)], n_tokens=3)
    assert data.query_texts is not None
    model = fitted(data)
    assert len(model.tensors["weights"]) == 0
    assert samples.search(model, data.query_texts, 2, None).ids.tolist() == [[1, 0]] * 2


@pytest.mark.parametrize(("wanted", "alpha"), [(0, 0.0), (1, 0.5)])
def test_the_mix_is_chosen_on_validation(wanted: int, alpha: float) -> None:
    """Neighbours say 3/4 and 1/4, the classifiers 0 and 1: candidate 1 wins above alpha = 1/3."""
    data = samples.data_of([[0]] * 5, [[], []], [(0, 0), (1, 0), (2, 0), (3, 1)])
    run = samples.run_of(judge=samples.TruthJudge(torch.tensor([4]), torch.tensor([wanted]), 2))
    index = neighbours.build_index(data, run.device, bigrams=True)
    none = torch.empty(0, dtype=torch.int64)
    weights = from_pairs(none, none, none.float(), (len(index.idf), 2))
    classifiers = Classifiers(weights, torch.tensor([-20.0, 20.0]), torch.tensor([30, 30]))
    chosen = choose_mix(index, classifiers, Config(), data, run)
    assert (chosen.alpha, chosen.rare_weight) == (alpha, 0.0)


def test_given_weights_are_kept_and_there_are_defaults_without_validation() -> None:
    data = samples.random_data(0)
    judge = samples.TruthJudge(torch.arange(2), torch.zeros(2).long(), len(data.candidates))
    given = fitted(data, judge, alpha=0.9, rare_weight=0.7).config
    assert (given["alpha"], given["rare_weight"]) == (0.9, 0.7)
    default = fitted(data).config
    assert (default["alpha"], default["rare_weight"], default["label_weight"]) == (0.5, 0.5, 0.5)


def test_older_models_score_their_shortlists() -> None:
    """Candidate 1 has a large bias, and is listed only if the shortlist has room for two."""
    data = samples.data_of([[0]] * 4, [[], []], [(0, 0), (1, 0), (2, 0), (3, 1)])
    model, none = fitted(data), torch.zeros(0)
    older = {"weight_keys": none.long(), "weights": none, "bias": torch.tensor([-20.0, 20.0])}
    for shortlist, best in [(1, 0), (2, 1)]:
        config = {**model.config, "label_weight": 0.0, "alpha": 0.5, "shortlist": shortlist}
        one = replace(model, config=config, tensors={**model.tensors, **older})
        result = samples.search(one, samples.texts_of([[0]]), 2, None)
        assert result.ids[0].tolist() == [best, 1 - best]
        chance = float(best == 1)
        near = 0.25 if best == 1 else 0.75
        assert float(result.scores[0, 0]) == pytest.approx(0.5 * near + 0.5 * chance, abs=1e-6)


def test_data_without_texts_is_refused() -> None:
    with pytest.raises(UserError, match="no texts of queries"):
        fitted(replace(samples.random_data(0), query_texts=None))
