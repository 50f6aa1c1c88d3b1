"""Ctrl-C ends a command at any time: one line, exit code 130, nothing half-written."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Command

# A shell may have started the tests with Ctrl-C ignored. The command is ready at its first import:
# Ctrl-C cannot be handled while the interpreter itself starts.
START = """
import atexit, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop(1)

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "rankfold.cli":
            print("ready", flush=True)
        if name == module:
            try:
                signal.raise_signal(signal.SIGINT)
            except BaseException:  # as some modules do around optional imports
                pass

sys.meta_path.insert(0, Finder)
"""
RUN = "from rankfold.__main__ import main; main()"


def start(*words: object, cwd: Path, code: str = "", at_import: str = "-") -> subprocess.Popen[str]:
    """A command after ``code``, interrupted when it imports a module."""
    command = [sys.executable, "-c", f"{START}{code}{RUN}", at_import, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ("prepare", "no.csv", "--out", "new")),
        ("polars", ("prepare", "no.csv", "--out", "new")),
        ("torch.nn", ("fit", "ials", "no", "--out", "new")),
    ],
)
def test_an_import_does_not_swallow_ctrl_c(tmp_path: Path, module: str, words: Any) -> None:
    process = start(*words, cwd=tmp_path, at_import=module)
    assert process.communicate(timeout=60) == ("ready\n", "interrupted\n")
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (("fit", "ials", "data", "--out", "new", "--set", "sweeps=1000000", "--patience", 10**6), s)
        for s in (0.002, 0.05, 0.2, 1.0)
    ]
    + [
        (words, s)
        for words in (("prepare", "ratings.csv", "--out", "new"), ("evaluate", "model", "data"))
        for s in (0.02, 0.3)
    ],
)
def test_ctrl_c_works_at_any_time(home: Path, words: Any, seconds: float) -> None:
    process = start(*words, cwd=home)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert output.splitlines()[-1].startswith(("interrupted", "stopped: "))
    assert "Traceback" not in output
    assert not (home / "new").exists()


def test_ctrl_c_works_after_the_last_line(tmp_path: Path) -> None:
    code = "atexit.register(signal.raise_signal, signal.SIGINT)\n"
    process = start("--version", cwd=tmp_path, code=code)
    assert process.communicate(timeout=60)[1] == "interrupted\n"
    assert process.returncode == 130


def test_ctrl_c_in_a_finalizer_ends_the_command(tmp_path: Path) -> None:
    code = """
from rankfold import interrupts

class Owner:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

with interrupts.interruptible():
    Owner()
    print("went on")
"""
    process = start(cwd=tmp_path, code=code)
    assert process.communicate(timeout=60) == ("", "interrupted\n")
    assert process.returncode == 130


def test_ignored_ctrl_c_stays_ignored(tmp_path: Path) -> None:
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    process = start("--version", cwd=tmp_path, code=code, at_import="typer")
    assert "rankfold" in process.communicate(timeout=60)[0]
    assert process.returncode == 0


def test_an_interrupt_prints_one_line(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rankfold.tasks.evaluate.evaluate", stop)
    done = rankfold("evaluate", home / "model", home / "data", "--json")
    assert done == (130, "", "interrupted\n")
