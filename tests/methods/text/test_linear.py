"""text-linear: its steps and scores match the formulas, and it learns."""

from dataclasses import replace
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
import pytest
import text_samples as samples
import torch
from rankings import assert_same_ranking
from torch import Tensor

from rankfold.errors import UserError
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.linear import AlphaChoice, Config, Learner, SparseWeights
from rankfold.types import Dataset, Judge, Model, Step, Texts, TopK


def steps_of(data: Dataset, judge: Judge | None = None, **settings: Any) -> list[Step]:
    return list(linear.fit(data, Config(**settings), samples.run_of(judge=judge)))


def fitted(data: Dataset, judge: Judge | None = None, **settings: Any) -> Model:
    model = steps_of(data, judge, **settings)[-1].model
    assert model is not None
    return model


def learner_of(data: Dataset, **settings: Any) -> Learner:
    config = Config(**settings)
    index = neighbours.build_index(data, torch.device("cpu"), bigrams=config.bigrams)
    learner = Learner(index, data.seen("validation"), config, samples.run_of())
    list(learner.find_near_misses())
    return learner


def dense(bags: Texts, n_words: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    assert bags.weights is not None
    result = np.zeros((len(bags), n_words))
    rows = torch.repeat_interleave(bags.counts()).tolist()
    for row, token, weight in zip(rows, bags.tokens.tolist(), bags.weights.tolist(), strict=True):
        result[row, token] = weight
    return result


# ---------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("seed", range(3))
def test_steps_are_adagrad_on_the_loss(seed: int) -> None:
    """Two batches, by loops over dense weights; weights of other words stay 0."""
    data = samples.random_data(seed)
    learner = learner_of(data, reg=0.1, lr=0.3, negatives=3, random_negatives=2)
    train, bags = data.split("train"), dense(learner.bags, learner.weights.n_words)
    n, v = train.n_candidates, learner.weights.n_words
    may = np.zeros((n, v), dtype=bool)
    for query, y in zip(train.query_of_pair().tolist(), train.candidates.tolist(), strict=True):
        may[y] |= bags[query] > 0
    weights, squares = np.zeros((n, v)), np.zeros((n, v))
    bias = np.full(n, log(train.n_pairs / (5 * int((train.counts() > 0).sum()))))
    bias_squares = np.zeros(n)
    rng = torch.Generator().manual_seed(seed)
    for queries in learner.queries.split(20):
        rows, candidates, targets = learner.batch(queries, rng)
        gradient, touched, total = np.zeros((n, v)), np.zeros((n, v), dtype=bool), 0.0
        bias_gradient = np.zeros(n)
        for row, y, t in zip(*(x.tolist() for x in (rows, candidates, targets)), strict=True):
            x = bags[int(queries[row])]
            s = float(weights[y] @ x) + bias[y]
            total += log(1 + exp(s)) - t * s
            error = 1 / (1 + exp(-s)) - t
            gradient[y] += error * x * may[y]
            touched[y] |= (x > 0) & may[y]
            bias_gradient[y] += error
        gradient += 0.1 * weights * touched
        squares += gradient**2
        weights -= 0.3 * gradient / (np.sqrt(squares) + 1e-10)
        bias_squares += bias_gradient**2
        bias -= 0.3 * bias_gradient / (np.sqrt(bias_squares) + 1e-10)
        loss = learner.learn(queries[rows], candidates, targets)
        assert loss == pytest.approx(total, rel=1e-4)
    assert learner.weights.keys.tolist() == np.flatnonzero(may).tolist()
    expected = torch.tensor(weights[may])
    torch.testing.assert_close(learner.weights.values.double(), expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(
        learner.weights.bias.double(), torch.tensor(bias), atol=1e-3, rtol=1e-3
    )


def test_a_batch_has_all_positives_and_no_false_negatives() -> None:
    data = samples.random_data(0)
    learner, train = learner_of(data, random_negatives=30), data.split("train")
    queries = learner.queries.flip(0)
    rows, candidates, targets = learner.batch(queries, torch.Generator().manual_seed(0))
    own = {(int(q), int(y)) for q, y in zip(train.query_of_pair(), train.candidates, strict=True)}
    pairs = list(zip(queries[rows].tolist(), candidates.tolist(), strict=True))
    positive = [pair for pair, t in zip(pairs, targets.tolist(), strict=True) if t == 1]
    assert sorted(positive) == sorted(own)
    assert not own & {pair for pair, t in zip(pairs, targets.tolist(), strict=True) if t == 0}


def test_near_misses_are_the_highest_unchosen_neighbours() -> None:
    data = samples.random_data(1)
    assert data.query_texts is not None
    learner, train = learner_of(data, negatives=4), data.split("train")
    (step,) = neighbours.fit(data, neighbours.Config(), samples.run_of())
    assert step.model is not None
    n = len(data.candidates)
    every = samples.search(step.model, data.query_texts, n, train)
    known = torch.tensor([len(words) > 0 for words in samples.words_of(data.query_texts)])[:, None]
    near = (every.scores > 0) & known
    expected = TopK(every.ids.where(near, -1), every.scores.where(near, -torch.inf))
    scores = torch.full((len(known), n + 1), -torch.inf)  # the last column is that of padding
    scores.scatter_(1, every.ids.where(near, n), expected.scores)
    ids = learner.near_misses.long()
    own = scores.gather(1, ids.where(ids >= 0, n))
    result = TopK(ids[learner.queries], own[learner.queries])
    assert_same_ranking(result, TopK(*(t[learner.queries] for t in expected)))


def test_texts_of_a_topic_get_its_candidate() -> None:
    """With alpha near 1 the classifiers decide; before training they are no better than chance."""
    data, queries, topics = samples.topics_data(0)
    model = fitted(data, alpha=0.99)
    result = samples.search(model, queries, 1, None)
    assert float((result.ids[:, 0] == topics).float().mean()) > 0.97
    blind = replace(model, tensors={**model.tensors, "weights": -model.tensors["weights"]})
    result = samples.search(blind, queries, 1, None)
    assert float((result.ids[:, 0] == topics).float().mean()) < 0.2


def test_a_resumed_fit_equals_an_uninterrupted_one() -> None:
    data = samples.random_data(2)
    whole = steps_of(data, epochs=4)
    assert [step.number for step in whole] == [1, 2, 3, 4]
    assert [step.final for step in whole] == [False, False, False, True]
    state: dict[str, Tensor] = {}
    for step in linear.fit(data, Config(epochs=4), samples.run_of()):
        if step.number == 2:
            state = {name: tensor.clone() for name, tensor in step.state().items()}
    rest = list(linear.fit(data, Config(epochs=4), samples.run_of(resume=state)))
    assert [step.number for step in rest] == [3, 4]
    assert rest[-1].loss == whole[-1].loss
    ours, theirs = rest[-1].model, whole[-1].model
    assert ours is not None
    assert theirs is not None
    assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in theirs.tensors)


def test_near_misses_can_be_stopped_at_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 4)
    monkeypatch.setattr(linear, "PAUSE_SECONDS", 0.0)
    data = samples.random_data(3)
    pauses = [step for step in steps_of(data, epochs=1) if not step.whole]
    assert len(pauses) > 3
    assert all(step.model is None and step.number == 1 for step in pauses)
    state: dict[str, Tensor] = {}
    for step in linear.fit(data, Config(epochs=2), samples.run_of()):
        if not state:
            state = {name: tensor.clone() for name, tensor in step.state().items()}
        last = step.model
    rest = list(linear.fit(data, Config(epochs=2), samples.run_of(resume=state)))
    assert last is not None
    assert rest[-1].model is not None
    assert torch.equal(rest[-1].model.tensors["weights"], last.tensors["weights"])


# ---------------------------------------------------------------------------------- searching


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.99])
def test_scores_match_the_formula(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)  # several blocks
    data = samples.random_data(4)
    assert data.query_texts is not None
    n = len(data.candidates)
    model = fitted(data, alpha=alpha, shortlist=6, epochs=3)
    index = neighbours.from_tensors(model.tensors)
    bags = dense(neighbours.bags_of(data.query_texts, index), len(index.idf))
    config = neighbours.Config(neighbours=20, label_weight=0.5)
    near = neighbours.search(index, config, data.query_texts, n, None)
    weights = np.zeros((n, len(index.idf)))
    weights.reshape(-1)[model.tensors["weight_keys"].numpy()] = model.tensors["weights"].numpy()
    result = samples.search(model, data.query_texts, n, None)
    for row, words in enumerate(samples.words_of(data.query_texts)):
        expected = [0.0] * n
        for place, (y, score) in enumerate(zip(*(x[row].tolist() for x in near), strict=True)):
            s = float(weights[y] @ bags[row]) + float(model.tensors["bias"][y])
            listed = place < 6 and score > 0
            expected[y] = (1 - alpha) * score + alpha * listed / (1 + exp(-s))
            if not words:
                expected[y] = score
        scores = torch.tensor([expected[y] for y in result.ids[row].tolist()])
        torch.testing.assert_close(result.scores[row], scores, atol=1e-5, rtol=1e-5)
        assert sorted(result.ids[row].tolist()) == list(range(n))
        falling = list(zip((-result.scores[row]).tolist(), result.ids[row].tolist(), strict=True))
        assert falling == sorted(falling)  # equal scores by ascending id


@pytest.mark.parametrize("alpha", [0.25, 0.99])
def test_fewer_results_are_the_first_of_more(alpha: float) -> None:
    data = samples.random_data(5)
    assert data.query_texts is not None
    model = fitted(data, alpha=alpha, shortlist=3)
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
def test_alpha_is_chosen_on_validation(wanted: int, alpha: float) -> None:
    """Neighbours say 3/4 and 1/4, the classifiers 0 and 1: candidate 1 wins above alpha = 1/3."""
    data = samples.data_of([[0]] * 5, [[], []], [(0, 0), (1, 0), (2, 0), (3, 1)])
    run = samples.run_of(judge=samples.TruthJudge(torch.tensor([4]), torch.tensor([wanted]), 2))
    index = neighbours.build_index(data, run.device, bigrams=True)
    none = torch.empty(0, dtype=torch.int64)
    weights = SparseWeights(none, none.float(), torch.tensor([-20.0, 20.0]), len(index.idf))
    assert AlphaChoice(index, Config(), data, run).best(weights) == alpha


def test_a_given_alpha_is_kept_and_without_validation_it_is_one_half() -> None:
    data = samples.random_data(0)
    judge = samples.TruthJudge(torch.arange(2), torch.zeros(2).long(), len(data.candidates))
    assert fitted(data, judge, epochs=1, alpha=0.9).config["alpha"] == 0.9
    assert fitted(data, epochs=1).config["alpha"] == 0.5


def test_data_without_texts_is_refused() -> None:
    with pytest.raises(UserError, match="no texts of queries"):
        fitted(replace(samples.random_data(0), query_texts=None))
