"""The page and /docs pass axe-core, on a desk and on a phone, and nothing overflows."""

from collections.abc import Iterator

import polars as pl
import pytest
from browser import Browser, browsing, serving

import rankfold as rf

GRADES = "unobtrusive,questionable,extraordinarily-suspicious"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    home = tmp_path_factory.mktemp("accessible")
    with browsing() as window:
        fit_shop().save(home / "shop")
        fit_texts().save(home / "texts")
        fit_grades().save(home / "grades")
        with serving(home / "shop", home / "texts", home / "grades") as address:
            window.address = address()
            yield window


def fit_shop() -> rf.Ranker:
    pairs = [(f"q{q}", f"c{c:02}") for q in range(40) for c in range(q % 4, 36, 4) if (q + c) % 5]
    names = [f"A long name of a product, number {c}" for c in range(36)]
    about = {"candidate": [f"c{c:02}" for c in range(36)], "name": names, "price": range(36)}
    table = pl.DataFrame(pairs, schema=["query", "candidate"], orient="row")
    data = rf.prepare(table, candidate_features=pl.DataFrame(about))
    model = rf.fit("rg2", data, width=4)
    assert isinstance(model, rf.Ranker)
    return model


def fit_texts() -> rf.Ranker:
    table = pl.DataFrame(
        {"text": ["red apples", "blue clouds", "green leaves"] * 8, "label": ["a", "b", "c"] * 8}
    )
    data = rf.prepare(table, format="texts", text_column="text", candidate_column="label")
    model = rf.fit("text-neighbours", data)
    assert isinstance(model, rf.Ranker)
    return model


def fit_grades() -> rf.Grader:
    names = GRADES.split(",")
    rows = {
        "amount": [float(n % 30) for n in range(120)],
        "kind": ["car", "van"] * 60,
        "grade": [names[n % 30 // 10] for n in range(120)],
    }
    data = rf.prepare(pl.DataFrame(rows), format="features", grade_column="grade", grades=GRADES)
    model = rf.fit("nnrank", data, epochs=2)
    assert isinstance(model, rf.Grader)
    return model


STATES = {
    "/?model=shop": "",
    "/?model=shop&query=q1": "button.name",
    "/?model=texts&text=red+apples": "button.name",
    "/?model=grades": "",
    "/?model=grades&fpr=0.05&row.amount=12": "",
}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("state", STATES)
def test_the_page(page: Browser, state: str, width: int) -> None:
    page.size(width)
    page.open(state)
    if button := STATES[state]:
        page.click(button)
        page.until(lambda: page.texts(".why li"))
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert page.violations() == []  # skips without axe-core


@pytest.mark.parametrize("width", [1280, 390])
def test_the_documentation(page: Browser, width: int) -> None:
    page.size(width)
    page.driver.get(page.address + "/docs")
    page.until(lambda: page.texts("#endpoints h2"))
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert not [line for line in page.console() if "favicon" in line]
    assert page.violations() == []  # skips without axe-core


def test_results_show_their_features(page: Browser) -> None:
    page.size(390)
    page.open("/?model=shop&query=q1")
    (first, *_) = page.texts(".hit > .name .key")
    number = int(first[1:])
    facts = page.texts(".hit .facts dd")[:2]
    assert sorted(facts) == sorted([str(number), f"A long name of a product, number {number}"])


def test_names_of_grades_are_in_one_line(page: Browser) -> None:
    page.size(390)
    page.open("/?model=grades&fpr=0.05&row.amount=12")
    heights = page.js(
        "return [...document.querySelectorAll('.grades bdi')].map(e => e.getClientRects().length)"
    )
    assert heights == [1, 1, 1]
