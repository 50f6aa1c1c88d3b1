"""text-neighbours matches its formula, even for empty and unknown texts."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import log, sqrt
from typing import Any

import pytest
import text_samples as samples
import torch
from rankings import assert_same_ranking

from rankfold.errors import UserError
from rankfold.methods.text import neighbours
from rankfold.methods.text.neighbours import Config
from rankfold.types import Dataset, Judge, Model, Texts

Bag = dict[Any, float]


def fitted(data: Dataset, judge: Judge | None = None, **settings: Any) -> Model:
    (step,) = neighbours.fit(data, Config(**settings), samples.run_of(judge=judge))
    assert step.final
    assert step.model is not None
    return step.model


# ---------------------------------------------------------------------------------- reference


def grams(words: list[int], *, bigrams: bool) -> Counter[Any]:
    return Counter([*words, *(pairwise(words) if bigrams else [])])


class Reference:
    """Scores by loops over texts as dictionaries."""

    def __init__(self, data: Dataset, config: Config) -> None:
        assert data.query_texts is not None
        assert data.candidate_texts is not None
        self.config, self.train = config, data.split("train")
        self.chosen = [
            self.train.select(torch.tensor([row])).candidates.tolist()
            for row in range(self.train.n_queries)
        ]
        queries, candidates = (
            samples.words_of(data.query_texts),
            samples.words_of(data.candidate_texts),
        )
        queries = [q if own else [] for q, own in zip(queries, self.chosen, strict=True)]
        texts = [grams(words, bigrams=config.bigrams) for words in (*queries, *candidates)]
        held = Counter(gram for text in texts for gram in text)
        n = sum(map(bool, self.chosen)) + len(candidates)
        self.idf = {gram: 1 + log((1 + n) / (1 + df)) for gram, df in held.items()}
        bags = [self.bag(text) for text in texts]
        self.queries, self.candidates = bags[: len(queries)], bags[len(queries) :]

    def bag(self, text: Counter[Any]) -> Bag:
        bag = {g: (1 + log(tf)) * self.idf[g] for g, tf in text.items() if g in self.idf}
        norm = sqrt(sum(value**2 for value in bag.values()))
        return {gram: value / norm for gram, value in bag.items()}

    def scores(self, words: list[int]) -> tuple[list[float], bool]:
        """The scores of all candidates, and whether rounding can change the nearest queries."""
        bag = self.bag(grams(words, bigrams=self.config.bigrams))
        near = sorted(((-cosine(bag, d), row) for row, d in enumerate(self.queries)))
        k = self.config.neighbours
        unsure = 0 < k < len(near) and near[k][0] < 0 and near[k][0] - near[k - 1][0] < 1e-5
        total = sum(-value for value, _ in near[:k])
        scores = [0.0] * len(self.candidates)
        for value, row in near[:k]:
            for candidate in self.chosen[row]:
                scores[candidate] += -value / max(total, 1e-30)
        assert self.config.label_weight is not None
        for y, other in enumerate(self.candidates):
            scores[y] += self.config.label_weight * cosine(bag, other)
        if not any(scores):
            scores = self.train.candidate_counts().tolist()
        return scores, unsure


def cosine(a: Bag, b: Bag) -> float:
    return sum(value * b.get(gram, 0.0) for gram, value in a.items())


# ---------------------------------------------------------------------------------- the formula


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neighbours": 3, "label_weight": 1.0},
        {"neighbours": 5, "label_weight": 0.0, "bigrams": False},
        {"neighbours": 0, "label_weight": 0.25},
        {"neighbours": 1000},
    ],
)
def test_scores_match_the_formula(
    seed: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "MAX_BLOCK_QUERIES", 7)  # several blocks
    data = samples.random_data(seed)
    assert data.query_texts is not None
    reference, n = Reference(data, Config(**settings)), len(data.candidates)
    result = samples.search(fitted(data, **settings), data.query_texts, n, None)
    assert torch.equal(result.ids.sort(dim=1).values, torch.arange(n).expand(len(result.ids), -1))
    compared = 0
    for row, words in enumerate(samples.words_of(data.query_texts)):
        expected, unsure = reference.scores(words)
        if unsure:
            continue
        compared += 1
        wanted = torch.tensor(expected, dtype=torch.float32)[result.ids[row]]
        torch.testing.assert_close(result.scores[row], wanted, atol=1e-5, rtol=1e-5)
        assert bool((result.scores[row].diff() <= 0).all())
    assert compared > len(result.ids) / 2


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = samples.random_data(1)
    assert data.query_texts is not None
    model = fitted(data)
    whole = samples.search(model, data.query_texts, 12, data.split("train"))
    monkeypatch.setattr(neighbours, "BLOCK_BYTES", 1)  # a query at a time
    again = samples.search(model, data.query_texts, 5, data.split("train"))
    assert_same_ranking(again, whole)


def test_order_of_words_counts_only_with_bigrams() -> None:
    data = samples.data_of([[0, 1, 2], [2, 1, 0]], [[], []], [(0, 0), (1, 1)])
    queries = Texts(torch.tensor([0, 3]), torch.tensor([2, 1, 0]).int())
    with_pairs = samples.search(fitted(data), queries, 2, None)
    assert with_pairs.ids.tolist() == [[1, 0]]
    without = samples.search(fitted(data, bigrams=False), queries, 2, None)
    assert without.ids.tolist() == [[0, 1]]  # equal scores by ascending id
    assert without.scores[0, 0] == without.scores[0, 1]


def test_pairs_of_words_do_not_reach_into_the_next_text() -> None:
    """Word 1 ends a text and word 2 begins the next: no text has the pair 1 2."""
    data = samples.data_of([[0, 1], [2, 3]], [[], []], [(0, 0), (1, 1)])
    assert fitted(data).tensors["word_pairs"].tolist() == [0 * 4 + 1, 2 * 4 + 3]


def test_bags_keep_their_weights() -> None:
    """Cosines of given weights: (3, 4) with (1, 0) and (0, 1)."""
    weights = torch.tensor([2.0, 5.0])
    bags = Texts(torch.tensor([0, 1, 2]), torch.tensor([0, 1]).int(), weights)
    data = replace(samples.data_of([[0], [1]], [[], []], [(0, 0), (1, 1)]), query_texts=bags)
    queries = Texts(torch.tensor([0, 2]), torch.tensor([0, 1]).int(), torch.tensor([3.0, 4.0]))
    result = samples.search(fitted(data), queries, 2, None)
    assert result.ids.tolist() == [[1, 0]]
    torch.testing.assert_close(result.scores[0], torch.tensor([0.8, 0.6]) / 1.4)


# ---------------------------------------------------------------------------------- the odd cases


def test_excluded_candidates_are_not_returned_and_pads_follow() -> None:
    data = samples.random_data(2)
    samples.check_exclusions(data, partial(samples.search, fitted(data)))


def test_a_text_without_known_words_gets_the_most_popular() -> None:
    samples.check_unknown_words(fitted)


def test_unknown_words_do_not_change_scores() -> None:
    data = samples.data_of([[0, 1], [1, 2]], [[0], [2]], [(0, 0), (1, 1)], n_tokens=9)
    model = fitted(data)
    queries = Texts(torch.tensor([0, 1, 3]), torch.tensor([1, 1, 8]).int())
    scores = samples.search(model, queries, 2, None).scores
    torch.testing.assert_close(scores[0], scores[1])


def test_queries_without_pairs_are_ignored() -> None:
    texts, pairs = [[0, 1], [1, 2]], [(0, 0), (1, 1)]
    queries = Texts(torch.tensor([0, 2]), torch.tensor([0, 1]).int())
    without = samples.search(fitted(samples.data_of(texts, [[]] * 2, pairs)), queries, 2, None)
    more = samples.data_of([*texts, [0, 1]], [[]] * 2, pairs)
    result = samples.search(fitted(more), queries, 2, None)
    assert_same_ranking(result, without)


def test_candidates_without_texts_are_found_by_neighbours() -> None:
    data = replace(samples.random_data(3), candidate_texts=None)
    assert data.query_texts is not None
    model = fitted(data, neighbours=1)
    train = data.split("train")
    asking = train.counts().nonzero().flatten()
    written = asking[data.query_texts.counts()[asking] > 1]
    result = samples.search(model, data.query_texts.select(written), 1, None)
    best = result.ids[:, 0].tolist()
    hits = [y in train.select(row[None]).candidates for y, row in zip(best, written, strict=True)]
    assert sum(hits) > 0.9 * len(hits)  # its own text is nearest, except for a twin


def test_one_query_one_candidate() -> None:
    data = samples.data_of([[0]], [[]], [(0, 0)])
    assert data.query_texts is not None
    result = samples.search(fitted(data), data.query_texts, 5, None)
    assert result.ids.tolist() == [[0]]
    assert result.scores.tolist() == [[pytest.approx(1.0)]]
    none = Texts(torch.zeros(1).long(), torch.empty(0).int())
    assert samples.search(fitted(data), none, 5, None).ids.shape == (0, 1)


def test_data_without_texts_is_refused() -> None:
    data = replace(samples.random_data(0), query_texts=None)
    with pytest.raises(UserError, match="no texts of queries"):
        fitted(data)


def test_random_data_has_the_edge_cases() -> None:
    data = samples.random_data(0)
    assert data.query_texts is not None
    assert data.candidate_texts is not None
    assert not data.split("train").counts()[samples.UNLABELLED]
    assert not data.candidate_texts.counts()[samples.UNWRITTEN]
    assert bool((data.query_texts.counts() == 0).any())


# ---------------------------------------------------------------------------------- the choice


@pytest.mark.parametrize(("wanted", "weight"), [(0, 0.0), (1, 2.0)])
def test_the_label_weight_is_chosen_on_validation(wanted: int, weight: float) -> None:
    """The nearest queries chose candidate 0, with a share of 1; candidate 1 has a similar text.

    So 1 comes first where its weight is well above 1.
    """
    data = samples.data_of([[0, 1], [0, 1], [0, 1]], [[], [0, 1, 2]], [(0, 0), (1, 0)])
    judge = samples.TruthJudge(torch.tensor([2]), torch.tensor([wanted]), 2)
    model = fitted(data, judge, label_weight=None)
    assert model.config["label_weight"] == weight


def test_without_validation_the_label_weight_is_the_default() -> None:
    assert (
        fitted(samples.random_data(0), label_weight=None).config
        == fitted(samples.random_data(0)).config
    )


def test_texts_of_a_topic_get_its_candidate() -> None:
    data, queries, topics = samples.topics_data(0)
    result = samples.search(fitted(data), queries, 1, None)
    assert float((result.ids[:, 0] == topics).float().mean()) > 0.9
