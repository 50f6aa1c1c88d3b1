"""Text labelling by peers, each tuned on validation with the same budget.

    python -m benchmarks.peers.texts run [--data-sets ...] [--peers ...] [--seeds N] [--start]
    python -m benchmarks.peers.texts table [--data-sets ...]

A peer starts at its ``start`` and tries the other values of its axes one axis after the other,
keeping the best nDCG@5 on validation: at most 8 fits on train. The selection is fitted on train and
validation with each seed and scored on test. The same for all: fitted pairs and ``excluded`` pairs
(a document's own label) are removed from the lists, features are tf-idf of words and word pairs,
and ``text_scores.scores`` computes the figures. Large sets are tuned less: see ``TUNING``. Figures
are written to ``results/quality/texts/PEER-DATA.json`` at once; an interrupted run is resumed.
``quality/text_data.py`` writes the sets, ``peers/text_job.py`` defines a job. Each peer runs in its
own environment. ``--start`` also scores the untuned start on test: on sets with a small validation
split the selection is not always better.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from benchmarks.paths import HOME, RESULTS, SCRATCH
from benchmarks.peers.environment import required
from benchmarks.quality import text_data, text_development
from benchmarks.quality.text_data import TextSet
from benchmarks.quality.text_scores import METRICS, Truth, count, scores, split_truth
from rankfold import storage

OUT = RESULTS / "quality" / "texts"
SELECTED_BY = "nDCG@5"
SPLITS = {"validation": 1, "test": 2}
FITS = 8  # at most, to tune a peer

Settings = dict[str, Any]


class Peer(NamedTuple):
    """A peer's folder, its start, and the axes to try, in this order."""

    folder: str
    start: Settings
    axes: dict[str, tuple[Any, ...]]


class Tuning(NamedTuple):
    """The share of a set that tuning uses, and the axes to try if not all."""

    share: float = 1.0
    asked: int | None = None
    axes: tuple[str, ...] | None = None


WORDS = {"sublinear": False, "min_df": 1}
XR_LINEAR = {
    **WORDS,
    "leaf": 100,
    "cost": 1.0,
    "threshold": 0.1,
    "negatives": "tfn",
    "beam": 10,
}
XR_LINEAR_AXES = {
    "sublinear": (True,),
    "min_df": (2,),
    "leaf": (20,),
    "negatives": ("tfn+man",),
    "beam": (50,),
    "cost": (4.0,),
    "threshold": (0.01,),
}
PEERS = {
    "neighbours": Peer(
        "neighbours",
        {**WORDS, "label_text": "cosine", "k": 20, "weight": 0.25},
        {"weight": (0.5, 1.0, 0.1, 0.0), "k": (10, 50), "sublinear": (True,)},
    ),
    "pecos": Peer("pecos", {**XR_LINEAR, "label_text": ""}, XR_LINEAR_AXES),
    "pecos-tree": Peer("pecos", {**XR_LINEAR, "label_text": "tree"}, XR_LINEAR_AXES),
    "pecos-documents": Peer("pecos", {**XR_LINEAR, "label_text": "documents"}, XR_LINEAR_AXES),
    "napkinxc": Peer(
        "napkinxc",
        {**WORDS, "arity": 2, "leaf": 100, "cost": 10.0, "loss": "log", "trees": 1},
        {
            "sublinear": (True,),
            "min_df": (2,),
            "loss": ("l2",),
            "cost": (30.0, 3.0),
            "leaf": (20,),
            "trees": (3,),
        },
    ),
}
OF_DEVELOPMENT = Tuning(axes=("sublinear", "negatives", "cost", "leaf"))
TUNING = {
    **{name: {"pecos": OF_DEVELOPMENT} for name in text_development.SETS},
    "debian-seealso": {
        "pecos": Tuning(axes=("sublinear", "min_df", "leaf", "beam", "cost")),
        "napkinxc": Tuning(axes=("sublinear", "min_df", "cost")),
    },
    "wordnet": {
        "neighbours": Tuning(asked=3000),
        "pecos": Tuning(0.3, 3000, ("sublinear", "min_df", "beam")),
        "napkinxc": Tuning(0.3, 3000, ("sublinear", "min_df")),
    },
    "yso-finna-en": {
        "neighbours": Tuning(asked=2000),
        "pecos": Tuning(0.1, 5000, ("sublinear", "beam", "cost")),
        "napkinxc": Tuning(0.1, 5000, ("sublinear", "loss")),
    },
}


def main() -> None:
    args = _arguments()
    if args.command == "table":
        table(args.data_sets)
        return
    for name in args.data_sets:
        loaded = text_data.load(name)
        for peer in args.peers:
            compare(peer, name, loaded, args.seeds)
            if args.start:
                untuned(peer, name, loaded)


def compare(peer: str, name: str, loaded: TextSet, seeds: int) -> None:
    """Tune a peer on a set, refit it, write the figures."""
    path = OUT / f"{peer}-{name}.json"
    result = _begun(path, peer, name, loaded)
    settings = tune(path, result, loaded)
    result["chosen"] = settings
    result["test"] = [one for one in result["test"] if one["settings"] == settings]
    drawn = range(1 if PEERS[peer].folder == "neighbours" else seeds)  # it draws nothing
    for seed in drawn:
        if all(one["seed"] != seed for one in result["test"]):
            job = {"split": "test", "settings": settings, "seed": seed, "share": 1, "asked": None}
            result["test"].append(measure(peer, name, loaded, job))
            storage.write_text(path, json.dumps(result, indent=1) + "\n")
    result["test_mean"] = {
        key: round(mean(one[key] for one in result["test"]), 3)
        for key in result["test"][0]
        if key not in ("settings", "seed")
    }
    storage.write_text(path, json.dumps(result, indent=1) + "\n")
    print(path.stem, "mean", json.dumps(result["test_mean"]), flush=True)


def untuned(peer: str, name: str, loaded: TextSet) -> None:
    """Test figures of a peer's start, with one seed."""
    path, start = OUT / f"{peer}-{name}.json", PEERS[peer].start
    result = _begun(path, peer, name, loaded)
    if result.get("start", {}).get("settings") != start:
        job = {"split": "test", "settings": start, "seed": 0, "share": 1, "asked": None}
        same = [one for one in result["test"] if one["settings"] == start and one["seed"] == 0]
        result["start"] = same[0] if same else measure(peer, name, loaded, job)
        storage.write_text(path, json.dumps(result, indent=1) + "\n")


def tune(path: Path, result: dict[str, Any], loaded: TextSet) -> Settings:
    """The best on validation, axis by axis; trials in ``result`` are not repeated."""
    peer, name = result["peer"], result["data"]
    tuning = Tuning(**result["tuned_on"])

    def tried(settings: Settings) -> float:
        for point in result["grid"]:
            if point["settings"] == settings:
                return float(point[SELECTED_BY])
        job = {"split": "validation", "settings": settings, "seed": 0}
        job |= {"share": tuning.share, "asked": tuning.asked}
        result["grid"].append(measure(peer, name, loaded, job))
        keys = ("words_cpu_seconds", "fit_cpu_seconds", "predict_cpu_seconds")
        result["tuning_cpu_seconds"] = round(sum(p[key] for p in result["grid"] for key in keys), 2)
        storage.write_text(path, json.dumps(result, indent=1) + "\n")
        return float(result["grid"][-1][SELECTED_BY])

    best, axes = PEERS[peer].start, PEERS[peer].axes
    for axis in tuning.axes or axes:
        others = [{**best, axis: value} for value in axes[axis]]
        best = max([best, *others], key=tried)  # the first of equals
    if len(result["grid"]) > FITS:
        raise RuntimeError(f"{peer} had {len(result['grid'])} fits, {FITS} were agreed on")
    return best


def measure(peer: str, name: str, loaded: TextSet, job: dict[str, Any]) -> dict[str, Any]:
    """Fit and predict in a peer's process, and score the result."""
    folder = PEERS[peer].folder
    out = SCRATCH / "texts" / "out" / f"{peer}-{name}"
    asked = {**job, "data": str(text_data.OUT / f"{name}.npz"), "out": str(out)}
    words = [str(required(folder)), str(HOME / "peers" / folder / "fit.py"), json.dumps(asked)]
    env = {**os.environ, "PYTHONPATH": str(HOME.parent), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=env)
    figures = json.loads(done.stdout.splitlines()[-1])
    documents, truth = split_truth(loaded.pairs, SPLITS[job["split"]])
    part = rows_of(truth, np.searchsorted(documents, np.load(out / "documents.npy")))
    counts = count(loaded.pairs, len(loaded.labels))
    entry = {"settings": job["settings"], "seed": job["seed"]}
    entry |= {key: round(value, 3) for key, value in figures.items()}
    entry |= scores(np.load(out / "ids.npy"), part, counts)
    print(peer, name, job["split"], json.dumps(entry), flush=True)
    return entry


def rows_of(truth: Truth, rows: np.ndarray) -> Truth:
    """Only these rows."""
    sizes = (truth.offsets[1:] - truth.offsets[:-1])[rows]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    places = np.repeat(truth.offsets[rows] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return Truth(offsets, truth.labels[places])


def table(names: list[str]) -> None:
    """A line per set and peer; seconds and bytes include the words, ms is CPU of one thread."""
    heads = [*METRICS, "train CPU s", "tuning CPU s", "ms/doc", "MB", "peak MB", "seeds", "changed"]
    print("| data | peer | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 2) + "|")
    for name in names:
        for peer in PEERS:
            path = OUT / f"{peer}-{name}.json"
            result = json.loads(path.read_text()) if path.exists() else {}
            if "test_mean" not in result:
                continue
            start, chosen = PEERS[peer].start, result["chosen"]
            changed = ", ".join(f"{k} {v}" for k, v in chosen.items() if v != start[k])
            tail = [str(len(result["test"])), changed or "nothing"]
            seconds = f"{result['tuning_cpu_seconds']:.0f}"
            print(_line([name, peer], result["test_mean"], seconds, tail))
            if "start" in result and changed:
                print(_line([name, f"{peer}, untuned"], result["start"], "0", ["1", "nothing"]))


def _line(head: list[str], one: dict[str, Any], tuning: str, tail: list[str]) -> str:
    cells = [f"{one[metric]:.2f}" for metric in METRICS]
    cells += [f"{one['words_cpu_seconds'] + one['fit_cpu_seconds']:.1f}", tuning]
    cells += [f"{1000 * one['predict_cpu_seconds'] / one['documents_asked']:.2f}"]
    cells += [f"{(one['model_bytes'] + one['vocabulary_bytes']) / 1e6:.1f}"]
    cells += [f"{one['peak_bytes'] / 1e6:.0f}"]
    return "| " + " | ".join([*head, *cells, *tail]) + " |"


def _begun(path: Path, peer: str, name: str, loaded: TextSet) -> dict[str, Any]:
    """The figures of an earlier run of the same comparison, or an empty result."""
    tuning = TUNING.get(name, {}).get(PEERS[peer].folder, Tuning())
    head = {
        "peer": peer,
        "data": name,
        "versions": (HOME / "peers" / PEERS[peer].folder / "requirements.txt").read_text().split(),
        "fingerprint": fingerprint(loaded),
        "selected_by": f"validation {SELECTED_BY}",
        "tuned_on": json.loads(json.dumps(tuning._asdict())),
        "prediction": "in batch, one thread, wall",
    }
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text())
        if all(kept.get(key) == value for key, value in head.items()):
            return kept
        print(f"{path.name} belongs to another comparison: starting again", flush=True)
    return {**head, "grid": [], "tuning_cpu_seconds": 0.0, "chosen": None, "test": []}


def fingerprint(loaded: TextSet) -> str:
    digest = hashlib.sha256()
    for part in ("\n".join(loaded.documents), "\n".join(loaded.labels)):
        digest.update(part.encode())
    for pairs in (loaded.pairs, loaded.excluded):
        digest.update(np.ascontiguousarray(pairs).tobytes())
    return digest.hexdigest()[:16]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument(
        "--data-sets",
        nargs="+",
        choices=[*text_data.SETS, *text_development.SETS],
        default=[*text_data.SETS],
    )
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[*PEERS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--start", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
