"""The sentences of a report: the best method, its lead, its cost."""

import math
from typing import Any

from rankfold.report.summary import summary, verdicts


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


def test_ties_and_the_best_of_the_others() -> None:
    trio = method("a", 0.4), method("b", 0.39, fit_seconds=[1.5]), method("c", 0.2)
    words = summary({**results(*trio, b=TIED, c=APART), "width": 64})
    assert words[:3] == [
        "Tied for best, all with width 64: a and b. a reaches ndcg@10 0.4000 on the test split of "
        "d; the differences may be chance.",
        "Of these, b fits fastest, in 1.5 s.",
        "The best of the others, c, is 0.2000 (50.0%) below.",
    ]


def test_a_method_with_another_width_is_not_in_the_headline() -> None:
    wide = method("a width=256", 0.5, equal_terms=False)
    words = summary({**results(method("b", 0.4), wide, method("c", 0.3), c=APART), "width": 64})
    assert words[0] == "b is best, all with width 64: ndcg@10 0.4000 on the test split of d."
    assert words[1] == "c is 0.1000 (25.0%) below."
    assert words[2] == "With another width, a width=256 reaches 0.5000."
    more = method("c width=256", 0.2, equal_terms=False)
    words = summary({**results(method("b", 0.4), wide, more), "width": 64})
    assert "With another width, a width=256, the best of 2, reaches 0.5000." in words
    assert not any("c width=256" in sentence for sentence in words)


def test_methods_without_a_width_are_named() -> None:
    both = method("a", 0.4, settings={"width": 64}), method("b", 0.3, settings={"reg": 1.0})
    words = summary({**results(*both, b=APART), "width": 64})
    assert words[2] == "b has no width."
    assert "b has no width." not in summary({**results(*both, b=APART), "width": None})


def test_tuning_other_metrics_and_failures_are_mentioned() -> None:
    failed = method("x", None, error={"message": "no memory", "hint": "less"}, metrics={})
    best = method("a", 0.4, trials={"seconds": 71.2})
    result = results(best, method("b", 0.3), failed, b=APART)
    result["tests"] |= {"mrr@10": {"best": "b", "others": {}}, "hit@1": {"best": "a", "others": {}}}
    words = " ".join(summary(result))
    assert "a is also best by hit@1. By mrr@10, b is best." in words
    assert "A fit of a took 4 s, after 71.2 s of tuning." in words
    assert words.endswith("x failed: no memory.")


def test_a_summary_of_few_results() -> None:
    failed = method("x", None, error={"message": "no memory", "hint": ""}, metrics={})
    assert summary(results(failed)) == [
        "Every method failed on the test split of d.",
        "x failed: no memory.",
    ]
    assert "No other method gave a result" in summary(results(method("a", 0.4)))[0]
    for missing in (None, math.nan):
        assert summary(results(method("a", missing))) == [
            "ndcg@10 is not defined for any method on the test split of d."
        ]


def test_metrics_that_agree_share_a_verdict() -> None:
    tests = {
        "m1": {"best": "a", "others": {"b": TIED, "c": APART}},
        "m2": {"best": "a", "others": {"b": TIED, "c": APART}},
        "m3": {"best": "b", "others": {"a": APART, "c": APART}},
        "m4": {"best": "c", "others": {"a": TIED, "b": TIED}},
    }
    methods = [method(name, None, metrics={}) for name in "abc"]
    methods.append(method("a width=9", None, metrics={}, equal_terms=False))
    for test in tests.values():
        test["others"]["a width=9"] = TIED
    given = {"tests": tests, "metrics": ["m1"], "methods": methods}
    assert verdicts(given, list(tests)) == [
        "By m1 and m2, a has the highest mean but is tied with b: the difference may be chance. "
        "Its lead over the other method is significant.",
        "By m3, b is significantly better than every other method.",
        "By m4, c has the highest mean but is tied with a and b: the difference may be chance.",
    ]
