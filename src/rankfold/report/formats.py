"""Numbers as text: times, sizes, p values, lists."""

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

UNKNOWN = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"  # as wide as a plus


def number(value: float | None, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if is_known(value) else UNKNOWN


def signed(value: float | None) -> str:
    """A number with its sign."""
    return f"{value:+.4f}".replace("-", MINUS) if is_known(value) else UNKNOWN


def p_value(p: float | None) -> str:
    if not is_known(p):
        return UNKNOWN
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def duration(seconds: float | None) -> str:
    """A time with up to three digits, in a suitable unit."""
    if not is_known(seconds):
        return UNKNOWN
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 599.5:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 5997 else f"{seconds / 3600:.3g} h"


def count(value: float | None) -> str:
    return f"{value:,.0f}" if is_known(value) else UNKNOWN


def size(value: float | None) -> str:
    """Bytes in a suitable unit; 1 MB is a million."""
    if not is_known(value):
        return UNKNOWN
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= 0.9995 * unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


def is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def join(names: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
