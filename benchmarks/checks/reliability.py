"""The faults that the tests inject, how many cases were tried, and how many held.

    python -m benchmarks.checks.reliability [--slow] [--only AREA ...] [--write]

Runs the tests of each area in one process and counts their cases. A test with parameters is as
many cases; a test that counts for itself reports ``record_property("cases", n)``. ``--slow`` adds
the long tests. ``--write`` saves the counts of the areas that ran to
``results/checks/reliability.json`` and writes the table of all areas to
``docs/reference/reliability.md``. Exit code 1 if a case failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchmarks.paths import HOME, RESULTS

ROOT = HOME.parent
RESULT, PAGE = RESULTS / "checks" / "reliability.json", ROOT / "docs/reference/reliability.md"
AREAS = {  # what is claimed, and the tests that try it
    "A change of a served folder does not reach a request": ["faults/test_served_folders.py"],
    "A private copy is complete, checked and out of reach": ["storage/test_private_copy.py"],
    "Several server processes behave like one": ["serve/test_processes.py"],
    "A model is replaced without a failed request": ["serve/test_models.py"],
    "Malformed, slow and oversized requests are refused": [
        *("serve/test_server.py", "serve/test_protocol.py", "serve/test_middleware.py"),
        "serve/test_fuzz.py",
    ],
    "Damaged and hostile folders are refused": [
        *("storage/test_reader.py", "storage/test_hostile_folders.py"),
    ],
    "A failed or killed write leaves the old folder or the new one": [
        *("storage/test_writer.py", "storage/test_destination.py", "faults/test_kill.py"),
    ],
    "A fault at any call on the disk leaves the old state or the new one, and a rerun succeeds": [
        "faults/test_every_call.py",
    ],
    "A loss of power leaves the old folder or the new one": ["faults/test_power_loss.py"],
    "A full disk is one error, and nothing of it is remembered": ["faults/test_full_disk.py"],
    "Hostile files are read or refused": ["faults/test_hostile_inputs.py", "faults/test_corpus.py"],
    "Conditions call no functions": ["models/test_conditions.py"],
    "Forged trees do not reach LightGBM": ["methods/ordinal/test_trees.py"],
}
HEAD = """# Reliability

Each row is a claim, the tests in `tests/` that try to break it, and the result of the last run.
`python -m benchmarks.checks.reliability --slow --write` runs them and writes this page.

| claim | tests | cases tried | held |
|---|---|---|---|
"""


@dataclass
class Outcome:
    """Counts the cases of a run of pytest."""

    tried: int = 0
    held: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    cases: defaultdict[str, int] = field(default_factory=lambda: defaultdict(lambda: 1))

    def pytest_runtest_logreport(self, report: Any) -> None:
        name, own = report.nodeid, dict(report.user_properties).get("cases")
        if own is not None:
            self.cases[name] = own
        if report.skipped:
            self.skipped += 1
        elif report.failed:
            self.failed.append(name)
        if report.when == "call" and not report.skipped:
            self.tried += self.cases[name]
            self.held += self.cases[name] * report.passed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(AREAS), default=list(AREAS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    results = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    failed: list[str] = []
    for claim in given.only:
        outcome = run(AREAS[claim], slow=given.slow)
        results[claim] = {"tried": outcome.tried, "held": outcome.held, "slow": given.slow}
        failed += outcome.failed
        sys.stdout.write(f"{claim}: {outcome.held} of {outcome.tried}\n")
    if given.write:
        RESULT.write_text(json.dumps(results, indent=2) + "\n")
        PAGE.write_text(page(results))
    sys.stdout.write("".join(f"failed: {name}\n" for name in failed))
    sys.exit(bool(failed))


def run(files: Sequence[str], *, slow: bool) -> Outcome:
    """The outcome of some test files."""
    outcome = Outcome()
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", *(["-m", ""] if slow else [])]
    code = pytest.main([*words, *(str(ROOT / "tests" / file) for file in files)], [outcome])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        outcome.failed += files  # one is not there, or cannot be imported
    return outcome


def page(results: dict[str, dict[str, Any]]) -> str:
    """The table of all areas that have been tried."""
    lines = []
    for claim, files in AREAS.items():
        if claim in results:
            counts, names = results[claim], ", ".join(f"`{file}`" for file in files)
            short = "" if counts["slow"] else " (short tests)"
            lines.append(f"| {claim} | {names} | {counts['tried']:,}{short} | {counts['held']:,} |")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
