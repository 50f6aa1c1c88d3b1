"""Candidates as short codes in an inverted file; the best by codes are rescored exactly.

The lists are those of ``lists``, chosen by mean and spread. A candidate is coded by product
quantisation of its difference from the mean of its list: one byte per four columns, the nearest of
256 pieces learnt by k-means. faiss reads the codes, which may stay in the file. The best by codes
are rescored with their vectors. A search touches few vectors, so these may stay in a file as well.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold import storage
from rankfold.index import lists as index_lists
from rankfold.index.exact import Exact
from rankfold.index.faiss_files import faiss, open_mapped, unreachable_recall, write_to
from rankfold.index.filter import Approximate
from rankfold.index.inverted import checked_lists, faiss_scan, point_reader, rescore
from rankfold.index.kind import Saved
from rankfold.index.lists import Lists, Probing, Scan
from rankfold.index.recall import lower_bound, recalls
from rankfold.kernels.threads import n_threads
from rankfold.types import TopK

_COLUMNS_PER_BYTE = 4  # columns coded by a byte
_TRAINING_CANDIDATES = 2**16  # candidates to learn codes from
MIN_CANDIDATES = 1024  # with fewer, codes cannot be learnt
FETCH_DEPTHS = (16, 64, 256, 1024, 4096)  # results; for more, search is exact
RESCORE_FACTORS = (1, 2, 4, 8, 16, 32)  # times the depth; the smallest that suffices
_MAX_RESCORED = 2**14  # candidates per query
BLOCK = 2**16  # candidates coded at a time
_RESCORED_BYTES = 64  # allocated per rescored candidate besides its vector, at most


class Effort(NamedTuple):
    """How a query is answered: which lists are read, and how many candidates are rescored."""

    probing: Probing
    rescored: int
    recall: float  # on the tuning queries


class Codes(NamedTuple):
    """The index of the candidates."""

    lists: Lists  # ``ids`` is empty: faiss has them
    groups: Lists
    coded: Any  # faiss.IndexIVFPQ
    read_points: Scan  # of the groups


class Compressed(Approximate):
    """The best candidates by their codes, rescored with their vectors."""

    kind = "compressed"

    def __init__(
        self, candidates: Tensor, memory_budget: int, codes: Codes | None, efforts: Sequence[Effort]
    ) -> None:
        self.exact = Exact(candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.codes, self.efforts = codes, {effort.probing.depth: effort for effort in efforts}
        self.depths = list(self.efforts)

    def fetch(self, vectors: Tensor, depth: int) -> TopK:
        """The best of the rescored candidates; [B, depth], -1 pads."""
        assert self.codes is not None
        effort = self.efforts[depth]
        ids = _by_codes(self.codes, vectors, effort.probing, effort.rescored)
        return rescore(self.candidates, vectors, ids, depth)

    def block(self, depth: int) -> int:
        assert self.codes is not None
        rescored, promised = self.efforts[depth].rescored, len(self.codes.lists.spreads)
        each = rescored * (_RESCORED_BYTES + 8 * self.candidates.shape[1]) + 16 * promised
        return max(1, self.memory_budget // each)

    def files(self, name: str) -> dict[str, storage.Content]:
        """The codes as faiss writes them, and the tensors that choose among their lists."""
        if self.codes is None:
            return {}
        lists, groups, coded, _ = self.codes
        rows = [[*e.probing, e.rescored, e.recall] for e in self.efforts.values()]
        tensors = {
            "centres": lists.centres,
            "spreads": lists.spreads,
            "offsets": lists.offsets,
            "groups": index_lists.owners(groups).to(torch.int32),
            "efforts": torch.tensor(rows, dtype=torch.float64).reshape(len(rows), _EFFORT_FIELDS),
        }
        return {
            name: storage.ForeignFile("faiss", partial(write_to, coded)),
            f"{name}_lists": {key: tensor.contiguous() for key, tensor in tensors.items()},
        }

    def about(self) -> dict[str, Any]:
        """How it is searched, for reading."""
        if self.codes is None:
            return {}
        rescored = {str(depth): effort.rescored for depth, effort in self.efforts.items()}
        n_lists, n_bytes = len(self.codes.lists.spreads), self.codes.coded.pq.M
        return {"lists": n_lists, "code_bytes": n_bytes, "scored_again": rescored}


_EFFORT_FIELDS = len(Probing._fields) + 2


def build_compressed(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> Compressed:
    """Learn codes, code every candidate, and choose how much to read and to rescore."""
    exact = Exact(candidates, memory_budget)  # refuses NaN
    n, width = candidates.shape
    if n < MIN_CANDIDATES or width == 0 or len(queries) == 0:
        return Compressed(candidates, memory_budget, None, [])
    candidates = exact.candidates
    lists = index_lists.build_lists(candidates, memory_budget, seed)
    groups = index_lists.group_lists(lists, memory_budget)
    coded = _encode(candidates, lists, seed)
    depths = [depth for depth in FETCH_DEPTHS if depth <= n // 5]
    truth = exact.search(queries, depths[-1])
    probings = index_lists.choose_probings(
        lists, groups, queries.float(), truth.ids, depths, (1 + target) / 2
    )
    bare = lists._replace(ids=lists.ids[:0])
    codes = Codes(bare, groups, coded, point_reader(lists, groups))
    efforts = choose_efforts(candidates, codes, queries.float(), truth, probings, target)
    return Compressed(candidates, memory_budget, codes, efforts)


def open_compressed(saved: Saved, candidates: Tensor, memory_budget: int) -> Compressed:
    """Saved codes; a ValueError if they do not match the candidates."""
    if saved.name not in saved.folder:
        return Compressed(candidates, memory_budget, None, [])
    tensors, n, width = saved.folder.tensors(f"{saved.name}_lists"), *candidates.shape
    lists, groups = checked_lists(tensors, candidates)
    n_lists, file = len(lists.spreads), saved.folder.file(saved.name)
    coded = open_mapped(file, "IO_FLAG_MMAP", "IndexIVFPQ", (n, _padded(width)))
    if coded.nlist != n_lists:
        raise ValueError(f"its index must have {n_lists} lists, got {coded.nlist}")
    efforts = [_effort(row, n_lists, len(groups.spreads)) for row in tensors["efforts"].tolist()]
    codes = Codes(lists, groups, coded, point_reader(lists, groups))
    return Compressed(candidates, memory_budget, codes, efforts)


def choose_efforts(
    candidates: Tensor,
    codes: Codes,
    queries: Tensor,
    truth: TopK,
    probings: Sequence[Probing],
    target: float,
) -> list[Effort]:
    """For each depth, how many to rescore so that recall exceeds the target by two standard errors.

    A depth that cannot reach the target is left out; a UserError if none can.
    """
    efforts, best = [], 0.0
    for probing in (p for p in probings if p.lists > 0):
        depth = probing.depth
        factors = [times for times in RESCORE_FACTORS if depth * times <= _MAX_RESCORED]
        for rescored in (depth * times for times in factors):
            ids = _by_codes(codes, queries, probing, rescored)
            recall = recalls(rescore(candidates, queries, ids, depth), truth.first(depth))
            best = max(best, float(recall.mean()))
            if lower_bound(recall) >= target:
                efforts.append(Effort(probing, rescored, float(recall.mean())))
                break
    if not efforts:
        raise unreachable_recall("compressed", best, truth.ids.shape[1], target)
    return efforts


def _by_codes(codes: Codes, queries: Tensor, probing: Probing, n: int) -> Tensor:
    """The best n by their codes in the most promising lists; ids [B, n], -1 pads."""
    lists, groups, coded, read_points = codes
    taken = index_lists.choose_lists(lists, groups, queries, probing, read_points)
    return faiss_scan(coded, _pad(queries), taken, n)[0]


def _encode(candidates: Tensor, lists: Lists, seed: int) -> Any:
    """All candidates, coded by their differences from the mean of their list."""
    library, list_of = faiss(), index_lists.owners(lists)
    width, n_lists = _padded(candidates.shape[1]), len(lists.spreads)
    centres = library.IndexFlatIP(width)
    centres.add(_pad(lists.centres).numpy())
    coded = library.IndexIVFPQ(
        centres, width, n_lists, width // _COLUMNS_PER_BYTE, 8, library.METRIC_INNER_PRODUCT
    )
    centres.this.disown()  # owned by the coded index from now on
    coded.own_fields = True
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(candidates), generator=rng)[:_TRAINING_CANDIDATES]
    coded.pq.cp.min_points_per_centroid = 1  # no warning for few candidates
    library.omp_set_num_threads(n_threads())
    sample = _pad(candidates[chosen].float() - lists.centres[list_of[chosen]])
    coded.pq.train(sample.numpy())
    coded.is_trained = True
    for ids in torch.arange(len(candidates)).split(BLOCK):
        block, assigned = _pad(candidates[ids].float()), list_of[ids].contiguous()
        given = [library.swig_ptr(t.numpy()) for t in (block, ids, assigned)]
        coded.add_core(len(ids), *given)
    return coded


def _pad(vectors: Tensor) -> Tensor:
    """Padded with columns of zeros to a multiple of ``_COLUMNS_PER_BYTE``."""
    more = -vectors.shape[1] % _COLUMNS_PER_BYTE
    return pad(vectors, (0, more)) if more else vectors.contiguous()


def _padded(width: int) -> int:
    return width + -width % _COLUMNS_PER_BYTE


def _effort(row: Sequence[float], n_lists: int, n_groups: int) -> Effort:
    """A row as ``files`` wrote it; a ValueError for impossible values."""
    depth, lists, slack, recall, share, groups, rescored, reached = row
    probing = Probing(int(depth), int(lists), slack, recall, share, int(groups))
    fits = 0 < probing.lists <= n_lists and 0 < probing.groups <= n_groups
    if not fits or not 0 < probing.depth <= rescored <= _MAX_RESCORED:
        raise ValueError(f"its index has an invalid effort {row}")
    return Effort(probing, int(rescored), reached)
