"""An index with its measured recall: built, or opened from a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError, find
from rankfold.index import INDEXES
from rankfold.index.exact import Exact
from rankfold.index.kind import Kind, SavableIndex, Saved
from rankfold.index.recall import RECALL_DEPTHS, SAMPLE_QUERIES, measure, split_halves
from rankfold.types import from_pairs

DEFAULT_RECALL = 0.98
PRODUCT, COSINE = "inner product", "cosine"
INDEX, SIMILAR = "index", "likeness"  # names in a folder: by inner product, and by cosine
NAMES = (INDEX, SIMILAR)

SampleQueries = Callable[[int], Tensor | None]
"""``(n) -> `` vectors of at most n typical queries; None if there are none."""


@dataclass(frozen=True, slots=True)
class MeasuredIndex:
    """An index, and its description: its kind, its recall and more, as plain JSON values."""

    index: SavableIndex
    about: dict[str, Any]


MakeIndex = Callable[[Tensor, int, SampleQueries], MeasuredIndex]
"""``(candidates [N, D], memory budget, sample_queries) -> index``."""


def build(
    kind: str,
    candidates: Tensor,
    memory_budget: int = 2**30,
    sample_queries: SampleQueries = lambda _n: None,
    *,
    target: float = DEFAULT_RECALL,
    seed: int = 0,
    metric: str = PRODUCT,
) -> MeasuredIndex:
    """Build an index and measure its recall.

    Half of the queries tune the effort of a search, the other half measures its recall. Without
    queries, candidates take their place, which may be easier to answer; a measured candidate is
    excluded from its own results.
    ``metric`` is the meaning of the inner products, for ``about``. For the cosine, candidates have
    length 1.
    """
    began = perf_counter()
    check_target(target)
    given = None if kind == "exact" else sample_queries(2 * SAMPLE_QUERIES)
    own = None
    if given is None:
        rng, n = torch.Generator().manual_seed(seed), len(candidates)
        sample = torch.randint(max(1, n), (min(2 * SAMPLE_QUERIES, n),), generator=rng).unique()
        rows, measured = split_halves(sample, seed)
        tuning, others = (candidates[some].float() for some in (rows, measured))
        shape = len(measured), len(candidates)
        own = from_pairs(torch.arange(len(measured)), measured, None, shape).to(candidates.device)
    else:
        tuning, others = split_halves(given.detach().to(candidates.device), seed)
    make = find_kind(kind).build
    index = make(candidates, memory_budget, queries=tuning, target=target, seed=seed)
    recall = dict.fromkeys(map(str, RECALL_DEPTHS), 1.0)
    about: dict[str, Any] = {"kind": index.kind, "metric": metric}
    if index.kind != "exact":
        about |= {"target": target, "measured_on": len(others)}
        about |= {"of": "candidates" if given is None else "queries"}
        exact = Exact(candidates, memory_budget)
        recall = measure(index, exact, others, own) if len(others) else {}
    about |= {"recall": recall, "seconds": round(perf_counter() - began, 2), **index.about()}
    return MeasuredIndex(index, about)


def check_target(recall: float) -> None:
    """A UserError unless it is the share of a whole."""
    if not 0 < recall <= 1:
        raise UserError(f"`recall` must be above 0 and at most 1, got {recall:g}", hint="try .98")


def find_kind(name: str) -> Kind:
    """A kind by name; a UserError if it is unknown."""
    return find(INDEXES, name, "index")


@dataclass(frozen=True, slots=True)
class SavedIndexes:
    """The indexes in an opened folder: ``INDEX`` and, by cosine, ``SIMILAR``."""

    folder: storage.Folder

    def __contains__(self, name: str) -> bool:
        return isinstance(self.folder.manifest.get(name), dict)

    def open(
        self, name: str, candidates: Tensor, memory_budget: int, _sample_queries: SampleQueries
    ) -> MeasuredIndex:
        """An index as it was built."""
        about = self.about(name)
        with storage.check_contents(self.folder.path):
            opener = find_kind(about["kind"]).open
            if opener is None:
                raise ValueError(f"its {name} has a kind that is never saved: {about['kind']}")
            saved = Saved(self.folder, name, about)
            return MeasuredIndex(opener(saved, candidates, memory_budget), about)

    def about(self, name: str) -> dict[str, Any]:
        """The description of an index, and its bytes on disk."""
        entries = self.folder.manifest["files"]
        sizes = [entries[file]["size"] for file in entries if file.split("_")[0] == name]
        return {**self.folder.manifest[name], "bytes": sum(sizes)}

    def meta(self) -> dict[str, Any]:
        """Their entries in the manifest."""
        return {name: self.folder.manifest[name] for name in NAMES if name in self}

    def files(self) -> dict[str, storage.Content]:
        """Their files, for another folder."""
        return {
            file: self.folder.reuse(file)
            for file in self.folder.manifest["files"]
            if file.split("_")[0] in NAMES
        }
