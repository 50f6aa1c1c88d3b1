"""An index of some candidates with what is known of it: built and measured, or opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError
from rankfold.index import INDEXES
from rankfold.index.exact import Exact
from rankfold.index.kind import Kind, Saveable
from rankfold.index.measure import DEPTHS, SAMPLE, halves, measure
from rankfold.types import from_pairs

WANTED = 0.98  # recall, unless told
PRODUCT, COSINE = "inner product", "cosine"
NAMES = ("index", "likeness")  # of those in a folder: by inner product, and by cosine

Asked = Callable[[int], Tensor | None]
"""Vectors of so many queries like those to come, or fewer; None if there are none."""


@dataclass(frozen=True, slots=True)
class Served:
    """An index, and what is known of it: its kind, its recall and more, as plain JSON values."""

    index: Saveable
    about: dict[str, Any]


Make = Callable[[Tensor, int, Asked], Served]
"""``(candidates [N, D], memory budget, queries)``: what searches them."""


def build(
    kind: str,
    candidates: Tensor,
    memory_budget: int = 2**30,
    asked: Asked = lambda _n: None,
    *,
    target: float = WANTED,
    seed: int = 0,
    metric: str = PRODUCT,
) -> Served:
    """Build an index and measure how many of the best it finds.

    Half of the queries choose the effort of a search, the other half is measured. Where there are
    none, candidates take their place, which may be easier to answer; one that is measured is not
    among its own results, which it would always be.

    Args:
        kind: a key of ``INDEXES``.
        candidates: [N, D], with length 1 where the metric is the cosine.
        memory_budget: bytes, for blocks.
        asked: gives vectors of queries.
        target: the recall to reach.
        seed: of whatever is drawn.
        metric: what the inner products are, for ``about``.
    """
    began = perf_counter()
    if not 0 < target <= 1:
        raise UserError(f"a recall of {target:g} is wanted", hint="choose one above 0, up to 1")
    given = None if kind == "exact" else asked(2 * SAMPLE)
    own = None
    if given is None:
        rows, measured = halves(_sample(len(candidates), seed), seed)
        tuning, others = (candidates[some].float() for some in (rows, measured))
        shape = len(measured), len(candidates)
        own = from_pairs(torch.arange(len(measured)), measured, None, shape).to(candidates.device)
    else:
        tuning, others = halves(given.detach().to(candidates.device), seed)
    index = find_kind(kind).build(
        candidates, memory_budget, queries=tuning, target=target, seed=seed
    )
    recall = dict.fromkeys(map(str, DEPTHS), 1.0)
    about: dict[str, Any] = {"kind": index.kind, "metric": metric}
    if index.kind != "exact":
        about |= {"target": target, "measured_on": len(others)}
        about |= {"of": "candidates" if given is None else "queries"}
        exact = Exact(candidates, memory_budget)
        recall = measure(index, exact, others, own) if len(others) else {}
    about |= {"recall": recall, "seconds": round(perf_counter() - began, 2), **index.about()}
    return Served(index, about)


def find_kind(name: str) -> Kind:
    """A kind by name."""
    if name not in INDEXES:
        raise UserError(f"there is no index {name!r}", hint=f"known: {', '.join(INDEXES)}")
    return INDEXES[name]


def _sample(n: int, seed: int) -> Tensor:
    """Some of n rows, each once."""
    rng = torch.Generator().manual_seed(seed)
    rows: Tensor = torch.randint(0, max(1, n), (min(2 * SAMPLE, n),), generator=rng).unique()
    return rows


@dataclass(frozen=True, slots=True)
class Saved:
    """The indexes that an opened folder holds: ``index`` and, for the cosine, ``likeness``."""

    folder: storage.Folder

    def __contains__(self, name: str) -> bool:
        return isinstance(self.folder.manifest.get(name), dict)

    def open(self, name: str, candidates: Tensor, memory_budget: int, _asked: Asked) -> Served:
        """One of them, as it was built."""
        about = self.about(name)
        with storage.check_contents(self.folder.path):
            opener = find_kind(about["kind"]).open
            if opener is None:
                raise ValueError(f"its {name} is of no kind that is saved: {about['kind']}")
            return Served(opener(self.folder, name, about, candidates, memory_budget), about)

    def about(self, name: str) -> dict[str, Any]:
        """What is known of one of them, and how many bytes it takes on disk."""
        entries = self.folder.manifest["files"]
        sizes = [entries[file]["size"] for file in entries if file.split("_")[0] == name]
        return {**self.folder.manifest[name], "bytes": sum(sizes)}

    def meta(self) -> dict[str, Any]:
        """What the manifest says of them."""
        return {name: self.folder.manifest[name] for name in NAMES if name in self}

    def files(self) -> dict[str, storage.Content]:
        """Their files, for another folder."""
        return {
            file: self.folder.reuse(file)
            for file in self.folder.manifest["files"]
            if file.split("_")[0] in NAMES
        }
