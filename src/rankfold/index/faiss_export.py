"""An index as a plain faiss file; its ids are the rows of the candidates."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold import storage
from rankfold.index.compressed import Compressed
from rankfold.index.exact import Exact
from rankfold.index.faiss_files import faiss, write_to
from rankfold.index.hnsw import Hnsw
from rankfold.index.inverted import Inverted
from rankfold.index.lists import Lists
from rankfold.types import Index

BLOCK = 2**16  # candidates copied at a time
SAMPLE_QUERIES, K = 256, 10  # queries to measure recall with, and results of each
_RECALL_SHARE = 0.98  # of the recall of all lists: enough lists are read to reach it


def export_faiss(
    index: Index, candidates: Tensor, path: Path, queries: Tensor | None = None
) -> dict[str, Any]:
    """Write the index of these candidates, and return its description with its recall.

    The file sets how much faiss reads for a query. ``queries`` [n, D], at least one, are used to
    measure recall; None: some of the candidates.
    """
    plain, about = _to_faiss(index, candidates)
    if about["kind"] != "FlatIP":
        if queries is None:
            queries = candidates[:: max(1, len(candidates) // SAMPLE_QUERIES)]
        about |= _tune(plain, about["kind"], candidates, queries[:SAMPLE_QUERIES].float().cpu())
    storage.new_file(path)
    with storage.filling(path) as put:
        write_to(plain, put)
    return {"file": path.name, **about, "bytes": path.stat().st_size}


def _tune(index: Any, kind: str, candidates: Tensor, queries: Tensor) -> dict[str, Any]:
    """Set how many lists are read: enough for ``_RECALL_SHARE`` of the recall of all lists."""
    k = min(K, len(candidates))
    truth = Exact(candidates).search(queries, k).ids
    padded = pad(queries, (0, index.d - queries.shape[1])).numpy()

    def recall() -> float:
        ids = torch.from_numpy(index.search(padded, k)[1])
        return float((ids.unsqueeze(2) == truth.unsqueeze(1)).any(dim=2).double().mean())

    if kind == "HNSW":
        return {f"recall@{k}": round(recall(), 3)}
    index.nprobe = index.nlist
    enough, index.nprobe = _RECALL_SHARE * recall(), 1
    while (reached := recall()) < enough:
        index.nprobe = min(2 * index.nprobe, index.nlist)
    return {"nprobe": index.nprobe, f"recall@{k}": round(reached, 3)}


def _to_faiss(index: Index, candidates: Tensor) -> tuple[Any, dict[str, Any]]:
    """A faiss index of the same candidates, and its description.

    The lists of an inverted file are kept, but not how rankfold chooses among them: faiss ranks
    lists by their means and needs more of them for the same recall. Codes are not rescored, and
    have columns of zeros added if four does not divide the width.
    """
    if isinstance(index, Hnsw) and index.efforts:
        index.graph.hnsw.efSearch = index.efforts[0].ef_search
        return index.graph, {"kind": "HNSW", "efSearch": index.efforts[0].ef_search}
    if isinstance(index, Compressed) and index.codes is not None:
        coded, library = index.codes.coded, faiss()
        lists = library.ArrayInvertedLists(coded.nlist, coded.code_size)
        every = library.InvertedLists.SUBSET_TYPE_ID_RANGE
        coded.invlists.copy_subset_to(lists, every, 0, coded.ntotal)
        coded.replace_invlists(lists, True)  # else faiss would write the name of a mapped file
        lists.this.disown()  # owned by the codes from now on
        return coded, {"kind": "IVFPQ", "lists": coded.nlist, "width": coded.d}
    if isinstance(index, Inverted) and index.built.probings:
        lists = index.built.lists
        return _inverted(candidates, lists), {"kind": "IVFFlat", "lists": len(lists.spreads)}
    return _flat(candidates), {"kind": "FlatIP"}


def _flat(candidates: Tensor) -> Any:
    index = faiss().IndexFlatIP(candidates.shape[1])
    for block in candidates.split(BLOCK):
        index.add(block.float().cpu().numpy())
    return index


def _inverted(candidates: Tensor, lists: Lists) -> Any:
    centres = _flat(lists.centres)
    width, n_lists = lists.centres.shape[1], len(lists.spreads)
    index = faiss().IndexIVFFlat(centres, width, n_lists, faiss().METRIC_INNER_PRODUCT)
    centres.this.disown()  # owned by the index from now on
    index.own_fields, index.is_trained, index.ntotal = True, True, len(candidates)
    offsets = lists.offsets.tolist()
    for place in range(n_lists):
        ids = lists.ids[offsets[place] : offsets[place + 1]].contiguous()
        vectors = candidates[ids].float().contiguous().view(torch.uint8)
        pointers = (faiss().swig_ptr(ids.numpy()), faiss().swig_ptr(vectors.numpy()))
        index.invlists.add_entries(place, len(ids), *pointers)
    return index
