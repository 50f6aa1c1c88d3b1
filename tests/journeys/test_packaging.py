"""The steps of the Dockerfile, as a script in a bare environment."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import rankfold as rf

ROOT = Path(__file__).parents[2]
PORT = "18473"


def test_the_dockerfile_copies_what_its_steps_need(tmp_path: Path) -> None:
    """What is copied is what ``.dockerignore`` lets in, and exists."""
    text = (ROOT / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)
    assert {f"docker/{path.name}" for path in (ROOT / "docker").iterdir()} == set(
        re.findall(r"docker/\w+\.\w+", text)
    )
    done = subprocess.run(
        ["sh", ROOT / "docker" / "serve.sh"],
        env={"PATH": os.environ["PATH"], "MODELS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "no model in" in done.stderr) == (2, True)


def test_versions_are_one() -> None:
    version = f'version = "{rf.__version__}"'
    assert version in (ROOT / "pyproject.toml").read_text()
    assert f"version: {rf.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, in order, with their text."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [(*line.split(" ", 1),) for line in lines if line and line[0] != "#"]  # type: ignore[misc]


def text_of(instruction: str) -> str:
    (text,) = (text for name, text in steps() if name == instruction)
    return text


def build(home: Path, variables: dict[str, str]) -> None:
    """COPY and RUN, in the order of the Dockerfile, into a folder in place of an image."""
    home.mkdir()
    for name, text in steps():
        if name == "COPY":
            *sources, target = text.split()
            for source in sources:
                path = home / target / (source if target == "./" else "")
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, path)
        elif name == "RUN":
            subprocess.run(["sh", "-c", text], cwd=home, env=variables, check=True)


RECORDER = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
"""


@pytest.mark.parametrize("kind", ["cpu", "cu126"])
def test_the_image_for_a_cpu_and_for_cuda_differ_in_the_build_of_torch(
    kind: str, tmp_path: Path
) -> None:
    """The steps with programs that only record how they were called."""
    (tmp_path / "bin").mkdir()
    for name in ("python", "rankfold"):
        (tmp_path / "bin" / name).write_text(RECORDER)
        (tmp_path / "bin" / name).chmod(0o755)
    address = f"https://download.pytorch.org/whl/{kind}"
    default = text_of("ARG").removeprefix("TORCH=")
    assert default.endswith("/cpu")
    assert address == default or f"--build-arg TORCH={address}" in (ROOT / "Dockerfile").read_text()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    calls = tmp_path / "calls"
    build(tmp_path / "image", {"PATH": path, "TORCH": address, "CALLS": str(calls)})
    hashed, torch, own, version = calls.read_text().splitlines()
    assert "--require-hashes" in hashed
    assert hashed.endswith("requirements/serve.txt")
    assert f"--index-url {address} " in torch
    assert torch.endswith("requirements/torch.txt")
    assert "--index-url" not in hashed + own
    assert own.endswith(f"--no-deps {tmp_path / 'image'}")
    assert version == "rankfold --version"


@pytest.mark.slow
def test_10_the_steps_of_the_dockerfile(tmp_path: Path, library: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "HOST": "127.0.0.1", "PORT": PORT, "TORCH": ""}
    variables.pop("PYTHONPATH", None)
    variables["MODELS"] = str(tmp_path / "models")
    home = tmp_path / "image"
    build(home, variables)
    data = rf.prepare(library / "loans.csv", query_column="Leser", candidate_column="Buch")
    (tmp_path / "models").mkdir()
    rf.fit("rg2", data, width=8, out=tmp_path / "models" / "loans")
    server = subprocess.Popen(json.loads(text_of("CMD")), cwd=home, env=variables)
    try:
        healthy = json.loads(text_of("HEALTHCHECK").removeprefix("CMD "))
        end = time.monotonic() + 60
        while True:
            try:
                urlopen(f"http://127.0.0.1:{PORT}/ready", timeout=5)
                break
            except URLError:
                assert time.monotonic() < end
                time.sleep(0.5)
        assert subprocess.run(healthy, cwd=home, env=variables, check=False).returncode == 0
        with urlopen(f"http://127.0.0.1:{PORT}/models") as response:
            assert "loans" in json.dumps(json.load(response))
    finally:
        server.terminate()
        assert server.wait(timeout=30) in (0, -15, 143)


def test_every_file_is_in_the_package() -> None:
    home = ROOT / "src" / "rankfold"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packed = {path for one in patterns["package-data"]["rankfold"] for path in home.glob(one)}
    others = {path for path in home.rglob("*.*") if path.suffix not in (".py", ".pyc")}
    assert sorted(others - packed) == []
