"""The page of a model that grades, in a real browser."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Browser, fetch, serving
from page_models import fit_patients


@pytest.fixture(scope="module")
def server(
    window: Browser,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[], str]]:
    with serving(fit_patients(tmp_path_factory.mktemp("grades"))) as address:
        yield address


def test_a_row_is_graded(page: Browser) -> None:
    page.open("/?model=patients")
    labels = page.texts("#columns label")
    assert labels == ["age", "dose", "constructor", "site"]
    typical = page.js("return [...document.querySelectorAll('.columns input')].map(i => i.value)")
    assert all(float(value) > 0 for value in typical[:2])
    page.click("#grade button.main")  # the form is ready as it is
    page.wait()
    assert page.text("#row-grade") in ("none", "mild", "severe")
    row, expected = row_between_grades(page.address)
    for place, name in enumerate(labels):
        field, value = f"#column-{place}", str(row.get(name, ""))
        page.js("document.querySelector(arguments[0]).value = arguments[1]", field, value)
    for fpr, result in expected.items():
        page.fill("#fpr", fpr)
        page.click("#grade button.main")
        page.wait()
        assert page.text("#row-grade") == page.text(".grades .current bdi") == result["grade"]
        score = float(page.text("#row-score").replace("\N{MINUS SIGN}", "-"))
        assert score == pytest.approx(result["score"], rel=1e-3)
    shares = page.texts(".grades .probability")
    assert shares[0] == f"{100 * result['probabilities']['none']:.0f}%"
    assert len(page.texts(".moved li")) == 4
    page.open(page.js("return location.pathname + location.search"))
    assert page.text("#row-grade") == result["grade"]
    page.fill("#confidence", "0.95")
    page.click("#grade button.main")
    page.wait()
    assert "confidence=0.95" in page.js("return location.search")
    assert page.text("#row-grade") == "none"  # stricter


def row_between_grades(address: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row whose grade depends on the false-positive rate, and its grades."""
    for age in range(30, 80):
        row = {"age": age, "dose": 5.5, "site": "harbour"}
        responses = {
            fpr: fetch(address, "/models/patients/grade", {"rows": [row], "fpr": float(fpr)})
            for fpr in ("0.01", "0.3")
        }
        results = {fpr: response["results"][0] for fpr, response in responses.items()}
        if len({result["grade"] for result in results.values()}) == 2:
            return row, results
    raise AssertionError("no row's grade depends on the rate")
