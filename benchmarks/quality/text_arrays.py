"""The fits of ``quality/texts.py`` with only torch and numpy: on a GPU, from arrays.

    python -m benchmarks.scale.texts_gpu export FOLDER [--arrays FILE]
    python -m benchmarks.quality.text_arrays METHOD --out FILE [--seeds 0 1 2] [--set NAME=VALUE]

A text method is fitted on train, selects its mix by nDCG@5 on 10,000 validation queries drawn by
the seed, is fitted on train and validation with that selection, and is scored on test by
``text_scores`` with exact search. FILE also has the figures of the first fit; those of other
methods are in ``scale/texts_gpu.py``. Seeds in FILE are skipped. ``refit`` in FILE records whether
the second fit is done: a run interrupted between the two resumes there.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.quality.text_scores import count, scores, split_truth
from benchmarks.scale import texts_gpu
from benchmarks.scale.texts_gpu import ARRAYS, DEPTH, FULL, SPLITS, Judged, Place, Row, load
from rankfold.methods import METHODS
from rankfold.types import Dataset, Model

VALIDATION_QUERIES = 10_000  # as in ``rankfold.fit``
Pairs = np.ndarray[Any, np.dtype[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("method", choices=[n for n, m in METHODS.items() if m.data_kind == "texts"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arrays", type=Path, default=ARRAYS)
    parser.add_argument("--name", default="yso-finna-en", help="name of the data in FILE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", dest="settings")
    args = parser.parse_args()
    place = Place(torch.device(args.device), FULL, args.arrays)
    given = {key: json.loads(value) for key, value in (s.split("=", 1) for s in args.settings)}
    for seed in args.seeds:
        study(args.method, given, seed, place, args.out, args.name)


def study(method: str, given: Row, seed: int, place: Place, out: Path, name: str) -> None:
    """Both fits of one seed; each is written at once."""
    result = json.loads(out.read_text()) if out.exists() else {}
    result = {"recipe": method, "data": name, "test": [], **result}
    row = next((row for row in result["test"] if row["seed"] == seed), None)
    if row is None:
        row = {"seed": seed, "refit": False, "device": device_name(place)}
        result["test"].append(row)
    data, pairs = load(place.arrays)
    if "train_alone" not in row:
        first = fitted(method, given, seed, data, pairs, place)
        row |= {"settings": first.pop("settings"), "mixes": first.pop("mixes")}
        row["train_alone"] = first
        keep(out, result)
    if not row["refit"]:
        both = data.split("train").union(data.split("validation"))
        whole = replace(data, train=both, validation=None)
        again = fitted(method, row["settings"], seed, whole, pairs, place)
        row |= {key: again[key] for key in again if key not in ("settings", "mixes")}
        row["refit"] = True
        keep(out, result)


def device_name(place: Place) -> str:
    return torch.cuda.get_device_name() if place.device.type == "cuda" else "cpu"


def keep(out: Path, result: Row) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    last = result["test"][-1]
    shown = last if last["refit"] else last["train_alone"]
    print(last["seed"], "refit" if last["refit"] else "fit", json.dumps(shown), flush=True)


def fitted(method: str, settings: Row, seed: int, data: Dataset, pairs: Pairs, place: Place) -> Row:
    """Fit and score on test; with validation, the mix is chosen there."""
    if place.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    judged = None if data.validation is None else Sampled(data, seed)
    run = replace(place.run(judged), rng=torch.Generator().manual_seed(seed))
    config = METHODS[method].config(**settings)
    model, seconds = texts_gpu.trained(method, data, config, place, run)
    return {
        "settings": dict(model.config),
        "mixes": model.notes.get("mixes", []),
        **seconds,
        "peak_gib": place.peak(),
        "model_bytes": sum(tensor.nbytes for tensor in model.tensors.values()),
        **tested(method, model, data, pairs, place),
    }


@dataclass(frozen=True)
class Sampled(Judged):
    """Some of the validation queries."""

    seed: int

    @property
    def queries(self) -> Tensor:
        rows = super().queries
        rng = torch.Generator().manual_seed(self.seed)
        return rows[torch.randperm(len(rows), generator=rng)[:VALIDATION_QUERIES].sort().values]


def tested(method: str, model: Model, data: Dataset, pairs: Pairs, place: Place) -> Row:
    """As ``texts_gpu.tested``, also for methods with their own search."""
    search = METHODS[method].open(model).search_texts
    if search is None:
        return texts_gpu.tested(model, data, pairs, place)
    documents, truth = split_truth(pairs, SPLITS.index("test"))
    rows, hidden, ids = torch.from_numpy(documents), data.seen("test"), []
    assert data.query_texts is not None
    began = place.wait()
    for some in rows.split(2**12):
        exclude = hidden.select(some).to(place.device)
        ids.append(search(data.query_texts.select(some), DEPTH, exclude).ids.cpu())
    seconds = place.wait() - began
    result = scores(torch.cat(ids).numpy(), truth, count(pairs, len(data.candidates)))
    return {**result, "ms_per_1000_documents": round(seconds / len(rows) * 1e6, 2)}


if __name__ == "__main__":
    main()
