"""Whether changes of ranks in training are white noise: a test of Assumption 1 of [cba].

The Gaussian weights of negatives around the tolerated rate are derived from it.
"""

import torch
from torch import Tensor

from rankfold.config import Settings, check, setting
from rankfold.errors import UserError
from rankfold.tasks.diagnose.figures import mean_of, rounded
from rankfold.tasks.diagnose.result import CBA, Chart, Diagnosis, DiagnosisResult, Level, Line
from rankfold.tasks.diagnose.training import DiagnosedTraining, track_ranks
from rankfold.types import Progress

_SIGNIFICANCE = 0.05
_MOST = 0.9  # of the windows: then they count as white noise


class WhitenessConfig(Settings):
    rows: int = setting(200, at_least=1, help="training rows whose mean rank is tracked")
    others: int = setting(300, at_least=1, help="training rows to rank them among")
    stride: int = setting(1, at_least=1, help="training steps per increment")
    window: int = setting(100, at_least=2, help="increments per test")
    every: int = setting(10, at_least=1, help="increments between the starts of two windows")
    lags: int = setting(10, at_least=1, help="autocorrelations per test")

    def __post_init__(self) -> None:
        check(self)
        if self.window <= self.lags:
            raise UserError(
                f"`window` must be above `lags`, got {self.window} and {self.lags}",
                hint="set a larger window or fewer lags",
            )


def measure(
    config: WhitenessConfig, training: DiagnosedTraining, progress: Progress
) -> DiagnosisResult:
    """Train, and test the increments d(t) = R(t + stride) - R(t) of the mean rank R."""
    steps = training.n_steps
    if steps // config.stride < config.window:
        raise UserError(
            f"training has {steps // config.stride} increments, and a window needs {config.window}",
            hint="set a smaller window or stride, more epochs or a smaller batch_size",
        )
    _, means = track_ranks(
        training,
        (config.rows, config.others),
        lambda ranks: ranks.mean(),
        lambda step: step % config.stride == 0,
        lambda step: progress(f"whiteness: epoch {step.number}", step.share or 0.0),
    )
    return _result(config, means.diff())


def box_pierce(series: Tensor, lags: int) -> tuple[Tensor, Tensor]:
    """The test statistic and p-value of white noise; [cba], Eq. 33.

    With n the length, m the lags::

        chi2 = n sum_{k=1..m} rho_k^2,    p = P(chi-square with m degrees of freedom > chi2)

    Args:
        series: [..., n].
        lags: m, below n.

    Returns [...] each. A constant series has chi2 = 0 and p = 1.
    """
    chi2 = series.shape[-1] * (_autocorrelations(series, lags) ** 2).sum(dim=-1)
    return chi2, torch.special.gammaincc(torch.full_like(chi2, lags / 2), chi2 / 2)


def _autocorrelations(series: Tensor, lags: int) -> Tensor:
    """rho_k = sum_{t > k} c_t c_{t-k} / sum_t c_t^2, c the series less its mean; [..., lags].

    0 for a constant series.
    """
    centred = series.double() - series.double().mean(dim=-1, keepdim=True)
    power = (centred**2).sum(dim=-1)
    products = [(centred[..., k:] * centred[..., :-k]).sum(dim=-1) for k in range(1, lags + 1)]
    return torch.stack(products, dim=-1) / torch.where(power > 0, power, 1.0).unsqueeze(-1)


def _result(config: WhitenessConfig, increments: Tensor) -> DiagnosisResult:
    series = increments.unfold(0, config.window, config.every)
    chi2, p = box_pierce(series, config.lags)
    ends = config.window + config.every * torch.arange(len(p))
    late = 3 * ends > 2 * len(increments)  # windows that end in the last third
    late[-1] = True
    rho = _autocorrelations(series[late], config.lags).mean(dim=0)
    columns = zip((config.stride * ends).tolist(), chi2.tolist(), p.tolist(), strict=True)
    windows = [{"step": step, "chi2": rounded(a), "p": rounded(b)} for step, a, b in columns]
    white = (p > _SIGNIFICANCE).double()
    first = float(rho[0])
    apart = series[late][:: -(-config.window // config.every)]  # windows without common increments
    own = mean_of(_autocorrelations(apart, 1)[:, 0])
    figures = {
        f"share of windows with p > {_SIGNIFICANCE:g}": white.mean(),
        "the same in the last third of training": white[late].mean(),
        "autocorrelation at lag 1 there, mean": own._replace(
            value=rounded(_autocorrelations(series[late], 1)[:, 0].mean())
        ),
    }
    if white[late].mean() >= _MOST:
        follows = "Ranks move as the Gaussian weights assume: keep sigma as a width of time."
    else:
        way = "keep moving one way (momentum)" if first > 0 else "return to where they were"
        follows = (
            f"Ranks {way}, so the Gaussian weights are a smoothing and no law of motion: choose "
            "sigma on validation."
        )
    details = {
        "late_autocorrelations": rho,
        "windows": windows,
        "increments": increments,
    }
    points = [(entry["step"], entry["p"]) for entry in windows]
    span = "" if config.stride == 1 else f" of {config.stride} steps"
    chart = Chart(
        f"Are the increments{span} of the mean rank white noise? (Box-Pierce test)",
        "training steps at the end of the window",
        "p value (low: not white noise)",
        [Line(f"{config.window} increments, {config.lags} lags", points, "dots")],
        [Level(f"p = {_SIGNIFICANCE:g}", _SIGNIFICANCE)],
        ends=(0.0, 1.0),
    )
    return DiagnosisResult.of(figures, follows, details, {"whiteness": chart})


DIAGNOSIS = Diagnosis("Are the changes of ranks in training white noise?", CBA, measure)
