"""Candidates as short codes in an inverted file; what they promise is scored again exactly.

The lists are those of ``inverted``, chosen by mean and spread. In a list a candidate is a code of a
byte for every four columns: which of 256 pieces, learnt by k-means, is nearest to each piece of its
difference from the mean (product quantisation). faiss reads the codes, which may stay in the file;
the best by codes are scored again with the vectors, of which a search touches few, so that these
may stay in a file as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold import storage
from rankfold.index.ann import checked_groups, expect, faiss_scan, point_reader, score_again
from rankfold.index.exact import Exact
from rankfold.index.files import cannot_reach, checked, faiss, open_mapped, write_to
from rankfold.index.filter import search_deeper
from rankfold.index.inverted import (
    Lists,
    Probing,
    Scan,
    build_lists,
    choose_lists,
    choose_probings,
    group_lists,
    join_groups,
    owners,
)
from rankfold.index.measure import first, lower_bound, recalls
from rankfold.types import Interactions, TopK

PIECE = 4  # columns coded by a byte
LEARNT_FROM = 2**16  # candidates that codes are learnt from
LEAST = 1024  # candidates: codes of fewer cannot be learnt
FETCHES = (16, 64, 256, 1024, 4096)  # results; for more, search is exact
AGAIN = (1, 2, 4, 8, 16, 32)  # times as many are scored again, the fewest that suffice
MOST_AGAIN = 2**14
BLOCK = 2**16  # candidates coded at a time
BYTES = 64  # allocated for each candidate that is scored again, besides its vector, at most


class Effort(NamedTuple):
    """How a query is answered: which lists are read, and how many are scored again."""

    probing: Probing
    again: int
    recall: float  # on the queries that this was chosen with


class Codes(NamedTuple):
    """What is made of the candidates, and never changes."""

    lists: Lists  # of which ``ids`` is empty: faiss has them
    groups: Lists
    coded: Any  # faiss.IndexIVFPQ
    read_points: Scan  # of the groups


class Compressed:
    """The best candidates by their codes, scored again by their vectors."""

    kind = "compressed"

    def __init__(
        self,
        candidates: Tensor,
        memory_budget: int,
        codes: Codes | None,
        efforts: Sequence[Effort],
    ) -> None:
        self.exact = Exact(candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.codes, self.efforts = codes, {effort.probing.depth: effort for effort in efforts}
        self.depths = list(self.efforts)

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
        """The best of those that are scored again; [B, depth], -1 pads."""
        assert self.codes is not None
        effort = self.efforts[depth]
        ids = by_codes(self.codes, vectors, effort.probing, effort.again)
        return score_again(self.candidates, vectors, ids, depth)

    def block(self, depth: int) -> int:
        """How many queries fit in the memory budget."""
        assert self.codes is not None
        again, promised = self.efforts[depth].again, len(self.codes.lists.spreads)
        each = again * (BYTES + 8 * self.candidates.shape[1]) + 16 * promised
        return max(1, self.memory_budget // each)

    def files(self, name: str) -> dict[str, storage.Content]:
        """The codes as faiss writes them, and what chooses among their lists."""
        if self.codes is None:
            return {}
        lists, groups, coded, _ = self.codes
        rows = [[*e.probing, e.again, e.recall] for e in self.efforts.values()]
        tensors = {
            "centres": lists.centres,
            "spreads": lists.spreads,
            "offsets": lists.offsets,
            "groups": owners(groups).to(torch.int32),
            "efforts": torch.tensor(rows, dtype=torch.float64).reshape(len(rows), EFFORT_FIELDS),
        }
        return {
            name: storage.ForeignFile("faiss", partial(write_to, coded)),
            f"{name}_lists": {key: tensor.contiguous() for key, tensor in tensors.items()},
        }

    def about(self) -> dict[str, Any]:
        """For people."""
        if self.codes is None:
            return {}
        again = {str(depth): effort.again for depth, effort in self.efforts.items()}
        n_lists, n_bytes = len(self.codes.lists.spreads), self.codes.coded.pq.M
        return {"lists": n_lists, "code_bytes": n_bytes, "scored_again": again}


EFFORT_FIELDS = len(Probing._fields) + 2


def build_compressed(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> Compressed:
    """Learn codes, code every candidate, and choose what to read and score again."""
    exact = Exact(candidates, memory_budget)  # refuses NaN
    n, width = candidates.shape
    if n < LEAST or width == 0 or len(queries) == 0:
        return Compressed(candidates, memory_budget, None, [])
    candidates = exact.candidates
    lists = build_lists(candidates, memory_budget, seed)
    groups = group_lists(lists, memory_budget)
    coded = _encode(candidates, lists, seed)
    depths = [depth for depth in FETCHES if depth <= n // 5]
    truth = exact.search(queries, depths[-1])
    probings = choose_probings(lists, groups, queries.float(), truth.ids, depths, (1 + target) / 2)
    bare = lists._replace(ids=lists.ids[:0])
    codes = Codes(bare, groups, coded, point_reader(lists, groups))
    efforts = choose_efforts(candidates, codes, queries.float(), truth, probings, target)
    return Compressed(candidates, memory_budget, codes, efforts)


def open_compressed(
    folder: storage.Folder,
    name: str,
    about: Mapping[str, Any],
    candidates: Tensor,
    memory_budget: int,
) -> Compressed:
    """Codes that were saved; a ValueError if they are not of these candidates."""
    del about
    if name not in folder:
        return Compressed(candidates, memory_budget, None, [])
    tensors, n, width = folder.tensors(f"{name}_lists"), *candidates.shape
    centres, spreads, offsets = (tensors[key] for key in ("centres", "spreads", "offsets"))
    n_lists = len(spreads)
    expect(centres, "centres", (n_lists, width), torch.float32)
    expect(spreads, "spreads", (n_lists,), torch.float32)
    expect(offsets, "offsets", (n_lists + 1,), torch.int64)
    expect(tensors["groups"], "groups", (n_lists,), torch.int32)
    lists = Lists(centres, spreads, offsets, offsets[:0])
    groups = join_groups(lists, checked_groups(tensors["groups"].long()))
    coded = open_mapped(folder.file(name), "IO_FLAG_MMAP")
    checked(coded, "IndexIVFPQ", (n, _padded(width)))
    if coded.nlist != n_lists:
        raise ValueError(f"its index has {coded.nlist} lists, expected {n_lists}")
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
    """For each depth how many to score again to exceed the target by two standard errors.

    A depth that no number suffices for is left out; a UserError if all are.
    """
    efforts, best = [], 0.0
    for probing in (p for p in probings if p.lists > 0):
        depth = probing.depth
        for again in (depth * times for times in AGAIN if depth * times <= MOST_AGAIN):
            ids = by_codes(codes, queries, probing, again)
            found = recalls(score_again(candidates, queries, ids, depth), first(truth, depth))
            best = max(best, float(found.mean()))
            if lower_bound(found) >= target:
                efforts.append(Effort(probing, again, float(found.mean())))
                break
    if not efforts:
        raise cannot_reach("compressed", best, truth.ids.shape[1], target)
    return efforts


def by_codes(codes: Codes, queries: Tensor, probing: Probing, n: int) -> Tensor:
    """The best n by their codes, of the lists that promise most; ids [B, n], -1 pads."""
    lists, groups, coded, read_points = codes
    taken = choose_lists(lists, groups, queries, probing, read_points)
    return faiss_scan(coded, _pad(queries), taken, n)[0]


def _encode(candidates: Tensor, lists: Lists, seed: int) -> Any:
    """All candidates coded, list by list, as their differences from the means."""
    library, list_of = faiss(), owners(lists)
    width, n_lists = _padded(candidates.shape[1]), len(lists.spreads)
    centres = library.IndexFlatIP(width)
    centres.add(_pad(lists.centres).numpy())
    coded = library.IndexIVFPQ(
        centres, width, n_lists, width // PIECE, 8, library.METRIC_INNER_PRODUCT
    )
    centres.this.disown()  # it belongs to the other from now on, which is written and read whole
    coded.own_fields = True
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(candidates), generator=rng)[:LEARNT_FROM]
    coded.pq.cp.min_points_per_centroid = 1  # no warning where candidates are few
    library.omp_set_num_threads(torch.get_num_threads())
    sample = _pad(candidates[chosen].float() - lists.centres[list_of[chosen]])
    coded.pq.train(sample.numpy())
    coded.is_trained = True
    for ids in torch.arange(len(candidates)).split(BLOCK):
        block, assigned = _pad(candidates[ids].float()), list_of[ids].contiguous()
        given = [library.swig_ptr(t.numpy()) for t in (block, ids, assigned)]
        coded.add_core(len(ids), *given)
    return coded


def _pad(vectors: Tensor) -> Tensor:
    """With columns of zeros up to whole pieces."""
    more = -vectors.shape[1] % PIECE
    return pad(vectors, (0, more)) if more else vectors.contiguous()


def _padded(width: int) -> int:
    return width + -width % PIECE


def _effort(row: Sequence[float], n_lists: int, n_groups: int) -> Effort:
    """A row as ``files`` wrote it; a ValueError for numbers that cannot be."""
    depth, lists, slack, recall, share, groups, again, reached = row
    probing = Probing(int(depth), int(lists), slack, recall, share, int(groups))
    fits = 0 < probing.lists <= n_lists and 0 < probing.groups <= n_groups
    if not fits or not 0 < probing.depth <= again <= MOST_AGAIN:
        raise ValueError(f"its index is searched by {row}")
    return Effort(probing, int(again), reached)
