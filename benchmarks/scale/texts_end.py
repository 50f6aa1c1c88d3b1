"""SiameseXML with 100 million labels on one GPU: throughput of all modules, and the end of a fit.

    python -m benchmarks.scale.texts_end [PIECE ...] [--out FILE] [--folder DIR]
    python -m benchmarks.scale.texts_end --device cpu --small       to try out the program

Each piece prints a line of JSON and writes it to FILE at once; existing pieces are skipped. It
requires only torch and numpy. Texts are those of ``texts_gpu``. The pieces:

    many-encoder, many-classifiers, many-joint
                modules I, III and IV at 100 million labels, width 128
    many-end    the end of a fit with 100 million labels and as many documents, in full: vectors of
                labels in halves, means of documents, the choice of the mix on 3,000 queries, the
                mixed table, exact and approximate search, the table on disk and back
    whole       a fit from tokens to a model that answers: modules I, III, IV, the mix, search
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.paths import RESULTS, SCRATCH
from benchmarks.scale.texts_gpu import (
    BUDGET,
    FULL,
    MANY_WIDTH,
    SMALL,
    Many,
    Piece,
    Place,
    Row,
    Sizes,
    as_texts,
    as_weighed,
    draw_pairs,
    given,
    label_words,
    many,
    refinements,
    study,
    timed_blocks,
)
from rankfold.index.exact import Exact
from rankfold.index.inverted import Inverted
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import Corpus
from rankfold.methods.text.siamesexml.fit import export_member
from rankfold.methods.text.siamesexml.mix import choose_mix, mixture, open_model, with_column
from rankfold.methods.text.siamesexml.modules import Siamese, Stage, task_of, training
from rankfold.storage.tensors import tensor_bytes
from rankfold.training.loop import Loop
from rankfold.types import Dataset, Interactions, Model, Vocabulary, from_pairs

OUT = RESULTS / "scale" / "texts_end.json"
JUDGED = 3000  # validation queries
K = 100
WHOLE = {False: 10_000_000, True: 3000}  # labels of ``whole``, by --small


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="pieces; none: all of them")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--folder", type=Path, default=SCRATCH, help="for the table on disk")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--labels", type=int, help="of the pieces many-*; default: 100 million")
    parser.add_argument("--whole", type=int, help="labels of the piece whole; default: 10 million")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try out the program")
    args = parser.parse_args()
    sizes: Sizes = SMALL if args.small else FULL
    sizes = sizes._replace(labels=args.whole or WHOLE[args.small], many=args.labels or sizes.many)
    place = Place(torch.device(args.device), sizes, args.folder)
    for name in args.names or PIECES:
        study(name, place, args.out, PIECES)


# ---------------------------------------------------------------------------------- throughput


def throughput(stage: Stage, place: Place) -> Row:
    """Documents per second of a module; the second of two short epochs."""
    n, size = place.sizes.many, place.sizes.batch
    config = SiameseConfig(
        width=MANY_WIDTH, pairs_from=0, batch_size=size, pool=4 * size, lr=0.005, thinning=0.0
    )
    labels, run = many(place), place.run()
    module = Siamese(labels.encoder, n, MANY_WIDTH).to(place.device)
    corpus = given(labels, size * place.sizes.steps, run)
    assert run.build_index is not None
    task = task_of(module, stage, corpus, config, run.build_index)
    loop, ends, losses = Loop(task, training(stage, config), run), [], []
    for _ in range(stage.epochs):
        losses += [round(step.loss, 4) for step in loop.finish_epoch() if step.whole]
        ends.append(place.wait())
    seconds = ends[1] - ends[0]
    return {
        "labels": n,
        "width": MANY_WIDTH,
        "batch": size,
        "ms_per_1000_documents": round(seconds / len(corpus.documents) * 1e6, 3),
        "minutes_per_epoch_of_as_many_documents": round(
            seconds / len(corpus.documents) * n / 60, 1
        ),
        "loss": losses,
    }


# ---------------------------------------------------------------------------------- the end


@dataclass(frozen=True)
class Judged:
    """Documents after the training documents; right is a label of theirs among the first."""

    truth: Tensor  # [n, 2], labels of each document
    first: int
    n_labels: int
    depth = 5

    @property
    def queries(self) -> Tensor:
        return torch.arange(self.first, self.first + len(self.truth))

    def hidden(self, queries: Tensor) -> Interactions:
        return from_pairs(queries[:0], queries[:0], None, (len(queries), self.n_labels))

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        right = self.truth[queries - self.first]
        return (ids[:, :, None] == right[:, None, :]).any(dim=2).double().mean(dim=1)


def end(place: Place) -> Row:
    """From fitted modules to a model on disk that answers, and the seconds of each step."""
    n, row, run = place.sizes.many, {}, place.run()
    seconds: dict[str, float] = {}
    labels = many(place)
    corpus, judged = corpus_of(labels, place)
    run = replace(run, judge=judged)
    module = Siamese(labels.encoder, n, MANY_WIDTH)
    module.refinements.weight.data = refinements(place)
    config = SiameseConfig(width=MANY_WIDTH, pairs_from=0, table="float16")
    seconds["texts, refined, centroids"], exported = timed(place, export_member, module, corpus)
    done = {f"0.{key}": tensor for key, tensor in exported.items()}
    row["peak_gib_of_export"] = place.peak()
    seconds["choice of the mix"], (mix, mixes) = timed(place, choose_mix, done, config, corpus, run)
    row |= {"mixes": len(mixes), "mix": mix._asdict(), "value": max(m["score"] for m in mixes)}
    row["value_of_texts_alone"] = next(
        m["score"] for m in mixes if m["classifier_share"] == m["centroid_weight"] == 0
    )
    seconds["mixed table"], table = timed(
        place, mixture, [done], mix, 1, corpus.own_counts, torch.float16
    )
    row["peak_gib_of_mix"] = place.peak()
    asked = corpus.documents.select(judged.queries.to(place.device)[: 2 * place.sizes.batch])
    with torch.no_grad():
        vectors = labels.encoder(asked)
    vectors = with_column(vectors, mix.popularity_weight, vectors.new_full((1,), 0.5))
    del exported, done, module, corpus
    gc.collect()
    row |= searches(table, vectors, judged, place, seconds)
    seconds["written"], path = timed(place, written, table, place)
    seconds["read"], same = timed(place, same_on_disk, table, path)
    shutil.rmtree(path.parent)
    row |= {"gb_on_disk": round(table.nbytes / 1e9, 1), "same_on_disk": same}
    return {"labels": n, "width": MANY_WIDTH, "seconds": seconds, **row}


def corpus_of(labels: Many, place: Place) -> tuple[Corpus, Judged]:
    """As many documents as labels, and documents of validation after them, without pairs."""
    n = place.sizes.many
    corpus = given(labels, n, place.run())
    rng = torch.Generator(place.device).manual_seed(7)
    truth = draw_pairs(min(JUDGED, n), n, rng)
    asked = as_weighed(labels.words[truth].flatten(1))
    empty = from_pairs(truth[:0, 0], truth[:0, 0], None, (len(truth), n))
    corpus = corpus._replace(
        documents=corpus.documents.join(asked), rows=corpus.rows.join(empty.to(place.device))
    )
    return corpus._replace(hidden=corpus.rows), Judged(truth.cpu(), n, n)


def timed(place: Place, work: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    began = place.wait()
    result = work(*args)
    return round(place.wait() - began, 2), result


def searches(
    table: Tensor, vectors: Tensor, judged: Judged, place: Place, seconds: dict[str, float]
) -> Row:
    """Exact and approximate search, the recall of the second, and how often both are right."""
    asked, k = vectors.half(), min(K, len(table))
    exact = Exact(table, BUDGET)
    row: Row = timed_blocks("exact", lambda some: exact.search(some, k), asked)
    truth = exact.search(asked, k).ids
    right = judged.values(judged.queries[: len(truth)], truth[:, : judged.depth].cpu())
    row["exact_value"] = round(float(right.mean()), 4)
    build = partial(Inverted, queries=vectors[: len(vectors) // 2])
    seconds["index"], index = timed(place, build, table, BUDGET)
    later = vectors[len(vectors) // 2 :]
    index.search(later[:32], k)
    took, found = timed(place, lambda: index.search(later, k).ids)
    hit = (found.unsqueeze(2) == truth[-len(later) :].unsqueeze(1)).any(dim=1)
    row["index_ms_per_1000_documents"] = round(took / len(later) * 1e6, 1)
    row[f"index_recall@{k}"] = round(float(hit.double().mean()), 4)
    row["index_gb"] = round(sum(t.nbytes for t in index.tensors().values()) / 1e9, 2)
    return row


def written(table: Tensor, place: Place) -> Path:
    """The table as a safetensors file, copied from the GPU part by part."""
    folder = place.arrays / f"texts-end-{os.getpid()}"
    folder.mkdir(parents=True)
    parts = dict(enumerate(table.split(2**22)))
    with (folder / "tensors.safetensors").open("wb") as file:
        for piece in tensor_bytes({f"{number:05}": part for number, part in parts.items()}):
            file.write(piece)
        os.fsync(file.fileno())
    return folder / "tensors.safetensors"


def same_on_disk(table: Tensor, path: Path) -> bool:
    """Whether the file, memory-mapped and copied back, has the same vectors."""
    start = 8 + int.from_bytes(path.open("rb").read(8), "little")
    stored = np.memmap(path, np.float16, "c", start, (len(table), table.shape[1]))
    same = True
    for first in range(0, len(table), 2**22):
        part = torch.from_numpy(np.ascontiguousarray(stored[first : first + 2**22]))
        same &= torch.equal(part.to(table.device), table[first : first + 2**22])
    return same


# ---------------------------------------------------------------------------------- whole


def whole(place: Place) -> Row:
    """Tokens of documents and labels in, a model that answers out."""
    n, cpu = place.sizes.labels, torch.device("cpu")
    words = label_words(n, place.sizes.tokens, cpu)
    rng = torch.Generator().manual_seed(1)
    train, held = draw_pairs(n, n, rng), draw_pairs(min(JUDGED, n), n, rng)
    pairs = torch.cat([train, held])
    rows = from_pairs(torch.arange(n).repeat_interleave(2), train.flatten(), None, (len(pairs), n))
    data = Dataset(
        "texts",
        rows,
        None,
        None,
        Vocabulary.numbered(len(pairs)),
        Vocabulary.numbered(n),
        as_texts(words[pairs].flatten(1)),
        as_texts(words),
        n_tokens=place.sizes.tokens,
    )
    size = place.sizes.batch
    settings: dict[str, Any] = {
        "width": MANY_WIDTH,
        "pairs_from": 0,
        "encoder_epochs": 1,
        "classifier_epochs": 1,
        "joint_epochs": 1,
        "batch_size": size,
        "pool": 4 * size,
        "table": "float16",
    }
    judged = Judged(held, n, n)
    began, ends, model = place.wait(), dict[str, float](), None
    run = replace(place.run(), judge=judged)
    for step in METHODS["siamesexml"].fit(data, SiameseConfig(**settings), run):
        ends[step.stage] = round(place.wait() - began, 1)
        if step.whole:
            print(f"{step.stage}, loss {step.loss:.4f}, {ends[step.stage]} s", flush=True)
        model = step.model
    assert isinstance(model, Model)
    return {
        "labels": n,
        "documents": n,
        "width": MANY_WIDTH,
        "done_at_s": ends,
        **answers(model, data, judged, place),
    }


def answers(model: Model, data: Dataset, judged: Judged, place: Place) -> Row:
    """Search by text for the held-out documents, exactly and by an index."""
    assert data.query_texts is not None
    encode, seconds = open_model(model).texts, dict[str, float]()
    assert encode is not None
    vectors = encode(data.query_texts.select(judged.queries), "query")
    table = model.tensors["candidates"]
    row = searches(table, vectors[: 2 * place.sizes.batch], judged, place, seconds)
    gb = sum(tensor.nbytes for tensor in model.tensors.values()) / 1e9
    return {"seconds": seconds, "model_gb": round(gb, 2), **row}


PIECES: dict[str, Piece] = {
    "many-end": end,
    "whole": whole,
    "many-encoder": partial(throughput, Stage("encoder", 2)),
    "many-classifiers": partial(throughput, Stage("classifiers", 2)),
    "many-joint": partial(throughput, Stage("joint", 2)),
}


if __name__ == "__main__":
    main()
