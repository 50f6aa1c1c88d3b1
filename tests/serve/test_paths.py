"""Wrong paths, the documentation, and the metrics."""

import re

import pytest
from serving import Client


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/history", 400),
        ("/history?query=nobody", 404),
        ("/history?query=1&more=2", 400),
        ("/keys?side=nobody", 400),
        ("/keys?limit=0", 400),
        ("/keys?limit=x", 400),
        ("/keys?like=" + "x" * 101, 400),
        ("/models/patients/keys", 400),
        ("/models/a%2Fb/card", 404),
        ("/models/%3Cb%3E/card", 404),
        ("/nothing", 404),
        ("/search", 405),
        ("/page/../models.py", 404),
        ("/page/%2e%2e/models.py", 404),
        ("/page//etc/passwd", 404),
        ("/docs/nothing", 404),
    ],
)
def test_invalid_paths_are_explained(client: Client, address: str, status: int) -> None:
    response = client.get(address)
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error", "hint"}


def test_the_documentation_loads_nothing_from_elsewhere(client: Client) -> None:
    described = client.get("/openapi.json").json()
    expected = {"/search", "/grade", "/history", "/keys", "/card", "/models", "/health", "/ready"}
    assert expected | {"/metrics", "/models/{name}/search"} <= set(described["paths"])
    for methods in described["paths"].values():
        for operation in methods.values():
            assert "422" not in operation["responses"]
    page = client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert sources
    for source in sources:
        assert source.startswith("/")
        assert client.get(source).status_code == 200
    assert "<script>" not in page.text
    assert "style=" not in page.text


def test_metrics_for_prometheus(client: Client) -> None:
    client.search(queries=[1])
    client.get("/nothing/<b>")
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'rankfold_requests_total{endpoint="/models/{name}/search",status="200"} 1' in lines
    assert 'rankfold_requests_total{endpoint="other",status="404"} 1' in lines
    assert 'rankfold_request_seconds_count{endpoint="/models/{name}/search"} 1' in lines
    last = 'rankfold_request_seconds_bucket{endpoint="/models/{name}/search",le="+Inf"} 1'
    assert last in lines
    assert 'rankfold_ready{model="shop"} 1' in lines
    assert 'rankfold_searches_total{model="shop"} 1' in lines
    for line in lines:
        assert re.fullmatch(r"# TYPE \w+ \w+|\w+(\{.*\})? [-+.e\d]+", line)
