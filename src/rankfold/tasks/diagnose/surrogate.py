"""The surrogate risk and the exact risk, as the spread of scores falls.

Figure 3 of [cba]: scores of positives are normal around .7, those of negatives around .3.
"""

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.losses.low_fpr import exact_risk, surrogate_risk
from rankfold.tasks.diagnose.result import CBA, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.settings import sigmas_of
from rankfold.types import Progress

_POSITIVE, _NEGATIVE = 0.7, 0.3  # means of the scores


class SurrogateConfig(Settings):
    scores: int = setting(1020, at_least=1, help="positive scores, and as many negative ones")
    fpr: float = setting(0.01, above=0, below=1, help="beta: the tolerated false-positive rate")
    sigmas: str = setting(
        "0.2,0.1,0.05,0.01", help="widths of the Gaussian, one per surrogate", check=sigmas_of
    )
    widest: float = setting(0.3, above=0, at_most=1e100, help="largest spread of the scores")
    spreads: int = setting(
        16, at_least=2, at_most=10_000, help="number of spreads, from the largest down to 0"
    )


def measure(config: SurrogateConfig, _subject: None, progress: Progress) -> DiagnosisResult:
    """Both risks for each spread; needs no data."""
    spreads = [config.widest * (1 - i / (config.spreads - 1)) for i in range(config.spreads)]
    sigmas = sigmas_of(config.sigmas)
    exact: list[float] = []
    surrogate: dict[str, list[float]] = {_label(sigma): [] for sigma in sigmas}
    for place, spread in enumerate(spreads):
        progress("surrogate: risks", place / len(spreads))
        scores, grades = normal_scores(config.scores, spread)
        exact.append(float(exact_risk(scores, grades > 0, config.fpr)))
        for sigma in sigmas:
            risk = surrogate_risk(scores, grades, 2, config.fpr, sigma)
            surrogate[_label(sigma)].append(float(risk))
    gaps = {
        sigma: max(abs(a - b) for a, b in zip(values, exact, strict=True))
        for sigma, values in surrogate.items()
    }
    figures = {f"largest gap to the exact risk, sigma {s}": g for s, g in gaps.items()}
    nearest = min(gaps, key=lambda sigma: gaps[sigma])
    follows = (
        f"Of these, sigma {nearest} is closest to the exact risk at a rate of {config.fpr:g}. A "
        "larger sigma also counts easier negatives: its risk is lower, its gradients steadier."
    )
    details = {"spreads": spreads, "exact": exact, "surrogate": surrogate}
    named = {"exact": exact, **{f"surrogate, sigma {s}": v for s, v in surrogate.items()}}
    lines = [Line.through(name, spreads, values) for name, values in named.items()]
    title = f"Exact and surrogate risk at a false-positive rate of {config.fpr:g}"
    chart = Chart(title, "spread s of the scores (standard deviation)", "risk (nats)", lines)
    return DiagnosisResult.of(figures, follows, details, {"surrogate": chart})


def _label(sigma: float) -> str:
    return f"{sigma:g}"


def normal_scores(n: int, spread: float) -> tuple[Tensor, Tensor]:
    """Scores of n positives and n negatives, and grades 1 and 0; [2 n] each.

    The scores are evenly spaced quantiles, so the curves have no randomness.
    """
    quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    scores = torch.cat([_POSITIVE + spread * quantiles, _NEGATIVE + spread * quantiles])
    return scores, torch.tensor([1, 0]).repeat_interleave(n)


DIAGNOSIS = Diagnosis("How close is the surrogate risk to the exact one?", CBA, measure)
