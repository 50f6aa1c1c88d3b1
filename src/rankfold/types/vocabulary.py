"""Keys and rows: which row of a table belongs to which key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankfold.errors import UserError

if TYPE_CHECKING:
    import polars as pl

Key = int | str
FEW_KEYS = 32  # at most so many are looked up one by one


class Vocabulary:
    """Keys <-> rows. Row i holds the i-th key in ascending order, so the rows follow from the keys.

    Keys are int64 if every one of them is a canonical integer (``7``, not ``07``), else strings.
    They are loaded when first needed: a dataset opens without reading them. So are the texts to
    show beside them, where there are such.
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
    def numbered(size: int, texts: Sequence[str] | None = None) -> Vocabulary:
        """Row i has the key i; ``texts``, if there are such, are shown beside them."""

        def count() -> pl.Series:
            import polars as pl

            return pl.int_range(size, eager=True)

        def words() -> pl.Series:
            import polars as pl

            return pl.Series(texts, dtype=pl.String)

        return Vocabulary(size, count, None if texts is None else words)

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
        """The text of each row as it was written, null where it has none; None: no row has one."""
        load = self._load_texts
        if load is not None:
            self._texts, self._load_texts = load(), None  # once, also where there are none
        return self._texts

    @property
    def holds_integers(self) -> bool:
        return bool(self.keys.dtype.is_integer())

    def find(self, keys: Sequence[Key] | pl.Series) -> Tensor:
        """The row of each key, -1 where unknown; int64."""
        import polars as pl

        if not isinstance(keys, pl.Series) and len(keys) <= FEW_KEYS:
            return self._find_few(keys)
        wanted = (
            keys
            if isinstance(keys, pl.Series)
            else pl.Series([str(k) for k in keys], dtype=pl.String)
        )
        if len(wanted) == 0 or len(self) == 0:
            return torch.full((len(wanted),), -1)
        if self.holds_integers and not wanted.dtype.is_integer():
            text = wanted.cast(pl.String)
            numbers = text.cast(pl.Int64, strict=False)
            wanted = pl.select(pl.when(numbers.cast(pl.String) == text).then(numbers)).to_series()
        wanted = wanted.cast(self.keys.dtype, strict=False)
        rows = self.keys.search_sorted(wanted, side="left").cast(pl.Int64)
        rows = rows.clip(upper_bound=len(self) - 1)
        known = (self.keys.gather(rows) == wanted).fill_null(value=False)
        return torch.from_numpy(
            pl.select(pl.when(known).then(rows).otherwise(-1)).to_series().to_numpy(writable=True)
        )

    def _find_few(self, keys: Sequence[Key]) -> Tensor:
        """The same, key by key: for a few that takes a tenth of the time."""
        held, n, found = self.keys, len(self), []
        for key in keys:
            wanted = _canonical(str(key)) if self.holds_integers else str(key)
            place = n if wanted is None else bisect_left(held, wanted)
            found.append(place if place < n and held[place] == wanted else -1)
        return torch.tensor(found, dtype=torch.int64)

    def rows(self, keys: Sequence[Key], what: str = "query") -> Tensor:
        """The row of each key; an unknown key is a UserError that names the nearest ones."""
        rows = self.find(keys)
        if bool((rows < 0).any()):
            raise self.unknown(keys[int((rows < 0).nonzero()[0])], what)
        return rows

    def unknown(self, key: Key, what: str) -> UserError:
        """The error for an unknown key; its hint names the nearest keys."""
        near = self.nearest(str(key))
        named = f"did you mean {', '.join(map(repr, near))}?" if near else ""
        return UserError(f"unknown {what} {key!r}", hint=named or "the model knows no similar key")

    def nearest(self, key: str, n: int = 3) -> list[Key]:
        """A few known keys that look like ``key``."""
        import difflib

        import polars as pl

        text = self.keys.cast(pl.String)
        place = int(self.keys.search_sorted(key)) if not self.holds_integers else 0
        around = text.slice(max(0, place - 200), 400)
        folded = text.str.to_lowercase()
        containing = text.filter(folded.str.contains(key.lower(), literal=True)).head(200)
        first = text.filter(folded.str.starts_with(key[:2].lower())).head(2000)
        pool = dict.fromkeys([*containing.to_list(), *around.to_list(), *first.to_list()])
        near = difflib.get_close_matches(key, pool, n=n, cutoff=0.5) or containing.head(n).to_list()
        return [int(k) for k in near] if self.holds_integers else list(near)

    def take(self, rows: Tensor) -> pl.Series:
        """The keys of ``rows``."""
        return self.keys.gather(rows.numpy())


def _canonical(text: str) -> int | None:
    """The integer that is written so, if one is."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None
