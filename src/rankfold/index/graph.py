"""A graph of near candidates (HNSW), built and walked by faiss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold import storage
from rankfold.index.exact import Exact
from rankfold.index.files import cannot_reach, checked, faiss, open_mapped, write_to
from rankfold.index.filter import search_deeper
from rankfold.index.measure import first, lower_bound, recalls
from rankfold.types import Interactions, TopK

LINKS = 16  # of a candidate, in each direction
BUILDING = 80  # candidates looked at to link one
FETCHES = (16, 32, 64, 128, 256, 512, 1024)  # results; for more, search is exact
MOST_LOOKED_AT = 4096  # candidates, by a search
BLOCK = 2**16  # candidates added at a time
FETCHED_BYTES = 256  # allocated for each result that is fetched, at most


class Effort(NamedTuple):
    """How a query that wants ``depth`` candidates is answered."""

    depth: int
    looked_at: int  # ``efSearch``
    recall: float  # on the queries that this was chosen with


class Graph:
    """The best candidates as a walk through a graph finds them; faiss holds a copy of them."""

    kind = "hnsw"

    def __init__(
        self, candidates: Tensor, memory_budget: int, graph: Any, efforts: Sequence[Effort]
    ) -> None:
        self.exact = Exact(candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.graph, self.efforts = graph, list(efforts)
        self.depths = [effort.depth for effort in efforts]

    def search(
        self,
        vectors: Tensor,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """As ``Exact.search``, but some of the best may be missing. Scores are float32."""
        vectors, n = vectors.detach().float(), len(self.candidates)
        self.exact.check(vectors, exclude, allow)
        return search_deeper(self, vectors, min(k, n), exclude, allow, n)

    def fetch(self, vectors: Tensor, depth: int) -> TopK:
        """The best that a walk of the depth's effort meets; [B, depth], -1 pads."""
        return walk(self.graph, vectors, depth, self.efforts[self.depths.index(depth)].looked_at)

    def block(self, depth: int) -> int:
        """How many queries fit in the memory budget."""
        return max(1, self.memory_budget // (FETCHED_BYTES * depth))

    def files(self, name: str) -> dict[str, storage.Content]:
        """The graph and the vectors in it, as faiss writes them."""
        return {name: storage.ForeignFile("faiss", partial(write_to, self.graph))}

    def about(self) -> dict[str, Any]:
        """What it takes to open it again."""
        return {"links": LINKS, "efforts": [list(effort) for effort in self.efforts]}


def build_graph(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> Graph:
    """Link every candidate, and look at as many as the target asks for; see ``choose_efforts``.

    The seed changes nothing: faiss has its own, and with several threads links differ slightly.
    """
    del seed
    n, width = candidates.shape
    if n == 0 or width == 0:
        return Graph(candidates, memory_budget, None, [])
    Exact(candidates)  # refuses NaN
    graph = faiss().IndexHNSWFlat(width, LINKS, faiss().METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = BUILDING
    faiss().omp_set_num_threads(torch.get_num_threads())
    for block in candidates.detach().split(BLOCK):
        graph.add(block.float().cpu().numpy())
    exact = Exact(candidates, memory_budget)
    return Graph(candidates, memory_budget, graph, choose_efforts(graph, exact, queries, target))


def open_graph(
    folder: storage.Folder,
    name: str,
    about: Mapping[str, Any],
    candidates: Tensor,
    memory_budget: int,
) -> Graph:
    """A graph that was saved; a ValueError if it is not of these candidates."""
    efforts = [Effort(int(e[0]), int(e[1]), float(e[2])) for e in about["efforts"]]
    if name not in folder:
        return Graph(candidates, memory_budget, None, [])
    graph = checked(
        open_mapped(folder.file(name), "IO_FLAG_MMAP_IFC"), "IndexHNSWFlat", candidates.shape
    )
    return Graph(candidates, memory_budget, graph, efforts)


def choose_efforts(graph: Any, exact: Exact, queries: Tensor, target: float) -> list[Effort]:
    """For each depth the least effort that exceeds the target by two standard errors.

    A depth that no effort suffices for is left out; a UserError if all are.
    """
    depths = [depth for depth in FETCHES if depth <= graph.ntotal]
    if len(queries) == 0 or not depths:
        return []
    truth = exact.search(queries, depths[-1])
    efforts, best, looked_at = [], 0.0, 0
    for depth in depths:
        looked_at = max(looked_at, depth)
        while True:
            found = recalls(walk(graph, queries, depth, looked_at), first(truth, depth))
            best = max(best, float(found.mean()))
            if lower_bound(found) >= target:
                efforts.append(Effort(depth, looked_at, float(found.mean())))
            if lower_bound(found) >= target or looked_at == MOST_LOOKED_AT:
                break
            looked_at = min(looked_at + looked_at // 4, MOST_LOOKED_AT)
    if not efforts:
        raise cannot_reach("hnsw", best, depths[0], target)
    return efforts


def walk(graph: Any, vectors: Tensor, depth: int, looked_at: int) -> TopK:
    """What faiss finds, with torch's number of threads."""
    faiss().omp_set_num_threads(torch.get_num_threads())
    how = faiss().SearchParametersHNSW(efSearch=max(looked_at, depth))
    scores, ids = graph.search(vectors.contiguous().numpy(), depth, params=how)
    return TopK(torch.from_numpy(ids), torch.from_numpy(scores))
