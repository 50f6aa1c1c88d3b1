"""What all pictures are made of: one file each, that needs no other."""

from __future__ import annotations

from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # for all eyes
DASHES = ("", "6 3", "2 3", "8 3 2 3", "14 4", "2 6")
INK, FAINT = "#333", "#ddd"


def picture(inside: str, width: float, height: float, what: str) -> str:
    """A whole SVG on white; ``what`` is read to those who do not see it."""
    style = "font-family:system-ui,sans-serif;font-size:13px;background:#fff"
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} style="{style}">'
        f'<title>{escape(what)}</title><rect width="100%" height="100%" fill="#fff"/>'
        f"{inside}</svg>\n"
    )


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )
