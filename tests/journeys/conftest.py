"""Tables that the project has never seen, written as their owners would write them."""

from pathlib import Path

import numpy as np
import pytest
from commands import rankfold as rankfold


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library's loans: semicolons, decimal commas, dates with the day first, words for nothing.

    Readers borrow from one of three genres. ``books.csv`` has the genre, the price and the title.
    """
    home, rng = tmp_path_factory.mktemp("library"), np.random.default_rng(11)
    genres = ("crime", "garden", "travel")
    lines = ["Leser;Buch;Note;ausgeliehen am"]
    for reader in range(90):
        own = rng.choice(12, 7, replace=False) * 3 + reader % 3
        for book in [*own, *rng.choice(36, 1)]:
            day, month = rng.integers(13, 29), rng.integers(1, 13)
            grade = f"{rng.integers(2, 11) / 2:.1f}".replace(".", ",")
            lines.append(f"r{reader:03};B-{book:02};{grade};{day:02}.{month:02}.2024")
    lines += ["NULL;B-01;1,0;01.01.2024", "r001;;1,0;01.01.2024", "r002;n/a;1,0;01.01.2024"]
    (home / "loans.csv").write_text("\n".join(lines) + "\n")
    books = [f"B-{n:02},{genres[n % 3]},{5 + n},Book {n}" for n in range(36)]
    (home / "books.csv").write_text("\n".join(["Buch,genre,price,title", *books]) + "\n")
    return home


@pytest.fixture(scope="session")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complaints of a railway with topics: two columns, topics split by a bar."""
    home, rng = tmp_path_factory.mktemp("railway"), np.random.default_rng(12)
    words = {
        "late": ("train late", "delayed again", "missed connection"),
        "seat": ("no free seat", "seat reserved twice", "stood all the way"),
        "heat": ("heating broken", "too cold inside", "no heating"),
    }
    lines = ["complaint,topics"]
    for _ in range(160):
        topics = sorted(rng.choice([*words], rng.integers(1, 3), replace=False))
        text = " and ".join(str(rng.choice(words[topic])) for topic in topics)
        lines.append(f"{text},{'|'.join(topics)}")
    (home / "complaints.csv").write_text("\n".join(lines) + "\n")
    return home


@pytest.fixture(scope="session")
def bridges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inspections of bridges: numbers, a category with gaps, an ordered condition."""
    home, rng = tmp_path_factory.mktemp("bridges"), np.random.default_rng(13)
    lines = ["bridge,age,cracks,material,condition"]
    for number in range(500):
        age, cracks = rng.uniform(0, 90), rng.poisson(3)
        worse = age / 30 + cracks / 2 + rng.normal(0, 0.5)
        condition = ("good", "watch", "repair")[int(worse > 2.6) + int(worse > 4.2)]
        material = ("steel", "stone", "")[number % 3]
        lines.append(f"bridge-{number},{age:.1f},{cracks},{material},{condition}")
    (home / "bridges.csv").write_text("\n".join(lines) + "\n")
    return home
