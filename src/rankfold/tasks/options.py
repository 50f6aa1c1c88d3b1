"""The options of fit, tune and compare, with their bounds and help.

This module imports neither torch nor polars: the command line reads its help texts and defaults.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from rankfold.config import Settings, setting

_DEVICES = ("auto", "cpu", "cuda")
SEED = "seed of the random numbers"


def silent(*_: object) -> None:
    """A report or progress function that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions(Settings):
    """The options of ``fit`` that every method has."""

    seed: int = setting(0, at_least=0, help=SEED)
    device: str = setting("auto", choices=_DEVICES, help="the device to compute on")
    out: str | Path | None = setting(
        None, help="folder of the model; without it there are no checkpoints"
    )
    resume: bool = setting(False, help="resume from the checkpoint, if there is one")
    refit: bool = setting(False, help="then fit again on train and validation")
    metric: str | None = setting(
        None,
        help="validation metric; default: ndcg@10, for graded rows pauc@fpr=0.1, for a method "
        "with a setting fpr pauc up to twice that rate",
    )
    patience: int | None = setting(
        None,
        at_least=1,
        help="stop after this many steps without a better score; default: 3; for graded rows there "
        "is no early stop, and the last step is kept if validation has fewer than 125 rows",
    )
    validation_queries: int = setting(
        10_000, at_least=1, help="score at most this many validation queries, drawn by the seed"
    )
    checkpoint_seconds: float = setting(30.0, at_least=0, help="time between two checkpoints")
    seconds: float | None = setting(
        None, at_least=0, help="stop at the first step that ends after this time"
    )
    memory_budget: int = setting(2**30, at_least=1, help="bytes for one block of work")
    candidate_memory: int = setting(
        2**34,
        at_least=1,
        help="largest table of all candidates in bytes; a larger one is divided among the ranks",
    )
    report: Callable[..., None] = setting(silent, help="called with the history after each step")
    comm: Any = setting(
        None, help="the processes that fit together; default: those that torchrun started"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(Settings):
    """The options of ``tune``."""

    out: str | Path = setting(MISSING, help="folder of the search; an existing search is resumed")
    trials: int | None = setting(
        None, at_least=1, help="maximum number of trials; default: 20 without a budget"
    )
    budget: float | str | None = setting(None, help="time for all trials together: 120s, 2m or 1h")
    metric: str | None = setting(None, help="validation metric; default: that of fit")
    seed: int = setting(0, at_least=0, help="seed of the search and of every fit")
    space: str | Mapping[str, Any] = setting(
        "usual", help="space to search: usual, or paper for the grid of the method's paper"
    )
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings that are not searched
    device: str = setting("auto", choices=_DEVICES, help="the device to compute on")
    report: Callable[[str, float], None] = setting(silent, help="called after each step")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(Settings):
    """The options of ``compare``."""

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
    refit: bool = setting(True, help="fit the selected settings again on train and validation")
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # one setting and its values
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name or method
    device: str = setting("auto", choices=_DEVICES, help="the device to compute on")
    progress: Callable[[str, float], None] = setting(silent, help="called after each step")
