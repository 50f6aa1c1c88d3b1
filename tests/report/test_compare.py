"""The report of a comparison: one well-formed page that matches the results."""

import copy
import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from html_pages import EVIL, Page

from rankfold.errors import UserError
from rankfold.report.compare import COST_FIGURES, GROUPINGS, MAX_STEPS, facts, render, thin, write
from rankfold.report.formats import UNKNOWN

HERE = Path(__file__).parent


def example(kind: str = "") -> dict[str, Any]:
    results: dict[str, Any] = json.loads((HERE / f"example_results{kind}.json").read_text())
    return results


def many(n: int) -> dict[str, Any]:
    results = example()
    good = results["methods"][:5]
    results["methods"] = [
        copy.deepcopy(good[i % 5]) | {"name": f"{i:02d}-" + "x" * 37} for i in range(n)
    ]
    results["tests"] = {}
    return results


def unknown() -> dict[str, Any]:
    """Results in which every optional value is missing."""
    results = example()
    for i, entry in enumerate(results["methods"][:5]):
        value = {"mean": math.nan if i % 2 else None, "low": None, "high": math.nan, "seeds": []}
        entry["metrics"] = {"ndcg@10": value}
        entry |= {"fit_seconds": [None] if i else [], "trials": None, "model_bytes": None}
        entry |= {"steps": [{"seconds": 0.0, "score": None}], "peak_bytes": None}
        entry |= {"popularity": [], "history": [], "parameters": None}
    return results | {"tests": {}, "queries": None}


def all_failed() -> dict[str, Any]:
    results = example()
    failed = results["methods"][-1]
    results["methods"] = [failed | {"name": e["name"]} for e in results["methods"]]
    return results | {"tests": {}, "queries": None}


CASES = {
    "interactions": example(),
    "texts": example("_texts"),
    "graded": example("_graded"),
    "sweep": example("_sweep"),
    "one": {**example(), "methods": example()["methods"][:1], "tests": {}},
    "fifteen": many(15),
    "failed": all_failed(),
    "one metric": {**example(), "metrics": ["mrr@10"]},
    "unknown": unknown(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_complete_small_and_self_contained(name: str) -> None:
    text = render(CASES[name])
    page = Page(text)
    assert len(text.encode()) < 300_000
    assert not re.search(r"\b(nan|None|Undefined)\b", page.words)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "img", "iframe")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    targets = {attributes.get("id") for _, attributes in page.tags}
    assert {a["href"][1:] for tag, a in page.tags if tag == "a" and a["href"]} <= targets


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_accessible(name: str) -> None:
    page = Page(render(CASES[name]))
    assert ("html", {"lang": "en"}) in page.tags
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.count("caption") == page.count("table")
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    charts = [a for tag, a in page.tags if tag == "svg" and a.get("class") == "chart"]
    assert page.count("desc") == len(charts)


def test_the_table_is_sorted_with_the_best_bold_ties_marked_and_errors_last() -> None:
    results = example()
    results["methods"].reverse()
    text = render(results)
    table = text[text.index("<tbody>") : text.index("</tbody>")]
    assert re.findall(r'<th scope="row">(.*?)</th>', table) == [
        *("rg2", "ease", "ials", "softmax", "bpr", "sml")
    ]
    rows = table.split("<tr")[1:]
    assert "<b>0.0719</b>" in rows[0]
    assert "0.0698 to 0.0740" in rows[0]
    assert rows[1].count("tied") == 4
    assert rows[2].count("tied") == 0
    assert "<b>0.5118</b>" in rows[3]  # coverage, which has no test
    assert "failed: not enough memory" in rows[5]
    assert 'class="error"' in rows[5]


def test_charts_show_the_measurements() -> None:
    text = render(example())
    page = Page(text)
    for words in ("training time (s, log scale)", "model size (MB, log scale)"):
        assert words in page.words
    assert {"head", "torso", "tail", "8 to 14"} <= set(re.findall(r">([^<>]+)</text>", text))
    assert page.count("figure") == len(COST_FIGURES) + len(GROUPINGS)
    assert "rankfold compare pinterest --methods" in page.words


def test_a_group_without_queries_has_no_figure() -> None:
    results = example()
    for entry in results["methods"]:
        for part in entry["popularity"][-1:]:
            part |= {"queries": 0, "metrics": {}}
    (row,) = re.findall(rf"<tr><th scope=.row.>rg2</th>[^\n]*{UNKNOWN}</td></tr>", render(results))
    assert row.count(UNKNOWN) == 1


def test_texts_show_examples_with_correct_ones_marked() -> None:
    text = render(example("_texts"))
    assert text.count('<li class="right">') == 20  # 5 queries, 2 methods, 2 correct ones each
    assert Page(text).words.count("fetch api") == 10


def test_grades_are_shown_by_threshold() -> None:
    text = render(example("_graded"))
    page = Page(text)
    assert "incapacitating or more" in page.words
    assert (
        page.count("figure") == len(COST_FIGURES) + 3
    )  # a calibration curve for each of three methods
    rows = text[text.index("<caption><span>tpr@fpr=.01<") :].split("<tr")
    values = re.findall(r'"n">([^<]*)<', rows[2])
    assert values == ["0.2600", UNKNOWN, "0.3200", "0.3500", "0.3100"]


def test_the_legend_of_a_sweep_is_sorted_by_quality() -> None:
    results = example("_sweep")
    methods = results["sweep"]["methods"]

    def best(name: str) -> float:
        return max(of[results["metrics"][0]]["mean"] for of in methods[name].values())

    ranked = sorted(methods, key=best, reverse=True)
    assert len(ranked) > 1
    for order in (ranked, ranked[::-1]):
        sweep = results["sweep"] | {"methods": {name: methods[name] for name in order}}
        legend = render(results | {"sweep": sweep}).split('<ul class="legend">')[1]
        result = re.findall(r"<span>(.*?)</span>", legend.split("</ul>")[0])
        assert result == ranked


def test_a_sweep_is_drawn_for_each_metric_on_a_log_axis() -> None:
    results = example("_sweep")
    page = Page(render(results))
    assert page.flat.count("batch_size (log scale)") == len(results["metrics"])
    words = json.loads(json.dumps(results["sweep"]).replace('"256"', '"low"'))
    named = Page(render(results | {"sweep": words}))
    assert "batch_size (log scale)" not in named.words
    assert ">low</text>" in render(results | {"sweep": words})


def test_text_from_data_is_escaped() -> None:
    for kind in ("", "_texts", "_graded", "_sweep"):
        results = json.loads(
            json.dumps(example(kind))
            .replace('"name": "', f'"name": "{EVIL}')
            .replace('"text": "', f'"text": "{EVIL}')
        )
        results["tests"] = {}
        results["methods"][0]["settings"] = {EVIL: EVIL}
        results["methods"][-1]["error"] = {"message": EVIL, "hint": EVIL}
        results |= {"command": EVIL, "machine": {EVIL: EVIL}, "metrics": [EVIL]}
        text = render(results)
        assert "<script" not in text
        assert "&lt;script" in text
        Page(text)


def test_long_lines_are_thinned_to_their_end() -> None:
    assert thin(list(range(MAX_STEPS))) == list(range(MAX_STEPS))
    result = thin(list(range(1000)))
    assert result[-1] == 999
    assert MAX_STEPS / 2 < len(result) <= MAX_STEPS
    assert len({b - a for a, b in pairwise(result)}) == 1
    assert thin([]) == []


def test_facts_about_the_data() -> None:
    summary = {
        "pairs": 12345,
        "density": 0.0027,
        "grades": None,
        "pairs_per_query": {"median": 24},
        "train": {"rows": 10, "grades": [1, 2000]},
        "dropped": [{"why": "repeated", "rows": 3}],
        "left_out": [{"column": "c", "why": "constant"}],
    }
    assert facts(summary) == [
        ("pairs", "12,345"),
        ("density", "0.270%"),
        ("pairs per query: median", "24"),
        ("train: rows read", "10"),
        ("train: grades", "1; 2,000"),
        ("dropped: repeated", "3"),
        ("left out", "c, constant"),
    ]


def test_a_report_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write(example(), path)
    write(example("_texts"), path)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    assert "mdn-seealso" in path.read_text(encoding="utf-8")
    with pytest.raises(UserError, match="cannot write"):
        write(example(), path / "below" / "report.html")


def with_published(*, same: bool = True) -> dict[str, Any]:
    rows = [
        {"name": "NEWER", "origin": "Bob et al., 2021", "metrics": {"ndcg@10": 0.4803}},
        {"name": "NEW", "origin": "Bob et al., 2021", "metrics": {"ndcg@10": 0.4720}},
        {"name": "OLD <b>", "origin": "Ann et al., 2019", "metrics": {"ndcg@10": 0.39}},
    ]
    sizes = {"queries": 10_000, "candidates": 2_000, "same": same}
    return {**example(), "protocol": "x", "published": {**sizes, "rows": rows}}


def test_published_rows_are_marked_with_their_source() -> None:
    text = render(with_published())
    page = Page(text)
    rows = [attributes for tag, attributes in page.tags if attributes.get("class") == "published"]
    assert len(rows) == 3
    assert page.flat.count("published [1]") == 2
    assert page.flat.count("published [2]") == 1
    assert "[1] Bob et al., 2021. [2] Ann et al., 2019." in page.flat
    assert page.flat.index("NEWER") < page.flat.index("OLD <b>")  # in the given order, escaped
    assert ">0.39</td>" in text  # as many digits as printed
    assert "0.4720" in page.flat
    assert "do not compare" not in page.flat


def test_published_rows_of_other_sizes_have_a_warning() -> None:
    page = Page(render(with_published(same=False)))
    assert "10,000 queries and 2,000 candidates" in page.flat
    assert "do not compare the values" in page.flat


def test_published_rows_take_no_part_in_the_ranking() -> None:
    assert with_published()["published"]["rows"][0]["name"] not in render(example())
    before, after = Page(render(example())), Page(render(with_published()))
    assert before.count("b") == after.count("b")
