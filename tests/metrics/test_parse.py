"""Parsing the names of metrics."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.errors import UserError
from rankfold.metrics import CATALOG_METRICS, METRICS, MetricSpec, more_is_better, parse

NAMES = [*METRICS, *CATALOG_METRICS]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_round_trips(name: str) -> None:
    assert parse(f"{name}@20") == MetricSpec(name, 20)
    assert str(parse(f"{name}@20")) == f"{name}@20"


@pytest.mark.parametrize("name", NAMES)
def test_more_is_better_except_for_popularity(name: str) -> None:
    assert more_is_better(f"{name}@20") == (name not in ("popularity", "calibration", "gini"))


def test_more_is_better_for_graded_rows() -> None:
    assert more_is_better("tpr@fpr=.01")
    assert more_is_better("auc")


def test_spaces_around_a_name_do_not_matter() -> None:
    assert parse(" mrr@10 ") == ("mrr", 10)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ndgc@10", "ndcg@10"),
        ("NDCG@10", "ndcg@10"),
        ("ndcg_graded@5", "ndcg-graded@5"),
        ("recal", "recall@10"),
        ("covrage@5", "coverage@5"),
        ("psp_raw@0", "psp-raw@10"),
        ("p@1", "precision@1"),
        ("P@5", "precision@5"),
        ("r@100", "recall@100"),
        ("hr", "hit@10"),
        ("nDCG@3", "ndcg@3"),
        ("PSnDCG@3", "psn@3"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(text: str, meant: str) -> None:
    with pytest.raises(UserError, match="there is no metric") as caught:
        parse(text)
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize("text", ["tpr@fpr=.01", "xyz@5", "", "@10"])
def test_an_unknown_name_gets_a_list_of_all(text: str) -> None:
    with pytest.raises(UserError, match="there is no metric") as caught:
        parse(text)
    assert all(f"{name}@k" in caught.value.hint for name in NAMES)


def test_a_name_without_k_gets_an_example() -> None:
    with pytest.raises(UserError, match="'ndcg' needs a number of results") as caught:
        parse("ndcg")
    assert caught.value.hint == "write ndcg@10"


@pytest.mark.parametrize("k", ["", "0", "-1", "ten", "1.5", "010", "1e3", "1_0", "²", "9" * 5000])
def test_k_must_be_a_whole_number_from_one(k: str) -> None:
    with pytest.raises(UserError, match="needs a whole number of at least 1") as caught:
        parse(f"ndcg@{k}")
    assert caught.value.hint == "write ndcg@10"


@settings(deadline=None)
@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for tried in (text, f"ndcg@{text}", f"{text}@10"):
        try:
            spec = parse(tried)
        except UserError as error:
            assert error.hint  # noqa: PT017
        else:
            assert str(spec) == tried.strip()
