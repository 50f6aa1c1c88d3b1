"""The text sets of the benchmarks as plain arrays with fixed splits, for rankfold and its peers.

    python -m benchmarks.quality.text_data [--data DIR] [NAME ...]

Each becomes scratch/texts/NAME.npz: the words of documents and labels, and pairs of rows by split.
``excluded`` holds pairs that may not be returned: a document's own label.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from benchmarks.paths import SCRATCH, SHARED

OUT = SCRATCH / "texts"
TRAIN, VALIDATION, TEST = 0, 1, 2


class TextSet(NamedTuple):
    """Documents and labels with text; pair i is document, label, split."""

    documents: list[str]
    labels: list[str]
    pairs: NDArray[np.int64]  # [n, 3]
    excluded: NDArray[np.int64]  # [m, 2]


def yso(folder: Path) -> TextSet:
    """The last tenth of the lines is test, the last twentieth of the rest validation."""
    lines = list(rows(folder / "docs.tsv.zst"))
    labels = [row[2] for row in rows(folder / "labels.tsv.zst")]
    ends = int(len(lines) * 0.9 * 0.95), int(len(lines) * 0.9)
    result = [(i, int(label)) for i, row in enumerate(lines) for label in row[1].split()]
    pairs = np.array(result)
    splits = np.searchsorted(ends, pairs[:, 0], side="right")
    return TextSet([row[0] for row in lines], labels, np.column_stack([pairs, splits]), no_pairs())


def mdn(folder: Path) -> TextSet:
    """Titles; every tenth page is test, every twentieth of the rest validation."""
    titles = {int(row[0]): row[2] for row in rows(folder / "pages.tsv.zst")}
    result = [
        (int(row[0]), int(label))
        for row in rows(folder / "seealso.tsv")
        for label in row[1].split()
    ]
    return linked(titles, np.array(result))


def one_way(folder: Path) -> TextSet:
    """The same without test pairs whose inverse is known: a third, which symmetry gives away.

    They are excluded, as by the filter files of public sets.
    """
    result = mdn(folder)
    own = np.full(len(result.documents), -1)  # the label that a document is
    own[result.excluded[:, 0]] = result.excluded[:, 1]
    document = np.full(len(result.labels), -1)  # the other way round
    document[result.excluded[:, 1]] = result.excluded[:, 0]
    n = len(result.labels)
    known = result.pairs[result.pairs[:, 2] != TEST]
    inverse = document[result.pairs[:, 1]] * n + own[result.pairs[:, 0]]
    both = (document[result.pairs[:, 1]] >= 0) & (own[result.pairs[:, 0]] >= 0)
    away = both & (result.pairs[:, 2] == TEST) & np.isin(inverse, known[:, 0] * n + known[:, 1])
    excluded = np.concatenate([result.excluded, result.pairs[away, :2]])
    return result._replace(pairs=result.pairs[~away], excluded=excluded)


def debian(folder: Path) -> TextSet:
    """What packages recommend, suggest or enhance: name and short description of both."""
    about = {int(row[0]): f"{row[1]} {row[5]}" for row in rows(folder / "packages.tsv.zst")}
    kinds = [row for row in rows(folder / "relations.tsv.zst") if row[2] in "rse"]
    return linked(about, np.array(sorted({(int(row[0]), int(row[1])) for row in kinds})))


def wordnet(folder: Path) -> TextSet:
    """Words and gloss; a pair and its inverse are in the same split, one in ten in test."""
    about = {int(row[0]): f"{row[2]} {row[3]}" for row in rows(folder / "synsets.tsv.zst")}
    result = {(int(row[0]), int(row[1])) for row in rows(folder / "pointers.tsv.zst")}
    pairs = np.array(sorted(pair for pair in result if pair[0] != pair[1]))
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    unordered, place = np.unique(low * 10**6 + high, return_inverse=True)
    drawn = np.random.default_rng(0).random(len(unordered))[place]
    splits = np.where(drawn < 0.1, TEST, np.where(drawn < 0.145, VALIDATION, TRAIN))
    return numbered(about, pairs, splits)


SETS = {
    "mdn-seealso": (mdn, "mdn-seealso"),
    "mdn-one-way": (one_way, "mdn-seealso"),
    "debian-seealso": (debian, "debian-trixie"),
    "wordnet": (wordnet, "wordnet-3.0"),
    "yso-finna-en": (yso, "yso-finna-en"),
}


def linked(about: dict[int, str], pairs: NDArray[np.int64]) -> TextSet:
    """Pages with links among themselves, split by the number of the page."""
    pages = np.unique(pairs[:, 0])
    rest = pages[pages % 10 != 0]
    validation = rest[::20]
    splits = np.where(pairs[:, 0] % 10 == 0, TEST, TRAIN)
    splits[np.isin(pairs[:, 0], validation)] = VALIDATION
    return numbered(about, pairs, splits)


def numbered(about: dict[int, str], pairs: NDArray[np.int64], splits: NDArray[np.int64]) -> TextSet:
    """Documents and labels with a pair; a document is not its own label."""
    documents, rows_ = np.unique(pairs[:, 0], return_inverse=True)
    labels, columns = np.unique(pairs[:, 1], return_inverse=True)
    both = np.intersect1d(documents, labels)
    own = np.column_stack([np.searchsorted(documents, both), np.searchsorted(labels, both)])
    return TextSet(
        [about[int(i)] for i in documents],
        [about[int(i)] for i in labels],
        np.column_stack([rows_, columns, splits]),
        own,
    )


def no_pairs() -> NDArray[np.int64]:
    return np.empty((0, 2), np.int64)


def rows(path: Path) -> Iterator[list[str]]:
    """The cells of each line."""
    with path.open("rb") as file:
        raw = zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
        for line in io.TextIOWrapper(raw, encoding="utf-8", newline="\n"):  # type: ignore[arg-type]
            yield line.rstrip("\n").split("\t")


def load(name: str) -> TextSet:
    """The arrays that ``main`` wrote."""
    with np.load(OUT / f"{name}.npz", allow_pickle=False) as arrays:
        documents, labels = (
            arrays[side].tobytes().decode().split("\n") for side in ("documents", "labels")
        )
        return TextSet(documents, labels, arrays["pairs"], arrays["excluded"])


def save(name: str, result: TextSet) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    texts = {
        side: np.frombuffer("\n".join(getattr(result, side)).encode(), np.uint8)
        for side in ("documents", "labels")
    }
    np.savez_compressed(OUT / f"{name}.npz", pairs=result.pairs, excluded=result.excluded, **texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SETS))
    parser.add_argument("--data", type=Path, default=SHARED)
    args = parser.parse_args()
    for name in args.names:
        make, folder = SETS[name]
        result = make(args.data / folder)
        save(name, result)
        sizes = np.bincount(result.pairs[:, 2], minlength=3)
        print(name, len(result.documents), len(result.labels), sizes, len(result.excluded))


if __name__ == "__main__":
    main()
