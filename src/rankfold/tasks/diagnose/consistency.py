"""The regret in DCG against the bound of Lemma 9 and Theorem 12 of [rg2].

With r the truth of a query over n candidates (here 0 or 1), f the scores as estimates of r, and
c_k = 1 / log2(1 + k) the discount of place k::

    DCG*(r) - DCG(order of f; r) <= ( 2 sum_k c_k^2 )^(1/2) |f - r|

RG2 pulls o towards r N / |I| - 1, so f = (o + 1) |I| / N, and Theorem 12 is the same bound in units
of its loss. DCG depends on the order alone, so f may also be any a f + b with a > 0: the bound at
the best of them is the least that the lemma can give.

On held-out pairs, r has a query's held-out candidates, and those it has seen are left out. The
planted part has no model: r are probabilities that fall as 1 / k, and f is r with normal noise.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.tasks.diagnose.figures import spaced
from rankfold.tasks.diagnose.result import RG2, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.subject import DiagnosedModel
from rankfold.types import Interactions, Progress, SplitName

_MAX_DOTS = 300  # queries in the chart
_LEVELS, _REPEATS = 9, 20  # of noise, in the planted part


class ConsistencyConfig(Settings):
    queries: int = setting(500, at_least=2, help="queries with training pairs, drawn by the seed")
    planted: int = setting(1000, at_least=2, at_most=10**6, help="candidates of the planted part")


class Regret(NamedTuple):
    """Per query, [B] each."""

    regret: Tensor
    bound: Tensor  # at f = (o + 1) |I| / N, the scale of RG2
    best: Tensor  # at the best a f + b
    ideal: Tensor  # DCG*, the largest possible regret


def measure(
    config: ConsistencyConfig, subject: DiagnosedModel, progress: Progress
) -> DiagnosisResult:
    """Regret and bound of each query, on held-out pairs and on planted probabilities."""
    sample = subject.sampled(config.queries)
    split, truth, seen = _truth(subject)
    truth, seen = truth.select(sample.rows), seen.select(sample.rows)
    n, parts = len(sample.candidates), []
    for some, scores in sample.blocks():
        progress("consistency: queries", some.start / len(sample.rows))
        stop = min(some.stop, len(sample.rows))
        sizes = sample.positives.counts()[some].double()[:, None]
        estimates = (scores + 1) * sizes / n
        relevant, hidden = (_marks(p.part(some.start, stop), n) for p in (truth, seen))
        parts.append(regret_of(estimates, relevant.double(), ~hidden))
    every = Regret(*map(torch.cat, zip(*parts, strict=True)))
    kept = every.ideal > 0
    if int(kept.sum()) < 2:
        raise UserError(
            f"fewer than two of these queries have pairs in {split}",
            hint="set more queries, or prepare data with more pairs in the test split",
        )
    planted = planted_regrets(config.planted, subject.seed)
    return _result(split, Regret(*(one[kept] for one in every)), planted)


def regret_of(estimates: Tensor, truth: Tensor, counted: Tensor) -> Regret:
    """Regret and bounds of rows of f, r and of the candidates that count; [B, n] each.

    Equal estimates are ordered by candidate.
    """
    places = counted.sum(dim=1)
    discount = 1 / torch.arange(2, estimates.shape[1] + 2, dtype=torch.float64).log2()
    order = estimates.masked_fill(~counted, -torch.inf).sort(dim=1, descending=True, stable=True)
    r = truth.masked_fill(~counted, 0.0)
    reached = r.gather(1, order.indices) @ discount
    ideal = r.sort(dim=1, descending=True).values @ discount
    factor = (2 * (discount**2).cumsum(0)[places.clamp(min=1) - 1]).sqrt()
    f, many = estimates.masked_fill(~counted, 0.0), places.clamp(min=1)
    distance = (f - r).norm(dim=1)
    centred_f, centred_r = (
        (one - (one.sum(dim=1) / many)[:, None]).masked_fill(~counted, 0.0) for one in (f, r)
    )
    along = torch.linalg.vecdot(centred_f, centred_r).clamp(min=0)
    explained = along**2 / (centred_f**2).sum(dim=1).clamp(min=1e-300)
    best = ((centred_r**2).sum(dim=1) - explained).clamp(min=0).sqrt()
    return Regret((ideal - reached).clamp(min=0), factor * distance, factor * best, ideal)


def planted_regrets(n: int, seed: int) -> dict[float, Regret]:
    """Regret and bound by the size of normal noise, relative to the largest probability."""
    rng = torch.Generator().manual_seed(seed)
    truth = (0.5 / torch.arange(1, n + 1, dtype=torch.float64)).expand(_REPEATS, n)
    counted = torch.ones(_REPEATS, n, dtype=torch.bool)
    result = {}
    for level in spaced(0.001, 1.0, _LEVELS):
        noise = torch.randn(_REPEATS, n, generator=rng, dtype=torch.float64)
        result[level] = regret_of(truth + 0.5 * level * noise, truth, counted)
    return result


def _truth(subject: DiagnosedModel) -> tuple[SplitName, Interactions, Interactions]:
    """The held-out pairs to rank, and what is hidden; the training pairs if there are no others."""
    data = subject.data
    for name in ("test", "validation"):
        if getattr(data, name) is not None:
            split: SplitName = "test" if name == "test" else "validation"
            return split, data.split(split), data.seen(split)
    train = data.split("train")
    return "train", train, train.keep(torch.zeros(train.n_pairs, dtype=torch.bool))


def _marks(pairs: Interactions, n: int) -> Tensor:
    marks = torch.zeros(pairs.n_queries, n, dtype=torch.bool)
    marks[pairs.query_of_pair().long(), pairs.candidates.long()] = True
    return marks


def _result(split: str, real: Regret, planted: dict[float, Regret]) -> DiagnosisResult:
    says = (real.best < real.ideal).double()
    figures = {
        "share of queries where the bound is below the largest possible regret": says,
        f"regret in DCG on {split}, mean": real.regret,
        "largest possible regret, mean": real.ideal,
        "bound of Lemma 9 at the best scale, mean": real.best,
        "bound of Theorem 12 at the scale of RG2, mean": real.bound,
        "share of queries within the bound": (
            real.regret <= real.best * (1 + 1e-9) + 1e-9
        ).double(),
    }
    share = float(says.mean())
    follows = f"The bound is below the largest possible regret for {share:.0%} of the queries: " + (
        "a smaller loss promises a better DCG here."
        if share > 0.5
        else "at this loss it promises nothing, so judge the model by DCG on validation. "
        "Consistency says what happens as the loss reaches its least value, no sooner."
    )
    details = {
        "split": split,
        "queries": [
            dict(zip(Regret._fields, one, strict=True))
            for one in torch.stack(list(real), dim=1)[:_MAX_DOTS].tolist()
        ],
        "planted": {
            f"{level:.4g}": {name: v.mean() for name, v in one._asdict().items()}
            for level, one in planted.items()
        },
    }
    dots = torch.stack([real.best, real.regret], dim=1)[:_MAX_DOTS].tolist()
    largest = max(float(real.regret.max()), 1e-3)
    charts = {
        "consistency": Chart(
            f"Regret in DCG and its bound, a dot per query ({split} pairs)",
            "bound of Lemma 9 at the best scale",
            "regret in DCG",
            [
                Line("queries", [tuple(one) for one in dots], "dots"),
                Line("bound", [(0.0, 0.0), (largest, largest)]),
            ],
        ),
        "consistency-planted": Chart(
            "Regret and its bound on planted probabilities",
            "noise, relative to the largest probability",
            "DCG",
            [
                Line.of_means("regret", planted, [one.regret for one in planted.values()]),
                Line.of_means("bound", planted, [one.bound for one in planted.values()]),
                Line.of_means("largest", planted, [one.ideal for one in planted.values()]),
            ],
            log="xy",
        ),
    }
    return DiagnosisResult.of(figures, follows, details, charts)


DIAGNOSIS = Diagnosis("Does a smaller RG2 loss promise a better DCG for this model?", RG2, measure)
