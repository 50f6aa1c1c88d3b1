"""SiameseXML with many labels on a GPU: real data, 3 million labels, 100 million labels.

    python -m benchmarks.scale.texts_gpu export FOLDER          a prepared folder as scratch/gpu.npz
    python -m benchmarks.scale.texts_gpu run [PIECE ...] [--out FILE] [--device cpu --small]

Each piece prints a line of JSON and writes it to FILE at once; existing pieces are skipped. ``run``
requires only torch and numpy. The pieces:

    yso, yso-paper, yso-paper-longer   the complete fit on the exported data, and its test figures
    three-million         an epoch of modules I, III and IV, width 256, texts of a million tokens
    hundred-million       module III as in a fit, at width 128
    hundred-million-exact     every label scored: with the label's text encoded on the fly, and from
                              vectors in memory
    million-exact             exact search with and without fused kernels
    hundred-million-inverted  a few of the lists of an inverted file

Tokens of generated texts follow Zipf's law. A label has three words of the topics above it and two
unique ones; a document has the words of two labels of one topic.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.paths import RESULTS, SCRATCH
from benchmarks.quality.text_scores import count, scores, split_truth
from rankfold.distributed.collectives import SingleProcess
from rankfold.encoders.bag_encoder import BagEncoder, unit
from rankfold.encoders.sharded_table import TableShard
from rankfold.index.exact import Exact
from rankfold.index.inverted import Inverted
from rankfold.kernels import nearest
from rankfold.kernels.topk import merge_top_k, top_k
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, build_corpus
from rankfold.methods.text.siamesexml.fit import start_module
from rankfold.methods.text.siamesexml.mix import open_model
from rankfold.methods.text.siamesexml.modules import (
    Siamese,
    Stage,
    stages_of,
    task_of,
    training,
)
from rankfold.metrics import METRICS, parse
from rankfold.metrics.judged import judge
from rankfold.training.loop import Loop, train
from rankfold.types import Dataset, Interactions, Model, Run, Texts, TopK, Vocabulary, from_pairs

ARRAYS = SCRATCH / "gpu.npz"
OUT = RESULTS / "scale" / "texts_gpu.json"
SPLITS = ("train", "validation", "test")
LONGER = 230  # epochs of 25 thousand labels: as many steps as 50 epochs of 131 thousand
SELECTED_BY, DEPTH = "ndcg@5", 5
K = 100  # results at 100 million labels
BUDGET = 2**33  # bytes, for blocks
HALVES = ((torch.float16, 64), (torch.float16, 128), (torch.float16, 256))
Row = dict[str, Any]


class Sizes(NamedTuple):
    labels: int  # three-million
    many: int  # hundred-million
    tokens: int
    batch: int  # documents of an update, and queries at a time
    steps: int  # timed
    tile: int  # labels at a time
    million: int  # million-exact


FULL = Sizes(3_000_000, 100_000_000, 1_000_000, 1024, 200, 2**20, 1_000_000)
SMALL = Sizes(3000, 20_000, 1000, 64, 5, 2**12, 5000)


@dataclass(frozen=True)
class Place:
    """The device and the size of a run."""

    device: torch.device
    sizes: Sizes
    arrays: Path

    def wait(self) -> float:
        """The time when all kernels have finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def peak(self) -> float:
        """GiB."""
        cuda = self.device.type == "cuda"
        return round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else 0.0

    def run(self, judged: Judged | None = None) -> Run:
        rng = torch.Generator().manual_seed(0)
        index = partial(Exact, memory_budget=BUDGET)
        return Run(
            rng, self.device, SingleProcess(), judge=judged, build_index=index, memory_budget=BUDGET
        )


Piece = Callable[[Place], Row]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=["export", "run"])
    parser.add_argument("names", nargs="*", help="a folder, or pieces; none: all of them")
    parser.add_argument("--arrays", type=Path, default=ARRAYS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try out the program")
    args = parser.parse_args()
    if args.task == "export":
        export(Path(args.names[0]), args.arrays)
        return
    place = Place(torch.device(args.device), SMALL if args.small else FULL, args.arrays)
    for name in args.names or PIECES:
        study(name, place, args.out, PIECES)


def study(name: str, place: Place, out: Path, pieces: Mapping[str, Piece]) -> None:
    """Run a piece unless its figures exist; a failure is recorded and tried again next time."""
    result = json.loads(out.read_text()) if out.exists() else {}
    if name in result and "failed" not in result[name]:
        return
    if place.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = place.wait()
    try:
        row = pieces[name](place)
    except (RuntimeError, MemoryError) as error:  # out of memory above all
        traceback.print_exc()
        row = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    gpu = torch.cuda.get_device_name() if place.device.type == "cuda" else "cpu"
    row |= {"piece_s": round(place.wait() - began, 1), "peak_gib": place.peak(), "device": gpu}
    print(json.dumps({"piece": name, **row}), flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**result, name: row}, indent=1) + "\n")


# ---------------------------------------------------------------------------------- real data


def export(folder: Path, arrays: Path) -> None:
    """Tokens of both sides, and pairs by split, in one file."""
    import rankfold as rf

    data = rf.load_data(folder)
    assert data.query_texts is not None
    assert data.candidate_texts is not None
    kept = {"n_tokens": np.array(data.n_tokens)}
    for side, texts in (("query", data.query_texts), ("candidate", data.candidate_texts)):
        kept |= {f"{side}_offsets": texts.offsets.numpy(), f"{side}_tokens": texts.tokens.numpy()}
        if texts.weights is not None:
            kept[f"{side}_weights"] = texts.weights.numpy()
    parts = [pairs_of(data.split(split), number) for number, split in enumerate(SPLITS)]
    kept["pairs"] = np.concatenate(parts).astype(np.int32)
    if data.excluded is not None:
        kept["excluded"] = pairs_of(data.excluded, 0)[:, :2].astype(np.int32)
    arrays.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(arrays, **kept)


def pairs_of(rows: Interactions, split: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Document, label, split; [n, 3]."""
    documents, labels = rows.query_of_pair().numpy(), rows.candidates.numpy()
    return np.stack([documents, labels, np.full_like(labels, split)], axis=1).astype(np.int64)


def load(arrays: Path) -> tuple[Dataset, np.ndarray[Any, np.dtype[np.int64]]]:
    """The data, and its pairs in the form of ``text_scores``."""
    result = np.load(arrays)
    sides = [
        Texts(*(torch.from_numpy(result[f"{side}_{name}"]) for name in names(result, side)))
        for side in ("query", "candidate")
    ]
    shape = len(sides[0]), len(sides[1])
    pairs = result["pairs"].astype(np.int64)
    splits = [rows_of(pairs[pairs[:, 2] == number], shape) for number in range(len(SPLITS))]
    hidden = rows_of(result["excluded"].astype(np.int64), shape) if "excluded" in result else None
    queries, candidates = (Vocabulary.numbered(size) for size in shape)
    data = Dataset(
        "texts",
        *splits,
        queries,
        candidates,
        *sides,
        n_tokens=int(result["n_tokens"]),
        excluded=hidden,
    )
    return data, pairs


def names(result: Any, side: str) -> list[str]:
    return [n for n in ("offsets", "tokens", "weights") if f"{side}_{n}" in result]


def rows_of(pairs: np.ndarray[Any, Any], shape: tuple[int, int]) -> Interactions:
    """``pairs`` [n, 2 or more] are sorted."""
    documents, labels = (torch.from_numpy(pairs[:, column].copy()) for column in (0, 1))
    return from_pairs(documents, labels, None, shape)


@dataclass(frozen=True)
class Judged:
    """The validation queries, scored by one metric."""

    data: Dataset

    @property
    def queries(self) -> Tensor:
        return self.data.split("validation").counts().nonzero().flatten()

    @property
    def depth(self) -> int:
        return DEPTH

    def hidden(self, queries: Tensor) -> Interactions:
        return self.data.seen("validation").select(queries)

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        spec = parse(SELECTED_BY)
        truth = self.data.split("validation").select(queries)
        return METRICS[spec.name].value(judge(ids.cpu(), truth), spec.k)


def trained(method: str, data: Dataset, config: Any, place: Place, run: Run) -> tuple[Model, Row]:
    """The last model of a fit, and the seconds of all of it and of its epochs."""
    began, ends, model = place.wait(), [], None
    for step in METHODS[method].fit(data, config, run):
        model = step.model
        if step.whole:
            ends.append(round(place.wait() - began, 1))
            print(f"epoch {step.number}, loss {step.loss:.4f}, {ends[-1]} s", flush=True)
    seconds = place.wait() - began
    assert model is not None
    return model, {"fit_s": round(seconds, 1), "epochs_done_at_s": ends}


def whole(method: str, place: Place, **settings: Any) -> Row:
    """Fit, then P@k and PSP@k on test."""
    data, pairs = load(place.arrays)
    config = METHODS[method].config(**settings)
    model, seconds = trained(method, data, config, place, place.run(Judged(data)))
    row: Row = {"settings": settings, **seconds, "mix": chosen(model)}
    return row | tested(model, data, pairs, place)


def chosen(model: Model) -> Row:
    names = ("classifier_share", "centroid_weight", "popularity_weight")
    return {name: model.config[name] for name in names}


def tested(
    model: Model, data: Dataset, pairs: np.ndarray[Any, np.dtype[np.int64]], place: Place
) -> Row:
    documents, truth = split_truth(pairs, SPLITS.index("test"))
    rows, ids = torch.from_numpy(documents), []
    assert data.query_texts is not None
    began, index, hidden = (
        place.wait(),
        Exact(model.tensors["candidates"], BUDGET),
        data.seen("test"),
    )
    encode = open_model(model).texts
    assert encode is not None
    for some in rows.split(2**14):
        vectors = encode(data.query_texts.select(some), "query")
        ids.append(index.search(vectors, DEPTH, hidden.select(some).to(place.device)).ids.cpu())
    seconds = place.wait() - began
    result = scores(torch.cat(ids).numpy(), truth, count(pairs, len(data.candidates)))
    return {**result, "ms_per_1000_documents": round(seconds / len(rows) * 1e6, 2)}


# ---------------------------------------------------------------------------------- texts


WORDS = 5  # of a label
TOPICS = (1000, 100, 10)  # labels under topics; each topic gives its labels a word


def zipf(shape: tuple[int, ...], n_tokens: int, rng: torch.Generator) -> Tensor:
    """Tokens by Zipf's law: number r has a share of about 1 / r."""
    drawn = torch.rand(shape, generator=rng, device=rng.device)
    return torch.pow(float(n_tokens), drawn).int().clamp_(1, n_tokens) - 1


def label_words(n: int, n_tokens: int, device: torch.device) -> Tensor:
    """[n, WORDS] int32, generated in parts."""
    rng = torch.Generator(device).manual_seed(0)
    words = torch.empty(n, WORDS, dtype=torch.int32, device=device)
    shared = [zipf((-(-n // size),), n_tokens, rng) for size in TOPICS]
    for some in torch.arange(n, device=device).split(2**22):
        block = words[int(some[0]) : int(some[0]) + len(some)]
        for column, (size, tokens) in enumerate(zip(TOPICS, shared, strict=True)):
            block[:, column] = tokens[some // size]
        block[:, len(TOPICS) :] = zipf((len(some), WORDS - len(TOPICS)), n_tokens, rng)
    return words


def draw_pairs(count: int, n: int, rng: torch.Generator) -> Tensor:
    """Two labels of one topic for each of some documents, ascending; [count, 2]."""
    first = torch.randint(0, n // TOPICS[-1], (count, 1), generator=rng, device=rng.device)
    shift = torch.randint(0, TOPICS[-1] - 1, (count, 1), generator=rng, device=rng.device)
    return first * TOPICS[-1] + torch.cat([shift, shift + 1], dim=1)


def as_texts(words: Tensor) -> Texts:
    """Texts of equal length; [n, any]."""
    n, size = words.shape
    return Texts(torch.arange(0, (n + 1) * size, size, device=words.device), words.flatten())


def as_weighed(words: Tensor) -> Texts:
    """The same, of length 1 if no word is repeated."""
    texts = as_texts(words)
    weights = torch.full(texts.tokens.shape, words.shape[1] ** -0.5, device=words.device)
    return Texts(texts.offsets, texts.tokens, weights)


# ---------------------------------------------------------------------------------- 3 million


def three_million(place: Place) -> Row:
    """An epoch of each module."""
    n, cpu = place.sizes.labels, torch.device("cpu")
    words = label_words(n, place.sizes.tokens, cpu)
    pairs = draw_pairs(n, n, torch.Generator().manual_seed(1))
    offsets = torch.arange(0, 2 * n + 1, 2)
    rows = Interactions(offsets, pairs.flatten().int(), None, n)
    texts = as_texts(words[pairs].flatten(1)), as_texts(words)
    keys = Vocabulary.numbered(n)
    data = Dataset("texts", rows, None, None, keys, keys, *texts, n_tokens=place.sizes.tokens)
    config = SiameseConfig(
        pairs_from=0,
        encoder_epochs=1,
        classifier_epochs=1,
        joint_epochs=1,
        batch_size=place.sizes.batch,
        pool=4 * place.sizes.batch,
    )
    began, run = place.wait(), place.run()
    parts = build_corpus(data, config, run)
    module = start_module(parts, config, run, 0)
    row: Row = {"labels": n, "width": config.width, "batch": config.batch_size}
    row["prepare_s"] = round(place.wait() - began, 1)
    assert run.build_index is not None
    for stage in stages_of(config):
        began = place.wait()
        task = task_of(module, stage, parts, config, run.build_index)
        losses = [step.loss for step in train(task, training(stage, config), run)]
        row[stage.name] = {"s": round(place.wait() - began, 1), "loss": losses[-1]}
        row[stage.name]["peak_gib"] = place.peak()
    return row


# ---------------------------------------------------------------------------------- 100 million


MANY_WIDTH = 128


class Many(NamedTuple):
    """Labels with given words, and a frozen encoder."""

    encoder: BagEncoder
    words: Tensor  # [N, WORDS] int32

    @torch.no_grad()
    def encoded(self, rows: Tensor) -> Tensor:
        """Vectors of labels, computed from their words at each call: [B, D] of N."""
        return self.encoder(as_weighed(self.words[rows]))

    @torch.no_grad()
    def documents(self, pairs: Tensor) -> Tensor:
        return self.encoder(as_weighed(self.words[pairs].flatten(1)))


def many(place: Place) -> Many:
    rng = torch.Generator(place.device).manual_seed(2)
    shape = place.sizes.tokens, MANY_WIDTH
    tokens = torch.randn(shape, generator=rng, device=place.device) * MANY_WIDTH**-0.5
    encoder = BagEncoder(tokens, residual=False, rng=rng)
    return Many(encoder, label_words(place.sizes.many, place.sizes.tokens, place.device))


def update(place: Place) -> Row:
    """Module III as in a fit, documents against a shared pool: the second epoch.

    The input that a fit reads from texts is given: all words of a label have equal weights.
    """
    n, size = place.sizes.many, place.sizes.batch
    config = SiameseConfig(
        width=MANY_WIDTH,
        pairs_from=0,
        classifier_epochs=2,
        batch_size=size,
        pool=4 * size,
        lr=0.005,
    )
    labels, run = many(place), place.run()
    module = Siamese(labels.encoder, n, MANY_WIDTH).to(place.device)
    stage = Stage("classifiers", config.classifier_epochs)
    parts = given(labels, size * place.sizes.steps, run)
    assert run.build_index is not None
    task = task_of(module, stage, parts, config, run.build_index)
    loop, ends, losses = Loop(task, training(stage, config), run), [], []
    for _ in range(stage.epochs):
        losses += [step.loss for step in loop.finish_epoch() if step.whole]
        ends.append(place.wait())
    weights = module.refinements.weight
    state = sum(t.nbytes for t in loop.optimisers[0].state[weights].values())
    per_label = {"weights": weights.nbytes / n, "optimiser": state / n, "words": 4 * WORDS}
    return {
        "labels": n,
        "width": MANY_WIDTH,
        "batch": size,
        "pool": config.pool,
        "ms_per_1000_documents": round((ends[1] - ends[0]) / len(parts.documents) * 1e6, 3),
        "loss": [round(loss, 4) for loss in losses],
        "bytes_per_label": per_label,
        "state_of_weights": round((weights.nbytes + state) / (2 * weights.numel()), 3),
    }


def given(labels: Many, n_documents: int, run: Run) -> Corpus:
    """The result of ``build_corpus``, without the texts."""
    n, device = len(labels.words), run.device
    pairs = draw_pairs(n_documents, n, torch.Generator(device).manual_seed(3))
    offsets = torch.arange(0, 2 * n_documents + 1, 2, device=device)
    rows = Interactions(offsets, pairs.flatten().int(), None, n)
    counts = rows.candidate_counts()
    return Corpus(
        as_weighed(labels.words[pairs].flatten(1)),
        as_weighed(labels.words),
        pairs=pairs.flatten()[:0],
        idf=torch.ones(labels.encoder.tokens.num_embeddings, device=device),
        rows=rows,
        excluded=None,
        hidden=rows,
        counts=counts,
        shares=counts / n_documents,
        token_vectors=None,
        document_shard=TableShard(n_documents, run.comm, run.memory_budget),
        label_shard=TableShard(n, run.comm, run.memory_budget),
        shards=None,
    )


def by_blocks(place: Place) -> Row:
    """Every label against a block of documents, by rankfold's exact search."""
    n, size = place.sizes.many, place.sizes.batch
    labels, table = many(place), refinements(place)
    pairs = draw_pairs(2 * size, n, torch.Generator(place.device).manual_seed(4))
    asked = labels.documents(pairs).half()
    row: Row = {"labels": n, "width": MANY_WIDTH, "k": K, "queries": size}
    row |= timed_blocks("in_passing", lambda some: search_tiles(labels, table, some, place), asked)
    for first, vectors in in_passing(labels, table, place):
        table[first : first + len(vectors)] = vectors
    index = Exact(table, BUDGET)
    row |= timed_blocks("held", lambda some: index.search(some, K), asked)
    with storing_all_scores():
        row |= timed_blocks("stored", lambda some: index.search(some, K), asked)
    seconds = []
    for _ in range(3):
        began = place.wait()
        for tile in table.split(place.sizes.tile):
            tile.sum(dtype=torch.float32)
        seconds.append(place.wait() - began)
    row["reading_alone_ms"] = round(min(seconds) * 1e3, 2)
    row["same_as_by_tiles"] = agreement(index, asked[:size], place)
    row["tera_operations_per_block"] = 2 * n * size * MANY_WIDTH / 1e12
    row["gb_read_per_block"] = table.nbytes / 1e9
    return row


def storing_all_scores() -> Any:
    """Exact search without fused kernels."""
    return patch.object(nearest, "takes", lambda *_: False)


def a_million(place: Place) -> Row:
    """Exact search of random vectors, with and without fused kernels."""
    n, row = place.sizes.million, {}
    rng = torch.Generator(place.device).manual_seed(6)
    for dtype, width in ((torch.float32, 64), (torch.float32, 128), *HALVES):
        vectors = torch.randn(n, width, generator=rng, device=place.device).to(dtype)
        asked = torch.randn(2 * place.sizes.batch, width, generator=rng, device=place.device)
        index = Exact(vectors, BUDGET)

        def search(some: Tensor, index: Exact = index) -> TopK:
            return index.search(some, K)

        name = f"{str(dtype).removeprefix('torch.')}, width {width}"
        row[name] = timed_blocks("held", search, asked.to(dtype))
        with storing_all_scores():
            row[name] |= timed_blocks("stored", search, asked.to(dtype))
    return {"labels": n, "k": K, "queries": place.sizes.batch, **row}


def in_passing(labels: Many, table: Tensor, place: Place) -> Iterator[tuple[int, Tensor]]:
    """Vectors of labels, tile after tile, from their words and refinements."""
    for rows in torch.arange(len(table), device=place.device).split(place.sizes.tile):
        first = int(rows[0])
        own = table[first : first + len(rows)].float()
        yield first, unit(labels.encoded(rows) + own).half()


@torch.no_grad()
def search_tiles(labels: Many, table: Tensor, asked: Tensor, place: Place) -> TopK:
    result: TopK | None = None
    for first, tile in in_passing(labels, table, place):
        best = Exact(tile, BUDGET).search(asked, K)
        best = TopK(best.ids + first, best.scores)
        result = best if result is None else merge_top_k(result, best, K)
    assert result is not None
    return result


def timed_blocks(name: str, search: Callable[[Tensor], TopK], asked: Tensor) -> dict[str, float]:
    """Milliseconds for 1000 documents, after a first block that warms up; the median of three."""
    first, second = asked.chunk(2)
    search(first).scores.sum().item()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        search(second).scores.sum().item()
        times.append(time.perf_counter() - began)
    seconds = median(times)
    return {f"{name}_ms_per_1000_documents": round(seconds / len(second) * 1e6, 2)}


def agreement(index: Exact, asked: Tensor, place: Place) -> float:
    """The share of results that equal those of all scores in single precision, tile by tile."""
    result: TopK | None = None
    for number, tile in enumerate(index.candidates.split(place.sizes.tile)):
        best = top_k(asked.float() @ tile.float().T, K)
        best = TopK(best.ids + number * place.sizes.tile, best.scores)
        result = best if result is None else merge_top_k(result, best, K)
    assert result is not None
    return float((result.ids == index.search(asked, K).ids).double().mean())


def refinements(place: Place) -> Tensor:
    """Like fitted ones: about a third as long as the encoded text."""
    rng = torch.Generator(place.device).manual_seed(5)
    table = torch.empty(place.sizes.many, MANY_WIDTH, dtype=torch.float16, device=place.device)
    for part in table.split(2**22):
        part.normal_(0, 0.3 * MANY_WIDTH**-0.5, generator=rng)
    return table


def inverted(place: Place) -> Row:
    """Lists around centres; recall against exact search."""
    n, size = place.sizes.many, place.sizes.batch
    labels, vectors = many(place), refinements(place)
    for first, tile in in_passing(labels, vectors, place):
        vectors[first : first + len(tile)] = tile
    rng = torch.Generator(place.device).manual_seed(6)
    tuning, asked = labels.documents(draw_pairs(2 * size, n, rng)).chunk(2)
    began = place.wait()
    index = Inverted(vectors, BUDGET, queries=tuning)
    built = place.wait() - began
    index.search(asked[:32], K)
    began = place.wait()
    ids = index.search(asked, K).ids
    seconds = place.wait() - began
    truth = Exact(vectors, BUDGET).search(asked.half(), K).ids
    hit = (ids.unsqueeze(2) == truth.unsqueeze(1)).any(dim=1)
    probing = next((p for p in index.built.probings if p.depth >= K), None)
    return {
        "labels": n,
        "width": MANY_WIDTH,
        "lists": len(index.built.lists.spreads),
        "build_s": round(built, 1),
        "ms_per_1000_documents": round(seconds / len(asked) * 1e6, 2),
        f"recall@{K}": round(float(hit.double().mean()), 4),
        "probing": probing,
        "index_bytes_per_label": sum(t.nbytes for t in index.tensors().values()) / n,
    }


PIECES: dict[str, Piece] = {
    "yso": partial(whole, "siamesexml"),
    "three-million": three_million,
    "hundred-million": update,
    "hundred-million-exact": by_blocks,
    "million-exact": a_million,
    "hundred-million-inverted": inverted,
    "yso-paper": partial(whole, "siamesexml-paper"),
    "yso-paper-longer": partial(whole, "siamesexml-paper", encoder_epochs=LONGER),
}


if __name__ == "__main__":
    main()
