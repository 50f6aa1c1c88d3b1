"""The page's filter, diversity and reasons, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from browser import Browser, browsing, fetch, serving

import rankfold as rf

COLOURS = ("red", "blue", "green")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    home = tmp_path_factory.mktemp("rules")
    pairs = [(f"q{q}", f"c{c:02}") for q in range(40) for c in range(q % 4, 36, 4) if (q + c) % 5]
    items = [(f"c{c:02}", COLOURS[c % 3], float(c), c % 2) for c in range(36)]
    with browsing() as window:
        data = rf.prepare(
            pl.DataFrame(pairs, schema=["query", "candidate"], orient="row"),
            candidate_features=pl.DataFrame(
                items, schema=["candidate", "colour", "price", "in stock"], orient="row"
            ),
        )
        rf.fit("rg2", data, width=8).save(home / "shop")
        with serving(home / "shop") as address:
            window.address = address()
            yield window


def found(page: Browser) -> list[str]:
    return page.texts(".hit > .name .key")


def expected(page: Browser, **body: Any) -> list[str]:
    answer = fetch(page.address, "/search", {"queries": ["q1"], "k": 10, **body})
    return [one["candidate"] for one in answer["results"][0]["candidates"]]


def set_to(page: Browser, name: str, value: str) -> None:
    page.fill(f"#{name}", value)
    page.js(f"document.querySelector('#{name}').dispatchEvent(new Event('change'))")
    page.wait()


def test_a_condition_filters_and_stays_in_the_address(page: Browser) -> None:
    page.size(1280)
    page.open("/?query=q1")
    help_text = str(page.js("return document.querySelector('#where-help').textContent"))
    assert '"in stock"' in help_text
    assert found(page) == expected(page)
    example = help_text.partition("such as ")[2].partition(". Columns")[0]
    set_to(page, "where", example)
    assert found(page) == expected(page, where=example) != []
    set_to(page, "where", "colour = 'red' and price < 20")
    assert found(page) == expected(page, where="colour = 'red' and price < 20")
    assert {int(key[1:]) % 3 for key in found(page)} == {0}
    page.open(str(page.js("return location.search")).join(["/", ""]))
    assert page.js("return document.querySelector('#where').value").startswith("colour")
    assert page.js("return document.querySelector('#rules').open")
    set_to(page, "where", "colur = 'red'")
    assert "colur" in page.text("#error")


def test_diversity_changes_the_order(page: Browser) -> None:
    page.open("/?query=q1")
    set_to(page, "diversity", "0.9")
    assert found(page) == expected(page, diversity=0.9)
    assert found(page) != expected(page)


def test_a_click_shows_what_raises_the_score(page: Browser) -> None:
    page.size(390)
    page.open("/?query=q1")
    first = found(page)[0]
    page.click("button.name")
    page.until(lambda: page.texts(".why li"))
    asked = {"queries": ["q1"], "allow": [first], "include_seen": True, "k": 1, "explain": True}
    (hit,) = fetch(page.address, "/search", asked)["results"][0]["candidates"]
    assert page.texts(".why .name .key") == [one["key"] for one in hit["because"]], json.dumps(hit)
    wide = page.js("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    page.size(1280)
    assert [line for line in page.console() if "status of 4" not in line] == []


def test_a_model_without_features_has_no_filter(page: Browser, tmp_path: Path) -> None:
    pairs = pl.DataFrame({"query": ["a", "a", "b"], "candidate": ["x", "y", "x"]})
    rf.fit("popularity", pairs).save(tmp_path / "plain")
    with serving(tmp_path / "plain") as address:
        page.open("/", address())
        assert page.js("return document.querySelector('#where-field').hidden")
