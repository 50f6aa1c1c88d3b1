"""Who may ask, how much and how long; each refusal is told, and nothing of a model slips out."""

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
from rankfold.serve.middleware import Access, endpoint_of

Start = Callable[..., Client]
GUARDED = ("/models", "/card", "/keys", "/history?query=1", "/metrics", "/models/shop/card")


@pytest.mark.parametrize("address", ["/", "/card", "/nothing", "/health", "/docs/docs.js", "/keys"])
def test_every_answer_has_the_headers_of_safety(client: Client, address: str) -> None:
    headers = client.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_keys_that_look_like_scripts_stay_json(client: Client) -> None:
    answer = client.post("/search", {"candidates": [item(1)], "k": 2})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["results"][0]["query"] == item(1)
    error = client.post("/search", {"queries": ["<img src=x onerror=alert(1)>"]})
    assert error.headers["content-type"] == "application/json"
    assert error.status_code == 404
    assert error.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_asked_for(start: Start) -> None:
    client = start(access=Access("secret-token"))
    for address in GUARDED:
        for given in (None, "secret-token", "Bearer", "Bearer secret-toke", "Bearer secret-token2"):
            headers = {} if given is None else {"authorization": given}
            answer = client.get(address, headers=headers)
            assert answer.status_code == 401, (address, given)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert set(answer.json()) == {"error", "hint"}
        for given in ("Bearer secret-token", "bearer  secret-token"):
            assert client.get(address, headers={"authorization": given}).status_code == 200
    assert client.post("/search", {"queries": [1]}).status_code == 401
    headers = {"authorization": "Bearer é"}
    assert (
        client.get(
            "/card", headers={"authorization": headers["authorization"].encode()}
        ).status_code
        == 401
    )


def test_what_tells_nothing_of_a_model_needs_no_token(start: Start) -> None:
    client = start(access=Access("secret-token"))
    for address in ("/health", "/ready", "/docs", "/docs/docs.js", "/openapi.json"):
        answer = client.get(address)
        assert answer.status_code == 200, address
        assert "shop" not in answer.text
    for address in ("/health/../card", "/docs/../card", "/health%2f..%2fcard"):
        answer = client.get(address)
        assert answer.status_code in (401, 404), address
        assert "rg2" not in answer.text


def test_a_foreign_name_of_the_server_is_refused(start: Start) -> None:
    client = start(access=Access(hosts=frozenset({"localhost", "127.0.0.1"})))
    for host, status in (("127.0.0.1:8080", 200), ("LOCALHOST", 200), ("evil.example", 400)):
        assert client.get("/card", headers={"host": host}).status_code == status


def test_several_names_of_the_server_are_refused(start: Start) -> None:
    client = start(access=Access(hosts=frozenset({"localhost"})))
    for names in (["localhost", "localhost"], ["evil.example", "localhost"]):
        answer = client.get("/card", headers=[("host", name) for name in names])
        assert answer.status_code == 400
        assert "several Host" in answer.json()["error"]


@pytest.mark.parametrize(
    "address", ["/", "/health", "/ready", "/models", "/page/page.css", "/card", "/docs", "/nothing"]
)
def test_a_head_is_an_answer_without_its_body(client: Client, address: str) -> None:
    whole, head = client.get(address), client.request("HEAD", address)
    assert head.content == b""
    assert (head.status_code, head.headers) == (whole.status_code, whole.headers)


def test_methods_that_an_address_takes(client: Client) -> None:
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
    answer = client.request("POST", "/search", content=content, headers=headers)
    assert answer.status_code == 413
    assert "1,000 bytes" in answer.json()["error"]
    assert len(read) < 100  # the rest was not waited for
    small = json.dumps({"queries": [1]}).encode().ljust(1000)
    assert client.request("POST", "/search", content=small, headers=headers).status_code == 200
    assert (
        client.request("POST", "/search", content=small + b" ", headers=headers).status_code == 413
    )


@pytest.mark.parametrize(
    ("body", "told"),
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
    ],
)
def test_who_asks_for_too_much_is_told(start: Start, body: dict[str, Any], told: str) -> None:
    client = start(Limits(batch=4, k=20, keys=6, text=50, results=50, excluded=12))
    answer = client.post("/search", body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]
    assert answer.json()["hint"]
    assert client.post("/search", {"queries": [1, 2, 3], "exclude": ["x"] * 4}).status_code == 200


def test_too_many_rows_are_told(start: Start) -> None:
    client = start(Limits(rows=3))
    for n, status in ((3, 200), (4, 400)):
        answer = client.post("/models/patients/grade", {"rows": [{"age": 1, "dose": 1}] * n})
        assert answer.status_code == status


class Stuck:
    """Holds the thread of a model until it is let go."""

    def __init__(self, client: Client) -> None:
        self.go = threading.Event()
        self.worker = client.models.slots["shop"].worker

    async def hold(self) -> None:
        job = batching.Job("hold", None, 1, lambda _questions: [self.go.wait(20)])
        self.held = asyncio.create_task(self.worker.ask(job))
        await asyncio.sleep(0)  # it is asked
        while len(self.worker):
            await asyncio.sleep(0.01)


def test_too_much_at_once_is_refused_and_health_still_answers(start: Start) -> None:
    client = start(Limits(waiting=3, in_flight=8))

    async def crowd() -> tuple[list[int], int, dict[str, str]]:
        stuck = Stuck(client)
        await stuck.hold()
        async with client.asking() as http:
            asks = [
                asyncio.create_task(http.post("/search", json={"queries": [n]})) for n in range(20)
            ]
            await asyncio.sleep(0.3)
            health = (await http.get("/health")).status_code
            stuck.go.set()
            answers = await asyncio.gather(*asks)
        refused = next(answer for answer in answers if answer.status_code == 429)
        return [answer.status_code for answer in answers], health, dict(refused.headers)

    found, health, headers = asyncio.run(crowd())
    assert health == 200
    assert headers["retry-after"] == "1"
    assert found.count(200) == 3
    assert found.count(429) == 17


def test_an_answer_that_takes_too_long_is_given_up(start: Start) -> None:
    client = start(Limits(seconds=0.2))

    async def wait() -> tuple[httpx.Response, int]:
        stuck = Stuck(client)
        await stuck.hold()
        async with client.asking() as http:
            answer = await http.post("/search", json={"queries": [1]})
            stuck.go.set()
            again = await http.post("/search", json={"queries": [1]})
        return answer, again.status_code

    answer, again = asyncio.run(wait())
    assert answer.status_code == 504
    assert set(answer.json()) == {"error", "hint"}
    assert again == 200
    assert client.models.metrics.searches["shop",] == 2  # what was given up was not searched


def test_a_body_that_does_not_arrive_is_given_up(start: Start) -> None:
    client = start(Limits(arriving=0.2))

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)

    begin = time.monotonic()
    answer = client.request("POST", "/search", content=slow())
    assert answer.status_code == 408
    assert time.monotonic() - begin < 4


def test_a_bug_is_told_without_its_details(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start()

    def broken(_ranker: object, _questions: object) -> None:
        raise ZeroDivisionError("private")

    monkeypatch.setattr("rankfold.serve.app.answer", broken)
    answer = client.post("/search", {"queries": [1]})
    assert answer.status_code == 500
    assert set(answer.json()) == {"error", "hint"}
    assert "private" not in answer.text
    client.models.log.close()
    lines = [json.loads(line) for line in client.log.getvalue().splitlines()]
    assert any("private" in line.get("trace", "") for line in lines)


def test_requests_are_logged_without_what_they_ask(client: Client) -> None:
    client.get("/history", params={"query": "3"})
    client.post("/search", {"queries": [3], "exclude": ["a secret"]})
    client.get("/a%0Ab")
    client.models.log.close()
    text = client.log.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    asked = [line for line in lines if line["event"] == "request"]
    assert [(line["method"], line["path"], line["status"]) for line in asked] == [
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
def test_labels_are_few(path: str, label: str) -> None:
    assert endpoint_of(path) == label
