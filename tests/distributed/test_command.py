"""One command in several processes: only rank 0 prints, an error is reported once, none hangs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from planted import groups
from ranks import Failed, environment, free_port, numbers, outcomes

import rankfold as rf
from rankfold.types import Comm

ENDLESS = ["--patience", "100000000", "--set", "sweeps=100000000", "--checkpoint-seconds", "0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data"
    rf.prepare(groups(), out=path)
    return path


def start(commands: Sequence[list[str]]) -> list[subprocess.Popen[str]]:
    """One process per rank, without a launcher that would end the others."""
    port, size = free_port(), len(commands)
    return [
        subprocess.Popen(
            [sys.executable, "-m", "rankfold", *command],
            env={**os.environ, **environment(rank, size, port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]


def ended(processes: Sequence[subprocess.Popen[str]]) -> tuple[list[int], str, str]:
    """Exit codes, and the joined stdout and stderr of all."""
    both = [process.communicate(timeout=120) for process in processes]
    out, err = ("".join(texts) for texts in zip(*both, strict=True))
    return [process.returncode for process in processes], out, err


def wait_for(path: Path) -> None:
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until, f"{path} was not written"
        time.sleep(0.05)


def test_ranks_with_different_options_end_before_the_work(data: Path, tmp_path: Path) -> None:
    """The rank that differs is reported once; all exit with 2."""
    command = ["fit", "ials", str(data), "--out", str(tmp_path / "model"), "--seed"]
    codes, out, err = ended(start([[*command, "1"], [*command, "2"]]))
    assert codes == [2, 2]
    assert out == ""
    assert len(re.findall("^error:", err, re.M)) == 1
    assert re.search(r"^error: rank 1 of 2 \(.*\) has seed 2, and rank 0 has 1$", err, re.M)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("others", [None, "elsewhere"])
def test_ranks_with_different_outputs_end_before_the_work(
    data: Path, tmp_path: Path, others: str | None
) -> None:
    outs = [tmp_path / "model", None if others is None else tmp_path / others]
    written = [json.dumps(None if out is None else str(out)) for out in outs]
    for one in outcomes(2, fit_with, data, [{"out": out} for out in outs]):
        assert isinstance(one, Failed)
        assert one.kind == "UserError"
        assert re.search(r"^rank 1 of 2 \(.*\) has out (.*), and rank 0 has (.*)$", one.text)
        assert one.text.endswith(f"has out {written[1]}, and rank 0 has {written[0]}")
        assert "the same versions, data and command" in one.hint
    assert not list(tmp_path.iterdir())


def test_ranks_with_different_memory_end_before_the_work(data: Path) -> None:
    for one in outcomes(2, fit_with, data, [{"candidate_memory": n} for n in (1, 2)]):
        assert one.kind == "UserError"
        assert one.text.endswith("has candidate_memory 2, and rank 0 has 1")


def fit_with(comm: Comm, data: Path, options: list[dict[str, Any]]) -> None:
    rf.fit("ials", data, comm=comm, width=2, sweeps=1, **options[comm.rank])


def test_a_killed_rank_ends_the_others_and_fewer_resume(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    command = ["fit", "ials", str(data), "--out", str(model), "--set", "width=4", *ENDLESS]
    processes = start([command] * 3)
    wait_for(tmp_path / "model.checkpoint" / "manifest.json")
    processes[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    codes, _, err = ended(processes)
    assert time.monotonic() - began < 30
    assert codes == [2, -signal.SIGKILL, 2]
    assert "Traceback" not in err
    pid = processes[1].pid
    assert re.findall("^error: (.*)", err, re.M) == [
        f"rank 1 of 3 ({os.uname().nodename}, pid {pid}) died"
    ]
    assert "hint: run the same command with --resume, also on fewer ranks" in err
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
    launch += ["--master-port", str(free_port()), "rankfold"]
    process = subprocess.Popen(
        [*launch, *command, "--resume", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    changed = (tmp_path / "model.checkpoint" / "manifest.json").stat().st_mtime_ns
    until = time.monotonic() + 120
    while (tmp_path / "model.checkpoint" / "manifest.json").stat().st_mtime_ns == changed:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)  # as Ctrl-C does
    _, err = process.communicate(timeout=120)
    assert len(re.findall("^error:", err, re.M)) == 0
    assert (tmp_path / "model.checkpoint").exists()


def test_torchrun_fits_and_evaluates_unchanged(data: Path, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--master-port", str(free_port()), "-m", "rankfold"]
    fit = ["fit", "puresvd", str(data), "--out", str(tmp_path / "model"), "--json"]
    done = subprocess.run([*launch, *fit], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["method"] == "puresvd"
    evaluate = ["evaluate", str(tmp_path / "model"), str(data), "--json"]
    done = subprocess.run([*launch, *evaluate], capture_output=True, text=True, check=True)
    expected = rf.evaluate(tmp_path / "model", data).to_json()
    document = json.loads(done.stdout)
    assert document.keys() == expected.keys()
    assert list(numbers(document)) == pytest.approx(list(numbers(expected)), rel=1e-5)
