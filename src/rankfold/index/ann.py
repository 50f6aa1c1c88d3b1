"""Approximate search by inner product for many candidates, at a recall that is measured.

The lists of an inverted file are chosen in torch and read by faiss on a CPU, by torch elsewhere.
faiss is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold import storage
from rankfold.index.exact import PAIR_BYTES, Exact
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
    points,
    scan,
    scan_bytes,
)
from rankfold.types import Index, Interactions, TopK

SMALL = 20_000  # candidates: with fewer, exact search takes no longer
DEPTHS = (16, 32, 64, 128, 256, 512, 1024)  # results; for more, search is exact
DEEP = (*DEPTHS, 2048, 4096)  # where much may be hidden; measured half as long again
LARGEST_SHARE = 0.2  # of the candidates: to read more of them takes longer than exact search
SAMPLE = 256  # queries to measure recall with
FETCHED_BYTES = 192  # allocated for each result that is fetched, besides its vector, at most
HALVES = 15  # a power of 2 that half precision has
LANES = 16  # faiss decodes halves so many at a time where they divide the width, else one by one
SPARE = 8  # results more than are wanted, as rounding may change their order
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


def build_inverted(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> Approximate:
    """Lists of all candidates; see ``Approximate``."""
    asked = queries if len(queries) > 0 else None
    return Approximate(
        candidates, memory_budget, queries=asked, target=target, seed=seed, depths=DEEP
    )


def open_inverted(
    folder: storage.Folder,
    name: str,
    about: Mapping[str, Any],
    candidates: Tensor,
    memory_budget: int,
) -> Approximate:
    """Lists that were saved; a ValueError if they are not of these candidates."""
    del about
    return Approximate.from_tensors(folder.tensors(name), candidates, memory_budget)


class Built(NamedTuple):
    """What an index is made of besides the candidates."""

    lists: Lists
    groups: Lists  # of lists
    probings: list[Probing]  # by ascending depth


class Approximate:
    """Most of the best candidates, ``recall`` of them on average.

    Depends on the candidates, the seed and the number of threads alone. On a CPU it holds a copy of
    the candidates, list by list, in half precision; the best by these are scored again.
    """

    kind = "inverted"

    def __init__(
        self,
        candidates: Tensor,
        memory_budget: int = 2**30,
        *,
        queries: Tensor | None = None,
        target: float = TARGET,
        seed: int = 0,
        depths: Sequence[int] = DEPTHS,
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
            depths: how many results are to be found by reading lists, ascending.
            built: ``built`` of an index of the same candidates: nothing is done again.
        """
        wide = candidates.dtype == torch.float64
        self.exact = Exact(candidates.float() if wide else candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.built = built or self._build(queries, target, seed, depths)
        self._scan, self._scan_points = self._readers()

    @property
    def recall(self) -> float:
        """The least that was measured, over all depths; where search is exact it is 1."""
        return min((p.recall for p in self.built.probings if _pays(p)), default=1.0)

    @property
    def depths(self) -> list[int]:
        """How many results can be fetched by reading lists."""
        return [probing.depth for probing in self.built.probings if _pays(probing)]

    def search(
        self,
        vectors: Tensor,
        k: int,
        exclude: Interactions | None = None,
        allow: Tensor | None = None,
    ) -> TopK:
        """As ``Exact.search``, but some of the best may be missing. Scores are float32.

        Of several candidates with the score of the last result, any may be returned.
        """
        vectors, n = vectors.detach().float(), len(self.candidates)
        self.exact.check(vectors, exclude, allow)
        return search_deeper(self, vectors, min(k, n), exclude, allow, n)

    def fetch(self, vectors: Tensor, depth: int) -> TopK:
        """The best of the lists that promise most; [B, depth], -1 pads."""
        probing = next(p for p in self.built.probings if p.depth == depth)
        lists, groups, _ = self.built
        taken = choose_lists(lists, groups, vectors, probing, self._scan_points)
        return TopK(*self._scan(vectors, taken, depth))

    def block(self, depth: int) -> int:
        """How many queries fit in the memory budget."""
        probing = next(p for p in self.built.probings if p.depth == depth)
        lists, groups, _ = self.built
        width = self.candidates.shape[1]
        two_steps = probing.groups < len(groups.spreads)
        promised = len(groups.spreads) if two_steps else len(lists.spreads)
        found = probing.depth + SPARE
        each = found * (FETCHED_BYTES + PAIR_BYTES + 8 * width)
        each += 16 * (promised + probing.lists)
        if self.candidates.device.type != "cpu":
            each += scan_bytes(lists, probing.lists, width)
            each += scan_bytes(groups, probing.groups, width + 1) if two_steps else 0
        return max(1, self.memory_budget // each)

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

    def files(self, name: str) -> dict[str, storage.Content]:
        """``tensors`` as a file."""
        return {name: {key: tensor.cpu() for key, tensor in self.tensors().items()}}

    def about(self) -> dict[str, Any]:
        """For people: how much is read for how many results."""
        read = {str(p.depth): round(p.share, 5) for p in self.built.probings if _pays(p)}
        return {"lists": len(self.built.lists.spreads), "read": read}

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

    def _build(
        self, queries: Tensor | None, target: float, seed: int, depths: Sequence[int]
    ) -> Built:
        n, width = self.candidates.shape
        lists = build_lists(self.candidates, self.memory_budget, seed)
        groups = group_lists(lists, self.memory_budget)
        depths = [depth for depth in depths if depth <= n * LARGEST_SHARE]
        asked = self.candidates if queries is None else queries
        if not depths or len(asked) == 0 or width == 0:
            return Built(lists, groups, [])
        rng = torch.Generator().manual_seed(seed)
        sample = torch.arange(len(asked))
        if len(asked) > SAMPLE:
            sample = torch.randint(0, len(asked), (SAMPLE,), generator=rng)
        vectors = asked[sample.to(asked.device)].detach().float().to(self.candidates.device)
        truth = self.exact.search(vectors, depths[-1]).ids
        probings = choose_probings(lists, groups, vectors, truth, depths, target)
        return Built(lists, groups, probings)

    def _readers(self) -> tuple[Scan, Scan]:
        """What reads candidates in lists, and points in groups; faiss, on a CPU, copies both."""
        lists, groups, probings = self.built
        if probings and self.candidates.device.type == "cpu":
            halves = self.candidates.dtype
            if halves == torch.float32:
                halves = torch.float16
            coded = _fill(self.candidates, lists, halves)
            return partial(read_again, self.candidates, coded), point_reader(lists, groups)
        return partial(scan, self.candidates, lists), partial(scan, points(lists), groups)


def point_reader(lists: Lists, groups: Lists) -> Scan:
    """What finds the best points of lists in some groups, by faiss."""
    return partial(faiss_scan, _fill(points(lists), groups))


def read_again(
    candidates: Tensor, coded: Any, queries: Tensor, taken: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """``scan`` of rounded vectors, of which a few more than k are scored again by their own."""
    more = max(k, min(k + SPARE, len(candidates)))
    wide = pad(queries, (0, coded.d - queries.shape[1]))
    return score_again(candidates, queries, faiss_scan(coded, wide, taken, more)[0], k)


def score_again(candidates: Tensor, queries: Tensor, ids: Tensor, k: int) -> TopK:
    """The best k of ids [B, n] by their vectors; -1 pads."""
    vectors = candidates[ids.clamp(min=0)].float()
    scores = torch.bmm(vectors, queries.unsqueeze(2)).squeeze(2).masked_fill(ids < 0, -torch.inf)
    best = scores.topk(k, dim=1)
    return TopK(ids.gather(1, best.indices), best.values)


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


def _fill(candidates: Tensor, lists: Lists, dtype: torch.dtype = torch.float32) -> Any:
    """The candidates in faiss, list by list. It stores the bytes of a vector as they are.

    In another type they are scaled by a power of 2: the largest entry is about as large as halves
    can be, so that those of other vectors may be much smaller before they become 0. Halves have
    columns of 0 more, up to a multiple of ``LANES``.
    """
    faiss = _faiss()
    codes = {
        torch.float16: faiss.ScalarQuantizer.QT_fp16,
        torch.bfloat16: faiss.ScalarQuantizer.QT_bf16,
    }
    code, n_lists = codes.get(dtype), len(lists.spreads)
    more = 0 if code is None else -candidates.shape[1] % LANES
    width = candidates.shape[1] + more
    given = [faiss.IndexFlatIP(width), width, n_lists]  # the lists are not chosen by faiss
    if code is None:
        index = faiss.IndexIVFFlat(*given, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexIVFScalarQuantizer(*given, code, faiss.METRIC_INNER_PRODUCT, False)
    offsets, factor = lists.offsets.tolist(), 1.0
    if candidates.dtype != dtype and len(candidates) > 0:
        largest = torch.linalg.vector_norm(candidates, torch.inf)
        power = (HALVES - torch.log2(largest).ceil()).clamp(max=127)  # a float32 itself
        factor = float(torch.exp2(power)) if largest > 0 else 1.0
    for place in range(n_lists):
        ids = lists.ids[offsets[place] : offsets[place + 1]]
        vectors = pad(candidates[ids] * factor, (0, more)).to(dtype).view(torch.uint8)
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
    expect(lists.centres, "centres", (n_lists, width), torch.float32)
    expect(lists.spreads, "spreads", (n_lists,), torch.float32)
    expect(lists.offsets, "offsets", (n_lists + 1,), torch.int64)
    expect(lists.ids, "ids", (n,), torch.int32, torch.int64)
    expect(group_of, "groups", (n_lists,), torch.int32)
    expect(rows, "probings", (len(rows), len(Probing._fields)), torch.float64)
    lists = Lists(*(t.to(candidates.device) for t in lists))._replace(
        ids=lists.ids.to(candidates.device, torch.int64)
    )
    _check_lists(lists, n)
    groups = join_groups(lists, checked_groups(group_of.to(candidates.device, torch.int64)))
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


def checked_groups(group_of: Tensor) -> Tensor:
    n = len(group_of)
    if n > 0 and (int(group_of.min()) < 0 or int(group_of.max()) >= n):
        raise ValueError(f"the index's groups are not numbers below {n}")
    if bool((torch.bincount(group_of) == 0).any()):
        raise ValueError("the index's groups are not numbered one after the other")
    return group_of


def expect(tensor: Tensor, name: str, shape: tuple[int, ...], *types: torch.dtype) -> None:
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
