"""Times as text: which format a column has, and its values as seconds since 1970."""

import polars as pl

from rankfold.errors import UserError

DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
ISO = "ISO"
_ISO = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%z")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_MARKS = "/.-"
_NUMERIC = {
    DAY_FIRST: [f"%d{mark}%m{mark}%Y" for mark in _MARKS],
    MONTH_FIRST: [f"%m{mark}%d{mark}%Y" for mark in _MARKS],
}
_NAMED = ("%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y")
_UNIX_DATE = "%a %b %d %H:%M:%S %Y"
_COMPACT_DATE = r"^(19|20)\d\d[01]\d[0-3]\d$"
_SAMPLED = 1000  # values that decide unless they are ambiguous


def guess(frame: pl.LazyFrame, name: str, wanted: str | None, where: str) -> str | None:
    """The format of a column of text; None: ISO dates or numbers.

    The format that fits most of the first values. ``wanted``: a format, or the order of days and
    months. A UserError if both day first and month first fit.
    """
    if wanted is not None and wanted not in _NUMERIC:
        return None if wanted == ISO else wanted
    text = pl.col(name).cast(pl.String).str.strip_chars()
    values = frame.select(text.alias("value")).filter(pl.col("value") != "")
    sample = values.head(_SAMPLED).collect()
    if len(sample) and sample["value"].str.contains(_COMPACT_DATE).all():
        return "%Y%m%d"
    numeric = _NUMERIC[wanted] if wanted else [*_NUMERIC[DAY_FIRST], *_NUMERIC[MONTH_FIRST]]
    days = numeric if wanted else [*numeric, *_NAMED]
    formats = [*(f"{day}{clock}" for day in days for clock in _CLOCKS), _UNIX_DATE]
    formats += [form.replace("%Y", "%y") for form in formats[:-1] if not form.startswith("%Y")]
    fits = _counts(sample.lazy(), formats)
    most = max(fits.values())
    if most <= _usual_count(sample):
        return None
    best = [form for form, n in fits.items() if n == most]
    if len(best) > 1 and wanted is None:
        fits = _counts(values, best)
        best = [form for form, n in fits.items() if n == max(fits.values())]
    if {"d", "m"} <= {form[1] for form in best}:
        first = sample["value"][0]
        raise UserError(
            f"{where} has times such as {first!r}: the day or the month may come first",
            hint=f"use --time-format {DAY_FIRST} or --time-format {MONTH_FIRST}",
        )
    return best[0]


def seconds(column: pl.Expr, form: str | None) -> pl.Expr:
    """Text as seconds since 1970, null where it is not a time; numbers are kept."""
    text = column.str.strip_chars()
    number = text.cast(pl.Float64, strict=False)
    if form is not None:
        return _parsed(text, form) if "%" in form else number
    date = text.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
    return pl.coalesce(number, *(_parsed(date, iso) for iso in _ISO))


def _parsed(text: pl.Expr, form: str) -> pl.Expr:
    kind = pl.Datetime("us", "UTC" if form.endswith("%z") else None)
    value = text.str.strptime(kind, form, strict=False)
    if "%Y" in form:  # else it reads 24 as the year 24
        value = pl.when(value.dt.year() >= 1000).then(value)
    return value.dt.epoch("us") / 1e6


def _usual_count(sample: pl.DataFrame) -> int:
    """How many values are numbers or ISO dates."""
    return int(sample.select(seconds(pl.col("value"), None).count()).item())


def _counts(values: pl.LazyFrame, formats: list[str]) -> dict[str, int]:
    """How many values have each format."""
    value = pl.col("value")
    counts = values.select(
        _parsed(value, form).count().alias(str(n)) for n, form in enumerate(formats)
    ).collect(engine="streaming")
    return dict(zip(formats, counts.row(0), strict=True))
