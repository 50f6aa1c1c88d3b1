"""The sampled RG2 objective against the full one as the number of negatives grows; [rg2], Eq. 18.

Sampling n uniform negatives per pair is, in expectation, the full objective with other weights and
targets (``objectives.rg.rg2_sampled``)::

    w_pos / w_neg = 1 + N / (|I_x| n)

so few negatives weigh the pairs more, as WRMF does with alpha = N / (|I_x| n). Each objective is
minimised by the same sweeps from the spectral solution, and compared with the full RG2: by how much
of its possible decrease is lost, and by the candidates that both rank first. Lists are compared
because the scale of the scores differs: with n = 1 the targets are at most 1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.kernels.sparse import transposed
from rankfold.objectives.quadratic import Objective, candidate_half, query_half, value
from rankfold.objectives.rg import rg2, rg2_sampled
from rankfold.solvers.als import sweep
from rankfold.solvers.least_squares import by_cholesky
from rankfold.tasks.diagnose.result import RG2, Chart, Diagnosis, DiagnosisResult, Level, Line
from rankfold.tasks.diagnose.settings import sizes_of
from rankfold.tasks.diagnose.subject import BLOCK_SCORES, DiagnosedData
from rankfold.types import Interactions, Progress

Vectors = tuple[Tensor, Tensor]
_DEPTH = 10  # of the compared lists
_CLOSE = 0.9  # of the lists in common


class NegativesConfig(Settings):
    queries: int = setting(2000, at_least=2, help="queries with training pairs, drawn by the seed")
    width: int = setting(16, at_least=1, help="length of the vectors")
    reg: float = setting(0.1, above=0, help="regularisation (lambda)")
    sweeps: int = setting(
        12, at_least=1, help="sweeps of alternating least squares, for each objective"
    )
    negatives: str = setting(
        "10,100,1000,10000,100000,1000000", help="negatives per pair, ascending", check=sizes_of
    )


def measure(config: NegativesConfig, subject: DiagnosedData, progress: Progress) -> DiagnosisResult:
    """The minimisers of the sampled objectives, under the full one."""
    train = subject.data.split("train")
    rows = train.select(subject.queries(config.queries, train))
    full = rg2(rows, config.reg)
    start = starting_vectors(rows, config.width, subject.seed)
    numbers = sizes_of(config.negatives)
    best = minimise(full, start, config.sweeps)
    nothing = value(full, 0 * best[0], 0 * best[1])
    least = value(full, *best)
    overlaps, lost = [], []
    for place, n in enumerate(numbers):
        progress(f"negatives: {n} per pair", place / len(numbers))
        vectors = minimise(rg2_sampled(rows, config.reg, n), start, config.sweeps)
        overlaps.append(common(vectors, best, min(_DEPTH, rows.n_candidates)))
        lost.append((value(full, *vectors) - least) / (nothing - least))
    return _result(numbers, rows, overlaps, lost)


def starting_vectors(rows: Interactions, width: int, seed: int) -> Vectors:
    """Random vectors whose scores are a hundredth of the mean target, N M / |D|, in size."""
    rng = torch.Generator().manual_seed(seed)
    shapes = (rows.n_queries, width), (rows.n_candidates, width)
    queries, candidates = (torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes)
    target = rows.n_candidates * rows.n_queries / max(1, rows.n_pairs)
    scale = 0.1 * target**0.5 / width**0.25
    return scale * queries, scale * candidates


def minimise(
    o: Objective, start: Vectors, sweeps: int, seen: Callable[[Vectors], None] | None = None
) -> Vectors:
    """Exact sweeps of alternating least squares; ``seen`` is called after each."""
    halves = query_half(o), candidate_half(o, transposed(o.rows, 2**28))
    vectors = start
    for _ in range(sweeps):
        vectors = sweep(halves, *vectors, by_cholesky)
        if seen is not None:
            seen(vectors)
    return vectors


def common(left: Vectors, right: Vectors, k: int) -> Tensor:
    """The share of the k best candidates that both have, per query; [M]."""
    step, shares = max(1, BLOCK_SCORES // len(left[1])), []
    for start in range(0, len(left[0]), step):
        some = slice(start, start + step)
        ids = [(p[some] @ q.T).topk(k, dim=1).indices for p, q in (left, right)]
        shares.append((ids[0][:, :, None] == ids[1][:, None, :]).any(dim=2).double().mean(dim=1))
    return torch.cat(shares)


def _result(
    numbers: list[int], rows: Interactions, overlaps: list[Tensor], lost: list[float]
) -> DiagnosisResult:
    median = float(rows.counts().double().median())
    ratios = [1 + rows.n_candidates / (median * n) for n in numbers]
    enough = next(
        (n for n, one in zip(numbers, overlaps, strict=True) if one.mean() >= _CLOSE), None
    )
    first = (
        f"negatives from which {_CLOSE:.0%} of the {_DEPTH} best are those of the full objective"
    )
    figures: dict[str, Any] = {first: float(enough or 0)}
    for n, one in zip(numbers, overlaps, strict=True):
        figures[f"common to the {_DEPTH} best with {n:,} negatives"] = one
    figures |= {
        f"share of the full objective's decrease that {numbers[0]:,} negatives lose": lost[0],
        f"the same with {numbers[-1]:,}": lost[-1],
    }
    follows = (
        f"Sampling only weighs pairs more: {numbers[0]:,} negatives weigh a pair of the median "
        f"query {ratios[0]:,.0f} times, {numbers[-1]:,} negatives {ratios[-1]:.3g} times. "
        + (
            f"From {enough:,} negatives on the lists are those of the full objective"
            if enough
            else f"Even {numbers[-1]:,} negatives give other lists than the full objective"
        )
        + "; fit rg2-sampled or rg2-weighted to choose the weight on validation."
    )
    details = {
        "negatives": numbers,
        "common": [one.mean() for one in overlaps],
        "lost": lost,
        "weight_of_a_pair": ratios,
    }
    charts = {
        "negatives": Chart(
            f"The {_DEPTH} best candidates, sampled and full objective",
            "negatives per pair",
            "share in common",
            [Line.of_means("in common with the full one", numbers, overlaps)],
            [Level("90%", _CLOSE)],
            ends=(0.0, 1.0),
            log="x",
        ),
        "negatives-loss": Chart(
            "What the minimiser of the sampled objective loses of the full one",
            "negatives per pair",
            "share of the decrease",
            [Line.through("lost", numbers, lost)],
            log="x",
        ),
    }
    return DiagnosisResult.of(figures, follows, details, charts)


DIAGNOSIS = Diagnosis(
    "From how many negatives on does sampling give the full objective's model?", RG2, measure
)
