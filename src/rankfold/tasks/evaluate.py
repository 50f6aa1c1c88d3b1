"""How well a model ranks or grades a held-out split."""

from collections.abc import Sequence
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
from rankfold.notebook import shown
from rankfold.tasks.evaluate_graded import GradedEvaluation, evaluate_graded
from rankfold.tasks.evaluate_ranking import Evaluation, evaluate_ranking, test_pairs
from rankfold.tasks.options import GRADED_DEFAULTS, Certainty, ListOptions, build_own
from rankfold.types import Comm, Dataset, Progress, SplitName


@config.explicit(ListOptions, Certainty)
def evaluate(
    model: Ranker | Grader | str | Path,
    data: Any,
    *,
    split: SplitName = "test",
    metrics: Sequence[str] | str | None = None,
    progress: Progress = shown,
    **options: Any,
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
        progress: called after each block.
        options: see below, first those of a model that ranks, then those of one that grades.
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
        certainty = build_own(Certainty, ListOptions, options)
        metrics = GRADED_DEFAULTS if metrics is None else metrics
        return evaluate_graded(
            model, data, metrics=metrics, certainty=certainty, comm=comm, **shared
        )
    own = build_own(ListOptions, Certainty, options)
    return evaluate_ranking(model, data, metrics=metrics, options=own, **shared)


def _own_part(data: Any, model: Ranker | Grader, comm: Comm) -> Dataset:
    """The part of this process in the data: a folder, a data set, or a table of test pairs."""
    if isinstance(data, str | Path):
        return load_data(data, comm)
    if isinstance(data, Dataset) or isinstance(model, Grader):
        return part(data, comm)
    return part(test_pairs(model, as_data(data)), comm)
