"""Contributions to scores: exact sums for closed forms, falls of the score elsewhere."""

from typing import Any

import polars as pl
import pytest
from planted import groups, split_groups
from text_models import prepared

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.explain.ranking import Explanation

N = 60
EXACT: dict[str, dict[str, Any]] = {
    "rg2": {"width": 6},
    "rg2-plain": {"width": 6},
    "puresvd": {"width": 6},
    "ease": {},
    "blend": {"first": "puresvd", "second": "ease", "width": 6},
}


@pytest.fixture(scope="module", params=EXACT)
def model(request: pytest.FixtureRequest) -> rf.Ranker:
    return rf.fit(request.param, split_groups(), **EXACT[request.param])


def explained(model: rf.Ranker, **given: Any) -> dict[int, tuple[float, Explanation]]:
    """The score and its explanation, with all contributions, of every candidate."""
    ranking = model.search(**given, k=N, include_seen=True, explain=N)
    assert ranking.explanations is not None
    both = zip(ranking.scores[0].tolist(), ranking.explanations[0], strict=False)
    return dict(zip(ranking.keys[0], both, strict=True))


def test_contributions_sum_to_the_score(model: rf.Ranker) -> None:
    """What is left depends on the number of pairs only, not on which they are."""
    first, second = (explained(model, history=keys) for keys in ([0, 6, 12, 13], [1, 2, 9, 31]))
    scale = max(abs(score) for score, _ in first.values())
    for candidate, (score, one) in first.items():
        assert one.exact
        total = sum(part.score for part in one.contributions) + one.rest
        assert total == pytest.approx(score, abs=1e-6)
        assert one.rest == pytest.approx(second[candidate][1].rest, abs=1e-4 * scale)
        assert {part.key for part in one.contributions} <= {0, 6, 12, 13}
    assert max(len(one.contributions) for _, one in first.values()) == 4
    if model.model.method in ("ease", "blend", "puresvd"):
        assert all(abs(one.rest) < 1e-4 * scale for _, one in first.values())


def test_a_known_query_is_explained_by_its_pairs(model: rf.Ranker) -> None:
    ranking = model.search(5, k=3, explain=2)
    assert ranking.explanations is not None
    seen = set(model.seen.part(5, 6).candidates.tolist())
    for one in ranking.explanations[0]:
        assert len(one.contributions) == 2
        assert {part.key for part in one.contributions} <= seen
        first, second = (abs(part.score) for part in one.contributions)
        assert first >= second
    assert "because" in ranking.to_polars().columns
    assert str(ranking.explanations[0][0]) == ranking.to_polars()["because"][0]


def test_elsewhere_contributions_are_falls_of_the_score() -> None:
    model = rf.fit("ials", groups(), width=6, sweeps=3)
    history = [0, 6, 13]
    found = explained(model, history=history)
    whole, without = (
        [dict(zip(r.keys[0], r.scores[0].tolist(), strict=True)) for r in rankings]
        for rankings in (
            [model.search(history=history, k=N, include_seen=True)],
            [
                model.search(history=[y for y in history if y != out], k=N, include_seen=True)
                for out in history
            ],
        )
    )
    for candidate, (_, one) in found.items():
        assert not one.exact
        falls = {part.key: part.score for part in one.contributions}
        for out, scores in zip(history, without, strict=True):
            fall = whole[0][candidate] - scores[candidate]
            assert falls.get(out, 0.0) == pytest.approx(fall, abs=1e-5)


def test_words_of_texts_are_named() -> None:
    model = rf.fit("text-neighbours", prepared())
    ranking = model.search(text=["red apples", "zebra"], k=1, explain=True)
    assert ranking.explanations is not None
    (first,), (unknown,) = ranking.explanations
    assert {part.key for part in first.contributions} == {"red", "apples"}
    assert unknown.contributions == []
    known = model.search("d02", k=1, explain=True)
    assert known.explanations is not None
    assert "green" in {part.key for part in known.explanations[0][0].contributions}


def test_an_empty_history_has_no_contributions(model: rf.Ranker) -> None:
    ranking = model.search(history=[], k=1, explain=True)
    assert ranking.explanations is not None
    assert ranking.explanations[0][0].contributions == []


def test_what_has_no_explanation_is_refused() -> None:
    data = split_groups()
    with pytest.raises(UserError, match="similar candidates have no explanation"):
        rf.fit("puresvd", data, width=4).search(candidates=3, explain=True)
    bpr = rf.fit("bpr", data, width=4, epochs=1)
    with pytest.raises(UserError, match="bpr cannot explain"):
        bpr.search(3, explain=True)


def test_two_words_that_mean_the_same_share_their_part() -> None:
    texts, labels = ["red apples", "blue clouds", "green leaves"], ["a", "b", "c"]
    table = pl.DataFrame({"text": texts * 8, "label": labels * 8})
    data = rf.prepare(table, format="texts", text_column="text", candidate_column="label")
    model = rf.fit("text-neighbours", data)
    ranking = model.search(text="red apples", k=1, explain=True)
    (one,) = ranking.explanations[0]
    parts = {part.key: part.score for part in one.contributions}
    assert parts.keys() == {"red", "apples"}
    assert parts["red"] == pytest.approx(parts["apples"], rel=0.2)
    assert sum(parts.values()) + one.rest == pytest.approx(ranking.scores[0][0], rel=1e-5)
