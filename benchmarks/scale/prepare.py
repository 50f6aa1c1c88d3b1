"""Prepare a table of 20 million rows: seconds and peak memory; then load time and memory.

    python -m benchmarks.scale.prepare [--rows 20000000] [--write]

The table is generated (1 M queries, 100 k candidates, skewed, string keys, Parquet). One process
prepares it with 5-core and an 80/10/10 split, another one loads it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.paths import RESULTS, SCRATCH

RESULT = RESULTS / "scale" / "prepare.json"

PREPARE = """
import json, resource, sys, time
began = time.perf_counter()
import rankfold as rf
data = rf.prepare(sys.argv[1], kcore=5, split=(.8, .1, .1), out=sys.argv[2])
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": seconds, "peak_gib": peak, "pairs": data.summary["pairs"]}))
"""

LOAD = """
import json, sys, time
import rankfold as rf, polars, safetensors
load = rf.load_data  # imports what loading needs
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
before, began = resident(), time.perf_counter()
data = load(sys.argv[1])
seconds = time.perf_counter() - began
print(json.dumps({"load_seconds": seconds, "load_mib": resident() - before}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--write", action="store_true", help=f"write the figures to {RESULT.name}")
    args = parser.parse_args()
    SCRATCH.mkdir(exist_ok=True)
    table, folder = SCRATCH / f"pairs-{args.rows}.parquet", SCRATCH / f"pairs-{args.rows}"
    if not table.exists():
        generate(args.rows, table)
    result = {"rows": args.rows}
    for code, words in ((PREPARE, [str(table), str(folder)]), (LOAD, [str(folder)])):
        result |= json.loads(subprocess.check_output([sys.executable, "-c", code, *words]))
    print(json.dumps(result, indent=2))
    print("target: prepare <= 120 s and <= 6 GiB; load <= 0.5 s and < 200 MiB")
    if args.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


def generate(rows: int, path: Path) -> None:
    """Skewed pairs with string keys in random order."""
    rng = np.random.default_rng(0)
    query = (1_000_000 * rng.random(rows) ** 1.6).astype(np.int64)
    candidate = (100_000 * rng.random(rows) ** 3).astype(np.int64)
    pl.DataFrame({"user": query * 7919 % 1_000_003, "item": candidate * 7919 % 100_003}).select(
        pl.format("user-{}", "user").alias("user"),
        pl.format("item-{}", "item").alias("item"),
        rating=pl.Series(rng.integers(1, 6, rows, dtype=np.int8)),
        timestamp=pl.Series(rng.integers(1_500_000_000, 1_700_000_000, rows)),
    ).write_parquet(path)


if __name__ == "__main__":
    main()
