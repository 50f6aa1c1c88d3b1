"""Approximate search with an inverted file, at a measured recall.

The lists are chosen in torch, and read by faiss on a CPU, by torch on other devices. faiss is
imported on first use.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold import storage
from rankfold.index import lists as index_lists
from rankfold.index.exact import PAIR_BYTES, Exact
from rankfold.index.faiss_files import faiss
from rankfold.index.filter import FETCH_DEPTHS, Approximate
from rankfold.index.kind import Saved
from rankfold.index.lists import Lists, Probing, Scan
from rankfold.kernels.threads import n_threads
from rankfold.types import Index, TopK

MIN_CANDIDATES = 20_000  # with fewer candidates, exact search is as fast
_DEEP_FETCH_DEPTHS = (*FETCH_DEPTHS, 2048, 4096)  # for searches with many hidden candidates
_MAX_READ_SHARE = 0.2  # of the candidates: reading more is slower than exact search
SAMPLE_QUERIES = 256  # queries to measure recall with
FETCHED_BYTES = 192  # allocated per fetched result besides its vector, at most
_HALF_EXPONENT = 15  # 2^15 is the largest power of 2 in half precision
LANES = 16  # columns: faiss decodes halves in groups of 16 if 16 divides the width, else one by one
_EXTRA_RESULTS = 8  # fetched beyond k, since rounding may change their order
_DEFAULT_TARGET = 0.95


def build_index(candidates: Tensor, memory_budget: int = 2**30) -> Index:
    """The faster index of ``candidates``: exact, or an inverted file; see ``lists_are_faster``."""
    make = Inverted if lists_are_faster(candidates) else Exact
    return make(candidates, memory_budget)


def lists_are_faster(candidates: Tensor) -> bool:
    """True for many candidates on a CPU; a GPU scores all faster than it gathers some."""
    return len(candidates) >= MIN_CANDIDATES and candidates.device.type == "cpu"


def build_inverted(
    candidates: Tensor, memory_budget: int, *, queries: Tensor, target: float, seed: int
) -> "Inverted":
    """An inverted file of all candidates."""
    given, depths = queries if len(queries) > 0 else None, _DEEP_FETCH_DEPTHS
    return Inverted(
        candidates, memory_budget, queries=given, target=target, seed=seed, depths=depths
    )


def open_inverted(saved: Saved, candidates: Tensor, memory_budget: int) -> "Inverted":
    """A saved inverted file; a ValueError if it does not match the candidates."""
    return Inverted.from_tensors(saved.folder.tensors(saved.name), candidates, memory_budget)


class Built(NamedTuple):
    """The parts of an index besides the candidates."""

    lists: Lists
    groups: Lists  # of lists
    probings: list[Probing]  # by ascending depth


class Inverted(Approximate):
    """Finds a share ``recall`` of the best candidates on average.

    The index depends only on the candidates, the seed and the number of threads. On a CPU it holds
    a copy of the candidates in half precision, list by list; the best by these are rescored.
    """

    kind = "inverted"

    def __init__(
        self,
        candidates: Tensor,
        memory_budget: int = 2**30,
        *,
        queries: Tensor | None = None,
        target: float = _DEFAULT_TARGET,
        seed: int = 0,
        depths: Sequence[int] = FETCH_DEPTHS,
        built: Built | None = None,
    ) -> None:
        """Build the lists, and choose how many of them to read to reach the recall ``target``.

        Recall is measured with typical ``queries``, or with candidates, which may be easier to
        answer. Lists are read for the numbers of results ``depths``. ``built`` are the parts of an
        index of the same candidates, to reuse. Candidates of type float64 are taken as float32.
        """
        wide = candidates.dtype == torch.float64
        self.exact = Exact(candidates.float() if wide else candidates, memory_budget)
        self.candidates, self.memory_budget = self.exact.candidates, memory_budget
        self.built = built or self._build(queries, target, seed, depths)
        self.depths = [probing.depth for probing in self.built.probings if _is_faster(probing)]
        self._scan, self._scan_points = self._readers()

    @property
    def recall(self) -> float:
        """The smallest measured recall over all depths; 1 if search is exact."""
        return min((p.recall for p in self.built.probings if _is_faster(p)), default=1.0)

    def fetch(self, vectors: Tensor, depth: int) -> TopK:
        """The best of the most promising lists; [B, depth], -1 pads."""
        probing = next(p for p in self.built.probings if p.depth == depth)
        lists, groups, _ = self.built
        taken = index_lists.choose_lists(lists, groups, vectors, probing, self._scan_points)
        return TopK(*self._scan(vectors, taken, depth))

    def block(self, depth: int) -> int:
        probing = next(p for p in self.built.probings if p.depth == depth)
        lists, groups, _ = self.built
        width = self.candidates.shape[1]
        two_steps = probing.groups < len(groups.spreads)
        promised = len(groups.spreads) if two_steps else len(lists.spreads)
        fetched = probing.depth + _EXTRA_RESULTS
        each = fetched * (FETCHED_BYTES + PAIR_BYTES + 8 * width)
        each += 16 * (promised + probing.lists)
        if self.candidates.device.type != "cpu":
            each += index_lists.scan_bytes(lists, probing.lists, width)
            each += index_lists.scan_bytes(groups, probing.groups, width + 1) if two_steps else 0
        return max(1, self.memory_budget // each)

    def tensors(self) -> dict[str, Tensor]:
        """All that ``from_tensors`` needs besides the candidates: about 4 bytes per candidate."""
        lists, groups, probings = self.built
        small = len(lists.ids) <= torch.iinfo(torch.int32).max
        ids = lists.ids.to(torch.int32 if small else torch.int64)
        rows = torch.tensor(probings, dtype=torch.float64).reshape(-1, len(Probing._fields))
        group_of = index_lists.owners(groups).to(torch.int32)
        return {**lists._asdict(), "ids": ids, "groups": group_of, "probings": rows}

    @staticmethod
    def from_tensors(
        tensors: Mapping[str, Tensor], candidates: Tensor, memory_budget: int = 2**30
    ) -> "Inverted":
        """The index of these candidates; a ValueError if the tensors do not match them."""
        return Inverted(candidates, memory_budget, built=_checked(tensors, candidates))

    def files(self, name: str) -> dict[str, storage.Content]:
        """``tensors`` as a file."""
        return {name: {key: tensor.cpu() for key, tensor in self.tensors().items()}}

    def about(self) -> dict[str, Any]:
        """The share of the candidates that is read, by number of results; for reading."""
        read = {str(p.depth): round(p.share, 5) for p in self.built.probings if _is_faster(p)}
        return {"lists": len(self.built.lists.spreads), "read": read}

    def _build(
        self, queries: Tensor | None, target: float, seed: int, depths: Sequence[int]
    ) -> Built:
        n, width = self.candidates.shape
        lists = index_lists.build_lists(self.candidates, self.memory_budget, seed)
        groups = index_lists.group_lists(lists, self.memory_budget)
        depths = [depth for depth in depths if depth <= n * _MAX_READ_SHARE]
        given = self.candidates if queries is None else queries
        if not depths or len(given) == 0 or width == 0:
            return Built(lists, groups, [])
        rng = torch.Generator().manual_seed(seed)
        sample = torch.arange(len(given))
        if len(given) > SAMPLE_QUERIES:
            sample = torch.randint(0, len(given), (SAMPLE_QUERIES,), generator=rng)
        vectors = given[sample.to(given.device)].detach().float().to(self.candidates.device)
        truth = self.exact.search(vectors, depths[-1]).ids
        probings = index_lists.choose_probings(lists, groups, vectors, truth, depths, target)
        return Built(lists, groups, probings)

    def _readers(self) -> tuple[Scan, Scan]:
        """Scans of candidates in lists and of points in groups. On a CPU faiss copies both."""
        lists, groups, probings = self.built
        if probings and self.candidates.device.type == "cpu":
            given = self.candidates.dtype
            halves = torch.float16 if given == torch.float32 else given
            coded = _fill(self.candidates, lists, halves)
            return partial(scan_and_rescore, self.candidates, coded), point_reader(lists, groups)
        of_points = partial(index_lists.scan, index_lists.points(lists), groups)
        return partial(index_lists.scan, self.candidates, lists), of_points


def point_reader(lists: Lists, groups: Lists) -> Scan:
    """A scan of the points in groups, by faiss."""
    return partial(faiss_scan, _fill(index_lists.points(lists), groups))


def scan_and_rescore(
    candidates: Tensor, coded: Any, queries: Tensor, taken: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """``scan`` of rounded vectors; a few more than k results are rescored exactly."""
    more = max(k, min(k + _EXTRA_RESULTS, len(candidates)))
    wide = pad(queries, (0, coded.d - queries.shape[1]))
    return rescore(candidates, queries, faiss_scan(coded, wide, taken, more)[0], k)


def rescore(candidates: Tensor, queries: Tensor, ids: Tensor, k: int) -> TopK:
    """The best k of ids [B, n], scored with their vectors; -1 pads."""
    vectors = candidates[ids.clamp(min=0)].float()
    scores = torch.bmm(vectors, queries.unsqueeze(2)).squeeze(2).masked_fill(ids < 0, -torch.inf)
    best = scores.topk(k, dim=1)
    return TopK(ids.gather(1, best.indices), best.values)


def faiss_scan(index: Any, queries: Tensor, taken: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``scan`` by faiss, with torch's number of threads, one query per thread."""
    library = faiss()
    library.omp_set_num_threads(n_threads())
    queries, taken = queries.contiguous(), taken.contiguous()
    ids = torch.empty(len(queries), k, dtype=torch.int64)
    scores = torch.empty(len(queries), k)
    unused = torch.zeros(taken.shape)  # distances to the lists
    given = [len(queries), _pointer(queries), k, _pointer(taken), _pointer(unused)]
    parameters = library.SearchParametersIVF(nprobe=taken.shape[1])
    index.search_preassigned_c(*given, _pointer(scores), _pointer(ids), False, parameters)
    return ids, scores


def _fill(candidates: Tensor, lists: Lists, dtype: torch.dtype = torch.float32) -> Any:
    """The candidates in faiss, list by list, stored byte by byte.

    If they are converted, they are first scaled by a power of 2, so that the largest entry is near
    the largest half: entries of other vectors can then be much smaller before they become 0. Halves
    are padded with columns of 0 to a multiple of ``LANES``.
    """
    library, n_lists = faiss(), len(lists.spreads)
    halves = library.ScalarQuantizer
    code = {torch.float16: halves.QT_fp16, torch.bfloat16: halves.QT_bf16}.get(dtype)
    more = 0 if code is None else -candidates.shape[1] % LANES
    width = candidates.shape[1] + more
    given = [library.IndexFlatIP(width), width, n_lists]  # faiss does not choose the lists
    if code is None:
        index = library.IndexIVFFlat(*given, library.METRIC_INNER_PRODUCT)
    else:
        index = library.IndexIVFScalarQuantizer(*given, code, library.METRIC_INNER_PRODUCT, False)
    offsets, factor = lists.offsets.tolist(), 1.0
    if candidates.dtype != dtype and len(candidates) > 0:
        largest = torch.linalg.vector_norm(candidates, torch.inf)
        power = _HALF_EXPONENT - torch.log2(largest).ceil()
        largest_power = 127  # the factor must be a float32
        factor = float(torch.exp2(power.clamp(max=largest_power))) if largest > 0 else 1.0
    for place in range(n_lists):
        ids = lists.ids[offsets[place] : offsets[place + 1]]
        vectors = pad(candidates[ids] * factor, (0, more)).to(dtype).view(torch.uint8)
        index.invlists.add_entries(place, len(ids), _pointer(ids), _pointer(vectors))
    index.ntotal, index.is_trained = len(candidates), True
    return index


def _pointer(tensor: Tensor) -> Any:
    return faiss().swig_ptr(tensor.numpy())


def _is_faster(probing: Probing) -> bool:
    return probing.share <= _MAX_READ_SHARE


def _checked(tensors: Mapping[str, Tensor], candidates: Tensor) -> Built:
    """The parts of an index; a ValueError unless types, sizes and lists are right."""
    n = len(candidates)
    if missing := [name for name in (*Lists._fields, "probings") if name not in tensors]:
        raise ValueError(f"the index has no {missing[0]!r}")
    rows = tensors["probings"]
    if "groups" not in tensors:  # an older index: all lists are one group
        group_of = torch.zeros_like(tensors["spreads"], dtype=torch.int32)
        tensors = {**tensors, "groups": group_of}
        rows = torch.cat([rows, torch.ones_like(rows[..., :1])], dim=-1)
    _expect(tensors["ids"], "ids", (n,), torch.int32, torch.int64)
    _expect(rows, "probings", (len(rows), len(Probing._fields)), torch.float64)
    lists, groups = checked_lists(tensors, candidates)
    ends = (int(lists.offsets[0]), int(lists.offsets[-1]))
    if ends != (0, n) or bool((lists.offsets.diff() < 0).any()):
        raise ValueError(f"the lists must cover {n} candidates")
    if not torch.equal(lists.ids.sort().values, torch.arange(n, device=lists.ids.device)):
        raise ValueError("the lists must hold every candidate once")
    n_lists = len(lists.spreads)
    probings = [Probing(int(d), int(p), z, r, s, int(g)) for d, p, z, r, s, g in rows.tolist()]
    if not all(1 <= p.lists <= n_lists and 1 <= p.depth <= n for p in probings):
        raise ValueError(f"the index must read at most {n_lists} lists")
    if not all(1 <= p.groups <= len(groups.spreads) for p in probings):
        raise ValueError(f"the index must compare at most {len(groups.spreads)} groups")
    return Built(lists, groups, sorted(probings))


def checked_lists(tensors: Mapping[str, Tensor], candidates: Tensor) -> tuple[Lists, Lists]:
    """Saved lists and their groups; a ValueError unless types, sizes and groups are right.

    The lists of compressed candidates have no ``ids``.
    """
    n, width, device = len(tensors["spreads"]), candidates.shape[1], candidates.device
    _expect(tensors["centres"], "centres", (n, width), torch.float32)
    _expect(tensors["spreads"], "spreads", (n,), torch.float32)
    _expect(tensors["offsets"], "offsets", (n + 1,), torch.int64)
    _expect(tensors["groups"], "groups", (n,), torch.int32)
    ids = tensors.get("ids", tensors["offsets"][:0]).to(device, torch.int64)
    centres, spreads, offsets = (tensors[name].to(device) for name in Lists._fields[:-1])
    lists = Lists(centres, spreads, offsets, ids)
    group_of = tensors["groups"].to(device, torch.int64)
    if n > 0 and (int(group_of.min()) < 0 or int(group_of.max()) >= n):
        raise ValueError(f"group numbers must be from 0 to {n - 1}")
    if bool((torch.bincount(group_of) == 0).any()):
        raise ValueError("group numbers must be consecutive")
    return lists, index_lists.join_groups(lists, group_of)


def _expect(tensor: Tensor, name: str, shape: tuple[int, ...], *types: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype not in types:
        actual = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} must be {types[0]} {shape}, got {actual}")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} must be finite")
