"""Features as lists of plain values."""

from rankfold.types import Features


def numbers(features: Features) -> list[list[float | None]]:
    return [[None if v != v else v for v in row] for row in features.numbers.tolist()]


def words(features: Features) -> list[list[str | None]]:
    """The categories by name."""
    levels = list(features.columns.levels.values())
    rows = features.categories.tolist()
    return [[None if i < 0 else levels[c][i] for c, i in enumerate(row)] for row in rows]
