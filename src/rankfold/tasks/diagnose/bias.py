"""The bias of BIR's gradient against the bound of Theorem A.2 of [chen2022].

The gradient is taken by the query's vector, so that of a score is the candidate's vector. With y
the positive, B the batch and R the m = |B| picks from w::

    softmax    -q_y + sum_j softmax(s)_j q_j
    appendix   -q_y + (e^{s_y} q_y + sum_R e^{s_o}/(m w_o) q_o) / (e^{s_y} + sum_R e^{s_o}/(m w_o))
    released   the same without 1/(m w_o)

The theorem bounds each coordinate of E[appendix] - softmax, up to o(1/|B|), by::

    E[U] (Z_Bp sum_B p_i e^{s_i} - Z_B^2) / (|B| Z^3)
    + (2 G / |B|) max_B |p_j - p_l| Z_Bp Z_B / (Z^2 + Z_Bp sum_B p_i e^{s_i})

    Z = sum_N e^s,  Z_B = sum_B e^s,  Z_Bp = sum_B e^s / p,  E[U] = sum_N e^s q,  G = max |q|

Its proof takes sum_B e^s, whose mean is |B| sum_N p e^s, for Z. So the estimator does not approach
softmax(s), its bias does not fall to 0, and the bound fails where its terms are small.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.samplers.bir import pick_weights
from rankfold.samplers.resampling import DRAWS
from rankfold.tasks.diagnose.in_batch_estimators import drawn_batches
from rankfold.tasks.diagnose.result import CHEN2022, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.settings import sizes_of
from rankfold.tasks.diagnose.subject import DiagnosedModel
from rankfold.types import Progress

_FORMS = ("appendix", "released")


class BiasConfig(Settings):
    queries: int = setting(16, at_least=2, help="queries with training pairs, drawn by the seed")
    batches: str = setting("64,256,1024,4096", help="batch sizes, ascending", check=sizes_of)
    draws: int = setting(2**19, at_least=1, help="candidates drawn for each batch size and query")


class Bias(NamedTuple):
    """The bias of one query's gradient, per coordinate."""

    appendix: Tensor  # [D]
    released: Tensor  # [D]
    bound: Tensor  # [D]


def measure(config: BiasConfig, subject: DiagnosedModel, progress: Progress) -> DiagnosisResult:
    """The largest bias of a coordinate, and the bound there, by batch size."""
    sample = subject.sampled(config.queries)
    popularity = sample.popularity()
    sizes = sizes_of(config.batches)
    rng = torch.Generator().manual_seed(subject.seed)
    firsts = sample.positives.candidates[sample.positives.offsets[:-1]].long()
    candidates = sample.candidates
    measured: dict[int, list[Bias]] = {size: [] for size in sizes}
    for place, size in enumerate(sizes):
        for query, positive in zip(sample.queries, firsts.tolist(), strict=True):
            progress(f"bias: batches of {size}", place / len(sizes))
            scores = (candidates @ query).double()
            measured[size].append(
                bias_of(scores, candidates, positive, popularity, size, config.draws, rng)
            )
    return _result(measured)


def bias_of(
    scores: Tensor,
    vectors: Tensor,
    positive: int,
    popularity: Tensor,
    size: int,
    draws: int,
    rng: torch.Generator,
) -> Bias:
    """Bias and bound of one query, means over batches; scores [N], vectors [N, D]."""
    mass = (scores - scores.max()).exp()  # all formulas keep their value if e^s is scaled
    total, log_pop = mass.sum(), popularity.log()
    whole = (mass.to(vectors.dtype) @ vectors).double()
    shares = {form: torch.zeros_like(mass) for form in _FORMS}  # of the candidates' vectors
    first, second, count = 0.0, 0.0, 0
    for ids in drawn_batches(popularity, size, draws, rng):
        own, p = mass[ids], popularity[ids]
        weights = pick_weights(scores[ids], log_pop[ids], None)
        times = DRAWS["multinomial"](weights.clone(), size, rng)
        terms = {
            "appendix": times * own / (size * weights.clamp(min=1e-300)),
            "released": times * own,
        }
        for form, picked in terms.items():
            share = picked / (mass[positive] + picked.sum(dim=1, keepdim=True))
            shares[form].index_add_(0, ids.flatten(), share.flatten())
            shares[form][positive] += (1 - share.sum(dim=1)).sum()
        z_b, z_bp, mixed = own.sum(dim=1), (own / p).sum(dim=1), (own * p).sum(dim=1)
        first += float(((z_bp * mixed - z_b**2) / (size * total**3)).sum())
        apart = p.amax(dim=1) - p.amin(dim=1)
        second += float((2 / size * apart * z_bp * z_b / (total**2 + mixed * z_bp)).sum())
        count += len(ids)
    bound = whole * (first / count) + float(vectors.abs().max()) * (second / count)
    exact = whole / total
    means = ((shares[form] / count).to(vectors.dtype) @ vectors for form in _FORMS)
    appendix, released = (mean.double() - exact for mean in means)
    return Bias(appendix, released, bound)


def _result(measured: dict[int, list[Bias]]) -> DiagnosisResult:
    values: dict[str, dict[int, Tensor]] = {"appendix": {}, "released": {}, "bound": {}}
    fails: dict[int, Tensor] = {}
    for size, every in measured.items():
        worst = [int((one.appendix - one.bound).argmax()) for one in every]
        fails[size] = torch.tensor([float((one.appendix > one.bound).any()) for one in every])
        picked = {
            "appendix": [one.appendix[k] for one, k in zip(every, worst, strict=True)],
            "bound": [one.bound[k] for one, k in zip(every, worst, strict=True)],
            "released": [one.released.abs().max() for one in every],
        }
        for name, numbers in picked.items():
            values[name][size] = torch.stack(numbers)
    sizes = list(measured)
    small, large = sizes[0], sizes[-1]
    figures = {
        f"share of queries where the bound fails, batches of {small}": fails[small],
        f"share of queries where the bound fails, batches of {large:,}": fails[large],
    }
    for size in (small, large):
        for what, name in (
            ("bias (appendix) where it exceeds the bound most", "appendix"),
            ("bound of Theorem A.2 there", "bound"),
            ("largest bias as released", "released"),
        ):
            figures[f"{what}, batches of {size:,}"] = values[name][size]
    falls = values["appendix"][large].mean() < values["appendix"][small].mean() / 2
    failed = max(sizes, key=lambda size: float(fails[size].mean()))
    follows = (
        f"The printed bound fails for {float(fails[failed].mean()):.0%} of the queries at batches "
        f"of {failed:,}: do not choose a batch size by it. "
        + (
            "The bias falls with the batch here."
            if falls
            else "The bias stays as the batch grows: a larger batch does not remove it; use "
            "correction=sir or ssl-pop, whose limit is softmax(s)."
        )
    )
    details = {
        "batches": sizes,
        "fails": [fails[size].mean() for size in sizes],
        **{n: [by[size].mean() for size in sizes] for n, by in values.items()},
    }
    labels = {
        "bias, appendix": "appendix",
        "bound of Theorem A.2": "bound",
        "bias, released": "released",
    }
    lines = [Line.of_means(label, sizes, values[name].values()) for label, name in labels.items()]
    title = "Bias of BIR's gradient and the bound of Theorem A.2"
    chart = Chart(title, "batch size", "coordinate of the gradient", lines, log="x")
    return DiagnosisResult.of(figures, follows, details, {"bias": chart})


DIAGNOSIS = Diagnosis(
    "Is the bias of BIR's gradient within the bound of Theorem A.2?", CHEN2022, measure
)
