"""Coverage-guided fuzzing of every reader, with atheris.

    python -m benchmarks.checks.fuzz [--minutes N] [--only TARGET ...] [--write]

The targets are those of ``tests/fuzzed.py``. The time, an hour unless ``--minutes`` says otherwise,
is divided among them. A run starts at the inputs in ``tests/faults/corpus``, and at those that
earlier runs added to ``scratch/fuzz``. Any exception that is not one for users is a finding, and so
are a crash and an input that takes more than 20 seconds. Each is printed as a line of the corpus,
once per line of rankfold that it comes from. Exit code 1 if there was one.

``--write`` saves the executions and findings to ``results/checks/fuzz.json``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.paths import HOME, RESULTS, SCRATCH

sys.path.insert(0, str(HOME.parent / "tests"))
RESULT, FOLDER = RESULTS / "checks" / "fuzz.json", SCRATCH / "fuzz"
KNOWN = {  # crashes of libraries, which no exception handler sees
    "crash-polars_arrow.bitmap.builder.BitmapBuilder": "polars allocates as many values as a "
    "damaged page of a Parquet file claims to have, and ends the process",
}
MAX_SECONDS, MAX_BYTES, MAX_MIB = 20, 4096, 4096  # of an input, the last of memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        fuzz(given.only[0], given.worker)
        return
    from fuzzed import TARGETS

    names = given.only or list(TARGETS)
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in names:
        result[name] = run(name, round(60 * given.minutes / len(names)))
        print(f"{name}: {json.dumps(result[name])}", flush=True)
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(any(result[name]["findings"] for name in names))


def run(target: str, seconds: int) -> dict[str, Any]:
    """Fuzz one target in another process, again after a crash."""
    home = FOLDER / target
    shutil.rmtree(home / "findings", ignore_errors=True)
    (home / "findings").mkdir(parents=True)
    end = time.monotonic() + seconds
    executions = edges = 0
    while (left := round(end - time.monotonic())) > 0:
        command = [sys.executable, "-m", "benchmarks.checks.fuzz", "--only", target]
        with (home / "log").open("w+", errors="replace") as log:
            done = subprocess.run(
                [*command, "--worker", str(left)],
                stdout=log,
                stderr=log,
                check=False,
                cwd=HOME.parent,
            )
            log.seek(0)
            text = log.read()
        name_crashes(home / "findings", text)
        if (tried := re.search(r"number_of_executed_units: (\d+)", text)) is None:
            sys.exit(f"{target} ended with {done.returncode}: see {home / 'log'}")
        executions += int(tried[1])
        edges = max(edges, *map(int, re.findall(r"cov: (\d+)", text)))
    found = sorted((home / "findings").iterdir())
    for path in found:
        print(f"{path.name}: {json.dumps(path.read_bytes().decode('latin-1'))}")
    known = [path for path in found if path.name in KNOWN]
    return {
        "seconds": seconds,
        "executions": executions,
        "edges": edges,  # of rankfold's code, that were reached
        "known": {path.name: KNOWN[path.name] for path in known},
        "findings": len(found) - len(known),
    }


def name_crashes(folder: Path, log: str) -> None:
    """Name an input that ended the process by where polars was, as its last trace says."""
    where = re.search(r"\d+: <?(polars[\w:]+)", log.rpartition("stack backtrace:")[2])
    for path in folder.glob("crash-*"):
        if where is not None and path.name not in KNOWN:
            path.replace(folder / f"crash-{where[1].replace('::', '.')}")


def fuzz(target: str, seconds: int) -> None:
    """Fuzz one target in this process."""
    import atheris

    with tempfile.TemporaryDirectory() as temporary:
        with atheris.instrument_imports(include=["rankfold"]):
            from fuzzed import corpus

            check = checker(target, Path(temporary))
            for content in corpus(target):
                check(content)  # imports what is imported lazily
        home = FOLDER / target
        starts = folder_of(home / "starts", corpus(target))
        added = folder_of(home / "added", [])
        words = {
            "max_total_time": seconds,
            "max_len": MAX_BYTES,
            "timeout": MAX_SECONDS,
            "rss_limit_mb": MAX_MIB,
            "print_final_stats": 1,
            "artifact_prefix": f"{home / 'findings'}/",
        }
        options = [f"-{name}={value}" for name, value in words.items()]
        atheris.Setup([target, *options, str(added), str(starts)], check)
        atheris.Fuzz()


def checker(target: str, temporary: Path) -> Callable[[bytes], None]:
    """A function that tries one input, and saves it if it is a finding of a new place."""
    from fuzzed import defect

    tempfile.tempdir = str(temporary)
    seen: set[str] = set()

    def check(content: bytes) -> None:
        with tempfile.TemporaryDirectory() as home:
            error = defect(target, content, Path(home))
        if error is not None and (place := place_of(error)) not in seen:
            seen.add(place)
            (FOLDER / target / "findings" / place).write_bytes(content)
            traceback.print_exception(error)

    return check


def place_of(error: BaseException) -> str:
    """The type of an error and the last line of rankfold that it passed."""
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if "rankfold" in each.filename
    ]
    return f"{type(error).__name__}-{Path(frames[-1].filename).name}-{frames[-1].lineno}"


def folder_of(path: Path, contents: list[bytes]) -> Path:
    """A folder with these files."""
    path.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(contents):
        (path / str(number)).write_bytes(content)
    return path


if __name__ == "__main__":
    main()
