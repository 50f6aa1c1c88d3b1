"""The pictures of the documentation, each in light and in dark colours, in ``docs/figures/``.

    python docs/pictures.py            # all of them, some two minutes
    python docs/pictures.py tree       # one

``python -m benchmarks.figures`` makes the charts of the benchmarks, and
``docs/diagnosis_pictures.py`` those of the diagnoses.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

import rankfold as rf
from rankfold.report import scales
from rankfold.report.chart import (
    DARK,
    LIGHT,
    Look,
    Point,
    Series,
    _theme_css,
    css,
    look,
    picture,
)

OUT = Path(__file__).parent / "figures"
FONT = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif"'
COLOURS = {  # paper, panel, ink, soft text, accent
    "": ("#ffffff", "#f3f5f8", "#1b1f24", "#57606a", "#0b6bcb"),
    "-dark": ("#15181c", "#20252b", "#e8eaed", "#a3acb8", "#56b4e9"),
}


def hero(_folder: Path) -> None:
    """Three tasks, with results of models that are fitted here on the bundled data."""
    links = rf.prepare(source="debian-seealso")
    related = rf.fit("rg2", links, width=64).search(["gimp"], k=3)
    tagged = rf.prepare(source="debian-tags", format="texts")
    text = "command line tool to resize photos"
    labels = rf.fit("siamesexml", tagged).search(text=[text], k=3)
    eyes = rf.prepare(source="retinamnist")
    grader = rf.fit("cba", eyes, fpr=0.05, epochs=10)
    scores = grader.score(eyes.graded("test"))
    best = torch.argsort(scores, descending=True)[:3]
    worst = [f"photograph {int(i)}" for i in best]
    lanes = (
        ("Recommend", "who chose what", "gimp", [str(key) for key in related.keys[0]], "rg2"),
        ("Label texts", "short texts, label names", text, [str(k) for k in labels.keys[0]],
         "siamesexml"),
        ("Grade", "rows with an ordered grade", "400 photographs of retinas", worst, "cba"),
    )  # fmt: skip
    for suffix in COLOURS:
        (OUT / f"hero{suffix}.svg").write_text(_hero(lanes, suffix, across=3))
        (OUT / f"hero-narrow{suffix}.svg").write_text(_hero(lanes, suffix, across=1))


def _hero(lanes: Sequence[tuple[str, str, str, list[str], str]], suffix: str, across: int) -> str:
    paper, panel, ink, soft, accent = COLOURS[suffix]
    step, rows = 280, len(lanes) // across
    width, height = step * across - 20, step * rows - 12
    parts = [f'<rect width="{width}" height="{height}" rx="10" fill="{paper}"/>']
    for number, (title, about, question, answers, method) in enumerate(lanes):
        x, y = step * (number % across), step * (number // across)
        parts.append(f'<rect x="{x}" y="{y}" width="260" height="268" rx="10" fill="{panel}"/>')
        parts.append(_words(x + 18, y + 32, title, ink, 19, 700))
        parts.append(_words(x + 18, y + 54, about, soft, 13))
        parts.append(_words(x + 18, y + 90, _cut(question, 28), ink, 14, 600))
        parts.append(
            f'<path d="M{x + 34} {y + 102}v22m-5-6l5 6l5-6" stroke="{accent}" stroke-width="2.5" '
            'fill="none" stroke-linecap="round"/>'
        )
        parts.append(_words(x + 52, y + 118, method, accent, 14, 700))
        for place, answer in enumerate(answers):
            top = y + 152 + 38 * place
            share = 224 * (1 - 0.08 * place)
            parts.append(
                f'<rect x="{x + 18}" y="{top - 19}" width="{share:.0f}" height="30" rx="6" '
                f'fill="{accent}" fill-opacity="{0.3 - 0.08 * place:.2f}"/>'
            )
            parts.append(_words(x + 30, top + 1, f"{place + 1}   {_cut(answer, 23)}", ink, 14))
    return _svg(width, height, "rankfold: recommend, label texts, grade", parts)


TREE = (
    ("Do the rows have an ordered grade?", "trees", "images: cba; few rows: compare with ce"),
    ("Are the queries texts?", "siamesexml", "labels with many texts each: text-linear"),
    ("Items that nobody has chosen yet?", "ssl-pop with towers", "needs features of the items"),
    ("Replacing another library's iALS?", "ials", "the same objective and settings"),
    ("Under 50,000 items, time to spare?", "blend", "rg2 and ease together; no vectors"),
)


def tree(_folder: Path) -> None:
    """Which method: a decision chart, with the answers beside or below the questions."""
    for suffix in COLOURS:
        (OUT / f"tree{suffix}.svg").write_text(_tree(suffix, (760, 86, 356, 442, 0, 302)))
        (OUT / f"tree-narrow{suffix}.svg").write_text(_tree(suffix, (380, 146, 356, 62, 62, 306)))


def _tree(suffix: str, sizes: tuple[int, int, int, int, int, int]) -> str:
    """``sizes``: of the picture, a row and a question; place and width of an answer."""
    width, row, box, left, below, room = sizes
    _, panel, ink, soft, accent = COLOURS[suffix]
    x, height = 16 if below == 0 else 12, row * len(TREE) + 92
    parts = [f'<rect width="{width}" height="{height}" rx="10" fill="{COLOURS[suffix][0]}"/>']
    line = f'stroke="{soft}" fill="none" stroke-width="2"'
    for number, (question, name, note) in enumerate(TREE):
        y = 14 + row * number
        top, down = y + below, left + 132
        across = f"M{x + box} {y + 25}h66m-7-5l7 5l-7 5"
        parts += [
            f'<rect x="{x}" y="{y}" width="{box}" height="50" rx="8" fill="{panel}"/>',
            _words(x + 16, y + 31, question, ink, 15, 600),
            f'<path d="{f"M{down} {y + 50}v12" if below else across}" {line}/>',
            _words(down + 8 if below else 394, y + (61 if below else 17), "yes", soft, 13),
            f'<rect x="{left}" y="{top}" width="{room}" height="50" rx="8" fill="{accent}" '
            'fill-opacity=".18"/>',
            _words(left + 14, top + 21, name, ink, 15, 700),
            _words(left + 14, top + 40, note, soft if suffix else "#3d4650", 12.5),
        ]
        middle = 30 if below else x + box // 2
        parts += [
            f'<path d="M{middle} {y + 50}v{row - 54}m-5-7l5 7l5-7" {line}/>',
            _words(middle + 10, y + 71, "no", soft, 13),
        ]
    y = 14 + row * len(TREE)
    parts.append(
        f'<rect x="{x}" y="{y}" width="{box}" height="50" rx="8" fill="{accent}" '
        'fill-opacity=".18"/>'
    )
    parts.append(_words(x + 16, y + 31, "rg2", ink, 17, 700))
    parts.append(_words(x + 64, y + 31, "the default: start here", ink, 15))
    return _svg(width, height, "Which method when", parts)


def spectrum(_folder: Path) -> None:
    """Singular values of the pairs as ``rg2`` weighs them: what a rank keeps, and the tail."""
    pairs = rf.prepare(source="debian-seealso").split("train")
    rows, sizes = pairs.query_of_pair().long(), pairs.offsets.diff().float()
    counts = torch.bincount(pairs.candidates.long(), minlength=pairs.n_candidates).float()
    values = sizes[rows] ** -0.375 * counts[pairs.candidates.long()] ** -0.25
    place = torch.stack([rows, pairs.candidates.long()])
    matrix = torch.sparse_coo_tensor(place, values, (len(sizes), pairs.n_candidates)).coalesce()
    torch.manual_seed(0)
    _, found, _ = torch.svd_lowrank(matrix, q=700, niter=4)
    found = found[:512]
    rank, total = 64, float((values**2).sum())
    kept = float((found[:rank] ** 2).sum()) / total
    points = [Point(i + 1.0, float(v / found[0])) for i, v in enumerate(found)]
    series = [
        Series(f"kept by rank {rank}: {100 * kept:.0f} % of the squares", Look("m0"),
               points[:rank]),
        Series(f"the rest, for the tail: {100 - 100 * kept:.0f} %", Look("m1", "6 3"),
               points[rank - 1 :]),
    ]  # fmt: skip
    _chart("spectrum", "Singular values of debian-seealso, as rg2 weighs its pairs",
           "component (log scale)", "share of the largest", series, log=True)  # fmt: skip


def bias(_folder: Path) -> None:
    """What in-batch softmax learns, without and with the correction for popularity."""
    rng = torch.Generator().manual_seed(0)
    n, batch = 60, 64
    popularity = torch.arange(1, n + 1).float() ** -1.0
    popularity /= popularity.sum()
    series = []
    for number, (name, corrected) in enumerate(
        (("uncorrected (ssl)", 0.0), ("minus log popularity (ssl-pop)", 1.0))
    ):
        score = torch.zeros(n, requires_grad=True)
        optimiser, mean = torch.optim.Adam([score], lr=0.02), torch.zeros(n)
        for step in range(3000):
            drawn = torch.multinomial(popularity, batch, replacement=True, generator=rng)
            logits = (score - corrected * popularity.log())[drawn]
            loss = logits.logsumexp(0) - logits.mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step >= 1500:
                mean += score.detach() / 1500
        learnt = mean - mean.mean()
        style = look(number)._replace(dash="")
        points = [Point(100 * float(p), float(v)) for p, v in zip(popularity, learnt, strict=True)]
        series.append(Series(name, style, points[::-1]))
    truth = popularity.log() - popularity.log().mean()
    line = [Point(100 * float(p), float(v)) for p, v in zip(popularity, truth, strict=True)]
    series.append(Series("log popularity: the truth", Look("ink", "5 4"), line[::-1]))
    _chart("bias", "In-batch softmax where choices follow popularity alone",
           "% of the choices (log scale)", "learnt score", series, log=True)  # fmt: skip


def corner(folder: Path) -> None:
    """The left end of the ROC curve: cross-entropy against ``cba``, linear on planted data."""
    rng = torch.Generator().manual_seed(0)

    def rows(n: int) -> dict[str, list[float] | list[str]]:
        """The first number separates better on the whole, the second better at the top."""
        case, noise = torch.rand(n, generator=rng) < 0.5, torch.randn(n, 2, generator=rng)
        wide = torch.where(case, 3 + noise[:, 0], 3 * noise[:, 0])
        narrow = torch.where(case, 0.6 + 0.9 * noise[:, 1], 0.5 * noise[:, 1])
        stage = ["case" if one else "none" for one in case.tolist()]
        return {"wide": wide.tolist(), "narrow": narrow.tolist(), "stage": stage}

    for name, n in (("train", 4000), ("validation", 4000), ("test", 20_000)):
        pl.DataFrame(rows(n)).write_csv(folder / f"{name}.csv")
    data = rf.prepare(
        train=str(folder / "train.csv"), validation=str(folder / "validation.csv"),
        test=str(folder / "test.csv"), format="features", grade_column="stage",
        grades=["none", "case"],
    )  # fmt: skip
    test = data.graded("test")
    series = []
    for number, (method, more) in enumerate((("ce", {}), ("cba", {"fpr": 0.01}))):
        model = rf.fit(method, data, encoder="linear", epochs=10, **more)
        scores, positive = model.score(test), test.grades > 0
        curve = _curve(scores, positive)
        at = max(y for x, y in curve if x <= 0.01)
        points = [Point(x, y) for x, y in curve if x <= 0.1]
        style = look(number)._replace(mark="", dash="" if number else "6 3")
        series.append(Series(f"{method}: {at:.2f} at .01", style, points))
    series.append(Series("FPR .01", Look("ink", "2 3"), [Point(0.01, 0.0), Point(0.01, 1.0)]))
    _chart("corner", "The left corner of the ROC curve, planted data", "false-positive rate",
           "true-positive rate", series)  # fmt: skip


def _curve(scores: Tensor, positive: Tensor) -> list[tuple[float, float]]:
    order = scores.argsort(descending=True)
    hits = positive[order].double()
    true, false = hits.cumsum(0) / hits.sum(), (1 - hits).cumsum(0) / (1 - hits).sum()
    step = max(1, len(order) // 800)
    return [(0.0, 0.0), *zip(false[::step].tolist(), true[::step].tolist(), strict=True)]


def _chart(
    name: str, title: str, x: str, y: str, series: Sequence[Series], *, log: bool = False
) -> None:
    points = [point for one in series for point in one.points]
    places = [point.x for point in points]
    across = scales.logarithmic(x, places) if log else scales.linear(x, scales.with_zero(places))
    up = scales.linear(y, scales.with_zero([point.y for point in points]))
    svg = picture(title, across, up, series)
    rules = css()
    for suffix, theme in (("", LIGHT), ("-dark", DARK)):
        (OUT / f"{name}{suffix}.svg").write_text(svg.replace(rules, f"{_theme_css(theme)}{_NAMES}"))


_NAMES = "svg .name { paint-order: stroke; stroke-width: 4px; }\n"


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" {FONT}><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>\n"
    )


def _words(x: float, y: float, text: str, colour: str, size: float, weight: int = 400) -> str:
    return (
        f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


PICTURES: dict[str, Callable[[Path], None]] = {
    "hero": hero, "tree": tree, "spectrum": spectrum, "bias": bias, "corner": corner,
}  # fmt: skip


def main(names: Sequence[str]) -> None:
    """Make the named pictures, or all."""
    OUT.mkdir(exist_ok=True)
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            PICTURES[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
