"""Whether ranks wander in training as white noise does: Assumption 1 of [cba], tested.

The weights of negatives, Gaussian around the tolerated rate, are derived from it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.losses.low_fpr import above, exact_ranks
from rankfold.methods.ordinal.cba import score_weights
from rankfold.methods.ordinal.training import FitContext, GradedBatch, batches_of
from rankfold.samplers.rank_cache import RankCache
from rankfold.tasks.diagnose.finding import Chart, Finding, Level, Line, rounded
from rankfold.tasks.diagnose.observer import Fit, Look, encode, watch
from rankfold.types import Progress

LEVEL = 0.05  # below it noise is hard to believe in


@dataclass(frozen=True, slots=True, kw_only=True)
class WhitenessConfig:
    """Whose ranks, and what counts as a short time."""

    rows: int = 1000  # training rows whose mean rank is followed, drawn by the seed
    others: int = 2000  # training rows, likewise, whose negatives they are ranked among
    stride: int = 1  # steps of training that make an increment
    window: int = 100  # n: increments that are tested together
    every: int = 10  # increments between the starts of two windows
    lags: int = 10  # m: autocorrelations that are tested together

    def __post_init__(self) -> None:
        for name in ("rows", "others", "stride", "every", "lags"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is at least 1")
        if self.window <= self.lags:
            raise UserError(
                f"window is {self.window}, lags is {self.lags}", hint="window is the larger one"
            )


def find(config: WhitenessConfig, fit: Fit, progress: Progress) -> Finding:
    """Train, and test the increments d(t) = R(t + stride) - R(t) of the mean rank R."""
    steps = len(batches_of(fit.n_rows, fit.config)) * fit.config.epochs
    if steps // config.stride < config.window:
        raise UserError(
            f"training makes {steps // config.stride} increments, fewer than a window of "
            f"{config.window}",
            hint="set a smaller window or stride, more epochs or a smaller batch_size",
        )
    rows, others = fit.sample(config.rows, "followed rows"), fit.sample(config.others, "others")
    trained: list[FitContext] = []
    means: list[Tensor] = []
    places = iter(range(steps))

    def begin(parts: FitContext, _queues: RankCache, _first: Tensor) -> Look:
        def look(_seen: GradedBatch) -> None:
            if next(places) % config.stride == 0:
                means.append(mean_rank(parts, rows, others))

        trained.append(parts)
        return look

    for step in watch(fit, begin):
        progress(f"whiteness: epoch {step.number}", step.share or 0.0)
    if steps % config.stride == 0:
        means.append(mean_rank(trained[0], rows, others))
    return _finding(config, torch.stack(means).cpu().diff())


def mean_rank(parts: FitContext, rows: Tensor, others: Tensor) -> Tensor:
    """The mean over rows and thresholds of R(x), among the negatives of ``others``; a scalar."""
    both = torch.cat([rows, others])
    scores = encode(parts, both) @ score_weights(parts).double()
    negative = ~above(parts.rows.grades[both], parts.n_grades)
    negative[:, : len(rows)] = False
    ranks = torch.stack([exact_ranks(scores, side)[: len(rows)] for side in negative])
    return ranks.mean()


def box_pierce(series: Tensor, lags: int) -> tuple[Tensor, Tensor]:
    """The test statistic and p-value of white noise; [cba], Eq. 33.

    With n the length, m the lags::

        chi2 = n sum_{k=1..m} rho_k^2,    p = P(chi-square with m degrees of freedom > chi2)

    Args:
        series: [..., n].
        lags: m, below n.

    Returns [...] each. A series that stands still has chi2 = 0 and p = 1.
    """
    chi2 = series.shape[-1] * (autocorrelations(series, lags) ** 2).sum(dim=-1)
    return chi2, torch.special.gammaincc(torch.full_like(chi2, lags / 2), chi2 / 2)


def autocorrelations(series: Tensor, lags: int) -> Tensor:
    """rho_k = sum_{t > k} c_t c_{t-k} / sum_t c_t^2, c the series less its mean; [..., lags].

    0 for a series that stands still.
    """
    centred = series.double() - series.double().mean(dim=-1, keepdim=True)
    power = (centred**2).sum(dim=-1)
    products = [(centred[..., k:] * centred[..., :-k]).sum(dim=-1) for k in range(1, lags + 1)]
    return torch.stack(products, dim=-1) / torch.where(power > 0, power, 1.0).unsqueeze(-1)


def _finding(config: WhitenessConfig, increments: Tensor) -> Finding:
    series = increments.unfold(0, config.window, config.every)
    chi2, p = box_pierce(series, config.lags)
    ends = config.window + config.every * torch.arange(len(p))
    late = 3 * ends > 2 * len(increments)  # those that end in the last third
    late[-1] = True
    rho = autocorrelations(series[late], config.lags).mean(dim=0)
    columns = zip((config.stride * ends).tolist(), chi2.tolist(), p.tolist(), strict=True)
    windows = [{"step": step, "chi2": rounded(a), "p": rounded(b)} for step, a, b in columns]
    white = (p > LEVEL).double()
    summary = {
        f"share of windows with p > {LEVEL:g}": rounded(float(white.mean())),
        "the same in the last third of training": rounded(float(white[late].mean())),
        "autocorrelation at lag 1 there, mean": rounded(float(rho[0])),
    }
    details = {
        "settings": asdict(config),
        "late_autocorrelations": [rounded(value) for value in rho.tolist()],
        "windows": windows,
        "increments": [rounded(value) for value in increments.tolist()],
    }
    span = "" if config.stride == 1 else f" of {config.stride} steps"
    chart = Chart(
        f"Could the increments{span} of the mean rank be white noise? (Box-Pierce)",
        "optimisation steps, at the end of a window",
        "p-value (low: no white noise)",
        [Line(f"{config.window} increments, {config.lags} lags", _points(windows), "dots")],
        [Level(f"p = {LEVEL:g}", LEVEL)],
        ends=(0.0, 1.0),
    )
    return Finding(summary, details, {"whiteness": chart})


def _points(windows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    return [(entry["step"], entry["p"]) for entry in windows]
