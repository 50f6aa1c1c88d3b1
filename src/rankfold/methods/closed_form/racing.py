"""Compare many points on the validation queries, on more queries the fewer are left.

All points are measured on a sample. Those that may still be better than the best by more than
``MIN_GAIN`` are measured on equally many further queries, then on twice as many, and so on. The
remaining points cannot be distinguished; each has a weight by its distance from the best.

Few queries say little, so that the best of many points is best by chance. Before any query a point
is expected to lose ``STEP_LOSS`` of the score for each step from the defaults, give or take
``SPREAD``. A lead with the standard error e then counts as (Bayes, both normal)::

    lead + e^2 STEP_LOSS / (SPREAD^2 score) (steps of the point - steps of the best)
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset, sum_over_ranks
from rankfold.kernels.topk import top_k
from rankfold.solvers.path import PathPoint
from rankfold.solvers.progress import Work
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions, Judge, Model

STAGES = (1, 1, 2, 4, 8)  # times the sample
MAX_ERRORS = 2.0  # standard errors by which a difference may be wrong
MIN_GAIN = 0.003  # relative to the best score: the smallest improvement of interest
STEP_LOSS, SPREAD = 0.02, 0.2  # of a point before it is measured, relative to the best score

_TINY, _MAX_DISTANCE = 1e-12, 50.0  # of a standard error; of a point from the best

P = TypeVar("P")


class RacingStage(NamedTuple):
    """Queries to rank, and those of them that this process judges."""

    queries: Tensor  # of this process, rows of the data
    seen: Interactions  # candidates that may not be returned, for all queries to rank
    own: slice  # the places of this process's queries among these


def stages(judge: Judge, n: int, comm: Comm, shards: Shards | None) -> Iterator[RacingStage]:
    """About n of the queries, evenly spread, then more of the rest."""
    rest = judge.queries
    for times in STAGES:
        queries = evenly(rest, times * n, comm)
        if sum_over_ranks(len(queries), comm) == 0:
            return
        rest = rest[~torch.isin(rest, queries)]
        seen, first = judge.hidden(queries), 0
        if shards is not None:  # every process ranks the queries of all processes
            seen, (first, _) = shards.seen(seen), row_offset(len(queries), comm)
        yield RacingStage(queries, seen, slice(first, first + len(queries)))


def histories_of(
    stages: Iterable[RacingStage], rows: Interactions, given: Interactions | None
) -> list[Interactions]:
    """The histories of the queries of each stage. ``given`` are those that are not in ``rows``."""
    known, device = rows if given is None else given, rows.offsets.device
    return [known.select(one.queries.to(known.offsets.device)).to(device) for one in stages]


def race(
    points: Iterable[P],
    values: dict[P, list[Tensor]],
    measure: Callable[[list[P], int], dict[P, Tensor]],
    n_stages: int,
    steps: Callable[[P], float] = lambda _: 0.0,
) -> Work[dict[P, float]]:
    """The points that may be the best, best first, with their weights.

    A weight is exp(-z), where z is the lead of the best in standard errors: 1 for the best.

    Args:
        points: at least one.
        values: the metric's values of each point in its stages so far. New ones are added.
        measure: gives the values of some points in a stage.
        n_stages: the largest number of stages.
        steps: of a point from the defaults.
    """
    left = list(points)
    for stage in range(n_stages):
        missing = [point for point in left if len(values.get(point, [])) <= stage]
        for point, measured in measure(missing, stage).items() if missing else ():
            values.setdefault(point, []).append(measured)
        known = {point: torch.cat(values[point][: stage + 1]) for point in left}
        best = max(left, key=lambda point: mean(known[point])[0])
        score = mean(known[best])[0]
        leads = {point: mean(known[best] - known[point]) for point in left}
        gains = {point: MAX_ERRORS * error - lead for point, (lead, error) in leads.items()}
        left = [point for point in left if point == best or gains[point] > MIN_GAIN * score]
        if len(left) == 1:
            break
        yield sum(STAGES[: stage + 1]) / sum(STAGES[:n_stages])
    factor = STEP_LOSS / max(SPREAD**2 * score, _TINY)
    expected = {
        point: leads[point][0] + factor * leads[point][1] ** 2 * (steps(point) - steps(best))
        for point in left
    }
    left.sort(key=expected.__getitem__)
    first = left[0]
    errors = {point: max(leads[point][1], leads[first][1], _TINY) for point in left}
    distances = {point: (expected[point] - expected[first]) / errors[point] for point in left}
    return {point: math.exp(-min(z, _MAX_DISTANCE)) for point, z in distances.items()}


def choose(
    points: Iterable[P],
    values: dict[P, list[Tensor]],
    measure: Callable[[list[P], int], dict[P, Tensor]],
    n_stages: int,
    middle_of: Callable[[dict[P, float]], P],
    steps: Callable[[P], float] = lambda _: 0.0,
    most_errors: float = 1.0,
) -> Work[P]:
    """The mean of the points that may be the best, or the best if it is clearly better.

    It is if it leads by more than ``most_errors`` standard errors. Other arguments as of ``race``.
    """
    weights = yield from race(points, values, measure, n_stages, steps)
    best, middle = next(iter(weights)), middle_of(weights)
    for stage in range(len(values.get(middle, [])), len(values[best])):
        values.setdefault(middle, []).append(measure([middle], stage)[middle])
    lead, error = mean(torch.cat(values[best]) - torch.cat(values[middle]))
    return best if lead > most_errors * error else middle


def measure_scores(
    judge: Judge,
    stage: RacingStage,
    points: Sequence[P],
    most: int,
    scores: Callable[[Sequence[P], slice], Iterable[tuple[P, Tensor]]],
) -> dict[P, Tensor]:
    """The metric at some points for the queries of a stage, at most ``most`` at a time.

    ``scores`` gives the scores of all candidates [B, N] at each point for some places in the stage.
    It may reuse their memory.
    """
    ids: dict[P, list[Tensor]] = {point: [] for point in points}
    for start in range(0, len(stage.queries), most):
        own = slice(start, min(start + most, len(stage.queries)))
        hidden = stage.seen.part(own.start, own.stop)
        places = hidden.query_of_pair().long(), hidden.candidates.long()
        for point, block in scores(points, own):
            block[places] = -torch.inf
            ids[point].append(top_k(block, min(judge.depth, block.shape[1])).ids)
    return {point: judge.values(stage.queries, torch.cat(parts)) for point, parts in ids.items()}


def mean(values: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    spread = float(values.double().std()) if len(values) > 1 else 0.0
    return float(values.double().mean()), spread / len(values) ** 0.5


def blend(weights: Mapping[PathPoint, float]) -> PathPoint:
    """The weighted mean of the points like the best: of its exponents and rank, with its parts.

    Points that cannot be distinguished differ by chance. Their mean is as good, and steadier.
    """
    best = next(iter(weights))
    own = {
        point: weight
        for point, weight in weights.items()
        if point[:2] == best[:2]
        and (point.tail_weight > 0) == (best.tail_weight > 0)
        and (point.popularity > 0) == (best.popularity > 0)
    }
    total = sum(own.values())

    def mean_of(value: Callable[[PathPoint], float]) -> float:
        known = {value(point) for point in own}
        if len(known) == 1:
            return known.pop()
        return round(sum(weight * value(point) for point, weight in own.items()) / total, 3)

    threshold, discount = mean_of(lambda p: p.threshold), mean_of(lambda p: p.discount)
    tail = popularity = 0.0
    if best.tail_weight > 0:
        tail = round(math.exp(mean_of(lambda point: math.log(point.tail_weight))), 3)
    if best.popularity > 0:
        popularity = round(math.exp(mean_of(lambda point: math.log(point.popularity))), 3)
    return PathPoint(best.place, best.rank, threshold, discount, tail, popularity)


def choice_notes(
    values: Mapping[P, list[Tensor]], chosen: P, settings_of: Callable[[P], Mapping[str, Any]]
) -> dict[str, Any]:
    """Notes on a choice: each point with its score on all queries it was measured on."""
    scores = {point: mean(torch.cat(own)) for point, own in values.items()}
    points = [
        {**settings_of(point), "score": score, "error": error}
        for point, (score, error) in scores.items()
    ]
    score = scores[chosen][0]
    by_step = [{"step": 1, "score": score}]
    return {"chosen_by": "validation", "points": points, "score": score, "scores": by_step}


def describe_choice(model: Model, names: Sequence[str], tried: str = "points") -> str | None:
    """The selected point in words. ``tried``: the note that lists all points."""
    if "chosen_by" not in model.notes:
        return None
    point = ", ".join(f"{name} {model.config[name]:g}" for name in names)
    points = f" from {len(model.notes[tried])} points" if tried in model.notes else ""
    return f"chosen by {model.notes['chosen_by']}{points}: {point}"


def evenly(queries: Tensor, n: int, comm: Comm) -> Tensor:
    """The share of this process in about n queries, evenly spread over all processes."""
    before, total = row_offset(len(queries), comm)
    step = max(1, total // n)
    return queries[(step // 2 - before) % step :: step]
