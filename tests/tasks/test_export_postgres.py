"""The guide's code for PostgreSQL with pgvector, run unchanged on a real server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from planted import groups
from rankings import assert_same_keys, ranking_of

import rankfold as rf
from rankfold.models.ranker import Ranker
from rankfold.tasks.export import export

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "export.md"
pytestmark = pytest.mark.slow


def blocks(language: str) -> list[str]:
    """The guide's code in a language, of the right width."""
    section = GUIDE.read_text().partition("## PostgreSQL with pgvector")[2]
    blocks = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return [code.replace("vector(64)", "vector(8)") for code in blocks]


def programs() -> Path:
    """The folder of PostgreSQL's programs; skips the test if none has pgvector.

    pgserver from PyPI carries a PostgreSQL with pgvector: `pip install pgserver`.
    """
    places = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if package := find_spec("pgserver"):
        places += [Path(str(package.origin)).parent / "pginstall" / "bin"]
    for place in sorted(places):
        shared = subprocess.run([place / "pg_config", "--sharedir"], capture_output=True, text=True)
        if Path(shared.stdout.strip(), "extension", "vector.control").exists():
            return place
    return pytest.skip("no PostgreSQL with pgvector: pip install pgserver")


class Server:
    """A temporary database, reached by a socket in its folder."""

    def __init__(self, home: Path, programs: Path) -> None:
        self.home, self.programs = home, programs
        self.user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root

    def run(self, name: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [self.programs / name, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            user=self.user,
            cwd=self.home,
            env={"PGHOST": str(self.home), "PGDATABASE": "postgres", "PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sql(self, text: str, **variables: str) -> str:
        given = [part for name, value in variables.items() for part in ("-v", f"{name}={value}")]
        how = ("-X", "-q", "-t", "-A", "-F", "\t", "-v", "ON_ERROR_STOP=1")
        return self.run("psql", *how, *given, text=text)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("pg")  # the name of a socket must be short
    server = Server(home, programs())
    if server.user is not None:
        for folder in (home, *home.parents[:2]):
            folder.chmod(0o755)
        shutil.chown(home, server.user)
    server.run("initdb", "-D", "data", "--auth=trust")
    settings = f"-c listen_addresses='' -c unix_socket_directories='{home}'"
    # its output is a file: its child processes would hold a pipe open
    server.run("pg_ctl", "-D", "data", "-w", "-l", str(home / "log"), "-o", settings, "start")
    try:
        yield server
    finally:
        server.run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")


def test_the_sql_of_the_guide_gives_the_models_ranking(server: Server) -> None:
    pairs = groups().select("query", candidate="candidate").cast(str)
    model = rf.fit("rg2-plain", pairs, width=8)
    assert isinstance(model, Ranker)
    export(model, server.home / "vectors")
    (code,) = blocks("python")
    subprocess.run([sys.executable, "-c", code], cwd=server.home, check=True)
    fill, ask = blocks("sql")
    server.sql(fill)
    for query in ("0", "7", "119"):
        lines = server.sql(ask, query=query).splitlines()
        actual = [(int(key), float(score)) for key, score in (line.split("\t") for line in lines)]
        assert len(actual) == 10
        expected = model.search([query], k=20, include_seen=True)
        assert_same_keys(ranking_of([actual]), expected)
