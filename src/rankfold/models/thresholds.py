"""Which results to return: a threshold on the score of each candidate.

A list has k results, whatever they are worth. A threshold says from which score on a candidate is
returned. The model keeps its lists of validation queries: from them come the thresholds of the
largest F1, and those that hold a precision.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.samplers.known_positives import hits
from rankfold.types import Interactions, Model, TopK

F1 = "f1"
_TENSORS = tuple(f"thresholds.{part}" for part in ("candidates", "scores", "right"))
_GOAL = re.compile(r"precision=((?:0|1)?\.?\d*)")
_PRIOR = 20.0  # positives of an average candidate that are added to those of each
_GRID = 256  # thresholds that are tried
_ROUNDING = 1e-6  # of the largest score: more than the rounding error of single precision
_BLOCK = 2**12  # candidates at a time


class Kept(NamedTuple):
    """Results of validation queries, and the positives that are not among them."""

    candidates: Tensor  # [R] int32
    scores: Tensor  # [R] float32, -inf for a positive that was not found
    right: Tensor  # [R] bool


def learn(lists: TopK, truth: Interactions) -> dict[str, Tensor]:
    """The tensors of a model, from its lists [B, K]; none without a right and a wrong result."""
    ids, scores = lists
    valid = ids >= 0
    right = hits(truth, torch.arange(len(ids)), ids.clamp(min=0))[valid]
    if len(right.unique()) < 2:
        return {}
    rows = torch.arange(len(ids))[:, None]
    found = (rows * truth.n_candidates + ids)[valid]
    missed = truth.candidates[~torch.isin(truth.codes(), found)]
    kept = Kept(
        torch.cat([ids[valid], missed]).int(),
        torch.cat([scores[valid], scores.new_full((len(missed),), -torch.inf)]),
        torch.cat([right, torch.ones(len(missed), dtype=torch.bool)]),
    )
    return dict(zip(_TENSORS, kept, strict=True))


def are_learnt(model: Model) -> bool:
    return _TENSORS[0] in model.tensors


def tensors_of(model: Model) -> dict[str, Tensor]:
    """What ``learn`` gave a model."""
    return {name: model.tensors[name] for name in _TENSORS if name in model.tensors}


def renumbered(tensors: Mapping[str, Tensor], places: Tensor, n: int) -> dict[str, Tensor]:
    """These tensors of a model whose candidate y becomes ``places[y]``; n: it is gone."""
    if _TENSORS[0] not in tensors:
        return {}
    candidates, scores, right = (tensors[name] for name in _TENSORS)
    candidates = places[candidates.long()]
    left = candidates < n
    kept = Kept(candidates[left].int(), scores[left], right[left])
    return dict(zip(_TENSORS, kept, strict=True))


def check_goal(goal: str) -> float | None:
    """The precision of a goal such as ``precision=.9``; None for ``f1``."""
    if goal == F1:
        return None
    match = _GOAL.fullmatch(goal.replace(" ", ""))
    try:
        precision = float(match[1]) if match else 0.0
    except ValueError:
        precision = 0.0
    if not 0 < precision <= 1:
        raise UserError(
            f"`thresholds` must be f1, or precision= a number up to 1, got {goal!r}",
            hint="f1 for the largest F1; precision=.9 for few wrong results",
        )
    return precision


def find(model: Model, goal: str, n: int) -> Tensor:
    """The thresholds of ``n`` candidates [N] for a goal: ``f1``, or such as ``precision=.9``.

    With r_y(t) the right results of candidate y from score t on, s_y(t) all of them and p_y its
    positives among the validation queries, and R(t), S(t), P the same over all candidates::

        f1:         t_y = argmax_t 2 (r_y + m R / P) / (s_y + m S / P + p_y + m)
        precision:  t_y = least t with (r_y + m R / S) / (s_y + m) >= precision

    A candidate without validation queries has the threshold of all candidates together, and one
    with many has its own: m = 20 positives of an average candidate stand between. Scores of right
    results are tried, at most 256. A threshold is inf where no score holds the precision.
    """
    precision = check_goal(goal)
    if not are_learnt(model):
        raise UserError(
            "this model has no thresholds",
            hint="fit a method for texts on data with validation pairs, in one process",
        )
    kept = Kept(*(model.tensors[name].cpu() for name in _TENSORS))
    grid = _grid(kept)
    ranks = torch.bucketize(kept.scores, grid, right=True)  # it passes so many of the grid
    of_all = _curves(torch.zeros_like(ranks), ranks, kept.right, (1, len(grid)))
    default = _chosen(of_all, of_all, grid, precision)
    if precision is not None and not bool(default.isfinite().any()):
        best = (of_all.right / of_all.returned.clamp(min=1)).max()
        raise UserError(
            f"no threshold holds a precision of {precision:g}: on validation the highest is "
            f"{float(best):.3g}",
            hint="give a lower precision, or f1",
        )
    thresholds = default.expand(n).clone()
    known, owners = kept.candidates.long().unique(return_inverse=True)
    owners, order = owners.sort()
    for start in range(0, len(known), _BLOCK):
        stop = min(start + _BLOCK, len(known))
        first, last = torch.searchsorted(owners, torch.tensor([start, stop])).tolist()
        some = order[first:last]
        shape = (stop - start, len(grid))
        own = _curves(owners[first:last] - start, ranks[some], kept.right[some], shape)
        thresholds[known[start:stop]] = _chosen(own, of_all, grid, precision)
    return thresholds


def passing(lists: TopK, thresholds: Tensor, known: Tensor | None = None) -> TopK:
    """The results that reach the thresholds of their candidates, -1 after the last; [B, K].

    Nothing passes where ``known`` [B] is false: the scores of a text without a known word are
    counts.
    """
    ids = lists.ids.cpu()
    passes = (lists.scores.cpu() >= thresholds[ids.clamp(min=0)]) & (ids >= 0)
    if known is not None:
        passes &= known[:, None]
    order = (~passes).sort(dim=1, stable=True).indices.to(lists.ids.device)
    passes = passes.to(lists.ids.device)
    ids, scores = torch.where(passes, lists.ids, -1), lists.scores.masked_fill(~passes, -torch.inf)
    return TopK(ids.gather(1, order), scores.gather(1, order))


class _Curves(NamedTuple):
    """Counts of some candidates' results from each threshold of the grid on; [n, G] float64."""

    right: Tensor
    returned: Tensor
    positives: Tensor  # [n, 1]


def _grid(kept: Kept) -> Tensor:
    """Thresholds to try, ascending: quantiles of the scores of right results, a little lower.

    Scores depend on the batch in their last digits: the result of a threshold's score must pass.
    """
    found: Tensor = kept.scores[kept.right & kept.scores.isfinite()].unique()
    if len(found) > _GRID:
        found = found[torch.linspace(0, len(found) - 1, _GRID).round().long()]
    return found - _ROUNDING * float(found.abs().max())


def _curves(owners: Tensor, ranks: Tensor, right: Tensor, shape: tuple[int, int]) -> _Curves:
    """Result i belongs to row ``owners[i]`` and passes the first ``ranks[i]`` thresholds."""
    n, size = shape[0], shape[1] + 1

    def from_each(places: Tensor) -> Tensor:
        counts = torch.bincount(places, minlength=n * size).view(n, size).double()
        return counts.flip(1).cumsum(1).flip(1)  # ranks of at least each column

    places = owners * size + ranks
    both, hit = from_each(places), from_each(places[right])
    return _Curves(hit[:, 1:], both[:, 1:], hit[:, :1])


def _chosen(own: _Curves, of_all: _Curves, grid: Tensor, precision: float | None) -> Tensor:
    """The threshold of each row by the formulas of ``find``; [n]."""
    if precision is None:
        added = [_PRIOR * count / of_all.positives for count in of_all[:2]]
        wanted = own.returned + added[1] + own.positives + _PRIOR
        best: Tensor = (2 * (own.right + added[0]) / wanted).argmax(dim=1)
        return grid.index_select(0, best)
    share = of_all.right / of_all.returned.clamp(min=1)
    holds = (own.right + _PRIOR * share) / (own.returned + _PRIOR) >= precision
    place = holds.int().argmax(dim=1)  # the first
    return torch.where(holds.any(dim=1), grid[place], torch.inf)
