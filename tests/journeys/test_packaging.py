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


@pytest.mark.slow
def test_10_the_steps_of_the_dockerfile(tmp_path: Path, library: Path) -> None:
    home = tmp_path / "rankfold"
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements", "docker", "src"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        home.mkdir(exist_ok=True)
        copy(ROOT / name, home / name)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "HOST": "127.0.0.1", "PORT": PORT}
    variables["MODELS"] = str(tmp_path / "models")
    subprocess.run(["sh", home / "docker" / "install.sh"], env=variables, check=True)
    data = rf.prepare(library / "loans.csv", query_column="Leser", candidate_column="Buch")
    (tmp_path / "models").mkdir()
    rf.fit("rg2", data, width=8, out=tmp_path / "models" / "loans")
    server = subprocess.Popen(["sh", home / "docker" / "serve.sh"], env=variables)
    try:
        healthy = [tmp_path / "venv" / "bin" / "python", home / "docker" / "healthy.py"]
        end = time.monotonic() + 60
        while True:
            try:
                urlopen(f"http://127.0.0.1:{PORT}/ready", timeout=5)
                break
            except URLError:
                assert time.monotonic() < end
                time.sleep(0.5)
        assert subprocess.run(healthy, env=variables, check=False).returncode == 0
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
