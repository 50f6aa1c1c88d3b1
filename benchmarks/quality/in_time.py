"""Real pairs with times, for ``quality.history``.

    python -m benchmarks.quality.in_time fetch --mirror URL    changelogs of Debian, at most 200 MB
    python -m benchmarks.quality.in_time make [SET ...]   arrays, split by `last`

Development: MovieLens as packages ship it (``package_sets``, with its downloads). Judge:
``debian-uploads``, what a person uploaded to Debian, in the order of first uploads.

``fetch`` reads the indexes of sources of ``SUITES`` and downloads the packaging of each source, up
to ``LARGEST`` bytes, from the first suite whose version the mirror still has. The entries of a
changelog name who uploaded a version, and when. ``make`` keeps people and packages with
``CORE`` pairs or more.
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import re
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.request import urlopen

import polars as pl

import rankfold as rf
from benchmarks.paths import SCRATCH
from benchmarks.quality import package_sets
from benchmarks.quality.history import export

FILES = SCRATCH / "changelogs"
SUITES = ("bookworm", "trixie", "sid")
LARGEST, CORE = 30_000, 3
DEVELOPMENT = ("ml-100k-in-time", "ml-in-time")
JUDGE = "debian-uploads"
FIRST, LAST = datetime(1993, 8, 1).timestamp(), datetime(2026, 11, 1).timestamp()
_ENTRY = re.compile(r"^ -- (.*?) *<[^>]*>  ?(.*?)\s*$", re.M)
_PATCH = re.compile(r"^\+\+\+ \S*debian/changelog.*?\n(.*?)(?=^--- |\Z)", re.M | re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("task", choices=["fetch", "make"])
    parser.add_argument("sets", nargs="*", default=[*DEVELOPMENT, JUDGE])
    parser.add_argument("--mirror", help="the address of a Debian mirror, for fetch")
    args = parser.parse_args()
    if args.task == "fetch":
        if args.mirror is None:
            parser.error("fetch needs --mirror")
        fetch(args.mirror)
        return
    for name in args.sets:
        table = uploads() if name == JUDGE else ordered(name)
        data = rf.prepare(table, kcore=CORE, split="last", time_column="time")
        export(data, name)
        print(name, data, data.split("train").n_pairs)


def ordered(name: str) -> pl.DataFrame:
    """A set of ``package_sets`` in the order of time; the places are the times."""
    pairs = list(package_sets.SOURCES[name]())
    table = pl.DataFrame(pairs, schema=["query", "candidate"], orient="row")
    return table.with_row_index("time").select("query", "candidate", "time")


# ---------------------------------------------------------------------------------- Debian


def fetch(mirror: str) -> None:
    FILES.mkdir(parents=True, exist_ok=True)
    for suite in SUITES:
        have = {path.name.rpartition(".")[0] for path in FILES.iterdir()}
        wanted = [line for name, *line in sources(mirror, suite) if name not in have]
        request = "\n".join(f'url = "{url}"\noutput = "{FILES / file}"' for url, file in wanted)
        curl = ["curl", "-sS", "-f", "-Z", "--parallel-max", "60", "-K", "-"]
        subprocess.run(curl, input=request.encode(), stderr=subprocess.DEVNULL, check=False)
        print(suite, len(wanted), "asked,", len([*FILES.iterdir()]), "files", flush=True)


def sources(mirror: str, suite: str) -> Iterator[tuple[str, str, str]]:
    """The name of each source, the address of its packaging, and the name of our file."""
    with urlopen(f"{mirror}/dists/{suite}/main/source/Sources.xz") as answer:
        text = lzma.decompress(answer.read()).decode()
    for entry in text.split("\n\n"):
        name = re.search(r"^Package: (\S+)", entry, re.M)
        folder = re.search(r"^Directory: (\S+)", entry, re.M)
        file = re.search(r"^ [0-9a-f]{64} (\d+) (\S+\.(?:debian\.tar\.\w+|diff\.gz))$", entry, re.M)
        if name and folder and file and int(file[1]) <= LARGEST:
            end = file[2].rpartition(".")[2]
            yield name[1], f"{mirror}/{folder[1]}/{file[2]}", f"{name[1]}.{end}"


def uploads() -> pl.DataFrame:
    """A row per person and package: when the person first uploaded it."""
    rows = [
        (person, path.name.rpartition(".")[0], when)
        for path in sorted(FILES.iterdir())
        for person, when in entries(changelog(path))
    ]
    table = pl.DataFrame(rows, schema=["query", "candidate", "time"], orient="row")
    first = table.group_by("query", "candidate").agg(pl.col("time").min())
    return first.sort("time", "query", "candidate")


def changelog(path: Path) -> str:
    """The changelog in an archive of packaging, or in a patch."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        text = gzip.decompress(content).decode(errors="replace")
        if (patch := _PATCH.search(text)) is not None:
            return "\n".join(line[1:] for line in patch[1].split("\n") if line.startswith("+"))
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                if member.name.removeprefix("./") == "debian/changelog":
                    file = archive.extractfile(member)
                    return "" if file is None else file.read().decode(errors="replace")
    except tarfile.ReadError:
        pass
    return ""


def entries(text: str) -> Iterator[tuple[str, float]]:
    """Who uploaded a version, and when."""
    for person, date in _ENTRY.findall(text):
        try:
            when = parsedate_to_datetime(date).timestamp()
        except ValueError:
            continue
        if FIRST < when < LAST:
            yield person.strip().strip('"'), when


if __name__ == "__main__":
    main()
