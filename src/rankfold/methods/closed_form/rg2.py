"""RG2: the softmax ranking loss to second order, solved for every rank and threshold; [rg2].

The factors of the best point on the path (``path_search``) are joined by a sparse tail: what a
decomposition of small rank leaves out.
"""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.methods.closed_form import spectral, tail
from rankfold.methods.closed_form.path_search import PathSearch, fold
from rankfold.methods.closed_form.racing import describe_choice
from rankfold.methods.pair_weights import training_rows, weighted_pairs
from rankfold.objectives.rg import row_sizes, target_line
from rankfold.solvers.spectral import expected_share
from rankfold.types import Dataset, Interactions, Method, Model, Opened, Run, Step


class Config(Settings):
    """Settings of ``rg2``.

    A setting of None is selected on validation. Without validation pairs ``PathSearch.default`` has
    its value.
    """

    width: int = setting(512, at_least=1, help="largest rank, the length of the vectors")
    query_exponent: float | None = setting(
        None, at_least=-2, at_most=2, help="power of a query's size; the paper has -0.5"
    )
    candidate_exponent: float | None = setting(
        None, at_least=-2, at_most=2, help="power of a candidate's count; the paper has 0"
    )
    rank: int | None = setting(None, at_least=1, help="components to keep")
    threshold: float | None = setting(
        None, at_least=0, below=1, help="shrinkage, as a share of the last kept singular value"
    )
    discount: float | None = setting(
        None, at_least=-2, at_most=2, help="popularity discount: a power of a candidate's count"
    )
    tail: Literal["neighbours", "none"] = setting(
        "neighbours", help="scores beside those of the vectors; none: the vectors alone"
    )
    neighbours: int = setting(100, at_least=1, help="neighbours of each candidate in the tail")
    tail_reg: float = setting(
        10.0, above=0, help="regularisation of the tail, as a multiple of the mean diagonal"
    )
    tail_weight: float | None = setting(
        None,
        at_least=0,
        help="weight of the tail; at 1 its scores are as large as those of the vectors",
    )
    popularity: float | None = setting(
        None, at_least=0, help="weight of the candidates' counts, relative as that of the tail"
    )
    tolerance: float = setting(
        spectral.TOLERANCE, above=0, below=1, help="largest residual at the end"
    )
    path_queries: int = setting(400, at_least=1, help="validation queries that score the path")
    weights: Literal["none", "grade"] = setting("none", help="grade: grades are confidences")
    used_with: ClassVar = {
        "neighbours": ("tail", "neighbours"),
        "tail_reg": ("tail", "neighbours"),
        "tail_weight": ("tail", "neighbours"),
    }


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Decompose for some pairs of exponents and select on validation. A step per pass."""
    given = None if data.given is None else weighted_pairs(data.given, config.weights)
    search = PathSearch(training_rows(data, config.weights, run.device), config, run, given)
    before = run.resume  # None once its pair of exponents is reached
    number = 0 if before is None else int(before["number"])
    while (place := search.next_place()) is not None:
        inside = None
        if before is not None and int(before["place"]) == place:
            inside, before = before, None
        for spectrum in search.passes(place, inside):
            if spectrum.vectors is None and before is None:
                number += 1
                state = {"place": torch.tensor(place), **spectrum.state}
                done = len(search.tried) + expected_share(spectrum.columns, config.width)
                yield Step(
                    number, spectrum.residual, None, state.copy, False,
                    done / len(search.exponents),
                    divided=() if search.shards is None else ("space", "outside"),
                )  # fmt: skip
        search.take(place, spectrum)
        search.best_scores.append({"step": number + 1, "score": max(search.tried.values())})
    model = search.best()
    residual = model.notes["residual"]
    yield Step(number + 1, residual, model, dict, final=True)


def _open(model: Model) -> Opened:
    has_tail = "neighbours" in model.tensors
    return Opened(
        histories=partial(_fold_in, model),
        extra=partial(_extra, model) if has_tail else None,
        parts=partial(_parts, model),
    )


def _fold_in(model: Model, rows: Interactions) -> Tensor:
    """Vectors of new queries from their candidates, in closed form; [B, D]."""
    solution = spectral.from_tensors(model.tensors)
    rows = weighted_pairs(rows.to(solution.candidates.device), model.config["weights"])
    return fold(solution, rows, model.config["query_exponent"])


def _extra(model: Model, rows: Interactions) -> Interactions:
    """The scores of the tail, to add to the inner products with the vectors of ``_fold_in``."""
    rows = weighted_pairs(rows, model.config["weights"])
    slope, _ = target_line(row_sizes(rows), rows.n_candidates, model.config["query_exponent"])
    return tail.extra_scores(tail.from_tensors(model.tensors), rows, slope)


def _parts(model: Model, rows: Interactions, ids: Tensor) -> Tensor:
    """What each pair of one history adds to the scores of the candidates ``ids``; [nnz, K]."""
    rows = weighted_pairs(rows, model.config["weights"])
    slope, _ = target_line(row_sizes(rows), rows.n_candidates, model.config["query_exponent"])
    parts = spectral.fold_parts(spectral.from_tensors(model.tensors), rows, slope, ids)
    if "neighbours" not in model.tensors:
        return parts
    return parts + tail.extra_parts(tail.from_tensors(model.tensors), rows, slope, ids)


def _describe(model: Model) -> str | None:
    """The selected point of the path, in words."""
    names = ["query_exponent", "candidate_exponent", "rank", "threshold", "discount"]
    more = ("tail_weight", "popularity")
    names += [name for name in more if model.config.get(name) is not None]
    return describe_choice(model, names, tried="path")


METHOD = Method(
    summary="softmax ranking loss to second order, in closed form, with scores of neighbours",
    config=Config,
    data_kind="interactions",
    fit=fit,
    open=_open,
    answers=("histories",),
    paper="rg2",
    self_tuning=True,
    own_threads=True,
    distributed=True,
    per_candidate=(*spectral.PER_CANDIDATE, "neighbours", "neighbour_weights"),
    describe=_describe,
)
