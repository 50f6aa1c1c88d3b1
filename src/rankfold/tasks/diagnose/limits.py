"""Which softmax an in-batch estimator approaches as the batch grows: Theorem A.1 of [chen2022].

The theorem says that resampled candidates follow softmax(s). The loss weighs the picks by their
scores again, so what counts is the weight of each candidate in the gradient. It is compared with
three distributions over all candidates::

    s             softmax(s), that of the full softmax
    2s            softmax(2 s)
    s + log pop   softmax(s + log pop), that of a softmax whose scores leave popularity out

by the total variation, half of the sum of absolute differences.
"""

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.samplers.resampling import DRAWS, Draw
from rankfold.tasks.diagnose.in_batch_estimators import ESTIMATORS, drawn_batches
from rankfold.tasks.diagnose.result import CHEN2022, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.settings import sizes_of
from rankfold.tasks.diagnose.subject import DiagnosedModel
from rankfold.types import Progress

TARGETS = ("s", "2s", "s + log pop")


class LimitsConfig(Settings):
    queries: int = setting(8, at_least=2, help="queries with training pairs, drawn by the seed")
    batches: str = setting("64,256,1024,4096,16384", help="batch sizes, ascending", check=sizes_of)
    draws: int = setting(2**20, at_least=1, help="candidates drawn for each batch size")
    draws_by: str = setting("systematic", choices=DRAWS, help="how bir picks from a batch")


def measure(config: LimitsConfig, subject: DiagnosedModel, progress: Progress) -> DiagnosisResult:
    """The total variation of each estimator to each target, by batch size."""
    sample = subject.sampled(config.queries)
    popularity = sample.popularity()
    sizes = sizes_of(config.batches)
    rng = torch.Generator().manual_seed(subject.seed)
    distances = {
        name: {target: torch.zeros(len(sizes), len(sample.rows)) for target in TARGETS}
        for name in ESTIMATORS
    }
    noise = {name: torch.zeros(len(sizes), len(sample.rows)) for name in ESTIMATORS}
    for row, query in enumerate(sample.queries):  # the weights of all candidates, one at a time
        scores = (sample.candidates @ query).double()
        targets = limits_of(scores, popularity)
        for place, size in enumerate(sizes):
            share = (row + place / len(sizes)) / len(sample.rows)
            progress(f"limits: batches of {size}", share)
            draw = DRAWS[config.draws_by]
            halves = expected_weights(scores, popularity, size, config.draws, draw, rng)
            for name, (first, second) in halves.items():
                noise[name][place, row] = total_variation(first, second) / 2
                for target, expected in targets.items():
                    distance = total_variation((first + second) / 2, expected)
                    distances[name][target][place, row] = distance
    return _result(sizes, distances, noise)


def limits_of(scores: Tensor, popularity: Tensor) -> dict[str, Tensor]:
    """The three distributions of a query with scores [N]; [N] each."""
    logits = (scores, 2 * scores, scores + popularity.log())
    return {name: one.softmax(dim=0) for name, one in zip(TARGETS, logits, strict=True)}


def total_variation(left: Tensor, right: Tensor) -> Tensor:
    return (left - right).abs().sum() / 2


def expected_weights(
    scores: Tensor,
    popularity: Tensor,
    size: int,
    draws: int,
    draw: Draw,
    rng: torch.Generator,
) -> dict[str, tuple[Tensor, Tensor]]:
    """The mean weight of each candidate over batches, from two halves of them; [N] each."""
    sums = {name: [torch.zeros_like(scores), torch.zeros_like(scores)] for name in ESTIMATORS}
    counts = [0, 0]
    log_pop = popularity.log()
    for half in (0, 1):
        for ids in drawn_batches(popularity, size, draws // 2, rng):
            counts[half] += len(ids)
            for name, estimate in ESTIMATORS.items():
                weights = estimate(scores[ids], log_pop[ids], draw, rng).softmax(dim=1)
                sums[name][half].index_add_(0, ids.flatten(), weights.flatten())
    return {name: (a / counts[0], b / counts[1]) for name, (a, b) in sums.items()}


def _result(
    sizes: list[int],
    distances: dict[str, dict[str, Tensor]],
    noise: dict[str, Tensor],
) -> DiagnosisResult:
    last = {
        name: {t: float(one[-1].mean()) for t, one in by.items()} for name, by in distances.items()
    }
    nearest = {name: min(by, key=lambda target: by[target]) for name, by in last.items()}
    figures = {
        f"{name}, distance to softmax(s) at batches of {sizes[-1]:,}": by["s"][-1]
        for name, by in distances.items()
    }
    released = "bir released"
    figures = dict(sorted(figures.items(), key=lambda one: not one[0].startswith(released)))
    figures |= {
        f"{name}, distance to softmax({nearest[name]}), its nearest": by[nearest[name]][-1]
        for name, by in distances.items()
        if nearest[name] != "s"
    }
    figures["noise of these distances, about"] = max(one[-1].mean() for one in noise.values())
    exact = [name for name in nearest if nearest[name] == "s"]
    follows = (
        f"At batches of {sizes[-1]:,} bir as released is nearest to softmax({nearest[released]}), "
        f"ssl to softmax({nearest['ssl']}); "
        + (f"{', '.join(exact)} to softmax(s)" if exact else "none to softmax(s)")
        + ": where scores are read as log-probabilities, use one that is nearest to softmax(s)."
    )
    details = {
        "batches": sizes,
        "distances": {
            name: {t: one.mean(dim=1) for t, one in by.items()} for name, by in distances.items()
        },
        "noise": {name: one.mean(dim=1) for name, one in noise.items()},
        "nearest": nearest,
    }
    charts = {}
    for stem, target in zip(("limits", "limits-2s", "limits-popularity"), TARGETS, strict=True):
        lines = [Line.of_means(name, sizes, by[target]) for name, by in distances.items()]
        title = f"Distance of the gradient's weights to softmax({target})"
        charts[stem] = Chart(title, "batch size", "total variation", lines, ends=(0, 1), log="x")
    return DiagnosisResult.of(figures, follows, details, charts)


DIAGNOSIS = Diagnosis(
    "Which softmax does an in-batch loss approach as the batch grows?", CHEN2022, measure
)
