"""Startup time: ``import rankfold`` beyond ``import torch``, and ``rankfold --help``.

    python -m benchmarks.speed.startup [--write]

Medians of several alternating processes, because single runs are noisy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.paths import RESULTS

RESULT = RESULTS / "speed" / "startup.json"
HELP = [str(Path(sys.executable).with_name("rankfold")), "--help"]
COMMANDS = {
    "import_torch": [sys.executable, "-c", "import torch"],
    "import_torch_and_rankfold": [sys.executable, "-c", "import torch, rankfold"],
    "import_rankfold": [sys.executable, "-c", "import rankfold"],
    "use_everything": [
        sys.executable,
        "-c",
        "import torch, rankfold as rf; rf.prepare, rf.fit, rf.evaluate, rf.load",
    ],
    "rankfold_help": HELP,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--write", action="store_true", help=f"write the figures to {RESULT.name}")
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.runs):
        for name, command in COMMANDS.items():
            began = perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times[name].append(perf_counter() - began)
    seconds = {name: round(median(values), 3) for name, values in times.items()}
    beyond = seconds["import_torch_and_rankfold"] - seconds["import_torch"]
    result = {**seconds, "import_rankfold_beyond_torch": round(beyond, 3)}
    print(json.dumps(result, indent=2))
    print("target: import rankfold <= 0.3 s beyond torch; rankfold --help <= 0.6 s in all")
    if args.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
