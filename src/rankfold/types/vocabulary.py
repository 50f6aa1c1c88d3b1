"""Vocabularies: the row of each key, and the key of each row."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rankfold.errors import UserError

if TYPE_CHECKING:
    import polars as pl

Key = int | str
MAX_SINGLE_LOOKUPS = 32  # at most this many keys are looked up one by one
NEIGHBOURS = 100  # keys on either side that are compared with an unknown key
_MAX_SAME_PREFIX = 2000  # keys with the same first letters that are compared with it


class Vocabulary:
    """Keys <-> rows. Row i has the i-th key in ascending order, so the keys define the rows.

    Keys are int64 if all of them are canonical integers (``7``, not ``07``), else strings. Keys,
    and the optional texts to show beside them, are loaded on first use: opening a data set does
    not read them.
    """

    def __init__(
        self,
        size: int,
        load: Callable[[], pl.Series],
        load_texts: Callable[[], pl.Series | None] | None = None,
    ) -> None:
        self._size = size
        self._load = load
        self._load_texts = load_texts
        self._keys: pl.Series | None = None
        self._texts: pl.Series | None = None

    @staticmethod
    def of(keys: pl.Series, texts: pl.Series | None = None) -> Vocabulary:
        """The vocabulary of ascending keys, and the optional texts to show beside them."""
        return Vocabulary(len(keys), lambda: keys, None if texts is None else lambda: texts)

    @staticmethod
    def numbered(size: int, texts: Sequence[str] | None = None) -> Vocabulary:
        """Row i has the key i; the optional ``texts`` are shown beside the keys."""

        def series(values: Any) -> pl.Series:
            import polars as pl

            return pl.Series(values)

        words = None if texts is None else partial(series, list(texts))
        return Vocabulary(size, lambda: series(torch.arange(size).numpy()), words)

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> pl.Series:
        """All keys, ascending: Int64 or String."""
        if self._keys is None:
            self._keys = self._load()
        return self._keys

    @property
    def texts(self) -> pl.Series | None:
        """The text of each row, null where it has none; None: no row has one."""
        load = self._load_texts
        if load is not None:
            self._texts, self._load_texts = load(), None  # load once, even if there are none
        return self._texts

    @property
    def holds_integers(self) -> bool:
        return bool(self.keys.dtype.is_integer())

    def find(self, keys: Sequence[Key] | pl.Series) -> Tensor:
        """The row of each key, -1 if unknown; int64."""
        import polars as pl

        if not isinstance(keys, pl.Series):
            if len(keys) <= MAX_SINGLE_LOOKUPS:
                return as_rows(self._find_singly(keys))
            keys = pl.Series([str(key) for key in keys], dtype=pl.String)
        if len(keys) == 0 or len(self) == 0:
            return torch.full((len(keys),), -1)
        if self.holds_integers and not keys.dtype.is_integer():
            text = keys.cast(pl.String)
            numbers = text.cast(pl.Int64, strict=False)
            keys = pl.select(pl.when(numbers.cast(pl.String) == text).then(numbers)).to_series()
        keys = keys.cast(self.keys.dtype, strict=False)
        rows = self.keys.search_sorted(keys, side="left").cast(pl.Int64)
        rows = rows.clip(upper_bound=len(self) - 1)
        known = (self.keys.gather(rows) == keys).fill_null(value=False)
        return torch.from_numpy(
            pl.select(pl.when(known).then(rows).otherwise(-1)).to_series().to_numpy(writable=True)
        )

    def find_list(self, keys: Sequence[Key]) -> list[int]:
        """``find`` as a list."""
        if len(keys) <= MAX_SINGLE_LOOKUPS:
            return self._find_singly(keys)
        rows: list[int] = self.find(keys).tolist()
        return rows

    def _find_singly(self, keys: Sequence[Key]) -> list[int]:
        """``find``, key by key: ten times as fast for a few keys."""
        ours, n, rows, as_integers = self.keys, len(self), [], self.holds_integers
        for key in keys:
            wanted = _canonical(str(key)) if as_integers else str(key)
            row = n if wanted is None else bisect_left(ours, wanted)
            rows.append(row if row < n and ours[row] == wanted else -1)
        return rows

    def rows(self, keys: Sequence[Key], what: str = "query") -> Tensor:
        """The row of each key. An unknown key is a UserError with the nearest keys."""
        rows = self.find(keys)
        if bool((rows < 0).any()):
            raise self.unknown(keys[int((rows < 0).nonzero()[0])], what)
        return rows

    def unknown(self, key: Key, what: str) -> UserError:
        """The error for an unknown key; its hint names the nearest keys."""
        near = self.nearest(str(key))
        named = f"did you mean {', '.join(map(repr, near))}?" if near else ""
        return UserError(f"unknown {what} {key!r}", hint=named or "no known key is similar")

    def nearest(self, key: str, n: int = 3, *, among_all: bool = True) -> list[Key]:
        """Up to ``n`` known keys that are similar to ``key``.

        Compared are its neighbours in key order and, ``among_all``, keys that contain it or begin
        with the same letters.
        """
        import difflib

        import polars as pl

        key = key.encode(errors="replace").decode()  # polars refuses half of a surrogate pair
        wanted: Key = key
        if self.holds_integers:
            wanted = int(key) if re.fullmatch(r"-?[0-9]{1,18}", key) else 0
        place = bisect_left(self.keys, wanted)
        around = self.keys.slice(max(0, place - NEIGHBOURS), 2 * NEIGHBOURS).cast(pl.String)
        text = self.keys.cast(pl.String) if among_all else around
        lower = text.str.to_lowercase()
        containing = text.filter(lower.str.contains(key.lower(), literal=True)).head(NEIGHBOURS)
        same_prefix = text.filter(lower.str.starts_with(key[:2].lower())).head(_MAX_SAME_PREFIX)
        pool = dict.fromkeys([*containing.to_list(), *around.to_list(), *same_prefix.to_list()])
        near = difflib.get_close_matches(key, pool, n=n, cutoff=0.5) or containing.head(n).to_list()
        return [int(k) for k in near] if self.holds_integers else list(near)

    def take(self, rows: Tensor) -> pl.Series:
        """The keys of ``rows``."""
        return self.keys.gather(rows.numpy())


def as_rows(numbers: Sequence[int]) -> Tensor:
    """A list of rows or counts as a tensor; int64.

    ``torch.tensor`` takes twice as long. It also looks up attributes by names that it makes anew,
    and Python's cache of attributes keeps 4,096 of them.
    """
    return torch.from_numpy(np.array(numbers, dtype=np.int64))


def listed(values: pl.Series, rows: list[int]) -> list[Any]:
    """The values of ``rows``; one by one if there are few, since a gather starts slowly."""
    if len(rows) <= MAX_SINGLE_LOOKUPS:
        return [values[row] for row in rows]
    return list(values.gather(rows).to_list())


def _canonical(text: str) -> int | None:
    """The integer with exactly this spelling, if there is one."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None
