"""JSON for strict readers."""

import json
import math

import pytest

from rankfold import storage


def parse_strictly(text: str) -> object:
    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_nan_and_infinity_become_null() -> None:
    document = {"a": math.nan, "b": [1.5, (-math.inf, 2)], "c": {"d": math.inf, "e": "NaN"}}
    parsed = parse_strictly(storage.to_json(document))
    assert parsed == {"a": None, "b": [1.5, [None, 2]], "c": {"d": None, "e": "NaN"}}


@pytest.mark.parametrize("indent", [None, 1])
def test_other_values_are_unchanged(indent: int | None) -> None:
    document = {"é": [True, None, 1, 0.1, 1e300, ""], "x": {}}
    text = storage.to_json(document, indent=indent)
    assert parse_strictly(text) == document
    assert "é" in text
    assert text.endswith("}\n")
