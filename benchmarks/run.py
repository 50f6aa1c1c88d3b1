"""Run every benchmark program of this folder, one after the other, and keep their figures.

    python benchmarks/run.py [NAME ...]

Peers run in environments of their own under ``benchmarks/scratch``, from the requirements in
``benchmarks/peers/NAME/requirements.txt``; one that cannot be installed is skipped with a line.
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
}
WITH_PEERS = {"metrics": ("ranx", ["metrics_against_ranx.py"])}


def main() -> None:
    wanted = sys.argv[1:] or [*PROGRAMS, *WITH_PEERS]
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        if name in PROGRAMS:
            python, words = Path(sys.executable), PROGRAMS[name]
        else:
            peer, words = WITH_PEERS[name]
            python = environment(peer)
        if python is None:
            print(f"skipped: the environment of {name} could not be installed")
            continue
        command = [str(python), str(HOME / words[0]), *words[1:]]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


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
