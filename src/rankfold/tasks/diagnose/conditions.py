"""The conditions of Theorem 1 of [cba] at a fitted model's scores.

At a threshold with positives D+ and negatives D-, s_b the ceil(fpr |D-|)-th highest negative score,
p the Gaussian weights, l(x) = log(1 + e^-x) and l_ij = l(s_i - s_j), the surrogate risk R_p is at
most the exact risk R, and approaches it as the scores converge, if::

    (a) l is monotone and l'^2 - l'' l >= 0, which holds for this l everywhere
    (b) sum_j p_j s_j <= s_b
    (c) for some u in (0, 1), v = 1 - u, over the negatives j other than b
        (|D-| - 1) mean_ij(l_ij^(1/u))^u mean_j(p_j^(1/v))^v <= (1 - p_b) mean_i(l_ib)

(c) follows from Hoelder's inequality and is sufficient, not necessary: R_p <= R is also measured.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.losses.low_fpr import above, exact_ranks, rank_weights
from rankfold.models.grader import Grader
from rankfold.tasks.diagnose.figures import Figure, figure_of, spaced
from rankfold.tasks.diagnose.result import CBA, Chart, Diagnosis, DiagnosisResult, Level, Line
from rankfold.tasks.diagnose.subject import DiagnosedModel
from rankfold.tasks.significance import resampled
from rankfold.types import Graded, Progress

_EXPONENTS = [i / 40 for i in range(1, 40)]  # u
_SAMPLES = 1000  # of a bootstrap
_BLOCK = 2**22  # pairs in memory at a time


class ConditionsConfig(Settings):
    rows: int = setting(2000, at_least=2, help="rows of the split, drawn by the seed")
    rate: float = setting(0.01, above=0, below=1, help="beta: the tolerated false-positive rate")
    narrowest: float = setting(0.005, above=0, help="smallest sigma")
    widest: float = setting(0.5, above=0, help="largest sigma")
    sigmas: int = setting(12, at_least=2, at_most=1000, help="sigmas between the two")


class Checked(NamedTuple):
    """The conditions at a threshold."""

    mean_score: float  # the left side of (b) less the right
    left: float  # of (c), at the u where it is least
    right: float  # of (c)
    surrogate: Tensor  # of R_p, per positive [n]
    exact: Tensor  # of R, per positive [n]


def measure(
    config: ConditionsConfig, subject: DiagnosedModel, progress: Progress
) -> DiagnosisResult:
    """Both sides of every condition, by sigma, over thresholds."""
    assert isinstance(subject.model, Grader)
    name, rows = _rows(subject)
    known = (rows.grades >= 0).nonzero().flatten()
    rng = torch.Generator().manual_seed(subject.seed)
    known = known[torch.randperm(len(known), generator=rng)[: config.rows]]
    rows = rows.select(known)
    scores = subject.model.score(rows).double().cpu()
    positive = above(rows.grades, len(subject.data.candidates)).cpu()
    usable = [side for side in positive if bool(side.any()) and int((~side).sum()) > 1]
    if not usable:
        raise UserError(
            f"the {name} rows have no threshold with positives and two negatives",
            hint="set more rows, or use data with several grades",
        )
    sigmas = spaced(config.narrowest, config.widest, config.sigmas)
    checked: dict[float, list[Checked]] = {}
    for place, sigma in enumerate(sigmas):
        progress("conditions: sigma", place / len(sigmas))
        checked[sigma] = [check_threshold(scores, side, config.rate, sigma) for side in usable]
    return _result(config.rate, name, checked)


def check_threshold(scores: Tensor, positive: Tensor, rate: float, sigma: float) -> Checked:
    """The conditions for scores [n] and which rows are positive [n]."""
    negatives = scores[~positive].sort(descending=True).values
    n = len(negatives)
    place = max(1, -(-round(rate * n * 1e9) // 10**9)) - 1  # ceil, but not of rounding
    ranks = exact_ranks(scores, ~positive)[~positive].sort().values  # as the negatives: 0 first
    p = rank_weights(ranks[None], torch.ones(1, n, dtype=torch.bool), rate, sigma)[0]
    cut = negatives[place]
    others = torch.arange(n) != place
    own = scores[positive]
    surrogate, exact = _weighted_losses(own, negatives, p), softplus(cut - own)
    left = min(_left_sides(own, negatives[others], p[others]))
    right = float((1 - p[place]) * exact.mean())
    return Checked(float(p @ negatives - cut), left, right, surrogate, exact)


def _weighted_losses(own: Tensor, negatives: Tensor, p: Tensor) -> Tensor:
    """sum_j p_j l_ij of each positive, in blocks; [n]."""
    step = max(1, _BLOCK // len(negatives))
    blocks = [softplus(negatives[None] - some[:, None]) @ p for some in own.split(step)]
    return torch.cat(blocks)


def _left_sides(own: Tensor, negatives: Tensor, p: Tensor) -> list[float]:
    """The left side of (c) for every u; powers are taken as logarithms."""
    step = max(1, _BLOCK // len(negatives))
    sums: list[list[Tensor]] = [[] for _ in _EXPONENTS]
    for some in own.split(step):
        logs = softplus(negatives[None] - some[:, None]).clamp(min=1e-300).log()
        for u, parts in zip(_EXPONENTS, sums, strict=True):
            parts.append((logs / u).logsumexp(dim=(0, 1)))
    log_p, log_n = p.clamp(min=1e-300).log(), math.log(len(negatives))
    log_pairs = math.log(len(own) * len(negatives))
    result = []
    for u, parts in zip(_EXPONENTS, sums, strict=True):
        of_losses = u * (torch.stack(parts).logsumexp(dim=0) - log_pairs)
        of_weights = (1 - u) * ((log_p / (1 - u)).logsumexp(dim=0) - log_n)
        result.append(float((log_n + of_losses + of_weights).exp()))
    return result


def _rows(subject: DiagnosedModel) -> tuple[str, Graded]:
    for name, part in (("test", subject.data.test), ("validation", subject.data.validation)):
        if isinstance(part, Graded):
            return name, part
    return "train", subject.data.graded("train")


def ratio_of(checked: Sequence[Checked]) -> Figure:
    """R_p / R, the mean over thresholds; a bootstrap over positives."""
    draws = []
    for one in checked:
        parts = [
            (times.double() @ one.surrogate) / (times.double() @ one.exact).clamp(min=1e-300)
            for times in resampled(len(one.exact), _SAMPLES, seed=0)
        ]
        draws.append(torch.cat(parts))
    value = sum(float(one.surrogate.sum() / one.exact.sum()) for one in checked) / len(checked)
    return figure_of(value, torch.stack(draws).mean(dim=0))


def _result(rate: float, split: str, checked: dict[float, list[Checked]]) -> DiagnosisResult:
    ratios = {sigma: ratio_of(every) for sigma, every in checked.items()}
    holder = {
        s: max(one.left / max(one.right, 1e-300) for one in every) for s, every in checked.items()
    }
    means = {s: max(one.mean_score for one in every) for s, every in checked.items()}
    spread = {s: means[s] <= 1e-12 for s in checked}
    holds = {s: holder[s] <= 1 for s in checked}
    below = {
        s: all(one.surrogate.mean() <= one.exact.mean() + 1e-12 for one in every)
        for s, every in checked.items()
    }
    middle = list(checked)[len(checked) // 2]
    figures = {
        f"surrogate over exact risk at sigma {middle:.3g}": ratios[middle],
        "share of sigmas where (b) holds at every threshold": _share(spread),
        "share of sigmas where (c) holds at every threshold": _share(holds),
        "share of sigmas where the surrogate is at most the exact risk": _share(below),
        "left over right side of (c), the least of all sigmas": min(holder.values()),
    }
    named = [f"{s:.3g}" for s in checked if below[s]]
    condition = "(c) holds for some sigmas" if any(holds.values()) else "(c) holds for no sigma"
    follows = f"On {split} rows at a rate of {rate:g} {condition}. " + (
        f"The surrogate is at most the exact risk for sigma {named[0]} to {named[-1]}, whether "
        "or not the theorem says so: there it is a lower bound that training can follow."
        if named
        else "The surrogate is above the exact risk: the loss looks at harder negatives than "
        "the rate asks for; try a larger sigma."
    )
    details = {
        "split": split,
        "sigmas": list(checked),
        "weighted_score_less_cut": list(means.values()),
        "holder_left_over_right": list(holder.values()),
        "surrogate_over_exact": [one.value for one in ratios.values()],
    }
    points = [(sigma, *_known(one)) for sigma, one in ratios.items()]
    ratio, equal = [Line("surrogate / exact", points)], [Level("equal", 1.0)]
    sides, one = [Line("left / right", list(holder.items()))], [Level("holds below", 1.0)]
    title = f"Surrogate over exact risk at a rate of {rate:g}"
    worst = "Condition (c): left over right side, the worst threshold"
    charts = {
        "conditions": Chart(title, "sigma", "ratio of the risks", ratio, equal, log="x"),
        "conditions-holder": Chart(
            worst, "sigma", "ratio, at most 1 if it holds", sides, one, log="xy"
        ),
    }
    return DiagnosisResult.of(figures, follows, details, charts)


def _share(flags: dict[float, bool]) -> float:
    return sum(flags.values()) / len(flags)


def _known(figure: Figure) -> tuple[float, ...]:
    return tuple(one for one in figure if one is not None)


DIAGNOSIS = Diagnosis("Do the conditions of Theorem 1 hold for this model's scores?", CBA, measure)
