"""Run the benchmark programs of this folder, one after the other, and keep their figures.

    python benchmarks/run.py [NAME ...]

All of them take a day and more; those that keep each figure as it comes run what is missing. Peers
run in environments of their own under ``benchmarks/scratch``, from the requirements in
``benchmarks/peers/NAME/requirements.txt``; one that cannot be installed is skipped with a line, and
so is what needs a GPU where there is none.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HOME = Path(__file__).parent
PROGRAMS = {
    "startup": ["startup.py", "--write"],
    "topk": ["topk.py", "--write"],
    "prepare": ["prepare_scale.py", "--write"],
    "quality-peers": ["quality_peers.py"],  # before the next: it prepares the data
    "quality-export": ["quality.py", "export"],
    "quality": ["quality.py", "run"],
    "speed": ["quadratic_speed.py", "--write"],
    "scale": ["billion.py", "linear", "--write"],
    "full-softmax": ["full_softmax.py", "--write"],
    "bpr-speed": ["bpr_speed.py", "--write"],
    "gradient": ["gradient_quality.py", "run"],
    "index-recall": ["ann_recall.py", "--write"],
    "index-scale": ["index_scale.py", "--sizes", "1000000", "10000000"],
    "serve-load": ["serve_load.py", "--write"],
    "serve-soak": ["serve_soak.py", "--write"],  # half an hour
    "text-data": ["text_data.py"],
    "text-prepare": ["text_quality.py", "prepare"],
    "text-peers": ["text_peers.py", "run"],
    "text-quality": ["text_quality.py", "run"],
    "text-scale": ["text_scale.py", "--large", "--write"],
    "text-scale-hnsw": [  # of more than these a graph misses the target
        *("text_scale.py", "--index", "hnsw", "--write", "--sizes"),
        *("10000", "30000", "100000", "300000", "1000000"),
    ],
    "graded-export": ["graded_quality.py", "export"],
    "graded": ["graded_quality.py", "run"],
    "graded-peers": ["graded_peers.py"],
    "graded-cost": ["graded_cost.py", "--write"],
    "ranks-memory": ["ranks_memory.py", "--write"],
    "ranks-sent": ["ranks_sent.py", "--write"],
}
WITH_PEERS = {"metrics": ("ranx", ["metrics_against_ranx.py"])}
ON_A_GPU = {
    "gpu-check": ["gpu_check.py"],
    "gpu-ranks": ["gpu_ranks.py"],
    "gpu-spectral": ["gpu_spectral.py"],
    "gpu-softmax": ["full_softmax.py", "--device", "cuda", "--write"],
    "gpu-texts": ["text_gpu.py", "run"],
}


def main() -> None:
    every = {**PROGRAMS, **{name: words for name, (_, words) in WITH_PEERS.items()}, **ON_A_GPU}
    wanted = sys.argv[1:] or [*every]
    if unknown := [name for name in wanted if name not in every]:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(every)}")
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        python: Path | None = Path(sys.executable)
        if name in WITH_PEERS:
            python = environment(WITH_PEERS[name][0])
        if python is None:
            print(f"skipped: the environment of {name} could not be installed")
            continue
        if name in ON_A_GPU and not has_gpu():
            print(f"skipped: {name} needs a GPU")
            continue
        program, *words = every[name]
        if subprocess.run([str(python), str(HOME / program), *words], check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def has_gpu() -> bool:
    """Whether torch sees one."""
    import torch

    return torch.cuda.is_available()


def environment(peer: str) -> Path | None:
    """The python of a peer's own environment, made when first needed."""
    folder = HOME / "scratch" / f"venv-{peer}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        requirements = HOME / "peers" / peer / "requirements.txt"
        words = ["-m", "pip", "install", "--quiet", "-r", str(requirements)]
        if subprocess.run([str(python), *words], cwd=HOME.parent, check=False).returncode != 0:
            return None
    return python


if __name__ == "__main__":
    main()
