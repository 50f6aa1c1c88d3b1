"""The page and the report as people use them: on a desk, on a phone, on paper."""

from pathlib import Path

from browser import Browser, browsing, serving
from commands import Command

import rankfold as rf


def overflows(window: Browser) -> bool:
    return bool(window.js("return document.documentElement.scrollWidth > innerWidth"))


def test_8_the_page_of_a_recommender_and_a_grader(library: Path, bridges: Path) -> None:
    columns = {"query_column": "Leser", "candidate_column": "Buch", "decimal": ","}
    loans = rf.prepare(library / "loans.csv", candidate_features=library / "books.csv", **columns)
    rf.fit("puresvd", loans, width=8, out=library / "books")
    grades = {"grade_column": "condition", "grades": ["good", "watch", "repair"]}
    rows = rf.prepare(bridges / "bridges.csv", format="features", drop="bridge", **grades)
    rf.fit("ce", rows, epochs=1, out=bridges / "inspector")
    with browsing() as window, serving(library / "books", bridges / "inspector") as address:
        for width in (1280, 390):
            window.size(width)
            window.open("/?model=books", address())
            assert "Some examples" in window.text("#examples")  # an empty page teaches
            window.open("/?model=books&query=r001&diversity=0.5")
            assert "10 candidates" in window.text("#status")
            assert "genre" in window.text("#ranking")  # features stand on the cards
            assert not overflows(window)
            window.open("/?model=inspector")
            window.click("#grade button.main")  # typical values are filled in
            window.wait()
            assert window.text("#row-grade") in grades["grades"]
            assert not overflows(window)


def test_9_a_report_fits_a_desk_a_phone_and_paper(
    rankfold: Command, library: Path, tmp_path: Path
) -> None:
    words = ["--query-column", "Leser", "--candidate-column", "Buch", "--decimal", ","]
    data, out = tmp_path / "data", tmp_path / "compared"
    assert rankfold("prepare", library / "loans.csv", "--out", data, *words).code == 0
    methods = "popularity,puresvd,ease,rg2-plain"
    assert rankfold("compare", data, "--methods", methods, "--out", out, "--width", 8).code == 0
    (report,) = out.glob("*.html")
    with browsing() as window:
        for width in (1280, 390):
            window.size(width)
            window.driver.get(report.as_uri())
            assert not overflows(window)
            assert all(name in window.text("main, body") for name in methods.split(","))
        window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert window.js("return getComputedStyle(document.body).backgroundColor") in (
            "rgb(255, 255, 255)",
            "rgba(0, 0, 0, 0)",
        )
