"""JSON that every program can read: NaN and infinity become null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """The text of a document, with a final newline.

    JSON has no NaN and no infinity. Python's own writer writes them anyway, and strict readers such
    as ``jq`` and browsers then refuse the whole document.
    """
    plain = _finite(document)
    return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
