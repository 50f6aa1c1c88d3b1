"""Vectors and index of a model as plain files, for a vector store.

A score is the inner product of a query's vector and a candidate's. Row i of every file of a side,
and id i in ``index.faiss``, is the i-th key of that side.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from torch import Tensor, arange, save

from rankfold import storage
from rankfold.data.read.reading import Reading, spool_frames
from rankfold.errors import UserError
from rankfold.index.faiss_export import SAMPLE_QUERIES, export_faiss
from rankfold.models.ranker import Ranker
from rankfold.models.search import has_own_search
from rankfold.notebook import shown
from rankfold.tasks.evaluate import evaluate
from rankfold.types import Progress, Side, Vocabulary

BLOCK_BYTES = 2**26  # of vectors at a time
_METRIC = "ndcg@10"
_STATE = "model.pt"


class Vectors(NamedTuple):
    """One side: keys, and the vectors of rows [B] as [B, D]."""

    keys: Vocabulary
    of: Callable[[Tensor], Tensor]
    width: int


def export(
    ranker: Ranker,
    out: str | Path,
    *,
    format: str = "parquet",
    index: bool = True,
    onnx: bool = False,
    torch: bool = False,
    data: Any = None,
    progress: Progress = shown,
) -> dict[str, Any]:
    """Write the vectors of both sides, their keys, and an index that faiss opens.

    Args:
        ranker: a model whose scores are inner products.
        out: a folder that does not exist yet; it appears when complete.
        format: ``parquet``, a table ``key, [text,] vector`` per side; ``npy``, an array per side
            and a table of its keys.
        index: also write ``index.faiss``, over the candidates.
        onnx: also write the networks that encode new rows or texts, if the model has some.
        torch: also write ``model.pt``: the tensors as a state dict of PyTorch.
        data: prepared data or its folder; for a model with a tail or words, ``about["loss"]`` then
            has its ndcg@10 on test with them and by the vectors alone.
        progress: called after each block.

    Returns:
        The contents of ``about.json`` in the folder.
    """
    sides, needed = check_export(ranker, out, format)
    about: dict[str, Any] = {
        "method": ranker.model.method,
        "score": "the inner product of a query's vector and a candidate's",
        "width": sides["candidate"].width,
    }
    with _appearing(Path(out), needed) as folder:
        for side, vectors in sides.items():
            files = _FORMATS[format](folder, _PLURALS[side], vectors, progress)
            about[_PLURALS[side]] = {"rows": len(vectors.keys), "files": files}
        if "neighbours" in ranker.model.tensors:
            progress("writing neighbours", 0.0)
            power = ranker.model.config["query_exponent"] - 0.5
            about["neighbours"] = {
                "files": _write_neighbours(folder, ranker, format),
                "factor": f"{len(ranker.candidates)} * h ** {power:g}, h the size of a history",
            }
            about["score"] += ", plus the neighbours' weights of the history, times their factor"
        if "linear.bias" in ranker.model.tensors:
            about["score"] += ", plus what words add, which is not exported"
        if data is not None and any(map(_is_extra, ranker.model.tensors)):
            about["loss"] = _loss_without_extra(ranker, data, progress)
        if onnx:
            from rankfold.tasks.export.onnx_files import write_networks

            progress("writing networks", 0.0)
            about["networks"] = write_networks(ranker, folder)
        if torch:
            _save_state(ranker, folder / _STATE)
        if index:
            progress("writing index.faiss", 0.0)
            candidates, path = ranker.model.tensors["candidates"], folder / "index.faiss"
            some = ranker.searcher.some_vectors(SAMPLE_QUERIES)
            about["index"] = export_faiss(ranker.searcher.index, candidates, path, some)
        (folder / "about.json").write_text(storage.to_json(about, indent=2), encoding="utf-8")
    return about


def check_export(ranker: Ranker, out: str | Path, format: str) -> tuple[dict[Side, Vectors], int]:
    """Both sides and the bytes of their vectors; a UserError if they cannot be written there."""
    if format not in _FORMATS:
        raise UserError(
            f"`format` must be one of {', '.join(_FORMATS)}, got {format!r}",
            hint="default: parquet",
        )
    sides = _sides(ranker)
    if Path(out).exists():
        raise UserError(f"{out} already exists", hint="choose another --out")
    storage.check_destination(Path(out))
    return sides, sum(4 * len(side.keys) * side.width for side in sides.values())


_PLURALS: dict[Side, str] = {"candidate": "candidates", "query": "queries"}


def _sides(ranker: Ranker) -> dict[Side, Vectors]:
    """Both sides, or a UserError for a model without vectors."""
    tensors = ranker.model.tensors
    if has_own_search(ranker.model) or "candidates" not in tensors:
        raise UserError(
            f"{ranker.model.method} has no vectors: it brings its own search",
            hint="fit a method with vectors, such as rg2; `rankfold predict` writes ranked lists",
        )
    width = tensors["candidates"].shape[1]
    return {
        "candidate": Vectors(ranker.candidates, lambda rows: tensors["candidates"][rows], width),
        "query": Vectors(ranker.queries, ranker.searcher.vectors, width),
    }


def _write_table(folder: Path, name: str, side: Vectors, progress: Progress) -> list[str]:
    """One Parquet file, block by block."""
    file = f"{name}.parquet"
    shape = pl.Array(pl.Float32, side.width)

    def frames() -> Iterator[pl.DataFrame]:
        for rows, vectors in _blocks(side, f"writing {file}", progress):
            vector = pl.Series(vectors, dtype=shape)
            yield _keys(side.keys, rows).with_columns(vector=vector)

    with storage.beside(folder / file, Path.mkdir) as scratch:
        schema = {**_keys(side.keys, arange(0)).schema, "vector": shape}
        spool_frames(frames(), schema, Reading(scratch)).sink_parquet(folder / file)
    return [file]


def _write_arrays(folder: Path, name: str, side: Vectors, progress: Progress) -> list[str]:
    """A ``.npy`` file, filled block by block, and a table of keys."""
    file, keys = f"{name}.npy", f"{name}.keys.parquet"
    shape = (len(side.keys), side.width)
    header = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    storage.new_file(folder / file)
    with storage.filling(folder / file) as put:  # a memory map on a full disk is a crash
        put(header.getvalue())
        for _, vectors in _blocks(side, f"writing {file}", progress):
            put(vectors.astype("<f4").tobytes())
    _keys(side.keys, arange(len(side.keys))).write_parquet(folder / keys)
    return [file, keys]


_FORMATS: dict[str, Callable[[Path, str, Vectors, Progress], list[str]]] = {
    "parquet": _write_table,
    "npy": _write_arrays,
}


def _write_neighbours(folder: Path, ranker: Ranker, format: str) -> list[str]:
    """The neighbours of each candidate with their weights: a table of keys, or arrays of rows."""
    ids, weights = (ranker.model.tensors[name] for name in ("neighbours", "neighbour_weights"))
    if format == "npy":
        np.savez(folder / "neighbours.npz", ids=ids.numpy(), weights=weights.numpy())
        return ["neighbours.npz"]
    rows, places = (weights > 0).nonzero().unbind(1)
    table = {
        "key": ranker.candidates.take(rows),
        "neighbour": ranker.candidates.take(ids[rows, places].long()),
        "weight": pl.Series(weights[rows, places].numpy()),
    }
    pl.DataFrame(table).write_parquet(folder / "neighbours.parquet")
    return ["neighbours.parquet"]


def _is_extra(name: str) -> bool:
    """Whether a tensor serves scores beside the inner products: a tail, or words."""
    of_tail = ("neighbours", "neighbour_weights")
    return name in (*of_tail, "documents") or name.startswith(("words.", "linear."))


def _loss_without_extra(ranker: Ranker, data: Any, progress: Progress) -> dict[str, Any]:
    """The metric on test of the model, and of its vectors alone."""
    model = ranker.model
    bare = {name: tensor for name, tensor in model.tensors.items() if not _is_extra(name)}
    both = {"model": ranker, "vectors": replace(ranker, model=replace(model, tensors=bare))}
    values = {
        name: evaluate(one, data, metrics=_METRIC, progress=progress)[_METRIC]
        for name, one in both.items()
    }
    return {"metric": _METRIC, "split": "test", **values}


def _save_state(ranker: Ranker, path: Path) -> None:
    """The tensors of the model, for ``torch.load(path, weights_only=True)``."""
    buffer = io.BytesIO()
    save({name: tensor.cpu() for name, tensor in ranker.model.tensors.items()}, buffer)
    storage.new_file(path)
    with storage.filling(path) as put:
        put(buffer.getvalue())  # shared, not copied


def _blocks(side: Vectors, what: str, progress: Progress) -> Iterator[tuple[Tensor, Any]]:
    """Rows and their vectors, as float32."""
    n, step = len(side.keys), max(1, BLOCK_BYTES // (4 * max(side.width, 1)))
    for rows in arange(n).split(step) if n else ():
        yield rows, side.of(rows).detach().cpu().float().numpy()
        progress(what, (int(rows[-1]) + 1) / n)


def _keys(keys: Vocabulary, rows: Tensor) -> pl.DataFrame:
    """The keys of rows, with the texts that are shown beside them."""
    table = pl.DataFrame({"key": keys.take(rows)})
    return table if keys.texts is None else table.with_columns(text=keys.texts.gather(rows.numpy()))


@contextmanager
def _appearing(out: Path, needed: int) -> Iterator[Path]:
    """A folder to write into, which becomes ``out`` at the end; a failure leaves nothing."""
    hint = "choose another --out, or free some space"
    with (
        storage.write_errors(out, lambda: needed, hint),
        storage.beside(out.absolute(), Path.mkdir) as partial,
    ):
        yield partial
        for file in (*partial.iterdir(), partial):
            storage.flush(file)
        partial.rename(out)
