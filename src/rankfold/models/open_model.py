"""Opening a model by its method; a changed folder gives one error, not a traceback."""

from collections.abc import Mapping
from typing import Any

import torch

from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.types import Model, Opened

_WRONG = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def open_model(model: Model) -> Opened:
    """The model with its modules built; a UserError for settings and notes of another one."""
    try:
        return METHODS[model.method].open(model)
    except (UserError, torch.OutOfMemoryError):
        raise
    except _WRONG as error:
        raise UserError(
            f"cannot open this {model.method} model ({type(error).__name__}: {error})",
            hint="its settings or notes are not those that were saved; fit it again",
        ) from error


def check_meta(meta: Mapping[str, Any]) -> None:
    """A TypeError or ValueError unless settings, notes and history are what a fit writes."""
    for name in ("config", "notes"):
        if not isinstance(meta[name], dict):
            raise TypeError(f"its {name} is not an object")
    history = meta["notes"].get("history", [])
    if not isinstance(history, list) or not all(isinstance(step, dict) for step in history):
        raise ValueError("its history is not a list of steps")
    for step in (*history, meta["notes"]):
        for name, kind in (("seconds", int | float), ("score", int | float | None)):
            if not isinstance(step.get(name, 0.0), kind):
                raise TypeError(f"its history has {step[name]!r:.100} as {name}")
    fpr = meta["config"].get("fpr", 0.5)
    if not isinstance(fpr, int | float):
        raise TypeError(f"its fpr is {fpr!r:.100}")
    if not all(isinstance(size, int) and 0 <= size < 2**63 for size in meta["sizes"]):
        raise ValueError(f"its sizes are {meta['sizes']!r:.100}")
