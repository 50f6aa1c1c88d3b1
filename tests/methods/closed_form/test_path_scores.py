"""Shortlists: what joins them, and that decompositions share them."""

from typing import Any

import pytest
import torch
from planted import split_groups

from rankfold.distributed.collectives import SingleProcess
from rankfold.methods.closed_form.path_scores import PathScores
from rankfold.methods.closed_form.path_search import PathSearch
from rankfold.methods.closed_form.rg2 import Config
from rankfold.metrics import parse
from rankfold.tasks.fit.run import ValidationJudge
from rankfold.types import Run


@pytest.fixture
def search() -> PathSearch:
    data = split_groups()
    truth = data.split("validation")
    queries = torch.nonzero(truth.counts()).flatten()
    judge = ValidationJudge(queries, truth, data.seen("validation"), parse("ndcg@10"))
    run = Run(torch.Generator(), torch.device("cpu"), SingleProcess(), judge=judge)
    return PathSearch(data.split("train"), Config(width=12), run)


def take(search: PathSearch, place: int) -> None:
    *_, last = search.passes(place, None)
    search.take(place, last)


def test_the_most_popular_unseen_candidates_join_the_shortlists(
    search: PathSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PathScores, "length", 4)
    _, seen = search.scores.block(0, 0)
    found = search.scores.popular(seen)
    order = sorted(range(len(search.counts)), key=lambda one: (-float(search.counts[one]), one))
    for query in range(seen.n_queries):
        own = set(seen.part(query, query + 1).candidates.tolist())
        assert found[query].tolist() == [one for one in order if one not in own][:4]


def test_where_nearly_all_is_seen_the_rest_is_padding(
    search: PathSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PathScores, "length", 60)
    _, seen = search.scores.block(0, 0)
    for ids, n in zip(search.scores.popular(seen), seen.counts().tolist(), strict=True):
        assert int((ids >= 0).sum()) == 60 - n


def test_decompositions_share_the_shortlists(
    search: PathSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made once for each block of queries; the scores of each are its own."""
    made: list[tuple[int, int]] = []
    plain = PathScores.shortlist

    def shortlist(scores: PathScores, place: int, stage: int, start: int) -> Any:
        made.extend([] if (stage, start) in scores.lists else [(stage, start)])
        return plain(scores, place, stage, start)

    monkeypatch.setattr(PathScores, "shortlist", shortlist)
    take(search, 2)
    before = len(made)
    take(search, 3)
    assert before == len(made) == len(set(made)) == len(search.scores.lists) > 0
    one, other = (search.scores.factors[place, *made[0]] for place in (2, 3))
    assert not torch.allclose(one[12], other[12])
