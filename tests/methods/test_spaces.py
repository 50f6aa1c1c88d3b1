"""Every method says where to look for its settings, and its config accepts what is found there."""

import pytest

from rankfold import config
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.spaces import PAPER, SPACES, Choices, Range, Space, count_points

BOTH = [pytest.param(name, space, id=f"usual-{name}") for name, space in SPACES.items()]
BOTH += [pytest.param(name, space, id=f"paper-{name}") for name, space in PAPER.items()]


def ends(where: Range | Choices) -> list[object]:
    if isinstance(where, Choices):
        return list(where.values)
    return [int(end) if where.whole else end for end in (where.low, where.high)]


def test_every_method_has_a_space() -> None:
    assert SPACES.keys() == METHODS.keys()
    assert PAPER.keys() <= METHODS.keys()


@pytest.mark.parametrize(("name", "space"), BOTH)
def test_the_config_accepts_the_ends(name: str, space: Space) -> None:
    for setting, where in space.items():
        for end in ends(where):
            built = config.build(METHODS[name].config, {setting: end})
            assert getattr(built, setting) == end
            assert type(getattr(built, setting)) is type(end)


@pytest.mark.parametrize("name", SPACES)
def test_the_defaults_lie_inside(name: str) -> None:
    """So that the first trial of a search is the method as it is."""
    usual = METHODS[name].config()
    for setting, where in SPACES[name].items():
        assert where.holds(getattr(usual, setting)), setting


@pytest.mark.parametrize(("name", "space"), BOTH)
def test_ranges_can_be_drawn_from(name: str, space: Space) -> None:
    for where in space.values():
        if isinstance(where, Range):
            assert where.low < where.high, name
            assert where.low > 0 or not where.log, name
            assert not where.whole or where.low == int(where.low) < where.high == int(where.high)
        else:
            assert len(set(where.values)) == len(where.values) > 1, name


def test_width_and_what_a_method_chooses_itself_are_not_searched() -> None:
    assert not any("width" in space or "fpr" in space for space in SPACES.values())
    assert SPACES["rg2"] == {}
    for name in ("siamesexml", "siamesexml-3", "siamesexml-paper", "siamesexml-released"):
        chosen = {"classifier_share", "centroid_weight", "popularity_weight", "beta"}
        assert not chosen & SPACES[name].keys()


def test_points_of_a_space() -> None:
    assert count_points({}) == 1
    assert count_points({"a": Choices((1, 2)), "b": Choices(("x", "y", "z"))}) == 6
    assert count_points({"a": Choices((1, 2)), "b": Range(0.0, 1.0)}) is None
    sizes = {"ials": 16, "bpr": 12, "wrmf": 20, "rg2-weighted": 64, "xir": 5}
    assert {name: count_points(PAPER[name]) for name in sizes} == sizes


def test_what_a_range_holds() -> None:
    assert Range(1, 3).holds(1)
    assert Range(1, 3).holds(3.0)
    assert not Range(1, 3).holds(3.1)
    assert not Range(0, 3).holds(value=None)
    assert not Range(0, 3).holds(value=True)
    for wrong in ({"low": 2, "high": 1}, {"low": 0.0, "high": 1.0, "log": True}):
        with pytest.raises(UserError, match="there is no range"):
            Range(**wrong)  # type: ignore[arg-type]
