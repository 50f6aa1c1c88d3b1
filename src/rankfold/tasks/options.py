"""The options of fit, tune, compare, evaluate and predict, with their bounds and help.

This module imports neither torch nor polars: the command line reads its help texts and defaults.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any, TypeVar

from rankfold.config import Settings, build, check, setting
from rankfold.errors import UserError
from rankfold.notebook import shown

S = TypeVar("S", bound=Settings)
DEFAULT_METRICS = ("ndcg@10", "mrr@10", "recall@20", "hit@10", "coverage@10")
SET_DEFAULTS = ("micro-f1@10", "macro-f1@10")  # also, for a model with thresholds
GRADED_DEFAULTS = ("tpr@fpr=.01", "tpr@fpr=.05", "tpr@fpr=.1", "pauc@fpr=.1", "auc", "order")

DEFAULT_PROPENSITY = "0.55,1.5"
_DEVICES = ("auto", "cpu", "cuda")
PATIENCE = (
    "stop after this many steps without a better score, where an epoch of fewer than 100 updates "
    "counts as its share of 100; default: 3; for graded rows there is no early stop, and the last "
    "step is kept if validation has fewer than 125 rows"
)
_DEVICE = f"the device to compute on: {', '.join(_DEVICES)}"


class FitOptions(Settings):
    """The options of ``fit`` that every method has."""

    seed: int = setting(0, at_least=0, help="seed of the random numbers")
    device: str = setting("auto", choices=_DEVICES, help=_DEVICE)
    out: str | Path | None = setting(
        None, help="folder of the model; without it there are no checkpoints"
    )
    resume: bool = setting(False, help="resume from the checkpoint, if there is one")
    refit: bool = setting(False, help="then fit again on train and validation")
    from_model: Any = setting(
        None,
        help="start from this model or its folder, for siamesexml: its encoder, and the vectors "
        "of candidates that it and the data have",
    )
    metric: str | None = setting(
        None,
        help="validation metric; default: ndcg@10, for graded rows pauc@fpr=0.1, for a method "
        "with a setting fpr pauc up to twice that rate",
    )
    patience: int | None = setting(None, at_least=1, help=PATIENCE)
    calibration_share: float | None = setting(
        None,
        at_least=0,
        below=1,
        help="share of graded validation rows that select nothing and set cuts and probabilities; "
        "default: 0.5, 0 with refit",
    )
    validation_queries: int = setting(
        10_000,
        at_least=1,
        help="score at most this many validation queries, the same for every seed",
    )
    checkpoint_seconds: float = setting(30.0, at_least=0, help="time between two checkpoints")
    seconds: float | None = setting(
        None, at_least=0, help="stop at the first step that ends after this time"
    )
    memory_budget: int = setting(2**30, at_least=1, help="memory for one block of work, in bytes")
    candidate_memory: int = setting(
        2**34,
        at_least=1,
        help="largest table of all candidates in bytes; a larger one is divided among the ranks",
    )
    report: Callable[..., None] | None = setting(
        None,
        help="called with the history after each step; default: a bar in a notebook",
    )
    comm: Any = setting(
        None, help="the processes that fit together; default: those that torchrun started"
    )


class TuneOptions(Settings):
    out: str | Path = setting(MISSING, help="folder of the search; an existing search is resumed")
    trials: int | None = setting(
        None, at_least=1, help="maximum number of trials; default: 20 without a budget"
    )
    budget: float | str | None = setting(None, help="time for all trials together: 120s, 2m or 1h")
    metric: str | None = setting(None, help="validation metric; default: that of fit")
    patience: int | None = setting(None, at_least=1, help=PATIENCE)
    seed: int = setting(0, at_least=0, help="seed of the search and of every fit")
    space: str | Mapping[str, Any] = setting(
        "usual", help="space to search: usual, or paper for the grid of the method's paper"
    )
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings that are not searched
    device: str = setting("auto", choices=_DEVICES, help=_DEVICE)
    report: Callable[[str, float], None] = setting(shown, help="called after each step")


class CompareOptions(Settings):
    protocol: str | None = setting(None, help="a published comparison, whose options are defaults")
    out: str | Path = setting(
        MISSING, help="folder of the results; an existing comparison is resumed"
    )
    trials: int | None = setting(None, at_least=1, help="tune each method with this many trials")
    budget: float | str | None = setting(
        None, help="tune each method for this long: 120s, 2m or 1h"
    )
    space: str = setting(
        "usual",
        choices=("usual", "paper"),
        help="space to search: usual, or the grid of a method's paper, if it states one",
    )
    seeds: int = setting(1, at_least=1, help="number of fits of each method that are tested")
    metrics: Sequence[str] | str | None = setting(
        None, help="test metrics; default: those of evaluate"
    )
    metric: str | None = setting(None, help="validation metric that selects; default: that of fit")
    width: int | None = setting(
        None,
        at_least=1,
        help="width of every method that has one; default: the smallest default of the compared "
        "methods. A method with another default gets a second row with its own",
    )
    patience: int | None = setting(None, at_least=1, help=f"of every method: {PATIENCE}")
    refit: bool = setting(True, help="fit the selected settings again on train and validation")
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # one setting and its values
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name or method
    device: str = setting("auto", choices=_DEVICES, help=_DEVICE)
    progress: Callable[[str, float], None] = setting(shown, help="called after each step")


class ListOptions(Settings):
    """The options of ``evaluate`` for a model that ranks."""

    propensity: str | Sequence[float] | None = setting(
        None,
        help="constants A,B of the propensities of psp and psn, whose counts are of the data's "
        f"training pairs; default: {DEFAULT_PROPENSITY}",
    )
    strata: bool = setting(
        False, help="also report by the frequency of the positives in the training pairs"
    )
    index: str = setting("exact", help="the index that searches vectors; see search")
    diversity: float = setting(
        0.0, help="judge the lists that search gives with this diversity, and those by score"
    )
    at_most: Mapping[str, int] | None = setting(
        None, help="judge the lists with so many results per value of a feature: {'brand': 2}"
    )
    thresholds: str | None = setting(
        None, help="of micro-f1 and its like: f1, the default, or precision=.9"
    )
    memory_budget: int = setting(2**30, at_least=1, help="memory for one block of work, in bytes")


class Certainty(Settings):
    """The intervals and calibration curves of graded rows."""

    bootstrap: int = setting(
        1000, at_least=0, help="samples for the intervals of graded rows; 0: no intervals"
    )
    seed: int = setting(0, at_least=0, help="seed of the bootstrap")
    confidence: float = setting(
        0.95, above=0, below=1, help="confidence of the intervals and promises of graded rows"
    )
    calibration: int = setting(
        0,
        at_least=0,
        help="bins of the shares of graded rows above each grade, by score; 0: no shares",
    )

    costs: str | Sequence[float] | None = setting(
        None,
        help="cost of a false alarm and of a miss between graded rows, such as 1,20: adds their "
        "expected cost per row",
    )

    def __post_init__(self) -> None:
        check(self)
        if self.bootstrap == 1:
            raise UserError(
                "`bootstrap` must be 0 or at least 2, got 1", hint="one sample has no interval"
            )


class RankOptions(Settings):
    """The options of ``predict`` for a model that ranks. A column that is None is guessed."""

    k: int = setting(10, at_least=1, help="results per query")
    query_column: str | None = setting(
        None, help="the column of keys; 'none' numbers the rows of texts"
    )
    text_column: str | None = setting(None, help="the column of texts")
    with_text: bool = setting(False, help="also write the texts of the candidates")
    min_probability: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="for texts: also write the probability that a result is right, and leave out results "
        "below this one",
    )
    thresholds: str | None = setting(
        None,
        help="for texts: only results that reach the thresholds of their candidates, learnt on "
        "validation: f1 for the largest F1, or precision=.9 to hold a precision",
    )
    include_seen: bool = setting(False, help="also return candidates that the query chose before")
    where: str | None = setting(
        None,
        help="only candidates whose features meet a condition: \"price < 20 and brand = 'acme'\"",
    )
    strict: bool = setting(False, help="refuse unknown queries and bad rows")


class GradeOptions(Settings):
    """The options of ``predict`` for a model that grades."""

    fpr: float = setting(
        0.01,
        help="for a model that grades: the largest share of the rows below a grade that may get "
        "that grade or a higher one",
    )
    confidence: float | None = setting(
        None,
        at_least=0.5,
        below=1,
        help="promise that rate with this confidence, at each grade; default: on average",
    )
    explain: bool = setting(
        False, help="also write the columns that move each score most, and by how much"
    )
    query_column: str | None = setting(
        None, help="the column of keys; default: as prepared, else rows are numbered"
    )
    strict: bool = setting(False, help="refuse bad rows")


_RANK, _GRADE = ("rank", "ranks candidates"), ("grade", "grades rows")
_PURPOSES = {RankOptions: _RANK, ListOptions: _RANK, GradeOptions: _GRADE, Certainty: _GRADE}


def build_own(kind: type[S], other: type[Settings], options: Mapping[str, Any]) -> S:
    """The options of one kind of model; a UserError for one that only the other kind has.

    Those of the other kind may be None, False or empty: then they ask for nothing.
    """
    others = {one.name for one in fields(other)} - {one.name for one in fields(kind)}
    for name, value in options.items():
        if name in others and not (value is None or value is False or value == {}):
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise UserError(
                f"`{name}` is for models that {_PURPOSES[other][0]}, but this one "
                f"{_PURPOSES[kind][1]}",
                hint=f"leave {flag} out",
            )
    return build(kind, {name: value for name, value in options.items() if name not in others})


def parse_budget(given: float | str | None) -> float | None:
    """Seconds: ``120``, ``"120s"``, ``"2m"``, ``"1.5h"``; None without a budget."""
    if given is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(given).strip())
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise UserError(f"`budget` must be a time, got {given!r}", hint="write 120s, 2m or 1h")
    return seconds
