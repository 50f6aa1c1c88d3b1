"""How far ranks move in training, against the random walk of Proposition 1 of [cba].

The proposition takes a rank for a particle that moves by ds with probability p per step of dt, and
gives its place after a time T as normal, with ds^2 = beta dt::

    variance = p beta T,  which for steps dt = 1 is T mean(d^2)

d being the change in one step. beta is a constant of diffusion, not the false-positive rate.

Departs from the paper: it prints p beta T / 2.

The ranks of some training rows are taken at every step of the second half of training. A random
walk has a variance that grows as T: exponent 1. Below, ranks return to where they were; above, they
keep moving one way.
"""

import math

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.tasks.diagnose.figures import figure_of
from rankfold.tasks.diagnose.result import CBA, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.training import DiagnosedTraining, sigma_of, track_ranks
from rankfold.tasks.significance import resampled
from rankfold.types import Progress

_SAMPLES = 1000  # of a bootstrap
_LEAST = 8  # increments of a row at the longest time


class PropositionConfig(Settings):
    rows: int = setting(100, at_least=2, help="training rows whose ranks are followed")
    others: int = setting(400, at_least=1, help="training rows to rank them among")


def measure(
    config: PropositionConfig, training: DiagnosedTraining, progress: Progress
) -> DiagnosisResult:
    """Train, and compare the variance of increments with that of a random walk."""
    steps = training.n_steps
    if steps < 2 * _LEAST:
        raise UserError(
            f"training has {steps} steps, and {2 * _LEAST} are needed",
            hint="set more epochs or a smaller batch_size",
        )
    trained, paths = track_ranks(
        training,
        (config.rows, config.others),
        lambda ranks: ranks[-1],  # at the highest threshold
        lambda step: step >= steps // 2,  # the theory is not about an untrained model
        lambda step: progress(f"proposition: epoch {step.number}", step.share or 0.0),
    )
    per_step = training.n_rows * training.n_epochs / steps
    age = training.config.cache * trained.n_grades / per_step
    return _result(paths, sigma_of(trained), age)


def variances(paths: Tensor, spans: list[int]) -> tuple[Tensor, Tensor]:
    """Mean squared increments of each row over T steps, and those of a random walk.

    ``paths`` [S, n] are ranks by step. A random walk has T mean(d^2). Returns [n, K] each.
    """
    single = (paths.diff(dim=0) ** 2).mean(dim=0)
    measured = [((paths[t:] - paths[:-t]) ** 2).mean(dim=0) for t in spans]
    return torch.stack(measured, dim=1), torch.stack([t * single for t in spans], dim=1)


def slope(spans: Tensor, values: Tensor) -> Tensor:
    """The exponent of T in values [..., K], by least squares of the logarithms; [...]."""
    x, y = spans.double().log(), values.clamp(min=1e-300).log()
    x = x - x.mean()
    return (y * x).sum(dim=-1) / (x**2).sum()


def _spans(steps: int) -> list[int]:
    """1, 2, 4, .. up to a time of which there are enough increments."""
    return [2**i for i in range(20) if 2**i <= max(2, steps // _LEAST)]


def _result(paths: Tensor, sigma: float, age: float) -> DiagnosisResult:
    spans = _spans(len(paths) - 1)
    measured, walk = variances(paths, spans)
    times = torch.tensor(spans)
    draws = [
        slope(times, counts.double() @ measured)
        for counts in resampled(len(measured), _SAMPLES, seed=0)
    ]
    exponent = float(slope(times, measured.mean(dim=0)))
    figure = figure_of(exponent, torch.cat(draws))
    last = spans[-1]
    increments = (paths[last:] - paths[:-last]).flatten()
    centred = increments - increments.mean()
    kurtosis = float((centred**4).mean() / (centred**2).mean().clamp(min=1e-300) ** 2 - 3)
    moving = (paths.diff(dim=0) != 0).double().mean(dim=0)
    width = math.sqrt(float(measured.mean(dim=0)[-1]))
    expected = math.sqrt(float(walk.mean(dim=0)[-1]))
    aged = width * (age / last) ** (exponent / 2)
    figures = {
        "exponent of time in the variance (random walk: 1)": figure,
        "share of steps in which a rank moves (p)": moving,
        f"width of the increments over {last} steps": width,
        "width of a random walk with these steps, p beta T": expected,
        "width as printed, p beta T / 2": expected / math.sqrt(2),
        "excess kurtosis of these increments (normal: 0)": kurtosis,
        "age of the cache in steps, about": age,
        "width over that age, by the exponent": aged,
        "sigma of the weights": sigma,
    }
    low, high = figure.low or exponent, figure.high or exponent
    how = "as a random walk" if low <= 1 <= high else "less than" if high < 1 else "more than"
    how = how if how.startswith("as") else f"{how} a random walk"
    follows = (
        f"Over {last} steps ranks move by {width:.2g}, {how} of the same steps ({expected:.2g}); "
        f"over the {age:.0f} steps that the cache holds, by about {aged:.2g}. "
        + (
            f"That is within the sigma of {sigma:.2g}: old ranks are good enough to weigh by."
            if aged <= sigma
            else f"That is beyond the sigma of {sigma:.2g}: try a smaller cache, a smaller lr or a "
            "larger sigma."
        )
    )
    details = {
        "spans": spans,
        "variance": measured.mean(dim=0),
        "random_walk": walk.mean(dim=0),
    }
    return DiagnosisResult.of(
        figures, follows, details, {"proposition": _chart(spans, measured, walk)}
    )


def _chart(spans: list[int], measured: Tensor, walk: Tensor) -> Chart:
    named = {
        "measured": measured,
        "random walk, p beta T": walk,
        "as printed, p beta T / 2": walk / 2,
    }
    widths = {name: one.mean(dim=0).clamp(min=1e-12).sqrt() for name, one in named.items()}
    lines = [Line.through(name, spans, one.tolist()) for name, one in widths.items()]
    title, unit = "How far ranks move in training", "standard deviation of the rank"
    return Chart(title, "time in steps", unit, lines, log="xy")


DIAGNOSIS = Diagnosis(
    "Do ranks move in training as the random walk of Proposition 1?", CBA, measure
)
