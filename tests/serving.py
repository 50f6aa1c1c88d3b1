"""Small models to serve, and a client of a server in this process."""

import asyncio
import io
import json
import socket
from pathlib import Path
from typing import Any

import httpx
import polars as pl
from planted import groups
from rankings import ranking_of

import rankfold as rf
from rankfold.models.ranker import Ranking
from rankfold.serve.middleware import Guard
from rankfold.serve.models import Models

TOPICS = ["red apples", "blue Äther", "green tea"]


def item(number: int) -> str:
    """The key of a candidate, which would be a script if a page took it for HTML."""
    return f"<script>alert({number})</script>"


def fit_shop(out: Path, seed: int = 0) -> None:
    """Queries 0 to 119, candidates of the keys above in six groups."""
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
    """Asks an application in this process, one request after another."""

    def __init__(self, guard: Guard, models: Models, log: io.StringIO) -> None:
        self.guard, self.models, self.log = guard, models, log

    def asking(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.guard, raise_app_exceptions=True)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def request(self, method: str, address: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with self.asking() as client:
                return await client.request(method, address, **more)

        return asyncio.run(ask())

    def get(self, address: str, **more: Any) -> httpx.Response:
        return self.request("GET", address, **more)

    def post(self, address: str, body: Any, **more: Any) -> httpx.Response:
        return self.request("POST", address, json=body, **more)

    def search(self, name: str = "shop", **body: Any) -> Any:
        """The results, of a request that must be good."""
        answer = self.post(f"/models/{name}/search", body)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]


def exchange(place: tuple[str, int], data: bytes, seconds: float = 10.0) -> bytes:
    """Send some bytes, and read until the server closes."""
    with socket.create_connection(place, timeout=seconds) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)
