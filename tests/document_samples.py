"""Small documents with labels."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from rankfold.types import Dataset, Interactions, Texts, Vocabulary

TEXTS = [
    "The cat, the DOG and the emu.",
    "Émile's café: 42 cats",
    "dogs & emus",
    "the cat",
]
LABELS = ["cat", "dog", "emu", "big animals"]


def words_of(tokenizer: str, texts: Texts, row: int) -> list[str]:
    names = list(json.loads(tokenizer)["model"]["vocab"])
    start, end = texts.offsets[row : row + 2].tolist()
    return [names[token] for token in texts.tokens[start:end]]


def text_rows(data: Dataset, side: str) -> dict[Any, list[str]]:
    """The words of each key."""
    assert data.tokenizer is not None
    keys: Vocabulary = {"query": data.queries, "candidate": data.candidates}[side]
    texts: Texts = getattr(data, f"{side}_texts")
    assert len(texts) == len(keys)
    return {key: words_of(data.tokenizer, texts, row) for row, key in enumerate(keys.keys)}


def pairs_of(data: Dataset) -> dict[Any, set[Any]]:
    """The candidates of each query with pairs, in any split."""
    result: dict[Any, set[Any]] = {}
    for part in (data.train, data.validation, data.test):
        if part is not None:
            assert isinstance(part, Interactions)
            queries = data.queries.take(part.query_of_pair().long())
            for query, candidate in zip(
                queries, data.candidates.take(part.candidates.long()), strict=True
            ):
                result.setdefault(query, set()).add(candidate)
    return result


def rows(n: int = 30) -> list[dict[str, Any]]:
    """Documents with one or two labels; document 3 has no labels, document 4 no text."""
    made: list[dict[str, Any]] = [
        {"id": f"d{i}", "title": TEXTS[i % 4], "labels": [LABELS[i % 3], LABELS[(i + 1) % 4]]}
        for i in range(n)
    ]
    made[3]["labels"], made[4]["title"] = [], None
    return made


def documents(path: Path, change: Callable[[list[dict[str, Any]]], object] = len) -> Path:
    made = rows()
    change(made)
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def expected_pairs() -> dict[Any, set[Any]]:
    return {row["id"]: set(row["labels"]) for row in rows() if row["labels"]}


def as_csv(path: Path, mark: str) -> Path:
    made = [row | {"labels": mark.join(row["labels"])} for row in rows()]
    pl.DataFrame(made).write_csv(path)
    return path


def as_parquet(path: Path) -> Path:
    pl.DataFrame(rows()).write_parquet(path)
    return path
