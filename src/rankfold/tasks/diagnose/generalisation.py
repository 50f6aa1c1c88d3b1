"""The generalisation bounds of [rg2], Theorem 14 and Proposition 15, at a fitted model.

With K the width, M queries, N candidates, m = |D| training pairs, C_P and C_Q the longest vectors::

    d = K (M + N) log(16 e M / K),   L = 2 (2 sqrt(N) C_P C_Q + 1 + N)
    R <= R^ + T,   T = 16 ( (d + 1) B^4 e^(d+1) L^d / (m delta) )^(1/(d+2))

R^ is the RG2 loss per pair, and B bounds it. Both are taken at the model, the least B there can
be. T exceeds 16 e^((d+1)/(d+2)) L^(d/(d+2)), whatever m is: it says nothing at any number of pairs
that exists. A value that says something comes from the lemma behind the theorem, before its last
step replaces exp(-x) by 1/x::

    m T^2 / (32 B^4) = log(4 e (d + 1) / delta) + d log(16 e L / T)

Proposition 15 turns T into DCG >= ideal DCG - C T, C = max_x (2 sum_k c_k^2 |I_x|)^(1/2) / N.

All values are computed as logarithms. The measured gap is that of the loss on held-out pairs, in
the same unit: 2 N (mean score of training pairs - mean score of held-out pairs).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.kernels.sparse import pair_products
from rankfold.objectives.quadratic import value
from rankfold.objectives.rg import rg2
from rankfold.tasks.diagnose.figures import Figure, by_group, mean_of, rounded, spaced
from rankfold.tasks.diagnose.result import RG2, Chart, Diagnosis, DiagnosisResult, Level, Line
from rankfold.tasks.diagnose.subject import DiagnosedModel
from rankfold.types import Interactions, Progress

_MAX_QUERIES = 200_000  # whose held-out pairs are bootstrapped


class GeneralisationConfig(Settings):
    delta: float = setting(0.05, above=0, below=1, help="the chance that the bound is exceeded")


@dataclass(frozen=True, slots=True)
class Capacity:
    """The numbers in the bounds."""

    dimension: float  # d
    lipschitz: float  # L
    loss: float  # R^, taken as B
    pairs: int  # m
    delta: float

    def printed(self) -> float:
        """Log T of Theorem 14."""
        d = self.dimension
        inside = math.log(d + 1) + 4 * math.log(self.loss) + d + 1 + d * math.log(self.lipschitz)
        return math.log(16) + (inside - math.log(self.pairs) - math.log(self.delta)) / (d + 2)

    def sharper(self) -> float:
        """Log T of the lemma behind it, by bisection: the left side rises in T, the right falls."""
        low, high = -100.0, math.log(16 * math.e * self.lipschitz)
        for _ in range(200):
            middle = (low + high) / 2
            if self.log_pairs(middle) <= math.log(self.pairs):
                high = middle
            else:
                low = middle
        return high

    def log_pairs(self, log_bound: float) -> float:
        """Log m at which the lemma gives T = exp(log_bound)."""
        terms = math.log(4 * math.e * (self.dimension + 1) / self.delta)
        terms += self.dimension * (math.log(16 * math.e * self.lipschitz) - log_bound)
        return math.log(32) + 4 * math.log(self.loss) + math.log(max(terms, 1e-300)) - 2 * log_bound


def capacity(rows: Interactions, queries: Tensor, candidates: Tensor, delta: float) -> Capacity:
    """The numbers of the bounds at P [M, K] and Q [N, K]."""
    m, n, k = len(queries), len(candidates), queries.shape[1]
    longest = float(queries.norm(dim=1).max()) * float(candidates.norm(dim=1).max())
    loss = value(rg2(rows, 0.0), queries, candidates) / max(rows.n_pairs, 1)
    return Capacity(
        dimension=k * (m + n) * math.log(16 * math.e * m / k),
        lipschitz=2 * (2 * n**0.5 * longest + 1 + n),
        loss=max(loss, 1e-300),
        pairs=rows.n_pairs,
        delta=delta,
    )


def measure(
    config: GeneralisationConfig, subject: DiagnosedModel, progress: Progress
) -> DiagnosisResult:
    """The bounds and the measured gap; all pairs, without their scores as a table."""
    sample = subject.sampled(1)  # checks the model
    rows, tensors = sample.pairs, subject.ranker.model.tensors
    queries, candidates = tensors["queries"].cpu().float(), sample.candidates
    progress("generalisation: loss", 0.0)
    numbers = capacity(rows, queries, candidates, config.delta)
    held_out = subject.data.test or subject.data.validation
    if not isinstance(held_out, Interactions) or held_out.n_pairs < 2:
        raise UserError(
            "generalisation needs held-out pairs, and the data has no test or validation split",
            hint="prepare it with --split 0.8,0.1,0.1",
        )
    progress("generalisation: gap", 0.5)
    seen = float(pair_products(rows, queries, candidates).double().mean())
    other = pair_products(held_out, queries, candidates).double()
    gaps = 2 * len(candidates) * (seen - other)
    rng = torch.Generator().manual_seed(subject.seed)
    each = by_group(gaps, held_out.query_of_pair(), held_out.n_queries)
    drawn = mean_of(each[torch.randperm(len(each), generator=rng)[:_MAX_QUERIES]])
    gap = drawn._replace(value=rounded(gaps.mean()))
    return _result(numbers, gap, rows)


def dcg_constant(rows: Interactions) -> float:
    """C of Theorem 12 for the loss per query |I_x| sum_y (o - S)^2; the largest over queries."""
    n = rows.n_candidates
    places = torch.arange(2, n + 2, dtype=torch.float64)
    squares = float((1 / places.log2() ** 2).sum())
    return math.sqrt(2 * squares * float(rows.counts().max())) / n


def _result(numbers: Capacity, gap: Figure, rows: Interactions) -> DiagnosisResult:
    printed, sharper = numbers.printed(), numbers.sharper()
    needed = numbers.log_pairs(math.log(numbers.loss))
    constant = dcg_constant(rows)
    vacuous = sharper >= math.log(numbers.loss)
    ten = math.log(10)
    taken_off = (math.log(constant) + min(printed, sharper)) / ten
    figures = {
        "log10 of the bound T of Theorem 14": printed / ten,
        "log10 of T by the lemma behind it": sharper / ten,
        "log10 of the loss R^ (T says something if it is below)": math.log(numbers.loss) / ten,
        "measured gap, held-out less training loss": gap,
        "measured gap, relative to the training loss": gap.each(lambda one: one / numbers.loss),
        "log10 of the pairs at which the lemma says something": needed / ten,
        "log10 of the pairs of this data": math.log10(numbers.pairs),
        "log10 of the DCG that Proposition 15 takes off": taken_off,
    }
    follows = (
        "The bounds are vacuous for this model: they allow a gap larger than the loss itself, so "
        "choose width and regularisation on validation; the measured gap is what counts."
        if vacuous
        else "The bound says something for this model: more pairs or a smaller width narrow it."
    )
    details = {
        "dimension": numbers.dimension,
        "lipschitz": numbers.lipschitz,
        "loss": numbers.loss,
        "pairs": numbers.pairs,
        "vacuous": vacuous,
        "constant_of_theorem_12": constant,
    }
    last = max(needed, math.log(numbers.pairs)) / ten + 2
    pairs = spaced(10.0, 10.0**last, 25) if last < 300 else spaced(10.0, 1e300, 25)
    curves: dict[str, list[tuple[float, ...]]] = {"Theorem 14": [], "the lemma behind it": []}
    for m in pairs:
        other = Capacity(numbers.dimension, numbers.lipschitz, numbers.loss, int(m), numbers.delta)
        curves["Theorem 14"].append((m, other.printed() / ten))
        curves["the lemma behind it"].append((m, other.sharper() / ten))
    lines = [Line(name, points) for name, points in curves.items()]
    levels = [Level("the loss itself", math.log(numbers.loss) / ten)]
    title = "The generalisation bounds by the number of pairs"
    chart = Chart(title, "training pairs", "log10 of the bound", lines, levels, log="x")
    return DiagnosisResult.of(figures, follows, details, {"generalisation": chart})


DIAGNOSIS = Diagnosis("Do the generalisation bounds say anything about this model?", RG2, measure)
