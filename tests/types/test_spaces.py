"""Ranges, choices, and the size of a space."""

import pytest

from rankfold.errors import UserError
from rankfold.types import Choices, Range
from rankfold.types.spaces import count_points


def test_points_of_a_space() -> None:
    assert count_points({}) == 1
    assert count_points({"a": Choices((1, 2)), "b": Choices(("x", "y", "z"))}) == 6
    assert count_points({"a": Choices((1, 2)), "b": Range(0.0, 1.0)}) is None


def test_range_holds_the_numbers_between_its_ends() -> None:
    assert Range(1, 3).holds(1)
    assert Range(1, 3).holds(3.0)
    assert not Range(1, 3).holds(3.1)
    assert not Range(0, 3).holds(value=None)
    assert not Range(0, 3).holds(value=True)


@pytest.mark.parametrize("ends", [{"low": 2, "high": 1}, {"low": 0.0, "high": 1.0, "log": True}])
def test_impossible_range_is_refused(ends: dict[str, float]) -> None:
    with pytest.raises(UserError, match="a range cannot go from"):
        Range(**ends)  # type: ignore[arg-type]
