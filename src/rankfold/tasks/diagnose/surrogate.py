"""What the surrogate costs, against the risk that it stands for, as scores come to agree.

Figure 3 of [cba]: scores of positives are normal around .7, those of negatives around .3.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.losses.low_fpr import exact_risk, surrogate_risk
from rankfold.metrics.graded import check_fpr
from rankfold.tasks.diagnose.finding import Chart, Finding, Line, rounded
from rankfold.types import Progress

POSITIVE, NEGATIVE = 0.7, 0.3  # means of the scores
MOST_SPREADS = 10_000  # more than a picture shows
WIDEST = 1e100  # far beyond it, scores that differ by more than a number can say


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateConfig:
    """Which scores, and which surrogates."""

    scores: int = 1020  # of each side; with a rate of .01 both risks are about the eleventh
    fpr: float = 0.01  # beta: the false-positive rate that is tolerated
    sigmas: str = "0.2,0.1,0.05,0.01"  # of the Gaussian around it, a surrogate each
    widest: float = 0.3  # the spread s to begin with
    spreads: int = 16  # how many, down to 0 in even steps

    def __post_init__(self) -> None:
        check_fpr(self.fpr)
        if self.scores < 1:
            raise UserError(f"scores is {self.scores}", hint="it is at least 1")
        if not 2 <= self.spreads <= MOST_SPREADS:
            raise UserError(f"spreads is {self.spreads}", hint=f"it is 2 to {MOST_SPREADS:,}")
        if not 0 < self.widest <= WIDEST:
            raise UserError(f"widest is {self.widest}", hint=f"it is more than 0, up to {WIDEST:g}")
        self.sigma_values()

    def sigma_values(self) -> list[float]:
        try:
            found = [float(word) for word in self.sigmas.split(",")]
        except ValueError:
            found = []
        if not found or not all(0 < value < float("inf") for value in found):
            raise UserError(
                f"sigmas cannot be {self.sigmas!r}", hint="numbers above 0, as in 0.1,0.05"
            )
        twice = [name for name, times in Counter(map(_label, found)).items() if times > 1]
        if twice:
            raise UserError(
                f"sigmas {self.sigmas!r} has {twice[0]} more than once, to six digits",
                hint="give each surrogate a sigma of its own",
            )
        return found


def find(config: SurrogateConfig, _fit: None, progress: Progress) -> Finding:
    """Both risks for each spread; no data is needed."""
    spreads = [config.widest * (1 - i / (config.spreads - 1)) for i in range(config.spreads)]
    sigmas = config.sigma_values()
    exact: list[float] = []
    surrogate: dict[str, list[float]] = {_label(sigma): [] for sigma in sigmas}
    for place, spread in enumerate(spreads):
        progress("surrogate: risks", place / len(spreads))
        scores, grades = normal_scores(config.scores, spread)
        exact.append(rounded(float(exact_risk(scores, grades > 0, config.fpr))))
        for sigma in sigmas:
            risk = surrogate_risk(scores, grades, 2, config.fpr, sigma)
            surrogate[_label(sigma)].append(rounded(float(risk)))
    gaps = {
        sigma: max(abs(a - b) for a, b in zip(values, exact, strict=True))
        for sigma, values in surrogate.items()
    }
    summary = {f"largest gap to the exact risk, sigma {s}": rounded(g) for s, g in gaps.items()}
    details = {
        "settings": asdict(config),
        "spreads": [rounded(spread) for spread in spreads],
        "exact": exact,
        "surrogate": surrogate,
    }
    named = {"exact": exact, **{f"surrogate, sigma {s}": v for s, v in surrogate.items()}}
    lines = [Line(n, list(zip(spreads, values, strict=True))) for n, values in named.items()]
    title = f"Exact and surrogate risk at a false-positive rate of {config.fpr:g}"
    chart = Chart(title, "spread s of the scores (standard deviation)", "risk (nats)", lines)
    return Finding(summary, details, {"surrogate": chart})


def _label(sigma: float) -> str:
    return f"{sigma:g}"


def normal_scores(n: int, spread: float) -> tuple[Tensor, Tensor]:
    """Scores of n positives and n negatives, and grades 1 and 0; [2 n] each.

    Evenly spaced quantiles in the place of draws: there is no chance in the curves.
    """
    quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    scores = torch.cat([POSITIVE + spread * quantiles, NEGATIVE + spread * quantiles])
    return scores, torch.tensor([1, 0]).repeat_interleave(n)
