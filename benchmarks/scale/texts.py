"""The cost of a prediction as the number of labels grows: exact and approximate search.

    python -m benchmarks.scale.texts [--sizes N ...] [--large] [--index hnsw] [--lists TIMES]
                                     [--threads N] [--write]
    python -m benchmarks.scale.texts --real MODEL DATA [--index hnsw] [--write]

Labels resemble those of a siamesexml model: unit vectors around N / 20 topics, which lie around
N / 200 broader ones and so on. A query is the mean of one to three labels of roughly one topic,
plus noise. The similarity of labels to each other and to queries, at ranks 1 and 1,000, is about
that of the 113,595 labels of wordnet (``likeness`` in the results; decision 16). Recall is measured
against exact search, on queries that the index was not tuned on. With ``--real`` the labels are
growing subsets of a fitted model's, and the queries are documents of its test split.

Milliseconds are CPU time per query in a batch of 1000, one thread, median of a few rounds.
``build_s`` is the CPU time of all ``--threads``. ``products`` counts the inner products of a query
with groups, lists and labels, or with the labels visited in a graph; it does not depend on the load
of the machine. The exponent b of a N^b is fitted to both; the errors of a N^b and of a + b ln N are
in the results.

``--write`` keeps sizes in the file that were not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

import rankfold as rf
from benchmarks.paths import RESULTS
from rankfold.index import lists as index_lists
from rankfold.index.exact import Exact
from rankfold.index.hnsw import Hnsw, build_hnsw
from rankfold.index.inverted import LANES, Inverted
from rankfold.index.lists import GROUP_SLACK, promises, with_room
from rankfold.index.recall import SAMPLE_QUERIES
from rankfold.types import Index

FILES = {"inverted": "texts.json", "hnsw": "texts-hnsw.json"}
SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]
LARGE = 10_000_000
FEW = [3_000, 10_000, 30_000, 100_000]  # of a model's
WIDTH, QUERIES, TARGET = 256, 1000, 0.95
DEPTHS = (5, 100)
FITTED = ("ms", "exact", "products", "choosing")
BRANCHES = 10  # topics under a broader one
TOPIC = 20  # labels under a topic, in the mean
APART = 0.8  # length of the individual part of a topic or label; the shared part has length 1
NOISE = 0.5  # the same, for a query
LIKENED = 200  # queries and labels whose similarity to labels is reported
HALF_FROM = 5_000_000  # labels: as many are stored in half precision
BLOCK = 2**18  # labels drawn at a time


class Case(NamedTuple):
    labels: Tensor  # [N, WIDTH]
    tuning: Tensor  # [QUERIES, WIDTH]
    queries: Tensor  # the same
    truth: Tensor  # [QUERIES, max(DEPTHS)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--large", action="store_true", help=f"also {LARGE:,} labels")
    parser.add_argument("--lists", type=float, help="times N^(2/3), instead of the index's own")
    parser.add_argument("--index", choices=list(FILES), default="inverted")
    parser.add_argument(
        "--real",
        nargs=2,
        metavar=("MODEL", "DATA"),
        help="labels of a model instead of generated ones",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads that build a graph")
    parser.add_argument("--write", action="store_true", help="write the figures to results/")
    args = parser.parse_args()
    result = RESULTS / "scale" / FILES[args.index]
    if args.real:
        result = result.with_stem(f"{result.stem}-{Path(args.real[1]).name.removeprefix('text-')}")
    if args.lists is not None:
        index_lists.LIST_FACTOR, index_lists.MAX_LISTS = args.lists, 2**30
    torch.set_num_threads(1)
    rows, load = [], [os.getloadavg()[0]]
    made = map(drawn, args.sizes + [LARGE] * args.large)
    for labels, *asked in learnt(*args.real) if args.real else made:
        rows.append(measure(labels, *asked, args.index, args.threads))
        print(json.dumps(rows[-1]), flush=True)
    load.append(os.getloadavg()[0])
    if args.write and result.exists():
        rows = joined(json.loads(result.read_text())["rows"], rows)
    fits = {name: fit(rows, name) for name in rows[0] if name.startswith(FITTED)}
    for name, figures in fits.items():
        print(f"{name}: N^{figures['exponent']} off by {figures['power_off']:.0%},", end=" ")
        print(f"a + b ln N off by {figures['log_off']:.0%}")
    if args.write:
        kept = {
            "width": labels.shape[1],
            "target": TARGET,
            "load": load,
            "fits": fits,
            "rows": rows,
        }
        result.write_text(json.dumps(kept, indent=1) + "\n")


def joined(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By ascending size; a new row replaces an old one."""
    rows = {row["labels"]: row for row in old + new}
    return [rows[n] for n in sorted(rows)]


def measure(
    labels: Tensor, tuning: Tensor, queries: Tensor, kind: str, threads: int
) -> dict[str, Any]:
    """One row."""
    exact, truth = timed(Exact(labels), queries, "exact_ms", rounds=1)
    case = Case(labels, tuning, queries, truth)
    index, row = linked(case, threads) if kind == "hnsw" else listed(case)
    approximate, _ = timed(index, queries, "ms", rounds=9)
    row |= exact | approximate | figures(index, case) | likeness(case)
    seen = walked(index, case) if isinstance(index, Hnsw) else looked_at(index, case)
    return {"labels": len(labels), **row, **seen}


def listed(case: Case) -> tuple[Inverted, dict[str, Any]]:
    """An inverted file and its build time."""
    began = process_time()
    index = Inverted(case.labels, queries=case.tuning, target=TARGET)
    built = process_time() - began
    lists, groups, _ = index.built
    row: dict[str, Any] = {"lists": len(lists.spreads), "groups": len(groups.spreads)}
    row |= {"build_s": round(built, 2)}
    row["file_bytes"] = sum(tensor.nbytes for tensor in index.tensors().values())
    width = case.labels.shape[1]
    row["copy_bytes"] = 2 * len(case.labels) * (width + -width % LANES)  # in faiss, list by list
    return index, row


def linked(case: Case, threads: int) -> tuple[Hnsw, dict[str, Any]]:
    """A graph and its build time."""
    torch.set_num_threads(threads)
    began, wall = process_time(), perf_counter()
    index = build_hnsw(
        case.labels, 2**30, queries=case.tuning[:SAMPLE_QUERIES], target=TARGET, seed=0
    )
    built, wall = process_time() - began, perf_counter() - wall
    torch.set_num_threads(1)
    row = {"build_s": round(built, 2), "build_wall_s": round(wall, 2), "threads": threads}
    row["copy_bytes"] = 4 * case.labels.numel()
    row["link_bytes"] = faiss.vector_to_array(index.graph.hnsw.neighbors).nbytes
    return index, row


def timed(index: Index, queries: Tensor, name: str, rounds: int) -> tuple[dict[str, Any], Tensor]:
    """Milliseconds at each depth, and the results at the last."""
    row: dict[str, Any] = {}
    for k in DEPTHS:
        seconds = []
        for _ in range(rounds):
            began = process_time()
            ids = index.search(queries, k).ids
            seconds.append(process_time() - began)
        row[f"{name}@{k}"] = round(median(seconds) / QUERIES * 1000, 4)
    return row, ids


def figures(index: Index, case: Case) -> dict[str, Any]:
    ids = {k: index.search(case.queries, k).ids for k in DEPTHS}
    return {f"recall@{k}": round(recall(ids[k], case.truth[:, :k]), 4) for k in DEPTHS}


def looked_at(index: Inverted, case: Case) -> dict[str, Any]:
    """Groups, lists and labels compared with a query, the lists read, and z."""
    _, groups, probings = index.built
    row: dict[str, Any] = {}
    for k in DEPTHS:
        p = next(p for p in probings if p.depth >= k)
        n_groups = len(groups.spreads) if p.groups < len(groups.spreads) else 0
        near = promises(groups, with_room(case.queries, p.slack), GROUP_SLACK)
        near = near.topk(p.groups, dim=1).indices
        compared = round(float(groups.offsets.diff()[near].sum(dim=1).double().mean()))
        read = round(p.share * len(index.candidates))
        row[f"probed@{k}"] = {"groups": p.groups, "lists": p.lists, "z": p.slack}
        row[f"compared@{k}"] = {"groups": n_groups, "lists": compared, "labels": read}
        row[f"choosing@{k}"] = n_groups + compared
        row[f"products@{k}"] = n_groups + compared + read
    return row


def walked(index: Hnsw, case: Case) -> dict[str, Any]:
    """Labels compared with a query in a graph, and its effort."""
    row: dict[str, Any] = {}
    for k in DEPTHS:
        faiss.cvar.hnsw_stats.reset()
        index.search(case.queries, k)
        row[f"products@{k}"] = round(faiss.cvar.hnsw_stats.ndis / QUERIES)
        row[f"looked_at@{k}"] = next(e.ef_search for e in index.efforts if e.depth >= k)
    return row


def likeness(case: Case) -> dict[str, Any]:
    """Cosines of queries with their best labels, and of labels with others: means by rank."""
    labels = case.labels if case.labels.dtype == torch.float16 else normalize(case.labels)
    some = labels[:: len(labels) // LIKENED][:LIKENED].float()
    asked = {"query": normalize(case.queries[:LIKENED]), "label": some}
    top = {name: Exact(labels).search(q, 1001).scores for name, q in asked.items()}
    top["label"] = top["label"][:, 1:]  # the first is itself
    ranks = (1, 5, 20, 100, 1000)
    means = {name: [round(float(s[:, k - 1].mean()), 3) for k in ranks] for name, s in top.items()}
    return {"likeness": {"ranks": ranks, **means}}


def recall(figures: Tensor, truth: Tensor) -> float:
    return float((figures.unsqueeze(2) == truth.unsqueeze(1)).any(dim=1).double().mean())


def fit(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Fits of a N^b and a + b ln N by least squares on relative errors, with the largest errors."""
    sizes, values = (np.array([row[key] for row in rows], float) for key in ("labels", name))
    if len(rows) < 2:
        return {"exponent": math.nan, "factor": math.nan, "power_off": 0.0, "log_off": 0.0}
    exponent, shift = np.polyfit(np.log(sizes), np.log(values), 1)
    power = np.exp(shift) * sizes**exponent
    terms = np.stack([np.ones_like(sizes), np.log(sizes)], axis=1)
    weights, *_ = np.linalg.lstsq(terms / values[:, None], np.ones_like(values), rcond=None)
    return {
        "exponent": round(float(exponent), 3),
        "factor": float(np.exp(shift)),
        "power_off": float(np.abs(power / values - 1).max()),
        "log_off": float(np.abs(terms @ weights / values - 1).max()),
    }


# ---------------------------------------------------------------------------------- vectors


def learnt(model: str, data: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Growing subsets of a model's labels, and test documents."""
    ranker, prepared = rf.load(model), rf.load_data(data)
    labels = ranker.model.tensors["candidates"].float()
    rng = torch.Generator().manual_seed(0)
    rows = prepared.split("test").counts().nonzero().flatten()
    rows = rows[torch.randperm(len(rows), generator=rng)[: 2 * QUERIES]]
    assert prepared.query_texts is not None
    encode = ranker.searcher.opened.texts
    assert encode is not None
    documents = encode(prepared.query_texts.select(rows), "query").float()
    order = torch.randperm(len(labels), generator=rng)
    for n in [n for n in FEW if n < len(labels)] + [len(labels)]:
        yield labels[order[:n]], documents[:QUERIES], documents[QUERIES:]


def drawn(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Generated labels, queries to choose the effort with, and queries to measure."""
    labels = draw_labels(n)
    return labels, draw_queries(labels, 1), draw_queries(labels, 2)


def draw_labels(n: int) -> Tensor:
    """Unit vectors, topic after topic; [n, WIDTH]."""
    rng = torch.Generator().manual_seed(0)
    topics = torch.zeros(1, WIDTH)
    counts = [n // TOPIC]
    while counts[0] >= BRANCHES**2:
        counts.insert(0, counts[0] // BRANCHES)
    for count in counts:
        topics = under(topics, torch.arange(count) * len(topics) // count, rng)
    owners = torch.randint(0, len(topics), (n,), generator=rng).sort().values
    labels = torch.empty(n, WIDTH, dtype=torch.float16 if n >= HALF_FROM else torch.float32)
    for start in range(0, n, BLOCK):
        labels[start : start + BLOCK] = under(topics, owners[start : start + BLOCK], rng)
    return labels


def under(topics: Tensor, owners: Tensor, rng: torch.Generator) -> Tensor:
    """One vector under each of these topics."""
    own = torch.randn(len(owners), WIDTH, generator=rng).mul_(APART / WIDTH**0.5)
    return normalize(own.add_(topics[owners]))


def draw_queries(labels: Tensor, seed: int) -> Tensor:
    """Means of one to three neighbouring labels, with noise."""
    rng = torch.Generator().manual_seed(seed)
    first = torch.randint(0, len(labels), (QUERIES, 1), generator=rng)
    places = first + torch.randint(-BRANCHES, BRANCHES + 1, (QUERIES, 3), generator=rng)
    places[:, 0] = first[:, 0]
    counts = torch.randint(1, 4, (QUERIES, 1), generator=rng)
    weights = (torch.arange(3) < counts) / counts
    means = (labels[places.clamp(0, len(labels) - 1)].float() * weights[:, :, None]).sum(dim=1)
    noise = torch.randn(QUERIES, WIDTH, generator=rng).mul_(NOISE / WIDTH**0.5)
    return normalize(normalize(means) + noise)


if __name__ == "__main__":
    main()
