"""The page shows only the results that reach their thresholds, in a real browser."""

from pathlib import Path

import polars as pl
from browser import browsing, fetch, serving

import rankfold as rf

COLOURS = ["red", "green", "blue"]


def test_a_switch_leaves_doubtful_labels_out(tmp_path: Path) -> None:
    own = [COLOURS[row % 3] for row in range(90)]
    said = [COLOURS[(row + (row % 10 == 0)) % 3] for row in range(90)]
    table = pl.DataFrame(
        {"id": range(90), "text": [f"a {one} thing" for one in said], "labels": [[o] for o in own]}
    )
    data = rf.prepare(table, format="texts", split="queries:0.5,0.4,0.1")
    rf.fit("text-linear", data).save(tmp_path / "colours")
    rf.fit("popularity", pl.DataFrame({"query": ["a"], "candidate": ["x"]})).save(tmp_path / "all")
    with browsing() as page, serving(tmp_path / "colours", tmp_path / "all") as address:
        page.address = address()
        page.open("/?model=colours&text=a%20red%20thing")
        assert page.texts(".hit > .name .key")[0] == "red"
        assert len(page.texts(".hit > .name .key")) == 3
        page.click("#thresholds")
        page.wait()
        asked = {"text": "a red thing", "thresholds": "f1"}
        (result,) = fetch(page.address, "/models/colours/search", asked)["results"]
        assert page.texts(".hit > .name .key") == [one["candidate"] for one in result["candidates"]]
        assert len(result["candidates"]) == 1
        page.open(str(page.js("return location.search")).join(["/", ""]))
        assert page.js("return document.querySelector('#thresholds').checked")
        page.open("/?model=all&query=a")
        assert page.js("return document.querySelector('#thresholds-label').hidden")
