"""Ranking quality of rankfold's quadratic methods, each tuned on validation like its peers.

    python -m benchmarks.quality.quadratic export [--data DIR]    prepared data as plain arrays
    python -m benchmarks.quality.quadratic run [--data-sets ...] [--widths ...] [--methods ...]
    python -m benchmarks.quality.quadratic equal                  ials at irspack's own settings
    python -m benchmarks.quality.quadratic table [--write]        with those of peers/quadratic.py
    python -m benchmarks.quality.quadratic by-width [--write]     rg2 with and without its tail

Every point of a method's grid is fitted on train and scored on all validation queries after each
sweep. The best by ndcg@20 is fitted on train and validation with ``--seeds`` seeds and scored on
test, without the pairs it was fitted on. ``rg2`` selects along its own path, anew for each seed.
Each figure is written to
``results/quality/quadratic/rankfold-METHOD-DATA-WIDTH.json`` at once. ``run`` requires only torch
and numpy, so that it can run on a GPU machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import page
from benchmarks.paths import RESULTS, SCRATCH
from rankfold.distributed.collectives import SingleProcess
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.metrics import METRICS, parse
from rankfold.metrics.judged import judge
from rankfold.models.search import Filter, Searcher
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Interactions, Model, Run, Vocabulary

ARRAYS = SCRATCH / "npz"
OUT = RESULTS / "quality" / "quadratic"
DATA_SETS = ("gowalla", "amazon-electronics-10core", "amazon-book-kgat", "pinterest")
PEERS = ("irspack", "implicit")
SHOWN = ("recall@20", "ndcg@20", "ndcg@10")
SELECTED_BY = "ndcg@20"
WIDTHS = (16, 32, 64, 128, 256, 512, 1024)  # of rg2 by width
PATIENCE = 2
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MEMORY = 2**31 if DEVICE.type == "cuda" else 2**30  # bytes, for blocks

WEIGHTED = {"alpha": (0.005, 0.01, 0.02, 0.04), "reg": (0.003, 0.01, 0.03, 0.1)}
GRIDS: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {  # name here: method, points
    "rg2": ("rg2", {}),
    "rg2-without-tail": ("rg2", {"tail": ("none",)}),
    "rg2-plain-path": (
        "rg2",
        {
            "query_exponent": (-0.5,),
            "candidate_exponent": (0.0,),
            "discount": (0.0,),
            "tail": ("none",),
        },
    ),
    "rg2-weighted": ("rg2-weighted", WEIGHTED),
    "rgx": ("rgx", WEIGHTED),
    "ials": ("ials", {"background": (0.003, 0.01, 0.03, 0.1), "reg": (0.0003, 0.001, 0.003, 0.01)}),
    "wrmf": ("wrmf", {"alpha": (10.0, 40.0, 160.0), "reg": (1.0, 10.0, 50.0)}),
    "puresvd": ("puresvd", {}),
    "ease": ("ease", {}),
    "blend": ("blend", {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["export", "run", "equal", "table", "by-width"])
    parser.add_argument("--data-sets", nargs="+", default=DATA_SETS)
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--methods", nargs="+", default=list(GRIDS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    args = parser.parse_args()
    if args.task == "export":
        export(args.data_sets)
    elif args.task == "table":
        table(args.data_sets, args.widths, write=args.write)
    elif args.task == "by-width":
        by_width(args.data_sets, write=args.write)
    elif args.task == "equal":
        equal(args.data_sets, args.widths)
    else:
        for width, name, method in product(args.widths, args.data_sets, args.methods):
            study(name, method, width, args.seeds, args.out)


def export(names: list[str]) -> None:
    """The data that peers/quadratic.py prepared, one .npz each."""
    import rankfold as rf

    ARRAYS.mkdir(parents=True, exist_ok=True)
    for name in names:
        data = rf.load_data(SCRATCH / "data" / name)
        arrays = {"n": np.array(len(data.candidates))}
        for split in ("train", "validation", "test"):
            rows = data.split(split)  # type: ignore[arg-type]
            arrays |= {f"{split}_o": rows.offsets.numpy(), f"{split}_c": rows.candidates.numpy()}
        np.savez_compressed(ARRAYS / f"{name}.npz", **arrays)


def load(name: str) -> Dataset:
    arrays = np.load(ARRAYS / f"{name}.npz")
    n = int(arrays["n"])
    train, validation, test = (
        Interactions(
            torch.from_numpy(arrays[f"{s}_o"]),
            torch.from_numpy(arrays[f"{s}_c"]),
            None,
            n,
            torch.from_numpy(arrays[f"{s}_t"]) if f"{s}_t" in arrays else None,
        )
        for s in ("train", "validation", "test")
    )
    queries, candidates = Vocabulary.numbered(train.n_queries), Vocabulary.numbered(n)
    return Dataset("interactions", train, validation, test, queries, candidates)


@dataclass(frozen=True)
class Judged:
    """All queries of a split, scored by one metric (the run's ``judge``) or by several."""

    data: Dataset
    split: Any = "validation"
    metric: str = SELECTED_BY

    @property
    def truth(self) -> Interactions:
        return self.data.split(self.split)

    @property
    def queries(self) -> Tensor:
        return torch.nonzero(self.truth.counts() > 0).flatten()

    @property
    def depth(self) -> int:
        return 20

    def hidden(self, queries: Tensor) -> Interactions:
        return self.data.seen(self.split).select(queries)

    def values(self, queries: Tensor, ids: Tensor, metric: str | None = None) -> Tensor:
        spec = parse(metric or self.metric)
        return METRICS[spec.name].value(judge(ids.cpu(), self.truth.select(queries)), spec.k)

    def means(self, model: Model, metrics: Sequence[str] = SHOWN) -> dict[str, float]:
        queries = self.queries
        searcher = Searcher(model, self.data.split("train"), MEMORY)
        hidden = self.hidden(queries).to(DEVICE)
        ids = searcher.of_queries(queries.to(DEVICE), self.depth, Filter(hidden)).ids
        return {m: float(self.values(queries, ids, m).double().mean()) for m in metrics}


def start(data: Dataset, seed: int, metric: str = SELECTED_BY) -> Run:
    """What a fit is given, with the validation queries if there are any."""
    judged = Judged(data, metric=metric) if data.validation is not None else None
    return Run(
        rng=torch.Generator().manual_seed(seed),
        device=DEVICE,
        comm=SingleProcess(),
        judge=judged,
        validate=None if judged is None else lambda model: judged.means(model, [metric])[metric],
        build_index=Exact,
        memory_budget=MEMORY,
    )


def fit(
    name: str, data: Dataset, settings: dict[str, Any], seed: int, steps: int | None
) -> History:
    """A fit that stops by validation, or after a number of steps."""
    method, run = METHODS[GRIDS[name][0]], start(data, seed)
    known = {one.name for one in fields(method.config)}
    config = method.config(**{key: value for key, value in settings.items() if key in known})
    history = History(steps=steps)
    for step in method.fit(data, config, run):
        scored = run.validate is not None and step.model is not None
        history.note(step, run.validate(step.model) if scored else None)
        if history.is_over(step, PATIENCE):
            break
    assert history.model is not None
    if method.finalize is not None:
        history.model = method.finalize(history.model, data.split("train").to(DEVICE), run)
    return history


def study(name: str, method: str, width: int, seeds: int, out: Path) -> None:
    """Choose on validation, refit, test; write every figure."""
    path = out / f"rankfold-{method}-{name}-{width}.json"
    result = json.loads(path.read_text()) if path.exists() else {"grid": []}
    if "test_mean" in result:
        return
    data = load(name)
    grid = GRIDS[method][1]
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    known = [entry["settings"] for entry in result["grid"]]
    for point in points:
        if point in known:
            continue
        began = time.time()
        history = fit(method, data, {"width": width, **point}, 0, None)
        entry = {"settings": point, "steps": history.number, "seconds": time.time() - began}
        entry["chosen"] = dict(history.model.config)  # type: ignore[union-attr]
        entry |= {SELECTED_BY: history.score or 0.0}
        del history  # one large model at a time
        result["grid"].append(entry)
        keep(path, result, name, method, width)
    best = max(result["grid"], key=lambda entry: entry[SELECTED_BY])
    result["chosen"] = best["chosen"]
    result["on_edge"] = [
        k for k, v in grid.items() if len(v) > 2 and best["settings"][k] in (v[0], v[-1])
    ]
    whole = replace(
        data, train=data.split("train").union(data.split("validation")), validation=None
    )
    tested = result.setdefault("test", [])
    selects = METHODS[GRIDS[method][0]].self_tuning
    for seed in range(len(tested), seeds):
        chosen = best["chosen"]
        if selects and seed > 0:
            first = fit(method, data, {"width": width, **best["settings"]}, seed, None).model
            chosen = dict(first.config)  # type: ignore[union-attr]
        steps = None if selects or method == "puresvd" else best["steps"]
        history = fit(method, whole, chosen, seed, steps)
        assert history.model is not None
        tested.append({"seed": seed, **Judged(whole, "test").means(history.model)})
        del history
        keep(path, result, name, method, width)
    result["test_mean"] = {m: mean(entry[m] for entry in tested) for m in SHOWN}
    if seeds > 1:
        result["test_spread"] = {m: stdev(entry[m] for entry in tested) for m in SHOWN}
    keep(path, result, name, method, width)
    print(path.stem, result["chosen"], result["test_mean"], result["on_edge"], flush=True)


def equal(names: list[str], widths: list[int]) -> None:
    """Test ndcg@20 of ``ials`` at irspack's settings, 16 sweeps, beside irspack's."""
    result = {}
    for name, width in product(names, widths):
        theirs = json.loads((OUT / f"irspack-{name}-{width}.json").read_text())
        data = load(name)
        train = data.split("train").union(data.split("validation"))
        chosen = theirs["chosen"]
        settings = {"width": width, "background": chosen["alpha0"], "reg": chosen["reg"]}
        history = fit("ials", replace(data, train=train, validation=None), settings, 0, 16)
        assert history.model is not None
        ours = Judged(replace(data, train=train, validation=None), "test").means(history.model)
        ratio = ours[SELECTED_BY] / theirs["test_mean"][SELECTED_BY]
        result[f"{name}-{width}"] = {**settings, "ours": ours[SELECTED_BY], "ratio": ratio}
        print(name, width, result[f"{name}-{width}"], flush=True)
    (OUT / "equal.json").write_text(json.dumps(result, indent=1) + "\n")


def keep(path: Path, result: dict[str, Any], name: str, method: str, width: int) -> None:
    about = {"method": method, "data": name, "width": width, "device": str(DEVICE)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, **result}, indent=1) + "\n")


def table(names: list[str], widths: list[int], *, write: bool) -> None:
    """Test figures of all, the best of each column marked; into the page if asked."""
    text = "\n\n".join(_table_of(names, width) for width in widths)
    if write:
        page.write("quadratic", text)
    else:
        print(text)


def _table_of(names: list[str], width: int) -> str:
    lines = [f"| width {width} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    everyone = [*PEERS, *(f"rankfold-{method}" for method in GRIDS)]
    means = {(who, name): _mean_of(who, name, width) for who in everyone for name in names}
    best = {n: max((means[w, n] or {}).get(SELECTED_BY, 0) for w in everyone) for n in names}
    for who in everyone:
        cells = [_cell(means[who, name], best[name]) for name in names]
        label = f"`{who.removeprefix('rankfold-')}`" if who not in PEERS else who
        if set(cells) != {"-"}:
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_width(names: list[str], *, write: bool) -> None:
    """Test ndcg@20 of ``rg2`` with and without its tail; into the page if asked."""
    lines = ["| width | " + " | ".join(f"{name}, tail | without" for name in names) + " |"]
    lines.append("|---" * (2 * len(names) + 1) + "|")
    for width in WIDTHS:
        both = product(names, ("rankfold-rg2", "rankfold-rg2-without-tail"))
        means = [_mean_of(who, name, width) for name, who in both]
        cells = [page.number(one[SELECTED_BY]) if one else "-" for one in means]
        lines.append(f"| {width} | " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    if write:
        page.write("by-width", text)
    else:
        print(text)


def _mean_of(who: str, name: str, width: int) -> dict[str, float] | None:
    path = OUT / f"{who}-{name}-{width}.json"
    return json.loads(path.read_text()).get("test_mean") if path.exists() else None


def _cell(means: dict[str, float] | None, best: float) -> str:
    if means is None:
        return "-"
    text = f"{page.number(means['recall@20'])} / {page.number(means['ndcg@20'])}"
    return f"**{text}**" if means[SELECTED_BY] == best else text


if __name__ == "__main__":
    main()
