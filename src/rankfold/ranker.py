"""What a fit leaves in your hands: a model that answers in keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold import store
from rankfold.data.folder import from_tensors, to_tensors, vocabulary
from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.types import Interactions, Key, Model, TopK, Vocabulary, from_pairs


class Ranking(NamedTuple):
    """Ranked lists in keys, best first."""

    keys: list[list[Key]]  # a list is shorter than K where there are fewer candidates
    scores: NDArray[np.float32]  # [B, K], -inf beyond the end of a list


@dataclass(frozen=True, slots=True)
class Ranker:
    """A model, the keys of its rows, and the pairs it has seen."""

    model: Model
    queries: Vocabulary
    candidates: Vocabulary
    seen: Interactions  # not returned unless asked for
    excluded: Interactions | None = None  # never returned

    def search(
        self,
        queries: Sequence[Key] | None = None,
        *,
        history: Sequence[Key] | None = None,
        candidates: Sequence[Key] | None = None,
        k: int = 10,
        include_seen: bool = False,
    ) -> Ranking:
        """The best ``k`` candidates for each query, for a history, or most like each candidate.

        Args:
            queries: keys of known queries.
            history: candidates that a new query chose: one list is returned.
            candidates: keys of candidates, each answered by those most like it (by cosine).
            k: the length of a list.
            include_seen: also return what the query chose before.
        """
        asked = [
            name
            for name, value in (
                ("queries", queries),
                ("history", history),
                ("candidates", candidates),
            )
            if value is not None
        ]
        if len(asked) != 1:
            raise UserError(
                f"search was given {' and '.join(asked) or 'nothing'}",
                hint="give one of queries, history, candidates",
            )
        if k < 1:
            raise UserError(f"k is {k}", hint="ask for at least 1 result")
        if queries is not None:
            rows = self.queries.rows(_listed(queries), "query")
            hidden = self.hidden(rows, include_seen=include_seen)
            return self._in_keys(self.top_k(rows, k, hidden))
        if history is not None:
            return self._from_history(_listed(history), k, include_seen=include_seen)
        assert candidates is not None
        return self._similar(self.candidates.rows(_listed(candidates), "candidate"), k)

    def hidden(self, rows: Tensor, *, include_seen: bool) -> Interactions | None:
        """What may not be returned for known queries, a row each."""
        excluded = None if self.excluded is None else self.excluded.select(rows)
        if include_seen:
            return excluded
        seen = self.seen.select(rows)
        return seen if excluded is None else seen.union(excluded)

    def top_k(self, rows: Tensor, k: int, exclude: Interactions | None) -> TopK:
        """The best candidates of known queries, as rows; row b of ``exclude`` is not in list b."""
        vectors = self.model.tensors["queries"][rows]
        return Exact(self.model.tensors["candidates"]).search(vectors, k, exclude)

    def _from_history(self, history: list[Key], k: int, *, include_seen: bool) -> Ranking:
        fold_in = METHODS[self.model.method].fold_in
        if fold_in is None:
            raise UserError(
                f"{self.model.method} cannot rank for a new query",
                hint="search with a known query, or fit another method",
            )
        if not history:
            raise UserError("the history is empty", hint="give at least one candidate")
        chosen = self.candidates.rows(history, "candidate").unique()
        n = len(self.candidates)
        rows = from_pairs(torch.zeros_like(chosen), chosen, None, (1, n))
        vectors = fold_in(self.model, rows)
        index = Exact(self.model.tensors["candidates"])
        return self._in_keys(index.search(vectors, k, None if include_seen else rows))

    def _similar(self, rows: Tensor, k: int) -> Ranking:
        if self.model.tensors["candidates"].shape[1] == 1:
            raise UserError(
                f"{self.model.method} knows no likeness between candidates",
                hint="fit a method with vectors, say rg2-plain",
            )
        vectors = torch.nn.functional.normalize(self.model.tensors["candidates"], dim=1)
        itself = Interactions(
            torch.arange(len(rows) + 1), rows.to(torch.int32), None, len(self.candidates)
        )
        return self._in_keys(Exact(vectors).search(vectors[rows], k, itself))

    def _in_keys(self, found: TopK) -> Ranking:
        known = found.ids >= 0
        keys = self.candidates.take(found.ids.clamp(min=0).flatten()).to_list()
        width = found.ids.shape[1]
        lists = [
            keys[row * width : row * width + int(length)]
            for row, length in enumerate(known.sum(dim=1))
        ]
        return Ranking(lists, found.scores.numpy())

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, replacing the model that is there."""
        meta = {
            "method": self.model.method,
            "config": dict(self.model.config),
            "notes": dict(self.model.notes),
            "sizes": [len(self.queries), len(self.candidates)],
        }
        files: dict[str, store.Content] = {
            "tensors": {name: tensor.cpu() for name, tensor in self.model.tensors.items()},
            "seen": to_tensors(self.seen),
            "queries": pl.DataFrame({"key": self.queries.keys}),
            "candidates": pl.DataFrame({"key": self.candidates.keys}),
        }
        if self.excluded is not None:
            files["excluded"] = to_tensors(self.excluded)
        store.write(Path(path), "model", meta, files)


def load(path: str | Path) -> Ranker:
    """Open a model folder; every file is compared with its checksum first."""
    folder = store.read(Path(path), "model", full=True)
    with store.understood(folder.path):
        return _ranker(folder)


def _ranker(folder: store.Folder) -> Ranker:
    meta = folder.manifest
    if meta["method"] not in METHODS:
        raise UserError(
            f"{folder.path} was fitted with {meta['method']!r}, which this rankfold does not have",
            hint="use the rankfold that wrote it",
        )
    n_queries, n_candidates = meta["sizes"]
    return Ranker(
        Model(meta["method"], meta["config"], folder.tensors("tensors"), meta["notes"]),
        vocabulary(folder, "queries", n_queries),
        vocabulary(folder, "candidates", n_candidates),
        from_tensors(folder.tensors("seen"), n_candidates),
        from_tensors(folder.tensors("excluded"), n_candidates) if "excluded" in folder else None,
    )


def _listed(keys: Sequence[Key]) -> list[Key]:
    """A list of keys; a lone key is a list of one."""
    return list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]
