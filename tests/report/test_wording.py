"""Results in words: who is best, by how much, at what cost; and numbers that people read."""

import math
from typing import Any

import pytest

from rankfold.report.wording import NONE, chance, duration, number, signed, size, summary, verdicts


def method(name: str, mean: float | None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "error": None,
        "metrics": {"ndcg@10": {"mean": mean, "low": None, "high": None}},
        "fit_seconds": [2.0, 4.0, 90.0],
        "trials": None,
        "model_bytes": 66_000_000,
        **more,
    }


def results(*methods: dict[str, Any], **others: dict[str, Any]) -> dict[str, Any]:
    return {
        "data": {"name": "d"},
        "split": "test",
        "metrics": ["ndcg@10"],
        "methods": list(methods),
        "tests": {"ndcg@10": {"best": methods[0]["name"], "others": others}} if others else {},
    }


TIED, APART = {"tied": True}, {"tied": False}


def test_the_best_by_how_much_and_at_what_cost() -> None:
    words = summary(results(method("b", 0.3), method("a", 0.4), b=APART))
    assert words == [
        "a is best: ndcg@10 0.4000 on the test split of d.",
        "b is 0.1000 (25.0%) below.",
        "A fit of a took 4 s.",
        "The model takes 66 MB on disk.",
    ]


def test_ties_and_the_first_that_is_not() -> None:
    trio = method("a", 0.4), method("b", 0.39, fit_seconds=[1.5]), method("c", 0.2)
    words = summary(results(*trio, b=TIED, c=APART))
    assert words[1:4] == [
        "b is tied with it: that difference may be chance.",
        "Of these, b fits fastest, in 1.5 s.",
        "The first that is not tied, c, is 0.2000 (50.0%) below.",
    ]


def test_tuning_other_metrics_and_failures_are_told() -> None:
    failed = method("x", None, error={"message": "no memory", "hint": "less"}, metrics={})
    best = method("a", 0.4, trials={"seconds": 71.2})
    found = results(best, method("b", 0.3), failed, b=APART)
    found["tests"] |= {"mrr@10": {"best": "b", "others": {}}, "hit@1": {"best": "a", "others": {}}}
    words = " ".join(summary(found))
    assert "a is best by hit@1 too. By mrr@10, b is best." in words
    assert "A fit of a took 4 s, after 71.2 s of tuning." in words
    assert words.endswith("x failed: no memory.")


def test_little_to_say() -> None:
    failed = method("x", None, error={"message": "no memory", "hint": ""}, metrics={})
    assert summary(results(failed)) == [
        "No method gave a result on the test split of d.",
        "x failed: no memory.",
    ]
    assert "nothing to compare it with" in summary(results(method("a", 0.4)))[0]
    for missing in (None, math.nan):
        assert summary(results(method("a", missing))) == [
            "No method has a value of ndcg@10 on the test split of d."
        ]


def test_metrics_that_agree_share_a_verdict() -> None:
    tests = {
        "m1": {"best": "a", "others": {"b": TIED, "c": APART}},
        "m2": {"best": "a", "others": {"b": TIED, "c": APART}},
        "m3": {"best": "b", "others": {"a": APART, "c": APART}},
        "m4": {"best": "c", "others": {"a": TIED, "b": TIED}},
    }
    assert verdicts({"tests": tests}, list(tests)) == [
        "By m1 and m2, a has the highest mean but is tied with b: that lead may be chance. "
        "Its lead over the other method is more than that.",
        "By m3, b is better than every other method by more than chance.",
        "By m4, c has the highest mean but is tied with a and b: that lead may be chance.",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (3.4, "3.4 s"),
        (101, "101 s"),
        (599.9, "10 min"),
        (900, "15 min"),
        (7200, "2 h"),
        (None, NONE),
        (math.nan, NONE),
    ],
)
def test_times(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (66e6, "66 MB"),
        (999_999, "1 MB"),
        (3e12, "3 TB"),
    ],
)
def test_sizes(count: float, words: str) -> None:
    assert size(count) == words


def test_numbers() -> None:
    assert number(0.07194) == "0.0719"
    assert signed(-0.0006) == "\N{MINUS SIGN}0.0006"
    assert [chance(p) for p in (0.0004, 0.0123, 0.3124)] == ["p < 0.001", "p = 0.012", "p = 0.31"]
    assert number(None) == signed(math.inf) == chance(math.nan) == NONE
