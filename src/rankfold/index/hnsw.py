"""A graph of near candidates (HNSW), built and searched by faiss."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold import storage
from rankfold.index.exact import Exact
from rankfold.index.faiss_files import faiss, open_mapped, unreachable_recall, write_to
from rankfold.index.filter import FETCH_DEPTHS, Approximate
from rankfold.index.kind import Saved
from rankfold.index.recall import lower_bound, recalls
from rankfold.kernels.threads import n_threads
from rankfold.types import TopK

LINKS = 16  # per candidate
_EF_CONSTRUCTION = 80  # candidates visited to link one
MAX_EF_SEARCH = 4096  # candidates visited by a search, at most
BLOCK = 2**16  # candidates added at a time
FETCHED_BYTES = 256  # allocated per fetched result, at most


class Effort(NamedTuple):
    """How a query for ``depth`` candidates is answered."""

    depth: int
    ef_search: int
    recall: float  # on the tuning queries


class Hnsw(Approximate):
    """The best candidates that a graph search visits; faiss holds a copy of the vectors."""

    kind = "hnsw"

    def __init__(
        self, candidates: Tensor, memory_budget: int, graph: Any, efforts: Sequence[Effort]
    ) -> None:
        self.exact = Exact(candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.graph, self.efforts = graph, list(efforts)
        self.depths = [effort.depth for effort in efforts]

    def fetch(self, vectors: Tensor, depth: int) -> TopK:
        """The best candidates visited at the effort of this depth; [B, depth], -1 pads."""
        return walk(self.graph, vectors, depth, self.efforts[self.depths.index(depth)].ef_search)

    def block(self, depth: int) -> int:
        return max(1, self.memory_budget // (FETCHED_BYTES * depth))

    def files(self, name: str) -> dict[str, storage.Content]:
        """The graph with its vectors, as faiss writes it."""
        return {name: storage.ForeignFile("faiss", partial(write_to, self.graph))}

    def about(self) -> dict[str, Any]:
        """The parameters of ``open``."""
        return {"links": LINKS, "efforts": [list(effort) for effort in self.efforts]}


def build_hnsw(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> Hnsw:
    """Link every candidate, and choose how many a search visits; see ``choose_efforts``.

    The seed is not used: faiss has its own, and with several threads the links differ slightly.
    """
    del seed
    n, width = candidates.shape
    if n == 0 or width == 0:
        return Hnsw(candidates, memory_budget, None, [])
    exact = Exact(candidates, memory_budget)  # refuses NaN
    graph = faiss().IndexHNSWFlat(width, LINKS, faiss().METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _EF_CONSTRUCTION
    faiss().omp_set_num_threads(n_threads())
    for block in candidates.detach().split(BLOCK):
        graph.add(block.float().cpu().numpy())
    return Hnsw(candidates, memory_budget, graph, choose_efforts(graph, exact, queries, target))


def open_hnsw(saved: Saved, candidates: Tensor, memory_budget: int) -> Hnsw:
    """A saved graph; a ValueError if it does not match the candidates."""
    efforts = [Effort(int(e[0]), int(e[1]), float(e[2])) for e in saved.about["efforts"]]
    if saved.name not in saved.folder:
        return Hnsw(candidates, memory_budget, None, [])
    file, shape = saved.folder.file(saved.name), candidates.shape
    graph = open_mapped(file, "IO_FLAG_MMAP_IFC", "IndexHNSWFlat", shape)
    return Hnsw(candidates, memory_budget, graph, efforts)


def choose_efforts(graph: Any, exact: Exact, queries: Tensor, target: float) -> list[Effort]:
    """For each depth, the least effort whose recall exceeds the target by two standard errors.

    A depth that cannot reach the target is left out; a UserError if none can.
    """
    depths = [depth for depth in FETCH_DEPTHS if depth <= graph.ntotal]
    if len(queries) == 0 or not depths:
        return []
    truth = exact.search(queries, depths[-1])
    efforts, best, ef_search = [], 0.0, 0
    for depth in depths:
        ef_search = max(ef_search, depth)
        while True:
            recall = recalls(walk(graph, queries, depth, ef_search), truth.first(depth))
            best, enough = max(best, float(recall.mean())), lower_bound(recall) >= target
            if enough or ef_search == MAX_EF_SEARCH:
                break
            ef_search = min(ef_search + ef_search // 4, MAX_EF_SEARCH)
        if enough:
            efforts.append(Effort(depth, ef_search, float(recall.mean())))
    if not efforts:
        raise unreachable_recall("hnsw", best, depths[0], target)
    return efforts


def walk(graph: Any, vectors: Tensor, depth: int, ef_search: int) -> TopK:
    """A search by faiss, with torch's number of threads."""
    faiss().omp_set_num_threads(n_threads())
    parameters = faiss().SearchParametersHNSW(efSearch=max(ef_search, depth))
    scores, ids = graph.search(vectors.contiguous().numpy(), depth, params=parameters)
    return TopK(torch.from_numpy(ids), torch.from_numpy(scores))
