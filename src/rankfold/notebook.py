"""What Jupyter shows: the progress of long work, and cards of data, models and results."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = (
    "border:1px solid #8886;border-radius:6px;padding:.5em .8em;display:inline-block;"
    "font:13px/1.45 system-ui,sans-serif"
)
_HEIGHT, _BAR = 36, 6  # pixels of the small picture
_display: dict[str, Any] = {}  # of the cell that runs: its number, and what it shows


def silent(*_: object) -> None:
    """A progress or report function that shows nothing."""


def shown(what: str, share: float) -> None:
    """A ``Progress`` that moves a bar in a notebook, and shows nothing elsewhere."""
    shell = _notebook()
    if shell is None:
        return
    bar = f'<progress value="{min(max(share, 0.0), 1.0):.3f}" max="1"></progress>'
    html = {"text/html": f"{bar if share > 0 else '…'} {escape(what)}", "text/plain": what}
    if _display.get("cell") == shell.execution_count:
        _display["handle"].update(html, raw=True)
    else:
        from_ipython = sys.modules["IPython.display"]
        _display.update(
            cell=shell.execution_count,
            handle=from_ipython.display(html, raw=True, display_id=True),
        )


def _notebook() -> Any:
    """The running notebook's shell; None elsewhere, a terminal with IPython included."""
    if "IPython.display" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    return shell if shell is not None and hasattr(shell, "kernel") else None


def card(title: str, facts: Mapping[str, Any], bars: Iterable[float] = (), note: str = "") -> str:
    """HTML: a title, facts by name, and a small picture of some values with its ``note``."""
    rows = "".join(
        f'<tr><th style="text-align:left;font-weight:500;padding-right:1em">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    picture = _picture([*bars], note)
    return (
        f'<div style="{_STYLE}"><strong>{escape(title)}</strong>'
        f'<table style="margin:.3em 0;background:none">{rows}</table>{picture}</div>'
    )


def _picture(values: Sequence[float], note: str) -> str:
    """Bars from 0 to the largest value."""
    top = max(values, default=0.0)
    if len(values) < 2 or not top > 0:
        return ""
    bars = "".join(
        f'<rect x="{_BAR * place}" width="{_BAR - 1}" y="{_HEIGHT * (1 - value / top):.1f}" '
        f'height="{_HEIGHT * value / top:.1f}"/>'
        for place, value in enumerate(max(value, 0.0) for value in values)
    )
    return (
        f'<svg role="img" aria-label="{escape(note)}" width="{_BAR * len(values)}" '
        f'height="{_HEIGHT}" fill="#4477aa">{bars}</svg><br><small>{escape(note)}</small>'
    )
