"""Run the benchmark programs one after the other and write their results.

    python -m benchmarks.run [NAME ...]

All of them take more than a day. Programs that write each figure at once compute only missing
ones. Peers run in separate environments under ``benchmarks/scratch``. A peer that cannot be
installed is skipped with a message, and so is a program that needs a GPU on a machine without one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.paths import HOME
from benchmarks.peers.environment import environment

PROGRAMS = {  # name: module of benchmarks, arguments
    "startup": ["speed.startup", "--write"],
    "topk": ["speed.topk", "--write"],
    "prepare": ["scale.prepare", "--write"],
    "quadratic-peers": ["peers.quadratic"],  # before the next: it prepares the data
    "quadratic-export": ["quality.quadratic", "export"],
    "quadratic": ["quality.quadratic", "run"],
    "quadratic-speed": ["speed.quadratic", "--write"],
    "billion": ["scale.billion", "linear", "--write"],
    "ease": ["scale.ease"],
    "softmax": ["speed.softmax", "--write"],
    "bpr": ["speed.bpr", "--write"],
    "gradient": ["quality.gradient", "run"],
    "index-recall": ["scale.index_recall", "--write"],
    "index": ["scale.index", "--sizes", "1000000", "10000000"],
    "load": ["serve.load", "--write"],
    "alone": ["serve.alone", "--write"],
    "soak": ["serve.soak", "--write"],
    "leak": ["serve.leak", "--write"],
    "repeated": ["serve.repeated", "--label", "after"],
    "texts-data": ["quality.text_data"],
    "texts-prepare": ["quality.texts", "prepare"],
    "texts-peers": ["peers.texts", "run"],
    "texts": ["quality.texts", "run"],
    "texts-scale": ["scale.texts", "--large", "--write"],
    "texts-scale-hnsw": [  # beyond these sizes a graph misses the target
        *("scale.texts", "--index", "hnsw", "--write", "--sizes"),
        *("10000", "30000", "100000", "300000", "1000000"),
    ],
    "ordinal-export": ["quality.ordinal", "export"],
    "ordinal": ["quality.ordinal", "run"],
    "ordinal-peers": ["peers.ordinal"],
    "cache": ["speed.cache", "--write"],
    "memory": ["scale.memory", "--write"],
    "traffic": ["scale.traffic", "--write"],
    "reliability": ["checks.reliability", "--slow", "--write"],
}
IN_ENVIRONMENT = {  # of the peer so named
    "ranx": ["checks.ranx"],
    "napkinxc": ["checks.napkinxc"],
    "atheris": ["checks.fuzz", "--minutes", "60", "--write"],
}
ON_GPU = {
    "gpu": ["checks.gpu"],
    "gpu-ranks": ["checks.ranks"],
    "gpu-spectral": ["scale.spectral_gpu"],
    "gpu-softmax": ["speed.softmax", "--device", "cuda", "--write"],
    "gpu-texts": ["scale.texts_gpu", "run"],
    "gpu-texts-end": ["scale.texts_end"],
}


def main() -> None:
    every = {**PROGRAMS, **IN_ENVIRONMENT, **ON_GPU}
    names = sys.argv[1:] or [*every]
    if unknown := [name for name in names if name not in every]:
        sys.exit(f"unknown benchmark {', '.join(unknown)}; expected one of {', '.join(every)}")
    failed = [name for name in names if not succeeds(name, *every[name])]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def succeeds(name: str, module: str, *words: str) -> bool:
    """Run one program; False if it fails, True if it succeeds or is skipped."""
    print(f"== {name}", flush=True)
    python = environment(name) if name in IN_ENVIRONMENT else Path(sys.executable)
    if python is None:
        print(f"skipped: the environment of {name} could not be installed")
        return True
    if name in ON_GPU and not has_gpu():
        print(f"skipped: {name} needs a GPU")
        return True
    command = [str(python), "-m", f"benchmarks.{module}", *words]
    return subprocess.run(command, cwd=HOME.parent, check=False).returncode == 0


def has_gpu() -> bool:
    """Whether torch has a CUDA device."""
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
