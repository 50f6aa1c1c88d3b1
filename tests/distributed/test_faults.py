"""Many kills, and machines that lose their connection; each rank has its own network."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from planted import groups
from ranks import environment, free_port

import rankfold as rf
from rankfold.training import checkpoint

pytestmark = pytest.mark.slow
KILLS = 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data"
    rf.prepare(groups(), out=path)
    return path


def ended(processes: Sequence[subprocess.Popen[str]]) -> tuple[list[int], str]:
    both = [process.communicate(timeout=120) for process in processes]
    return [process.returncode for process in processes], "".join(err for _, err in both)


def fit(data: Path, out: Path) -> list[str]:
    """A fit that takes about an hour."""
    options = ["--patience", "100000000", "--set", "sweeps=1000000", "--set", "width=4"]
    options += ["--checkpoint-seconds", "0.2", "--resume"]
    return [sys.executable, "-m", "rankfold", "fit", "ials", str(data), "--out", str(out), *options]


def start(
    command: list[str], ranks: Sequence[dict[str, str]], before: Sequence[list[str]] = ()
) -> list[subprocess.Popen[str]]:
    """One process per rank, with its environment and the command that wraps it."""
    return [
        subprocess.Popen(
            [*(before[rank] if before else []), *command],
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, own in enumerate(ranks)
    ]


def wait_for_work(manifest: Path) -> None:
    """Wait until a new checkpoint is written."""
    before = manifest.stat().st_mtime_ns if manifest.exists() else 0
    until = time.monotonic() + 60
    while not manifest.exists() or manifest.stat().st_mtime_ns == before:
        assert time.monotonic() < until, "no checkpoint was written"
        time.sleep(0.02)


def test_twenty_kills_do_not_change_the_losses(data: Path, tmp_path: Path) -> None:
    """Kill a random rank of two or three at a random time; each kill is reported once."""
    rng, out = random.Random(0), tmp_path / "model"
    manifest = tmp_path / "model.checkpoint" / "manifest.json"
    for _ in range(KILLS):
        size, port = rng.choice((2, 3)), free_port()
        processes = start(fit(data, out), [environment(r, size, port) for r in range(size)])
        wait_for_work(manifest)
        time.sleep(rng.random())
        victim = rng.randrange(size)
        processes[victim].kill()
        began = time.monotonic()
        codes, err = ended(processes)
        assert time.monotonic() - began < 30
        assert codes == [-signal.SIGKILL if rank == victim else 2 for rank in range(size)], err
        (message,) = re.findall("^error: (.*)", err, re.M)
        assert message.startswith(f"rank {victim} of {size} (")
        assert message.endswith(" died")
    losses = [entry["loss"] for entry in checkpoint.load(manifest.parent).history.entries]
    whole = rf.fit("ials", data, sweeps=len(losses), width=4, patience=10**8)
    expected = [entry["loss"] for entry in whole.model.notes["history"]]
    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them."""
    names = [f"rankfold{os.getpid()}{side}" for side in "ab"]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    run("ip", "link", "add", "rfa", "type", "veth", "peer", "name", "rfb")
    try:
        for number, (name, link) in enumerate(zip(names, ("rfa", "rfb"), strict=True), 1):
            run("ip", "netns", "add", name)
            run("ip", "link", "set", link, "netns", name)
            run("ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", link)
            run("ip", "-n", name, "link", "set", link, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", "rfa"], check=False, capture_output=True)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.mark.parametrize("fault", ["kill", "cable"])
def test_hosts_that_lose_their_connection_end(
    fault: str, hosts: list[str], data: Path, tmp_path: Path
) -> None:
    """Each has its own pids and network, so only heartbeats show whether a rank is alive."""
    command = fit(data, tmp_path / "model")
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    before = [["ip", "netns", "exec", name, *inside] for name in hosts]
    ranks = [environment(rank, 2, 29_555) for rank in range(2)]
    for rank, link in enumerate(("rfa", "rfb")):
        ranks[rank] |= {"MASTER_ADDR": "10.77.0.1", "GLOO_SOCKET_IFNAME": link}
    processes = start(command, ranks, before)
    wait_for_work(tmp_path / "model.checkpoint" / "manifest.json")
    began = time.monotonic()
    if fault == "kill":
        processes[1].kill()  # and its children
    else:
        run("ip", "-n", hosts[1], "link", "set", "rfb", "down")
    codes, err = ended(processes)
    assert time.monotonic() - began < 30
    assert codes[0] == 2
    errors = re.findall("^error: (.*)", err, re.M)
    assert re.fullmatch(r"rank 1 of 2 \(.*\) died", errors[0])
    if fault == "cable":  # each side reports the other
        assert codes[1] == 2
        assert re.fullmatch(r"rank 0 of 2 \(.*\) cannot be reached", errors[1])
    assert len(errors) == (1 if fault == "kill" else 2)
