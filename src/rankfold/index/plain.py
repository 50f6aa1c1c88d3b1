"""An index as a file that faiss opens by itself; its ids are the rows of the candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.index.ann import Approximate
from rankfold.index.compressed import Compressed
from rankfold.index.exact import Exact
from rankfold.index.graph import Graph
from rankfold.index.inverted import Lists
from rankfold.types import Index

BLOCK = 2**16  # candidates copied at a time
ASKED, K = 256, 10  # queries that recall is measured with, and results of each
ENOUGH = 0.98  # of recall: more lists are not read


def write_plain(
    index: Index, candidates: Tensor, path: Path, queries: Tensor | None = None
) -> dict[str, Any]:
    """Write the index of these candidates, and say what it is and how much it finds.

    How much faiss reads for a query is set in the file. ``queries`` [n, D] are those that this is
    measured with, at least one; None: some of the candidates.
    """
    import faiss

    found, about = to_faiss(index, candidates)
    if about["kind"] != "FlatIP":
        if queries is None:
            queries = candidates[:: max(1, len(candidates) // ASKED)]
        about |= _set(found, about["kind"], candidates, queries[:ASKED].float().cpu())
    faiss.write_index(found, str(path))
    return {"file": path.name, **about, "bytes": path.stat().st_size}


def _set(found: Any, kind: str, candidates: Tensor, queries: Tensor) -> dict[str, Any]:
    """As many lists as have enough of the recall of all of them, which codes alone may limit."""
    k = min(K, len(candidates))
    truth = Exact(candidates).search(queries, k).ids
    asked = pad(queries, (0, found.d - queries.shape[1])).numpy()

    def recall() -> float:
        ids = torch.from_numpy(found.search(asked, k)[1])
        return float((ids.unsqueeze(2) == truth.unsqueeze(1)).any(dim=2).double().mean())

    if kind == "HNSW":
        return {f"recall@{k}": round(recall(), 3)}
    found.nprobe = found.nlist
    enough, found.nprobe = ENOUGH * recall(), 1
    while (reached := recall()) < enough:
        found.nprobe = min(2 * found.nprobe, found.nlist)
    return {"nprobe": found.nprobe, f"recall@{k}": round(reached, 3)}


def to_faiss(index: Index, candidates: Tensor) -> tuple[Any, dict[str, Any]]:
    """An index of faiss's with the same candidates, and what it is.

    The lists of an inverted file are there, the way in which we choose among them is not: faiss
    ranks lists by their means alone, and needs more of them for the same recall. Codes are not
    scored again, and are padded with columns of zeros where four do not divide the width.
    """
    if isinstance(index, Graph) and index.efforts:
        index.graph.hnsw.efSearch = index.efforts[0].looked_at
        return index.graph, {"kind": "HNSW", "efSearch": index.efforts[0].looked_at}
    if isinstance(index, Compressed) and index.codes is not None:
        coded = _in_memory(index.codes.coded)
        return coded, {"kind": "IVFPQ", "lists": coded.nlist, "width": coded.d}
    if isinstance(index, Approximate) and index.built.probings:
        lists = index.built.lists
        return _inverted(candidates, lists), {"kind": "IVFFlat", "lists": len(lists.spreads)}
    return _flat(candidates), {"kind": "FlatIP"}


def _in_memory(coded: Any) -> Any:
    """The same codes; lists that were mapped from a file would be written as its name alone."""
    import faiss

    kind: Any = faiss.InvertedLists
    lists: Any = faiss.ArrayInvertedLists(coded.nlist, coded.code_size)
    coded.invlists.copy_subset_to(lists, kind.SUBSET_TYPE_ID_RANGE, 0, coded.ntotal)
    coded.replace_invlists(lists, True)
    lists.this.disown()  # belongs to the codes from now on
    return coded


def _flat(candidates: Tensor) -> Any:
    import faiss

    found = faiss.IndexFlatIP(candidates.shape[1])
    for block in candidates.split(BLOCK):
        found.add(block.float().cpu().numpy())
    return found


def _inverted(candidates: Tensor, lists: Lists) -> Any:
    import faiss

    centres = _flat(lists.centres)
    width, n_lists = lists.centres.shape[1], len(lists.spreads)
    found: Any = faiss.IndexIVFFlat(centres, width, n_lists, faiss.METRIC_INNER_PRODUCT)
    centres.this.disown()  # belongs to the other from now on
    found.own_fields, found.is_trained, found.ntotal = True, True, len(candidates)
    offsets = lists.offsets.tolist()
    for place in range(n_lists):
        ids = lists.ids[offsets[place] : offsets[place + 1]].contiguous()
        vectors = candidates[ids].float().contiguous().view(torch.uint8)
        given = (faiss.swig_ptr(ids.numpy()), faiss.swig_ptr(vectors.numpy()))
        found.invlists.add_entries(place, len(ids), *given)
    return found
