"""The path of a spectral fit as a picture: validation score against rank, a line per threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankfold.report.svg import COLOURS, DASHES, picture, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 230, 36, 48


def path_svg(path: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any], metric: str) -> str:
    """An SVG of every point of ``notes["path"]`` at the discount that the ranks were scored at.

    Args:
        path: entries with exponents, rank, threshold, discount, score and error.
        chosen: the settings that were kept; their point is marked.
        metric: the name of the score.
    """
    discount = max({e["discount"] for e in path}, key=[e["discount"] for e in path].count)
    shown = [entry for entry in path if entry["discount"] == discount]
    pairs = list(dict.fromkeys((e["query_exponent"], e["candidate_exponent"]) for e in shown))
    thresholds = list(dict.fromkeys(e["threshold"] for e in shown))
    ranks = [e["rank"] for e in path]
    top = max(e["score"] for e in path) * 1.05 or 1.0
    low = min(e["score"] for e in shown) * 0.95

    def place(rank: float, score: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * rank / max(ranks)
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (score - low) / (top - low)
        return f"{x:.1f},{y:.1f}"

    parts = [_frame(place, sorted(set(ranks)), low, top, metric, discount)]
    for i, pair in enumerate(pairs):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(text(WIDTH - RIGHT + 16, TOP + 20 + 20 * i, _named(pair), colour))
        for j, threshold in enumerate(thresholds):
            points = sorted(
                (e["rank"], e["score"])
                for e in shown
                if (e["query_exponent"], e["candidate_exponent"]) == pair
                and e["threshold"] == threshold
            )
            line = " ".join(place(*point) for point in points)
            dash = DASHES[j % len(DASHES)]
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" '
                f'stroke-dasharray="{dash}"/>'
            )
    for j, threshold in enumerate(thresholds):
        height, left = TOP + 40 + 20 * (len(pairs) + j), WIDTH - RIGHT + 16
        parts.append(
            f'<line x1="{left}" x2="{left + 36}" y1="{height - 4}" y2="{height - 4}" stroke="#777" '
            f'stroke-width="2" stroke-dasharray="{DASHES[j % len(DASHES)]}"/>'
        )
        parts.append(text(left + 44, height, f"threshold {threshold:g}"))
    names = ("query_exponent", "candidate_exponent", "rank", "threshold", "discount")
    best = [e for e in path if all(e[name] == chosen[name] for name in names)]
    for entry in best:
        x, y = place(entry["rank"], entry["score"]).split(",")
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="6" fill="none" stroke="#777" stroke-width="2"/>'
        )
        label = f"kept, discount {entry['discount']:g}: {entry['score']:.4f}"
        parts.append(text(float(x) - 8, float(y) - 10, label, anchor="end"))
    return picture("".join(parts), WIDTH, HEIGHT, f"{metric} against rank, a line per threshold")


def _frame(
    place: Any, ranks: Sequence[int], low: float, top: float, metric: str, discount: float
) -> str:
    """Axes, ticks and their names."""
    parts = []
    for i in range(5):
        score = low + (top - low) * i / 4
        _, y = place(0, score).split(",")
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, float(y) + 4, f"{score:.3f}", anchor="end"))
    for rank in ranks:
        x, _ = place(rank, low).split(",")
        parts.append(text(float(x), HEIGHT - BOTTOM + 18, str(rank), anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(text(middle, HEIGHT - 10, "rank", anchor="middle"))
    title = f"{metric} on the validation sample, popularity discount {discount:g}"
    parts.append(text(LEFT, 20, title))
    return "".join(parts)


def _named(pair: tuple[float, float]) -> str:
    e, beta = pair
    return f"exponents {e:g}, {beta:g}" + (" (plain)" if pair == (-0.5, 0.0) else "")
