"""Any request gets a response that matches the OpenAPI document."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Client, item

from rankfold.serve.limits import Limits

Live = Callable[..., tuple[str, int]]
SMALL = Limits(body=20_000, batch=4, rows=4, k=50, keys=8, text=200, results=100)
REJECTED = [400, 401, 403, 404, 405, 406, 408, 413, 422, 429]
SETTINGS = f"""
[checks.negative_data_rejection]
expected-statuses = {REJECTED}
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 400, 404, 413]
"""  # this model may be unable to answer a valid request


def fuzz(live: Live, home: Path, *words: str) -> str:
    """Run schemathesis on a live server; a finding is an AssertionError."""
    host, port = live(SMALL)
    address = f"http://{host}:{port}"
    document = httpx.get(f"{address}/openapi.json").json()
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":  # otherwise it would hardly ever name a model
                    parameter["schema"] = {"enum": ["shop", "notes", "patients"]}
    (home / "openapi.json").write_text(json.dumps(document))
    (home / "schemathesis.toml").write_text(SETTINGS)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
        *("run", "openapi.json", "--url", address, "--checks", "all", "--no-color"),
        *("--request-timeout", "20", "--max-response-time", "10", "--warnings", "off", *words),
    ]
    done = subprocess.run(
        command, cwd=home, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )  # fmt: skip
    assert done.returncode == 0, "\n".join(line[:300] for line in done.stdout.splitlines())
    counts = httpx.get(f"{address}/metrics").text
    assert 'endpoint="/search"' in counts
    assert 'status="5' not in counts
    return counts


def test_responses_match_the_document(live: Live, tmp_path: Path) -> None:
    fuzz(live, tmp_path, "--phases", "coverage,fuzzing", "-n", "4", "--max-time", "15")


@pytest.mark.slow
def test_responses_match_the_document_for_longer(live: Live, tmp_path: Path) -> None:
    counts = fuzz(live, tmp_path, "--phases", "coverage,fuzzing,stateful", "-n", "200")
    assert 'endpoint="/search",status="200"' in counts  # valid requests were among them


def anything(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON in which known names and keys are frequent."""
    words = ["queries", "history", "text", "candidates", "k", "exclude", "allow", "rows", "fpr"]
    names = st.sampled_from([*words, "include_seen", "age", "site"]) | st.text(max_size=5)
    leaves = keys | st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    )


KEYS = st.sampled_from([0, 1, 3, "3", item(1), item(5), "t0", "nobody", "", "\x00", "é", 2**70])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    name=st.sampled_from(["shop", "notes", "patients"]),
    path=st.sampled_from(["search", "grade"]),
    body=anything(KEYS),
)
def test_any_json_is_answered(client: Client, name: str, path: str, body: object) -> None:
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    response = client.request("POST", f"/models/{name}/{path}", content=content, headers=headers)
    assert response.status_code in (200, 400, 404), response.text
    assert set(response.json()) in ({"results"}, {"error", "hint"})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    inputs=st.one_of(
        st.fixed_dictionaries({"queries": st.lists(KEYS, max_size=4)}),
        st.fixed_dictionaries({"history": st.lists(KEYS | st.lists(KEYS, max_size=3), max_size=4)}),
        st.fixed_dictionaries({"candidates": st.lists(KEYS, max_size=4)}),
        st.fixed_dictionaries({"text": st.text() | st.lists(st.text(), max_size=3)}),
    ),
    more=st.fixed_dictionaries(
        {},
        optional={
            "k": st.integers(-1, 1001),
            "exclude": st.lists(KEYS, max_size=4),
            "allow": st.lists(KEYS, max_size=4),
            "include_seen": st.booleans(),
        },
    ),
    name=st.sampled_from(["shop", "notes"]),
)
def test_rankings_respect_the_request(
    client: Client, inputs: dict[str, Any], more: dict[str, Any], name: str
) -> None:
    response = client.post(f"/models/{name}/search", {**inputs, **more})
    assert response.status_code in (200, 400, 404), response.text
    for entry in response.json().get("results", []):
        keys = [each["candidate"] for each in entry["candidates"]]
        assert len(keys) == len(set(keys)) <= more.get("k", 10)
        assert not {*map(str, keys)} & {*map(str, more.get("exclude", []))}
        if "allow" in more:
            assert {*map(str, keys)} <= {*map(str, more["allow"])}
        scores = [each["score"] for each in entry["candidates"]]
        assert scores == sorted(scores, reverse=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(like=st.text(max_size=20), side=st.sampled_from(["query", "candidate"]))
def test_keys_like_any_text(client: Client, like: str, side: str) -> None:
    response = client.get("/models/notes/keys", params={"like": like, "side": side, "limit": 5})
    assert response.status_code == 200
    for entry in response.json()["keys"]:
        shown = [str(entry["key"]).lower(), entry.get("text", "").lower()]
        assert any(like.lower() in each for each in shown)
