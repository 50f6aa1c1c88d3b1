"""The virtual environment of a peer, built from ``peers/NAME/requirements.txt``."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.paths import HOME, SCRATCH

COMPLETE = ("libauc", "lightgbm", "mord", "neighbours", "pecos")  # their lists name every package


def environment(peer: str) -> Path | None:
    """The Python of a peer's environment, created on first use; None if the installation fails."""
    folder = SCRATCH / f"venv-{peer}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        listed = ["-r", str(HOME / "peers" / peer / "requirements.txt")]
        words = [*(["--no-deps"] if peer in COMPLETE else []), *listed]
        command = [str(python), "-m", "pip", "install", "--quiet", *words]
        if subprocess.run(command, cwd=HOME.parent, check=False).returncode != 0:
            return None
    return python


def required(peer: str) -> Path:
    """The same; exits if the installation fails."""
    python = environment(peer)
    if python is None:
        sys.exit(f"the environment of {peer} could not be installed")
    return python
