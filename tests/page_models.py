"""Small models for the tests of the page: unusual keys, texts, graded patients."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import rankfold as rf

SCRIPT = "<script>document.title = 'taken'</script>"
PICTURE = '"><img src=x onerror="document.title = 1">'
UNUSUAL_KEYS = [
    SCRIPT,
    PICTURE,
    "a&b=c?d#e/f%20g",
    "a, b",
    "ключ ‮right to left",
    "w" * 300,
    "constructor",
]
LARGE = 2**53 + 1  # not exact as a number in JavaScript
TOPICS = {
    "fruit": "red apples and pears",
    "sky": "blue clouds at noon",
    "tea": "green tea leaves, dried in the shade and rolled by hand before they are sold",
}


def fit_odd(home: Path) -> Path:
    """A model of unusual keys."""
    rng = random.Random(5)
    pairs = [("query", "candidate")]
    pairs += [(str(LARGE + n), key) for n in range(30) for key in rng.sample(UNUSUAL_KEYS, 4)]
    return fit_table(home, "odd", pairs, "puresvd", {}, width=3)


def fit_patients(home: Path) -> Path:
    """A model of graded rows."""
    options = {"grades": "none,mild,severe"}
    return fit_table(home, "patients", patients(), "nnrank", options, epochs=10)


def fit_table(
    home: Path,
    name: str,
    rows: list[tuple[Any, ...]],
    method: str,
    options: dict[str, Any],
    **settings: Any,
) -> Path:
    with (home / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    if options:
        options = {**options, "format": "features", "grade_column": "grade"}
    data = rf.prepare(home / f"{name}.csv", out=home / f"{name}-data", **options)
    rf.fit(method, data, **settings).save(home / name)
    return home / name


def patients() -> list[tuple[Any, ...]]:
    rng = random.Random(3)
    rows: list[tuple[Any, ...]] = [("age", "dose", "site", "constructor", "grade")]
    for _ in range(400):
        age, dose, site = rng.gauss(50, 15), 10 * rng.random(), rng.choice(("north", "harbour"))
        ill = (age - 50) / 15 + dose / 3 + (site == "harbour") + rng.gauss(0, 0.8)
        grade = ("none", "mild", "severe")[(ill > 1.5) + (ill > 3)]
        rows.append((round(age, 1), round(dose, 2), site, rng.choice("xy"), grade))
    return rows


def fit_texts(home: Path) -> Path:
    """A model of texts."""
    names = list(TOPICS)
    notes = [
        {"title": f"{TOPICS[names[n % 3]]} {n % 4}", "tags": [names[n % 3]]} for n in range(60)
    ]
    (home / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    with (home / "topics.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("tag", "text"), *TOPICS.items()])
    data = rf.prepare(
        home / "notes.jsonl",
        out=home / "notes",
        format="texts",
        candidate_texts=home / "topics.csv",
    )
    rf.fit("text-linear", data).save(home / "topics")
    return home / "topics"
