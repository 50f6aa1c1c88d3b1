"""The sample files of the tutorials and guides: a small invented shop, and the bundled data as CSV.

python docs/samples.py samples        # writes them into the folder samples/
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import polars as pl

import rankfold as rf
from rankfold.data.sources import debian
from rankfold.tasks.fit import fit

ITEMS = ("tea", "ink", "jam", "pen", "dune", "emma", "ulysses", "ada")
USERS = ("alice", "bob", "carol")
BRANDS, KINDS = ("acme", "orient", "north"), ("food", "desk", "book")
PROBLEMS = {
    "display": ("screen stays black", "picture flickers", "monitor shows wrong colours"),
    "network": ("no connection to the wireless network", "internet is slow", "router drops out"),
    "printing": ("printer prints blank pages", "paper jam in the printer", "ink is not found"),
    "account": ("cannot sign in", "password was refused", "account is locked"),
    "update": ("after the update", "since the new version", "upgrade stopped halfway"),
}


def samples(folder: Path) -> None:
    """Write every file, and the prepared folders and models of the guides."""
    folder.mkdir(parents=True, exist_ok=True)
    tables(folder)
    data = rf.prepare(
        str(folder / "ratings.csv"), query_column="user", candidate_column="item",
        candidate_features=str(folder / "products.csv"), out=folder / "data",
    )  # fmt: skip
    fit("rg2", data, width=32, out=folder / "model")
    texts = rf.prepare(
        str(folder / "tickets.csv"), format="texts", candidate_texts=str(folder / "labels.csv"),
        out=folder / "tickets",
    )  # fmt: skip
    fit("siamesexml", texts, width=32, out=folder / "tickets-model")
    grades = ["none", "mild", "severe"]
    cases = rf.prepare(
        str(folder / "cases.csv"), format="features", grade_column="stage", grades=grades,
        out=folder / "cases",
    )  # fmt: skip
    fit("cba", cases, epochs=3, out=folder / "cases-model")


def tables(folder: Path) -> None:
    """The files alone."""
    rng = random.Random(0)
    shop(rng, folder)
    support(rng, folder)
    clinic(rng, folder)
    packages(folder)


def shop(rng: random.Random, folder: Path) -> None:
    """Customers who prefer one kind of product, and products with features."""
    items = [*ITEMS, *(f"item-{i}" for i in range(1, 113))]
    users = [*USERS, *(f"user-{i}" for i in range(1, 298))]
    kinds = {item: _kind(i, item) for i, item in enumerate(items)}
    rows: list[dict[str, Any]] = []
    for number, user in enumerate(users):
        liked = [item for item in items if kinds[item] == KINDS[number % 3]]
        for item in {rng.choice(liked if rng.random() < 0.8 else items) for _ in range(18)}:
            day = rng.randrange(1, 29)
            rows.append({"user": user, "item": item, "rating": rng.randint(1, 5),
                         "timestamp": f"2026-0{rng.randrange(1, 10)}-{day:02d}"})  # fmt: skip
    pl.DataFrame(rows).sort("user", "item").write_csv(folder / "ratings.csv")
    products(rng, [(item, kinds[item]) for item in items]).write_csv(folder / "products.csv")
    new = [(f"new-{i}", KINDS[i % 3]) for i in range(1, 6)]
    products(rng, new).write_csv(folder / "new-items.csv")
    today = [{"user": "alice", "item": "pen"}, {"user": "dora", "item": "tea"},
             {"user": "dora", "item": "ink"}, {"user": "dora", "item": "jam"}]  # fmt: skip
    pl.DataFrame(today).write_csv(folder / "today.csv")
    pl.DataFrame({"user": users[:20]}).write_csv(folder / "users.csv")


def _kind(number: int, item: str) -> str:
    known = {"tea": "food", "jam": "food", "ink": "desk", "pen": "desk"}
    return known.get(item, "book" if item in ITEMS else KINDS[number % 3])


def products(rng: random.Random, items: list[tuple[str, str]]) -> pl.DataFrame:
    rows = [
        {"item": item, "kind": kind, "brand": rng.choice(BRANDS),
         "price": round(rng.uniform(2, 60), 2), "stock": rng.choice([0, 3, 12, 40])}
        for item, kind in items
    ]  # fmt: skip
    return pl.DataFrame(rows)


def support(rng: random.Random, folder: Path) -> None:
    """Tickets of one or two sentences, each with one or two labels."""
    rows = []
    for number in range(600):
        labels = rng.sample(list(PROBLEMS), k=rng.choice([1, 1, 2]))
        words = " ".join(rng.choice(PROBLEMS[label]) for label in labels)
        filler = rng.choice(["please help", "this morning", "in room 12", "on my laptop", "urgent"])
        rows.append(
            {"ticket": f"T{number}", "text": f"{words} {filler}", "labels": "|".join(labels)}
        )
    pl.DataFrame(rows).write_csv(folder / "tickets.csv")
    names = {"display": "display and monitor", "network": "network and internet",
             "printing": "printer and paper", "account": "account and password",
             "update": "update and new version", "sound": "sound and loudspeaker"}  # fmt: skip
    pl.DataFrame({"label": list(names), "text": list(names.values())}).write_csv(
        folder / "labels.csv"
    )
    new = {"ticket": ["N1", "N2"], "text": ["monitor is black since the update", "cannot print"]}
    pl.DataFrame(new).write_csv(folder / "new-tickets.csv")
    answered = {"ticket": ["N3", "N4"], "text": ["screen stays black", "charger gets hot"],
                "labels": ["display", "battery"]}  # fmt: skip
    pl.DataFrame(answered).write_csv(folder / "answered-tickets.csv")
    more = pl.DataFrame({"label": ["battery"], "text": ["battery and charger"]})
    more.write_csv(folder / "new-labels.csv")


def clinic(rng: random.Random, folder: Path) -> None:
    """Cases with a stage that depends on age, pressure and a habit."""
    rows = [case(rng) for _ in range(1600)]
    pl.DataFrame(rows[:1500]).write_csv(folder / "cases.csv")
    pl.DataFrame(rows[1500:]).drop("stage").write_csv(folder / "new-cases.csv")
    pl.DataFrame([case(rng) for _ in range(300)]).write_csv(folder / "last-month.csv")


def case(rng: random.Random) -> dict[str, Any]:
    age, smoker = rng.randint(20, 90), rng.choice(["yes", "no", "former"])
    pressure = round(rng.gauss(125 + age / 8, 15))
    risk = (age - 55) / 20 + (pressure - 130) / 25 + (smoker == "yes") + rng.gauss(0, 0.7)
    stage = "severe" if risk > 2 else "mild" if risk > 0.5 else "none"
    return {"age": age, "pressure": pressure, "smoker": smoker, "stage": stage}


def packages(folder: Path) -> None:
    """The bundled Debian packages: what each recommends or suggests, and their descriptions."""
    pairs: Any = debian.read_see_also([], None)  # type: ignore[arg-type]
    pairs.collect().rename({"query": "package", "candidate": "related"}).sort(
        "package", "related"
    ).write_csv(folder / "packages.csv")
    known = debian._packages()
    known.select("name", "section", "priority").write_csv(folder / "sections.csv")
    tagged = known.filter(pl.col("tags").fill_null("") != "")
    tagged.select(text="words", labels=pl.col("tags").str.replace_all(", ", "|")).write_csv(
        folder / "tagged.csv"
    )


if __name__ == "__main__":
    tables(Path(sys.argv[1] if len(sys.argv) > 1 else "samples"))
