"""Methods that fail, and results of a comparison without its times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rankfold.errors import UserError
from rankfold.types import Dataset, Method, Opened, Run, Step

TIMES = ("fit_seconds", "peak_bytes", "steps", "trials")


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """Results without the values that differ between runs: times, memory, the folder."""
    methods = [{k: v for k, v in one.items() if k not in TIMES} for one in results["methods"]]
    return {**results, "methods": methods, "command": ""}


@dataclass(frozen=True, slots=True)
class NoConfig:
    """No settings."""


def fit_refused(_data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    raise UserError("it cannot be", hint="do not try")


def fit_broken(_data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    raise ZeroDivisionError("by zero")


def method_of(config: type[Any], fit: Callable[[Dataset, Any, Run], Iterator[Step]]) -> Method:
    return Method("", config, "interactions", fit, lambda _model: Opened())
