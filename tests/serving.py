"""Small models to serve, and a client of an application in this process."""

import asyncio
import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import polars as pl
from planted import groups
from rankings import ranking_of

import rankfold as rf
from rankfold.models.ranking import Ranking
from rankfold.serve.folders import Folders
from rankfold.serve.middleware import Middleware
from rankfold.serve.models import Models

TOPICS = ["red apples", "blue Äther", "green tea"]


def item(number: int) -> str:
    """A candidate key that would run as a script if a page used it as HTML."""
    return f"<script>alert({number})</script>"


def fit_shop(out: Path, seed: int = 0) -> None:
    """Queries 0 to 119; candidates in six groups, with keys from ``item``."""
    pairs = groups(seed).with_columns(
        pl.col("candidate").map_elements(item, return_dtype=pl.String)
    )
    rf.fit("rg2-plain", rf.prepare(pairs), width=8, out=out)


def fit_notes(out: Path, scratch: Path) -> None:
    """Thirty texts of three topics; each topic is a candidate with a text."""
    rows = [{"title": f"{TOPICS[i % 3]} {i % 4}", "tags": [f"t{i % 3}"]} for i in range(30)]
    (scratch / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pl.DataFrame({"tag": ["t0", "t1", "t2"], "text": TOPICS}).write_csv(scratch / "tags.csv")
    data = rf.prepare(
        scratch / "d.jsonl", format="texts", candidate_texts=str(scratch / "tags.csv")
    )
    rf.fit("words", data, out=out)


def ranked(results: list[dict[str, Any]]) -> Ranking:
    """The ranking in the results of a search."""
    return ranking_of(
        [[(each["candidate"], each["score"]) for each in entry["candidates"]] for entry in results]
    )


class Client:
    """Sends requests to an application in this process, one after another."""

    def __init__(self, app: Middleware, models: Models, folders: Folders, log: io.StringIO) -> None:
        self.app, self.models, self.folders, self.log = app, models, folders, log

    def connect(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with self.connect() as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.request("POST", path, json=body, **more)

    def search(self, name: str = "shop", **body: Any) -> Any:
        """The results of a request that must succeed."""
        response = self.post(f"/models/{name}/search", body)
        assert response.status_code == 200, response.text
        return response.json()["results"]


def exchange(address: tuple[str, int], data: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes, then read until the server closes the connection."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextmanager
def process(
    *words: object, open_files: int | None = None, log: Any = subprocess.PIPE
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``rankfold serve`` in another process, and its URL. ``log`` is its stderr."""
    limit = ["prlimit", f"--nofile={open_files}"] if open_files is not None else []
    command = [*limit, sys.executable, "-m", "rankfold", "serve", *map(str, words), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=settings, **pipes) as running:  # type: ignore[call-overload]
        try:
            line = running.stdout.readline()
            match = re.search(r"serving on (http://\S+)", line)
            assert match, line + (running.stderr.read() if running.stderr else "")
            yield running, match[1]
        finally:
            running.kill()
