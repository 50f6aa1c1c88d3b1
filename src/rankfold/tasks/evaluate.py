"""How well a model ranks or grades a held-out split."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold import config
from rankfold.data.folder import load as load_data
from rankfold.data.folder import part
from rankfold.data.prepare import as_data
from rankfold.distributed.connection import connect
from rankfold.errors import UserError
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.models.reranking import Rules
from rankfold.models.thresholds import F1, are_learnt
from rankfold.notebook import shown
from rankfold.tasks.evaluate_graded import GradedEvaluation, evaluate_graded
from rankfold.tasks.evaluate_ranking import Evaluation, evaluate_ranking, test_pairs
from rankfold.tasks.options import DEFAULT_METRICS, GRADED_DEFAULTS, SET_DEFAULTS, Certainty
from rankfold.types import Comm, Dataset, Progress, SplitName


@config.explicit(Certainty)
def evaluate(  # noqa: PLR0913
    model: Ranker | Grader | str | Path,
    data: Any,
    *,
    split: SplitName = "test",
    metrics: Sequence[str] | str | None = None,
    propensity: tuple[float, float] | None = None,
    strata: bool = False,
    index: str = "exact",
    diversity: float = 0.0,
    at_most: Mapping[str, int] | None = None,
    thresholds: str | None = None,
    memory_budget: int = 2**30,
    progress: Progress = shown,
    **graded: Any,
) -> Evaluation | GradedEvaluation:
    """Rank all candidates for every query with a pair in ``split``, or grade its rows.

    Training pairs are hidden when validation is scored; training and validation pairs when test is
    scored. Data other than the model's own is matched by key. An unknown query is left out and
    counted; an unknown candidate is a positive that the model cannot find. A model that ranks by
    text knows every query by its text in the data. Graded rows are measured by the metrics of
    ``metrics/graded.py``, with intervals. Under torchrun each process ranks for its own queries, or
    scores its own rows, and all return the values of all.

    Args:
        model: a model or its folder.
        data: prepared data or its folder; for a model that ranks also a table or matrix of pairs,
            which are all taken as test pairs: what the model has seen is hidden.
        split: validation or test.
        metrics: names with a cut-off, or with a false-positive rate; None: the defaults.
        propensity: A and B of psp and psn; counts are of the data's training pairs.
        strata: also measure by the frequency of the positives in the training pairs.
        index: searches vectors: a key of ``INDEXES``.
        diversity: judge the lists that ``search(diversity=...)`` gives, and those by score.
        at_most: in the same way, for ``search(at_most=...)``.
        thresholds: of the metrics of sets, such as micro-f1@10: ``f1``, the default, or
            ``precision=.9``.
        memory_budget: bytes for blocks.
        progress: called after each block.
        graded: for a model that grades, see below.
    """
    comm = connect()
    model = model if isinstance(model, Ranker | Grader) else load(model)
    data = _own_part(data, model, comm)
    if split not in ("validation", "test"):
        raise UserError(
            f"`split` must be validation or test, got {split!r}", hint="use --split test"
        )
    shared: dict[str, Any] = {"split": split, "progress": progress}
    if isinstance(model, Grader):
        ranking: dict[str, Any] = {"strata": strata, "index": index != "exact"}
        ranking |= {"propensity": propensity, "diversity": diversity, "at_most": at_most}
        ranking["thresholds"] = thresholds
        if wrong := next((name for name, value in ranking.items() if value), None):
            raise UserError(
                f"`{wrong}` is for models that rank, but this one grades rows",
                hint=f"leave --{wrong.replace('_', '-')} out",
            )
        certainty = config.build(Certainty, graded)
        metrics = GRADED_DEFAULTS if metrics is None else metrics
        return evaluate_graded(
            model, data, metrics=metrics, certainty=certainty, comm=comm, **shared
        )
    config.check_names(Certainty, graded)
    if wrong := next(iter(graded), None):
        raise UserError(
            f"`{wrong}` is for models that grade, but {model.model.method} ranks candidates",
            hint=f"leave --{wrong} out",
        )
    shared |= {"propensity": propensity, "strata": strata, "index": index}
    shared["rules"] = Rules(diversity=diversity, at_most=at_most or {})
    shared["thresholds"] = thresholds or F1
    if metrics is None:
        in_sets = are_learnt(model.model) and not shared["rules"]
        metrics = (*DEFAULT_METRICS, *SET_DEFAULTS) if in_sets else DEFAULT_METRICS
    return evaluate_ranking(model, data, metrics=metrics, memory_budget=memory_budget, **shared)


def _own_part(data: Any, model: Ranker | Grader, comm: Comm) -> Dataset:
    """The part of this process in the data: a folder, a data set, or a table of test pairs."""
    if isinstance(data, str | Path):
        return load_data(data, comm)
    if isinstance(data, Dataset) or isinstance(model, Grader):
        return part(data, comm)
    return part(test_pairs(model, as_data(data)), comm)
