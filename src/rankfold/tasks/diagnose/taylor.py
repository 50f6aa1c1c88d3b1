"""The softmax loss and its expansions RG2 and RGx at the scores of a fitted model; [rg2], Eq. 16.

With o the scores of a query with all N candidates and I its positives, each loss is
V(o) - mean_{y in I} o_y. V and its gradient are::

    softmax   log sum_j exp o_j                                          p
    RG2       log N + mean(o) + mean(o^2) / 2                            (1 + o) / N
    RGx       RG2 - mean(o)^2 / 2                                        (1 + o - mean(o)) / N

p is the softmax of o. The constants are those of the expansion at zero scores, so that values can
be compared.
"""

import math

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.tasks.diagnose.figures import spaced
from rankfold.tasks.diagnose.result import RG2, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.subject import DiagnosedModel
from rankfold.types import Progress

LOSSES = ("RG2", "RGx")
_GOOD = 0.1  # relative error of a gradient that counts as close
_BISECTIONS = 60


class TaylorConfig(Settings):
    queries: int = setting(200, at_least=2, help="queries with training pairs, drawn by the seed")
    smallest: float = setting(1e-5, above=0, help="smallest factor of the scores")
    largest: float = setting(10.0, above=0, help="largest factor of the scores")
    scales: int = setting(13, at_least=2, at_most=1000, help="factors between the two")


def measure(config: TaylorConfig, subject: DiagnosedModel, progress: Progress) -> DiagnosisResult:
    """Values, gradients and the bound of Proposition 7, by the scale of the scores."""
    sample = subject.sampled(config.queries)
    factors = sorted({*spaced(config.smallest, config.largest, config.scales), 1.0})
    measured: dict[float, list[dict[str, Tensor]]] = {factor: [] for factor in factors}
    spreads = []
    for some, scores in sample.blocks():
        targets = sample.targets(some)
        spreads.append(scores.std(dim=1, correction=0))
        for factor in factors:
            progress("taylor: queries", some.start / len(sample.rows))
            measured[factor].append(compare(scores * factor, targets))
        measured[1.0][-1]["smallest eigenvalue"] = smallest_eigenvalue(scores)
    values = {
        factor: {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}
        for factor, blocks in measured.items()
    }
    return _result(values, torch.cat(spreads))


def compare(scores: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The differences per query from scores [B, N] and the shares of its positives [B, N].

    ``gap``: the loss less softmax, in nats. ``gradient``: |g - g_softmax| of the gradients in the
    scores, relative to that at zero scores: softmax's own is 0 where a query is certain.
    ``cosine``: of both. ``bounds``: whether RG2 is at least softmax.
    """
    n = scores.shape[1]
    mean = scores.mean(dim=1, keepdim=True)
    softmax = scores.logsumexp(dim=1)
    quadratic = math.log(n) + mean[:, 0] + (scores**2).mean(dim=1) / 2
    values = {"RG2": quadratic, "RGx": quadratic - mean[:, 0] ** 2 / 2}
    exact = scores.softmax(dim=1)
    pulls = {"RG2": (1 + scores) / n, "RGx": (1 + scores - mean) / n}
    result = {"bounds": (quadratic >= softmax).double()}
    start = (targets - 1 / n).norm(dim=1).clamp(min=1e-300)
    length = (exact - targets).norm(dim=1).clamp(min=1e-300)
    for name in LOSSES:
        result[f"gap {name}"] = values[name] - softmax
        result[f"gradient {name}"] = (pulls[name] - exact).norm(dim=1) / start
        pull, other = pulls[name] - targets, exact - targets
        norm = (pull.norm(dim=1) * length).clamp(min=1e-300)
        result[f"cosine {name}"] = torch.linalg.vecdot(pull, other) / norm
    return result


def smallest_eigenvalue(scores: Tensor) -> Tensor:
    """The smallest eigenvalue of A = I/N - diag p + p p^T, p the softmax of each row; [B].

    A - I/N is minus the Hessian of softmax: RG2 bounds softmax from above everywhere if A is
    positive semi-definite for every p. With p_1 >= p_2 the largest probabilities, the eigenvalue
    lies between 1/N - p_1 and 1/N - p_2, where the secular function rises from -oo to +oo::

        1 + sum_j p_j^2 / (1/N - p_j - t) = 0
    """
    p = scores.softmax(dim=1)
    top = p.topk(min(2, p.shape[1]), dim=1).values
    gap = top[:, 0] - top[:, -1]  # with equal p_1 = p_2 it is 1/N - p_1 itself
    low, high = torch.zeros_like(gap), gap.clone()  # of t - (1/N - p_1)
    if p.shape[1] == 1:
        return torch.ones_like(gap)
    away = top[:, :1] - p
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        terms = p**2 / (away - middle[:, None])
        rising = 1 + terms.nan_to_num(nan=0.0, posinf=1e300, neginf=-1e300).sum(dim=1)
        low, high = torch.where(rising < 0, middle, low), torch.where(rising < 0, high, middle)
    return 1 / p.shape[1] - top[:, 0] + (low + high) / 2


def _result(values: dict[float, dict[str, Tensor]], spreads: Tensor) -> DiagnosisResult:
    own = values[1.0]
    eigenvalues = own["smallest eigenvalue"]
    definite, spread = (eigenvalues >= -1e-12).double(), float(spreads.median())
    good = {
        name: max(
            (f for f, one in values.items() if one[f"gradient {name}"].mean() <= _GOOD), default=0
        )
        for name in LOSSES
    }
    figures = {
        "relative error of RGx's gradient": own["gradient RGx"],
        "relative error of RG2's gradient": own["gradient RG2"],
        "cosine of the gradients of RGx and softmax": own["cosine RGx"],
        "cosine of the gradients of RG2 and softmax": own["cosine RG2"],
        "RGx less softmax (nats per query)": own["gap RGx"],
        "RG2 less softmax (nats per query)": own["gap RG2"],
        "share of queries where RG2 bounds softmax from above": own["bounds"],
        "share where I/N - diag p + p p^T is positive semi-definite": definite,
        "smallest eigenvalue, mean over queries": eigenvalues,
        "spread of a query's scores, median": spread,
        "largest factor with an RGx gradient within 10%": good["RGx"],
    }
    close = own["gradient RGx"].mean() <= _GOOD
    until = (
        f"which is close up to {good['RGx']:.2g} times them"
        if good["RGx"]
        else f"which is not close at {min(values):.2g} times them"
    )
    follows = (
        f"At these scores (spread {spread:.3g}) the expansion is close to softmax: a fit of RG2 "
        "or RGx follows the softmax loss."
        if close
        else f"These scores (spread {spread:.3g}) are beyond the expansion, {until}: RG2 and RGx "
        "are different losses here: compare them with softmax on validation, and expect other "
        "scores."
    )
    details = {
        "factors": list(values),
        "by_factor": {
            name: [one[name].mean() for one in values.values()]
            for name in own
            if name != "smallest eigenvalue"
        },
        "smallest_eigenvalues": eigenvalues[:_MAX_LISTED],
    }
    return DiagnosisResult.of(figures, follows, details, _charts(values))


def _charts(values: dict[float, dict[str, Tensor]]) -> dict[str, Chart]:
    def line(label: str, measured: str) -> Line:
        return Line.of_means(label, values, [one[measured] for one in values.values()])

    gradients = [line(f"{name} to softmax", f"gradient {name}") for name in LOSSES]
    gaps = [line(f"{name} less softmax", f"gap {name}") for name in LOSSES]
    bounds = [line("RG2 at least softmax", "bounds")]
    title = "How far the gradients of RG2 and RGx are from softmax's"
    x = "factor of the model's scores"
    above, share = "Where RG2 bounds softmax from above", "share of queries"
    return {
        "taylor": Chart(title, x, "relative error of the gradient", gradients, log="xy"),
        "taylor-gap": Chart("RG2 and RGx less softmax", x, "nats per query", gaps, log="x"),
        "taylor-bound": Chart(above, x, share, bounds, ends=(0.0, 1.0), log="x"),
    }


_MAX_LISTED = 200

DIAGNOSIS = Diagnosis("How close are RG2 and RGx to softmax at this model's scores?", RG2, measure)
