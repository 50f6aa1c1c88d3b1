"""Code blocks of the documentation, and running them.

    python docs/blocks.py                 # every page
    python docs/blocks.py guide/fit.md    # some

A fenced block in ``python`` or ``sh`` runs, in order, in a folder with the files of ``samples.py``.
The Python blocks of a page share their names. A comment above a block changes that:

    <!-- not run: REASON -->    it does not run; ``--list`` shows all of these
    <!-- file: NAME -->         it is written to this file
    <!-- background -->         it runs until the page ends; the next block waits until it is ready
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

HOME = Path(__file__).parent
LANGUAGES = ("python", "sh")
PORT, WAIT = 8080, 60.0


class Block(NamedTuple):
    """A fenced block of a page, with the comment above it."""

    language: str
    text: str
    comment: str  # without its marks; may be empty
    first: int  # line of its fence, from 1
    last: int  # line of its closing fence
    indent: int

    @property
    def runs(self) -> bool:
        return self.language in LANGUAGES and not self.comment.startswith("not run:")


def read_blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        opening = re.match(r"( *)```(\w*)", lines[at])
        if not opening:
            at += 1
            continue
        indent, start = len(opening[1]), at
        at += 1
        while not re.match(rf" {{{indent}}}```\s*$", lines[at]):
            at += 1
        above = next((line.strip() for line in lines[:start][::-1] if line.strip()), "")
        comment = above.removeprefix("<!--").removesuffix("-->").strip() if "<!--" in above else ""
        text = "\n".join(line[indent:] for line in lines[start + 1 : at])
        yield Block(opening[2], text, comment, start + 1, at + 1, indent)
        at += 1


def run_page(path: Path, samples: Path, languages: Sequence[str] = LANGUAGES) -> str:
    """Run the blocks of a page in a copy of the samples; the output of a failed one, or nothing."""
    found = read_blocks(path.read_text())
    blocks = [one for one in found if one.language in languages or one.comment[:5] == "file:"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "work"
        shutil.copytree(samples, home)
        started: list[subprocess.Popen[str]] = []
        try:
            return _run(blocks, home, started)
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()


def _run(blocks: Sequence[Block], home: Path, started: list[subprocess.Popen[str]]) -> str:
    python = Python(home)
    try:
        for block in blocks:
            failed = ""
            if block.comment.startswith("file:"):
                (home / block.comment.removeprefix("file:").strip()).write_text(block.text + "\n")
            elif not block.runs:
                continue
            elif block.comment == "background":
                started.append(_start(block, home))
                _wait()
            elif block.language == "python":
                failed = python.run(block.text)
            else:
                failed = _finish(["bash", "-euo", "pipefail", "-c", block.text], home)
            if failed:
                return f"line {block.first}: {failed}\n"
        return ""
    finally:
        python.stop()


class Python:
    """One interpreter for all Python blocks of a page, started when the first one runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[str] | None = None

    def run(self, text: str) -> str:
        """Run a block; its traceback if it failed, else nothing."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _LOOP], cwd=self.home, env=_environment(),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stderr:
            if line.startswith(_DONE):
                return "".join(lines)[-3000:] if line.strip() != _DONE else ""
            lines.append(line)
        return "".join(lines)[-3000:] or "the interpreter died"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


_DONE = "\x1edone"
_LOOP = f"""
import json, sys, traceback
if __name__ == "__main__":
    sys.path.insert(0, "")
    names = {{"__name__": "__main__"}}
    for line in sys.stdin:
        failed = ""
        try:
            exec(compile(json.loads(line), "block", "exec"), names)
        except BaseException:
            traceback.print_exc()
            failed = " badly"
        print({_DONE!r} + failed, file=sys.stderr, flush=True)
"""


def _finish(command: Sequence[str], home: Path) -> str:
    result = subprocess.run(
        command, cwd=home, env=_environment(), capture_output=True, text=True, check=False
    )
    return "" if result.returncode == 0 else f"{result.stdout[-1500:]}\n{result.stderr[-3000:]}"


def _start(block: Block, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "-c", block.text], cwd=home, env=_environment(), text=True,
        start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _wait() -> None:
    """Wait until the server has loaded its models."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{PORT}/ready") as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing is ready on port {PORT}")


def _environment() -> dict[str, str]:
    here = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{HOME / 'bin'}:{here}:{os.environ['PATH']}", "COLUMNS": "100"}


def pages(names: Sequence[str]) -> list[Path]:
    """The pages to run; all but those that record history."""
    if names:
        return [HOME / name for name in names]
    kept = (path for path in sorted(HOME.rglob("*.md")) if "decisions" not in path.parts)
    return [path for path in kept if any(block.runs for block in read_blocks(path.read_text()))]


def skipped() -> list[tuple[str, str]]:
    """Each block that does not run, as ``page:line``, with the reason."""
    return [
        (f"{path.relative_to(HOME)}:{block.first}", block.comment.removeprefix("not run:").strip())
        for path in sorted(HOME.rglob("*.md"))
        for block in read_blocks(path.read_text())
        if block.language in LANGUAGES and block.comment.startswith("not run:")
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the pages; 1 if a block failed."""
    if arguments == ["--list"]:
        sys.stdout.write("".join(f"{place}: {reason}\n" for place, reason in skipped()))
        return 0
    from samples import samples

    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        samples(Path(folder))
        for path in pages(arguments):
            began = time.monotonic()
            failed = run_page(path, Path(folder))
            bad += bool(failed)
            word = "failed" if failed else "runs"
            seconds = time.monotonic() - began
            sys.stdout.write(f"{path.relative_to(HOME)} {word} ({seconds:.0f} s)\n{failed}")
            sys.stdout.flush()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
