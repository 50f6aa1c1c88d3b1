"""Approximate search by inner product for many candidates, at a recall that is measured.

The lists of an inverted file are chosen in torch and read by faiss on a CPU, by torch elsewhere.
faiss is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold.index.exact import PAIR_BYTES, Exact
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
    points,
    scan,
    scan_bytes,
)
from rankfold.kernels.topk import top_k
from rankfold.types import Index, Interactions, TopK

SMALL = 20_000  # candidates: with fewer, exact search takes no longer
DEPTHS = (16, 32, 64, 128, 256, 512, 1024)  # results; for more, search is exact
LARGEST_SHARE = 0.2  # of the candidates: to read more of them takes longer than exact search
SAMPLE = 256  # queries to measure recall with
FETCHED_BYTES = 128  # allocated for each result that is fetched, at most
TARGET = 0.95


def build_index(
    candidates: Tensor,
    memory_budget: int = 2**30,
    *,
    queries: Tensor | None = None,
    target: float = TARGET,
    seed: int = 0,
) -> Index:
    """What searches ``candidates`` fastest at a recall of ``target``: see ``lists_pay``."""
    if target >= 1 or not lists_pay(candidates):
        return Exact(candidates, memory_budget)
    return Approximate(candidates, memory_budget, queries=queries, target=target, seed=seed)


def lists_pay(candidates: Tensor) -> bool:
    """Many candidates on a CPU: a GPU scores all of them sooner than it gathers some."""
    return len(candidates) >= SMALL and candidates.device.type == "cpu"


class Built(NamedTuple):
    """What an index is made of besides the candidates."""

    lists: Lists
    groups: Lists  # of lists
    probings: list[Probing]  # by ascending depth


class Approximate:
    """Most of the best candidates, ``recall`` of them on average.

    Depends on the candidates, the seed and the number of threads alone. On a CPU it holds a copy of
    the candidates, list by list, of their own type if that is a half precision, else float32.
    """

    def __init__(
        self,
        candidates: Tensor,
        memory_budget: int = 2**30,
        *,
        queries: Tensor | None = None,
        target: float = TARGET,
        seed: int = 0,
        built: Built | None = None,
    ) -> None:
        """Build the lists, and choose how many of them to look into.

        Args:
            candidates: [N, D]; float64 is taken as float32.
            memory_budget: bytes, besides what is given, held and returned.
            queries: vectors like those to come, of which some are used to measure recall; without
                them candidates are, which may be easier to answer.
            target: the recall to reach, for every number of results.
            seed: of the sample for k-means and of the queries to measure with.
            built: ``built`` of an index of the same candidates: nothing is done again.
        """
        wide = candidates.dtype == torch.float64
        self.exact = Exact(candidates.float() if wide else candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.built = built or self._build(queries, target, seed)
        self._scan, self._scan_points = self._readers()

    @property
    def recall(self) -> float:
        """The least that was measured, over all depths; where search is exact it is 1."""
        return min((p.recall for p in self.built.probings if _pays(p)), default=1.0)

    def search(self, vectors: Tensor, k: int, exclude: Interactions | None = None) -> TopK:
        """As ``Exact.search``, but some of the best may be missing. Scores are float32.

        What is excluded for a query is fetched too and then left out, so that a query with many
        such pairs is a query for many results. Where too few are left, search is exact. Of several
        candidates with the score of the last result, any may be returned.
        """
        vectors = vectors.detach().float()
        self.exact.check(vectors, exclude)
        k = min(k, len(self.candidates))
        shape = (len(vectors), k)
        ids = torch.full(shape, -1, device=vectors.device)
        found = TopK(ids, torch.full(shape, -torch.inf, device=vectors.device))
        hidden = ids.new_zeros(len(vectors)) if exclude is None else exclude.counts().to(ids.device)
        depths = torch.tensor([p.depth for p in self.built.probings], device=ids.device)
        classes = torch.bucketize(hidden + k, depths)
        for place, probing in enumerate(self.built.probings):
            rows = (classes == place).nonzero()[:, 0]
            if k > 0 and len(rows) > 0 and _pays(probing):
                self._search_rows(rows, probing, vectors, exclude, found)
        lacking = (found.ids >= 0).sum(dim=1) < (len(self.candidates) - hidden).clamp(max=k)
        rows = lacking.nonzero()[:, 0]
        _put(found, rows, self.exact.search(vectors[rows], k, _select(exclude, rows)))
        return found

    def tensors(self) -> dict[str, Tensor]:
        """All that ``from_tensors`` needs besides the candidates: some 4 bytes for each of them."""
        lists, groups, probings = self.built
        small = len(lists.ids) <= torch.iinfo(torch.int32).max
        ids = lists.ids.to(torch.int32 if small else torch.int64)
        rows = torch.tensor(probings, dtype=torch.float64).reshape(-1, len(Probing._fields))
        group_of = owners(groups).to(torch.int32)
        return {**lists._asdict(), "ids": ids, "groups": group_of, "probings": rows}

    @staticmethod
    def from_tensors(
        tensors: Mapping[str, Tensor], candidates: Tensor, memory_budget: int = 2**30
    ) -> Approximate:
        """The index of these candidates again; a ValueError if it cannot be one of them."""
        return Approximate(candidates, memory_budget, built=_checked(tensors, candidates))

    def to_bytes(self) -> bytes:
        """``tensors`` as a safetensors file, which is data alone; faiss does not read it."""
        from safetensors.torch import save

        return bytes(save({name: t.cpu().contiguous() for name, t in self.tensors().items()}))

    @staticmethod
    def from_bytes(data: bytes, candidates: Tensor, memory_budget: int = 2**30) -> Approximate:
        """As ``from_tensors``; a ValueError also if the bytes are damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(data)
        except (SafetensorError, KeyError) as error:
            raise ValueError(f"the index is damaged: {error}") from error
        return Approximate.from_tensors(tensors, candidates, memory_budget)

    def _build(self, queries: Tensor | None, target: float, seed: int) -> Built:
        n, width = self.candidates.shape
        lists = build_lists(self.candidates, self.memory_budget, seed)
        groups = group_lists(lists, self.memory_budget)
        depths = [depth for depth in DEPTHS if depth <= n * LARGEST_SHARE]
        asked = self.candidates if queries is None else queries
        if not depths or len(asked) == 0 or width == 0:
            return Built(lists, groups, [])
        rng = torch.Generator().manual_seed(seed)
        sample = torch.randint(0, len(asked), (min(SAMPLE, len(asked)),), generator=rng)
        vectors = asked[sample.to(asked.device)].detach().float().to(self.candidates.device)
        truth = self.exact.search(vectors, depths[-1]).ids
        probings = choose_probings(lists, groups, vectors, truth, depths, target)
        return Built(lists, groups, probings)

    def _readers(self) -> tuple[Scan, Scan]:
        """What reads candidates in lists, and points in groups; faiss, on a CPU, copies both."""
        lists, groups, probings = self.built
        stored = ((self.candidates, lists), (points(lists), groups))
        if probings and self.candidates.device.type == "cpu":
            first, second = (partial(faiss_scan, _fill(*s)) for s in stored)
        else:
            first, second = (partial(scan, *s) for s in stored)
        return first, second

    def _search_rows(
        self,
        rows: Tensor,
        probing: Probing,
        vectors: Tensor,
        exclude: Interactions | None,
        found: TopK,
    ) -> None:
        """Fill these rows of ``found``, as many at a time as the memory budget allows."""
        k, n = found.ids.shape[1], len(self.candidates)
        for part in rows.split(self._block(probing)):
            hidden = _select(exclude, part)
            fetched = k if hidden is None else k + int(hidden.counts().max())
            ids, scores = self._fetch(vectors[part], probing, fetched)
            missing = ids < 0 if hidden is None else (ids < 0) | _among(ids, hidden, n)
            _put(found, part, _best(ids, scores.masked_fill(missing, -torch.inf), k))

    def _block(self, probing: Probing) -> int:
        lists, groups, _ = self.built
        width = self.candidates.shape[1]
        two_steps = probing.groups < len(groups.spreads)
        promised = len(groups.spreads) if two_steps else len(lists.spreads)
        each = probing.depth * (FETCHED_BYTES + PAIR_BYTES) + 16 * (promised + probing.lists)
        if self.candidates.device.type != "cpu":
            each += scan_bytes(lists, probing.lists, width)
            each += scan_bytes(groups, probing.groups, width + 1) if two_steps else 0
        return max(1, self.memory_budget // each)

    def _fetch(self, block: Tensor, probing: Probing, k: int) -> tuple[Tensor, Tensor]:
        """The best k of the lists that promise most; ids, -1 pads, and scores [B, k]."""
        lists, groups, _ = self.built
        return self._scan(block, choose_lists(lists, groups, block, probing, self._scan_points), k)


def faiss_scan(index: Any, queries: Tensor, taken: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``scan`` by faiss, with torch's number of threads, one query in each at a time."""
    faiss = _faiss()
    faiss.omp_set_num_threads(torch.get_num_threads())
    queries, taken = queries.contiguous(), taken.contiguous()
    ids = torch.empty(len(queries), k, dtype=torch.int64)
    scores = torch.empty(len(queries), k)
    unused = torch.zeros(taken.shape)  # distances to the lists
    given = [len(queries), _pointer(queries), k, _pointer(taken), _pointer(unused)]
    how = faiss.SearchParametersIVF(nprobe=taken.shape[1])
    index.search_preassigned_c(*given, _pointer(scores), _pointer(ids), False, how)
    return ids, scores


def _fill(candidates: Tensor, lists: Lists) -> Any:
    """The candidates in faiss, list by list. It stores the bytes of a vector as they are."""
    faiss = _faiss()
    codes = {
        torch.float16: faiss.ScalarQuantizer.QT_fp16,
        torch.bfloat16: faiss.ScalarQuantizer.QT_bf16,
    }
    width, n_lists = candidates.shape[1], len(lists.spreads)
    given = [faiss.IndexFlatIP(width), width, n_lists]  # the lists are not chosen by faiss
    code = codes.get(candidates.dtype)
    if code is None:
        index = faiss.IndexIVFFlat(*given, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexIVFScalarQuantizer(*given, code, faiss.METRIC_INNER_PRODUCT, False)
    offsets = lists.offsets.tolist()
    for place in range(n_lists):
        ids = lists.ids[offsets[place] : offsets[place + 1]]
        vectors = candidates[ids].view(torch.uint8)
        index.invlists.add_entries(place, len(ids), _pointer(ids), _pointer(vectors))
    index.ntotal, index.is_trained = len(candidates), True
    return index


def _pointer(tensor: Tensor) -> Any:
    return _faiss().swig_ptr(tensor.numpy())


def _faiss() -> Any:
    import faiss

    return faiss


def _pays(probing: Probing) -> bool:
    return probing.share <= LARGEST_SHARE


def _select(exclude: Interactions | None, rows: Tensor) -> Interactions | None:
    return None if exclude is None else exclude.select(rows.to(exclude.offsets.device))


def _put(found: TopK, rows: Tensor, part: TopK) -> None:
    found.ids[rows], found.scores[rows] = part


def _among(ids: Tensor, hidden: Interactions, n: int) -> Tensor:
    """Which of the ids [B, K] are excluded for their query: a binary search in all the pairs."""
    if hidden.n_pairs == 0:
        return torch.zeros_like(ids, dtype=torch.bool)
    pairs = (hidden.query_of_pair().long() * n + hidden.candidates).to(ids.device)
    asked = torch.arange(len(ids), device=ids.device).unsqueeze(1) * n + ids
    return pairs[torch.searchsorted(pairs, asked).clamp(max=len(pairs) - 1)] == asked


def _best(ids: Tensor, scores: Tensor, k: int) -> TopK:
    """The k largest scores, of equal ones the lowest ids first."""
    ids, order = ids.sort(dim=1)
    best = top_k(scores.gather(1, order), k)
    return TopK(ids.gather(1, best.ids.clamp(min=0)).where(best.ids >= 0, -1), best.scores)


def _checked(tensors: Mapping[str, Tensor], candidates: Tensor) -> Built:
    """The parts of an index, of the right types and sizes, with every candidate in one list."""
    n, width = candidates.shape
    try:
        lists = Lists(*(tensors[name] for name in Lists._fields))
        group_of, rows = _with_groups(
            tensors["spreads"], tensors["probings"], tensors.get("groups")
        )
    except KeyError as error:
        raise ValueError(f"the index has no {error}") from error
    n_lists = len(lists.spreads)
    _expect(lists.centres, "centres", (n_lists, width), torch.float32)
    _expect(lists.spreads, "spreads", (n_lists,), torch.float32)
    _expect(lists.offsets, "offsets", (n_lists + 1,), torch.int64)
    _expect(lists.ids, "ids", (n,), torch.int32, torch.int64)
    _expect(group_of, "groups", (n_lists,), torch.int32)
    _expect(rows, "probings", (len(rows), len(Probing._fields)), torch.float64)
    lists = Lists(*(t.to(candidates.device) for t in lists))._replace(
        ids=lists.ids.to(candidates.device, torch.int64)
    )
    _check_lists(lists, n)
    groups = join_groups(lists, _checked_groups(group_of.to(candidates.device, torch.int64)))
    probings = [Probing(int(d), int(p), z, r, s, int(g)) for d, p, z, r, s, g in rows.tolist()]
    if not all(1 <= p.lists <= n_lists and 1 <= p.depth <= n for p in probings):
        raise ValueError(f"the index looks into lists that are not among its {n_lists}")
    if not all(1 <= p.groups <= len(groups.spreads) for p in probings):
        raise ValueError(
            f"the index looks into groups that are not among its {len(groups.spreads)}"
        )
    return Built(lists, groups, sorted(probings))


def _with_groups(spreads: Tensor, rows: Tensor, group_of: Tensor | None) -> tuple[Tensor, Tensor]:
    """As written today. Before there were groups all lists were compared: they are one group."""
    if group_of is not None:
        return group_of, rows
    ones = torch.ones_like(rows[..., :1])
    return torch.zeros_like(spreads, dtype=torch.int32), torch.cat([rows, ones], dim=-1)


def _checked_groups(group_of: Tensor) -> Tensor:
    n = len(group_of)
    if n > 0 and (int(group_of.min()) < 0 or int(group_of.max()) >= n):
        raise ValueError(f"the index's groups are not numbers below {n}")
    if bool((torch.bincount(group_of) == 0).any()):
        raise ValueError("the index's groups are not numbered one after the other")
    return group_of


def _expect(tensor: Tensor, name: str, shape: tuple[int, ...], *types: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype not in types:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"the index's {name} are {found}, expected {types[0]} {shape}")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ValueError(f"the index's {name} are not all finite")


def _check_lists(lists: Lists, n: int) -> None:
    ends = (int(lists.offsets[0]), int(lists.offsets[-1]))
    if ends != (0, n) or bool((lists.offsets.diff() < 0).any()):
        raise ValueError(f"the index's lists do not cover {n} candidates")
    if not torch.equal(lists.ids.sort().values, torch.arange(n, device=lists.ids.device)):
        raise ValueError("the index does not hold every candidate once")
