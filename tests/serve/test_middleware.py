"""Access, limits and timeouts; errors are explained, and no model data leaks."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from serving import Client, item

from rankfold.serve import batching
from rankfold.serve.limits import Limits
from rankfold.serve.middleware import Access, endpoint_label

Start = Callable[..., Client]
PROTECTED = ("/models", "/card", "/keys", "/history?query=1", "/metrics", "/models/shop/card")


@pytest.mark.parametrize("path", ["/", "/card", "/nothing", "/health", "/docs/docs.js", "/keys"])
def test_every_response_has_the_security_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_keys_with_scripts_are_sent_as_json(client: Client) -> None:
    response = client.post("/search", {"candidates": [item(1)], "k": 2})
    assert response.headers["content-type"] == "application/json"
    assert response.json()["results"][0]["query"] == item(1)
    error = client.post("/search", {"queries": ["<img src=x onerror=alert(1)>"]})
    assert error.headers["content-type"] == "application/json"
    assert error.status_code == 404
    assert error.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_required(start: Start) -> None:
    client = start(access=Access("secret-token"))
    for path in PROTECTED:
        for given in (None, "secret-token", "Bearer", "Bearer secret-toke", "Bearer secret-token2"):
            headers = {} if given is None else {"authorization": given}
            response = client.get(path, headers=headers)
            assert response.status_code == 401, (path, given)
            assert response.headers["www-authenticate"] == "Bearer"
            assert set(response.json()) == {"error", "hint"}
        for given in ("Bearer secret-token", "bearer  secret-token"):
            assert client.get(path, headers={"authorization": given}).status_code == 200
    assert client.post("/search", {"queries": [1]}).status_code == 401
    headers = {"authorization": "Bearer é".encode()}
    assert client.get("/card", headers=headers).status_code == 401


def test_public_paths_need_no_token(start: Start) -> None:
    client = start(access=Access("secret-token"))
    for path in ("/health", "/ready", "/docs", "/docs/docs.js", "/openapi.json"):
        response = client.get(path)
        assert response.status_code == 200, path
        assert "shop" not in response.text
    for path in ("/health/../card", "/docs/../card", "/health%2f..%2fcard"):
        response = client.get(path)
        assert response.status_code in (401, 404), path
        assert "rg2" not in response.text


def test_a_foreign_host_header_is_refused(start: Start) -> None:
    client = start(access=Access(hosts=frozenset({"localhost", "127.0.0.1"})))
    for host, status in (("127.0.0.1:8080", 200), ("LOCALHOST", 200), ("evil.example", 400)):
        assert client.get("/card", headers={"host": host}).status_code == status


def test_several_host_headers_are_refused(start: Start) -> None:
    client = start(access=Access(hosts=frozenset({"localhost"})))
    for names in (["localhost", "localhost"], ["evil.example", "localhost"]):
        response = client.get("/card", headers=[("host", name) for name in names])
        assert response.status_code == 400
        assert "several Host" in response.json()["error"]


@pytest.mark.parametrize(
    "path", ["/", "/health", "/ready", "/models", "/page/page.css", "/card", "/docs", "/nothing"]
)
def test_head_is_get_without_the_body(client: Client, path: str) -> None:
    full, head = client.get(path), client.request("HEAD", path)
    assert head.content == b""
    assert (head.status_code, head.headers) == (full.status_code, full.headers)


def test_accepted_methods(client: Client) -> None:
    assert client.request("HEAD", "/metrics").status_code == 200
    assert client.request("HEAD", "/search").status_code == 405
    assert client.post("/health", {}).headers["allow"] == "GET, HEAD"
    assert client.get("/search").headers["allow"] == "POST"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused(start: Start, *, chunked: bool) -> None:
    client = start(Limits(body=1000))
    read: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(1000):
            read.append(number)
            yield b" " * 100

    content = pieces() if chunked else b" " * 100_000
    headers = {"content-type": "application/json"}
    response = client.request("POST", "/search", content=content, headers=headers)
    assert response.status_code == 413
    assert "1,000 bytes" in response.json()["error"]
    assert len(read) < 100  # the rest was not read
    small = json.dumps({"queries": [1]}).encode().ljust(1000)
    assert client.request("POST", "/search", content=small, headers=headers).status_code == 200
    assert (
        client.request("POST", "/search", content=small + b" ", headers=headers).status_code == 413
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"queries": [1], "k": 21}, "k: "),
        ({"queries": [1, 2, 3, 4, 5]}, "queries: "),
        ({"candidates": [item(n) for n in range(5)]}, "candidates: "),
        ({"history": [[]] * 5}, "history"),
        ({"history": [item(1)] * 7}, "history"),
        ({"text": ["x"] * 5}, "text"),
        ({"text": "x" * 51}, "text"),
        ({"queries": [1], "exclude": ["x"] * 7}, "exclude: "),
        ({"queries": [1], "allow": ["x"] * 7}, "allow: "),
        ({"queries": ["x" * 1025]}, "queries.0"),
        ({"queries": [1, 2, 3], "k": 20}, "results"),
        ({"queries": [1, 2, 3], "exclude": ["x"] * 5}, "exclude: 3 lists without 5 candidates"),
        ({"queries": [1, 2, 3], "pin": ["x"] * 5}, "pin: 3 lists with 5 candidates"),
        ({"queries": [1, 2], "k": 20, "diversity": 0.5}, "2 lists of 20 take too long"),
        ({"queries": [1, 2], "k": 20, "at_most": {"brand": 1}}, "2 lists of 20 take too long"),
    ],
)
def test_limits_are_explained(start: Start, body: dict[str, Any], message: str) -> None:
    small = Limits(batch=4, k=20, keys=6, text=50, results=50, excluded=12, compared=5000)
    client = start(small)
    response = client.post("/search", body)
    assert response.status_code == 400
    assert message in response.json()["error"]
    assert response.json()["hint"]
    assert client.post("/search", {"queries": [1, 2, 3], "exclude": ["x"] * 4}).status_code == 200


def test_the_values_that_explanations_are_made_of_are_limited(start: Start) -> None:
    client = start(Limits(explained_values=3))
    body = {"rows": [{"age": 1, "dose": 1}] * 4, "explain": True}
    response = client.post("/models/patients/grade", body)
    assert response.status_code == 400
    assert "explain: 4 rows of" in response.json()["error"]
    assert (
        client.post("/models/patients/grade", {"rows": [{"age": 1, "dose": 1}] * 4}).status_code
        == 200
    )


def test_too_many_rows_are_refused(start: Start) -> None:
    client = start(Limits(rows=3))
    for n, status in ((3, 200), (4, 400)):
        response = client.post("/models/patients/grade", {"rows": [{"age": 1, "dose": 1}] * n})
        assert response.status_code == status


class Blocker:
    """Keeps the thread of a model busy until it is released."""

    def __init__(self, client: Client) -> None:
        self.release = threading.Event()
        self.worker = client.models.slots["shop"].worker

    async def hold(self) -> None:
        job = batching.Job("hold", None, 1, lambda _requests: [self.release.wait(20)])
        self.held = asyncio.create_task(self.worker.submit(job))
        await asyncio.sleep(0)  # it is submitted
        while len(self.worker):
            await asyncio.sleep(0.01)


def test_too_many_requests_are_refused_but_health_answers(start: Start) -> None:
    client = start(Limits(waiting=3, requests=8))

    async def crowd() -> tuple[list[int], int, dict[str, str]]:
        blocker = Blocker(client)
        await blocker.hold()
        async with client.connect() as http:
            requests = [
                asyncio.create_task(http.post("/search", json={"queries": [n]})) for n in range(20)
            ]
            await asyncio.sleep(0.3)
            health = (await http.get("/health")).status_code
            blocker.release.set()
            responses = await asyncio.gather(*requests)
        refused = next(response for response in responses if response.status_code == 429)
        return [response.status_code for response in responses], health, dict(refused.headers)

    statuses, health, headers = asyncio.run(crowd())
    assert health == 200
    assert headers["retry-after"] == "1"
    assert statuses.count(200) == 3
    assert statuses.count(429) == 17


def test_a_slow_answer_times_out(start: Start) -> None:
    client = start(Limits(timeout=0.2))

    async def wait() -> tuple[httpx.Response, int]:
        blocker = Blocker(client)
        await blocker.hold()
        async with client.connect() as http:
            response = await http.post("/search", json={"queries": [1]})
            blocker.release.set()
            again = await http.post("/search", json={"queries": [1]})
        return response, again.status_code

    response, again = asyncio.run(wait())
    assert response.status_code == 504
    assert set(response.json()) == {"error", "hint"}
    assert again == 200
    assert client.models.metrics.searches["shop",] == 2  # the timed-out request was not searched


def test_a_slow_body_times_out(start: Start) -> None:
    client = start(Limits(receive_timeout=0.2))

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)

    begin = time.monotonic()
    response = client.request("POST", "/search", content=slow())
    assert response.status_code == 408
    assert time.monotonic() - begin < 4


def test_an_internal_error_hides_its_details(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start()

    def broken(_ranker: object, _requests: object) -> None:
        raise ZeroDivisionError("private")

    monkeypatch.setattr("rankfold.serve.app.answer", broken)
    response = client.post("/search", {"queries": [1]})
    assert response.status_code == 500
    assert set(response.json()) == {"error", "hint"}
    assert "private" not in response.text
    client.models.log.close()
    lines = [json.loads(line) for line in client.log.getvalue().splitlines()]
    assert any("private" in line.get("trace", "") for line in lines)


def test_requests_are_logged_without_their_content(client: Client) -> None:
    client.get("/history", params={"query": "3"})
    client.post("/search", {"queries": [3], "exclude": ["a secret"]})
    client.get("/a%0Ab")
    client.models.log.close()
    text = client.log.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["method"], line["path"], line["status"]) for line in requests] == [
        ("GET", "/history", 200),
        ("POST", "/search", 200),
        ("GET", "/a\nb", 404),
    ]
    assert "secret" not in text
    assert "query=" not in text


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/search", "/search"),
        ("/models/a/search", "/models/{name}/search"),
        ("/models/a/other", "other"),
        ("/models", "/models"),
        ("/page/x.js", "other"),
        ("/", "/"),
    ],
)
def test_endpoint_labels(path: str, label: str) -> None:
    assert endpoint_label(path, ["search", "card"]) == label


@pytest.mark.parametrize("state", ["closing", "retiring"])
def test_a_server_that_stops_announces_that_it_closes_connections(
    client: Client, state: str
) -> None:
    assert "connection" not in client.get("/health").headers
    setattr(client.app, state, True)
    assert client.get("/health").headers["connection"] == "close"
