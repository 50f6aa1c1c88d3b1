"""Writes ``docs/reference/benchmarks.md``, its charts and the figures in the README."""

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from benchmarks.figures import glance
from benchmarks.figures.bars import DARK, LIGHT, draw
from benchmarks.figures.full import graded_table, ordinal_tables, text_tables
from benchmarks.figures.headlines import headlines
from benchmarks.figures.sections import SECTIONS, Section
from benchmarks.page import PAGE as TABLES
from benchmarks.page import replaced
from benchmarks.paths import HOME, RESULTS

ROOT = HOME.parent
PAGE, CHARTS = ROOT / "docs/reference/benchmarks.md", ROOT / "docs/figures"
README, CHOOSE = ROOT / "README.md", ROOT / "docs/methods/choose.md"
DATES = RESULTS / "dates.json"  # of the last change of each section's figures
HEAD = """# Benchmarks

Results of rankfold and other libraries on public data, and where rankfold loses. Blue bars are
rankfold, grey bars other libraries and baselines. The machine has two cores and 24 GiB of memory
unless a row names another one.

Most settings were developed on these data sets: expect smaller leads, and some losses, on yours.
[Full tables](tables.md) has every row and column. `python -m benchmarks.figures` writes this page
from `benchmarks/results/`; `NOTES.md` there describes the runs.
"""


def main() -> None:
    """Write everything that differs."""
    for path, text in files(today=datetime.now(UTC).date().isoformat()).items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


def files(*, today: str) -> dict[Path, str]:
    """Every generated file with its text; a section whose figures changed has today's date."""
    known = json.loads(DATES.read_text()) if DATES.exists() else {}
    result: dict[Path, str] = {}
    dates, parts = {}, [HEAD]
    for section in (make() for make in SECTIONS):
        digest = hashlib.sha256(repr(section[2:7]).encode()).hexdigest()[:16]
        before = known.get(section.key, {})
        date = before["date"] if before.get("digest") == digest else today
        dates[section.key] = {"digest": digest, "date": date}
        parts.append(markdown(section, date))
        for theme, suffix in ((LIGHT, ""), (DARK, "-dark")):
            result[CHARTS / f"{section.key}{suffix}.svg"] = draw(
                section.chart, section.groups, theme
            )
    result[PAGE] = "\n".join(parts)
    tables = replaced(TABLES.read_text(), "texts", text_tables())
    tables = replaced(tables, "graded", graded_table())
    result[TABLES] = replaced(tables, "ordinal", ordinal_tables())
    chosen = CHOOSE.read_text()
    for name, make in (
        ("pairs", glance.pairs),
        ("labels", glance.labels),
        ("graded", glance.graded),
    ):
        chosen = replaced(chosen, name, make())
    result[CHOOSE] = chosen
    result[README] = replaced(README.read_text(), "figures", headlines())
    result[DATES] = json.dumps(dates, indent=1) + "\n"
    return result


def markdown(section: Section, date: str) -> str:
    commands = ", ".join(f"`{command}`" for command in section.commands)
    charts = "\n".join(
        f"![{section.chart}](../figures/{section.key}{suffix}.svg#only-{mode})"
        for suffix, mode in (("", "light"), ("-dark", "dark"))
    )
    lost = fill(f"**Where it loses.** {section.lost}", 100) + "\n\n" if section.lost else ""
    return (
        f"## {section.question}\n\n{fill(section.text, 100)}\n\n{charts}\n\n"
        f"{section.table}\n\n{lost}"
        f"Programs: {commands} in `benchmarks/`. Figures of {date}.\n"
    )


if __name__ == "__main__":
    main()
