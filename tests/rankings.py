"""Compare rankings that two computations of the same scores give: equal up to rounding."""

import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rankfold.models.ranking import Ranking
from rankfold.types import TopK

ROUNDING = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-10}


def assert_same_ranking(actual: TopK, expected: TopK, rtol: float = 1e-5) -> None:
    """Scores agree at every place, and ids wherever the expected scores differ by more than that.

    The tolerance of a row is ``rtol`` times its largest expected score, in absolute value. Places
    whose expected scores differ by no more than that are tied: they hold the same ids in any order.
    The ties of the last place may continue beyond the list, so any other id may be there.
    If ``expected`` has more columns than ``actual``, these show which ids those are.

    Padding, id -1 and score -inf, must be at the same places.
    """
    width = actual.ids.shape[1]
    assert actual.ids.shape == actual.scores.shape
    assert actual.ids.shape[0] == expected.ids.shape[0]
    assert width <= expected.ids.shape[1], f"{width} places, expected {expected.ids.shape[1]}"
    rows = (actual.ids, actual.scores, expected.ids, expected.scores)
    values = [t.detach().cpu().double() if t.is_floating_point() else t.cpu() for t in rows]
    for row, (ids, scores, right_ids, right_scores) in enumerate(zip(*values, strict=True)):
        _assert_same_row(row, (ids, scores), (right_ids, right_scores), rtol)


def assert_same_keys(actual: Ranking, expected: Ranking, rtol: float = 1e-5) -> None:
    """``assert_same_ranking`` of lists of keys."""
    keys = dict.fromkeys(
        key for ranking in (expected, actual) for row in ranking.keys for key in row
    )
    numbers = {key: number for number, key in enumerate(keys)}
    assert_same_ranking(*(_numbered(ranking, numbers) for ranking in (actual, expected)), rtol)


def ranking_of(rows: Sequence[Sequence[tuple[object, float]]]) -> Ranking:
    """A ranking from rows of keys and scores, best first."""
    scores = np.full((len(rows), max(map(len, rows), default=0)), -np.inf, dtype=np.float32)
    for row, pairs in enumerate(rows):
        scores[row, : len(pairs)] = [score for _, score in pairs]
    return Ranking([[key for key, _ in pairs] for pairs in rows], scores)  # type: ignore[misc]


def ranking_of_json(text: str) -> Ranking:
    """The ranking that ``rankfold search --json`` prints."""
    results = json.loads(text)["results"]
    return ranking_of([[(entry["candidate"], entry["score"]) for entry in results]])


def sorted_by(scores: Tensor, ids: Tensor | None = None) -> TopK:
    """All columns, or those of ``ids``, by descending score; -inf is padding."""
    best = scores.sort(dim=1, descending=True, stable=True)
    order = best.indices if ids is None else ids.gather(1, best.indices)
    return TopK(order.masked_fill(best.values == -torch.inf, -1), best.values)


def _assert_same_row(
    row: int, actual: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], rtol: float
) -> None:
    (ids, scores), (right_ids, right_scores) = actual, expected
    width, padding = len(ids), right_ids < 0
    real = ~padding[:width]
    where = f"row {row}: {ids.tolist()}, expected {right_ids.tolist()}"
    assert torch.equal(ids >= 0, real), f"padding of {where}"
    assert bool((scores[~real] == -torch.inf).all()), f"scores of padding in {where}"
    assert len(ids[real].unique()) == int(real.sum()), f"repeated ids in {where}"
    if not bool(real.any()):
        return
    tolerance = rtol * float(right_scores[~padding].abs().max())
    torch.testing.assert_close(
        scores[real],
        right_scores[:width][real],
        rtol=0,
        atol=tolerance,
        msg=lambda text: f"scores of {where}\n{text}",
    )
    ties = (right_scores[~padding].diff() < -tolerance).cumsum(0)
    ties = torch.cat([ties.new_zeros(1), ties]).tolist()  # the number of each place's tie
    tie_of = dict(zip(right_ids[~padding].tolist(), ties, strict=True))
    last = None if bool(padding.any()) else ties[-1]  # it may continue beyond the list
    for place, number in enumerate(ids[real].tolist()):
        assert tie_of.get(number, last) == ties[place], f"id {number} at place {place} of {where}"


def _numbered(ranking: Ranking, numbers: dict[object, int]) -> TopK:
    scores = torch.as_tensor(ranking.scores)
    ids = torch.full(scores.shape, -1)
    for row, keys in enumerate(ranking.keys):
        ids[row, : len(keys)] = torch.tensor([numbers[key] for key in keys], dtype=torch.int64)
    return TopK(ids, scores)
