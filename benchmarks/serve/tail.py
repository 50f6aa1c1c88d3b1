"""The cost of the sparse part of ``rg2`` in a search over a million candidates, and its recall.

    python -m benchmarks.serve.tail [--candidates 1000000] [--width 64] [--write]

Candidates are 1,000 groups of random vectors. The neighbours of a candidate are members of its
group. A history has ``--history`` candidates of three groups. The same searches run with and
without the sparse part, exactly and by the approximate indexes, one history at a time in one
thread: medians in microseconds. Recall is measured against the exact search with the same scores.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.paths import RESULTS
from rankfold.index.build import build
from rankfold.index.recall import recalls
from rankfold.methods import METHODS
from rankfold.models.search import Searcher
from rankfold.types import Interactions, Model, TopK, history_tensors

OUT = RESULTS / "serve" / "tail.json"
GROUPS, NEIGHBOURS, GROUPS_OF_A_QUERY = 1000, 100, 3
KINDS = ("exact", "inverted", "hnsw", "compressed")
K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--history", type=int, default=50)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, histories = generated(args)
    without = replace(model, tensors={k: v for k, v in model.tensors.items() if "neigh" not in k})
    result: dict[str, Any] = {key: getattr(args, key) for key in ("candidates", "width", "history")}
    exact = Searcher(model, histories).of_histories(histories, K)
    for kind in args.kinds:
        built = build(kind, model.tensors["candidates"], sample_queries=model_queries(model))
        searchers = {
            name: Searcher(one, histories, make=lambda *_, built=built: built)
            for name, one in (("with", model), ("without", without))
        }
        result[kind] = measure(searchers, histories, exact, slow=kind == "exact")
        result[kind]["recall of vectors"] = built.about["recall"][str(K)]
        print(kind, result[kind], flush=True)
    if args.write:
        OUT.write_text(json.dumps(result, indent=1) + "\n")


def measure(
    searchers: dict[str, Searcher], histories: Interactions, truth: TopK, *, slow: bool
) -> dict[str, float]:
    """Microseconds of a search with and without the sparse part, in turns, and its recall."""
    seconds: dict[str, list[float]] = {name: [] for name in searchers}
    for row in range(32 if slow else histories.n_queries):
        one = histories.part(row, row + 1)
        for name, searcher in searchers.items():
            seconds[name].append(elapsed(partial(searcher.of_histories, one, K)))
    micros = {name: round(1e6 * median(times[2:])) for name, times in seconds.items()}
    recall = recalls(searchers["with"].of_histories(histories, K), truth).mean()
    return {**micros, "sparse part": micros["with"] - micros["without"], "recall": float(recall)}


def elapsed(work: Callable[[], Any]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def model_queries(model: Model) -> Callable[[int], torch.Tensor]:
    return lambda n: model.tensors["queries"][:n]


def generated(args: argparse.Namespace) -> tuple[Model, Interactions]:
    """A model of ``rg2`` with a tail as large as its inner products, and histories."""
    rng = torch.Generator().manual_seed(0)
    n, width, m = args.candidates, args.width, args.queries
    size = n // GROUPS  # group g holds the candidates g size to (g + 1) size
    centres = torch.randn(GROUPS, width, generator=rng)
    group = torch.arange(n).div(size, rounding_mode="floor").clamp(max=GROUPS - 1)
    candidates = centres[group] + torch.randn(n, width, generator=rng)
    first = (group * size)[:, None]
    ids = torch.randint(size, (n, NEIGHBOURS), generator=rng, dtype=torch.int32) + first.int()
    strength = torch.rand(n, NEIGHBOURS, generator=rng).sort(dim=1, descending=True).values
    chosen_groups = torch.randint(GROUPS, (m, GROUPS_OF_A_QUERY), generator=rng)
    which = torch.randint(GROUPS_OF_A_QUERY, (m, args.history), generator=rng)
    within = torch.randint(size, (m, args.history), generator=rng)
    chosen = (chosen_groups.gather(1, which) * size + within).sort(dim=1).values
    histories = Interactions(
        torch.arange(m + 1) * args.history, chosen.flatten().to(torch.int32), None, n
    )
    config = METHODS["rg2"].config(width=width, query_exponent=-0.375, candidate_exponent=0.35)
    tensors = {
        "candidates": candidates,
        "fold_weights": torch.full((n,), 1 / args.history),
        "fold_scale": torch.full((width,), 1 / width),
        "neighbours": ids,
        "neighbour_weights": strength / args.history,
    }
    plain = Model("rg2", {**vars_of(config)}, tensors)
    opened = METHODS["rg2"].open(plain)
    assert opened.histories is not None
    queries = opened.histories(histories)
    return replace(
        plain, tensors={**tensors, "queries": queries, **history_tensors(histories)}
    ), histories


def vars_of(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


if __name__ == "__main__":
    main()
