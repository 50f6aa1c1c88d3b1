"""JSON as every program can read it: what is no number there is null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def as_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """The text of a document, with a line end.

    JSON has no NaN and no infinity. Python would write them all the same, and readers that are
    strict, like ``jq`` and browsers, would refuse all of it.
    """
    plain = _finite(document)
    return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
