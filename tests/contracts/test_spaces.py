"""The config of every method accepts its search spaces, and the defaults are inside."""

import pytest
import torch

from rankfold import config
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods import METHODS
from rankfold.types import Choices, Range, Space, from_pairs
from rankfold.types.spaces import count_points

PAPER = {name: one.paper_space for name, one in METHODS.items() if one.paper_space is not None}
BOTH = [pytest.param(name, one.space, id=f"usual-{name}") for name, one in METHODS.items()]
BOTH += [pytest.param(name, space, id=f"paper-{name}") for name, space in PAPER.items()]


def ends(where: Range | Choices) -> list[object]:
    if isinstance(where, Choices):
        return list(where.values)
    return [int(end) if where.whole else end for end in (where.low, where.high)]


@pytest.mark.parametrize(("name", "space"), BOTH)
def test_config_accepts_the_bounds(name: str, space: Space) -> None:
    for setting, where in space.items():
        for end in ends(where):
            built = config.build(METHODS[name].config, {setting: end})
            assert getattr(built, setting) == end
            assert type(getattr(built, setting)) is type(end)


@pytest.mark.parametrize("name", METHODS)
def test_defaults_are_inside_the_space(name: str) -> None:
    """The first trial of a search is the method with its defaults."""
    places = torch.arange(20_000)  # 2,000 queries with 10 pairs each
    rows = from_pairs(places // 10, places % 1000, None, (2000, 1000))
    defaults = METHODS[name].config().for_data(rows, SINGLE_PROCESS)
    for setting, where in METHODS[name].space.items():
        assert where.holds(getattr(defaults, setting)), setting


@pytest.mark.parametrize(("name", "space"), BOTH)
def test_ranges_can_be_drawn_from(name: str, space: Space) -> None:
    for where in space.values():
        if isinstance(where, Range):
            assert where.low < where.high, name
            assert where.low > 0 or not where.log, name
            assert not where.whole or where.low == int(where.low) < where.high == int(where.high)
        else:
            assert len(set(where.values)) == len(where.values) > 1, name


def test_width_and_settings_that_a_method_selects_itself_are_not_searched() -> None:
    assert not any("width" in one.space or "fpr" in one.space for one in METHODS.values())
    assert METHODS["rg2"].space == {}
    for name in ("siamesexml", "siamesexml-3", "siamesexml-paper", "siamesexml-released"):
        selected = {"classifier_share", "centroid_weight", "popularity_weight", "beta"}
        assert not selected & METHODS[name].space.keys()


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if not one.self_tuning])
def test_methods_with_numbers_to_tune_have_a_space(name: str) -> None:
    """A method with a regularisation or a learning rate declares a range for it."""
    known = set(config.declarations(METHODS[name].config))
    assert METHODS[name].space or not known & {"reg", "lr"}


def test_sizes_of_the_papers_grids() -> None:
    sizes = {"ials": 16, "bpr": 12, "wrmf": 20, "rg2-weighted": 64, "xir": 5}
    assert {name: count_points(PAPER[name]) for name in sizes} == sizes
