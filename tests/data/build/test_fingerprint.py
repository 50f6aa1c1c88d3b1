"""Fingerprints depend on the content only."""

import polars as pl
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.build.dataset import fingerprint
from rankfold.data.prepare import prepare
from rankfold.types import from_pairs

KEYS = st.lists(st.text(max_size=3), unique=True, min_size=1, max_size=6).map(sorted)


def fingerprint_of(keys: pl.Series, grades: list[float] | None = None) -> str:
    n = len(keys)
    rows = torch.arange(n)
    part = from_pairs(rows, rows, None if grades is None else torch.tensor(grades), (n, n))
    return fingerprint([part, None], keys, keys)


@given(KEYS, st.data())
def test_fingerprint_depends_only_on_the_keys(keys: list[str], data: st.DataObject) -> None:
    plain = fingerprint_of(pl.Series(keys, dtype=pl.String))
    cut = data.draw(st.integers(0, len(keys)))
    chunked = pl.Series(keys[:cut], dtype=pl.String).append(pl.Series(keys[cut:], dtype=pl.String))
    filtered = pl.Series([*keys, "a long key that is not there any more"]).head(len(keys))
    masked = pl.Series(["another long key", *keys])
    masked = masked.filter(pl.Series([False] + [True] * len(keys)))
    assert fingerprint_of(chunked) == fingerprint_of(filtered) == fingerprint_of(masked) == plain


@given(KEYS, KEYS)
def test_other_keys_have_a_different_fingerprint(one: list[str], other: list[str]) -> None:
    first, second = (pl.Series(keys, dtype=pl.String) for keys in (one, other))
    assert (fingerprint_of(first) == fingerprint_of(second)) is (one == other)


def test_numbers_and_texts_have_different_fingerprints() -> None:
    assert fingerprint_of(pl.Series([1, 2])) != fingerprint_of(pl.Series(["1", "2"]))
    assert fingerprint_of(pl.Series([1, 2])) != fingerprint_of(pl.Series([1, 3]))
    same_bytes = int.from_bytes(b"\x04\0\0\0abcd", "little")
    assert fingerprint_of(pl.Series(["abcd"])) != fingerprint_of(pl.Series([same_bytes]))


def test_fingerprint_depends_on_key_boundaries() -> None:
    assert fingerprint_of(pl.Series(["a", "bc"])) != fingerprint_of(pl.Series(["ab", "c"]))


def test_fingerprint_depends_on_the_split() -> None:
    keys = pl.Series([1])
    part = from_pairs(torch.tensor([0]), torch.tensor([0]), None, (1, 1))
    hashes = {fingerprint(parts, keys, keys) for parts in ([part, None], [None, part])}
    assert len(hashes) == 2


def test_fingerprint_depends_on_splits_and_grades() -> None:
    rows = [(f"ü{u}", i, 1 + (u * i) % 3) for u in range(6) for i in range(u + 1)]
    ratings = pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")
    keys = pl.Series([1, 2])
    hashes = {fingerprint_of(keys, grades) for grades in (None, [1.0, 2.0], [2.0, 1.0])}
    assert len(hashes) == 3
    splits = ((1, 0, 0), (0.5, 0.5, 0), (0.5, 0, 0.5))
    assert len({prepare(ratings, split=split).fingerprint for split in splits}) == 3
