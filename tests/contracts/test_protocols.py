"""Every protocol names existing things; every published figure belongs to one, with its source."""

import re
from pathlib import Path

import pytest

from rankfold import config
from rankfold.data.sources import SOURCES
from rankfold.methods import find_method
from rankfold.metrics import parse
from rankfold.tasks.compare.protocols import PROTOCOLS, Protocol
from rankfold.tasks.compare.published import PUBLISHED, Table
from rankfold.tasks.options import CompareOptions

PAGE = (Path(__file__).parents[2] / "docs/reference/protocols.md").read_text()
TABLES = [(name, source, table) for name, of in PUBLISHED.items() for source, table in of.items()]


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_methods_metrics_and_settings_exist(protocol: Protocol) -> None:
    methods = protocol.methods.split(",")
    assert len(set(methods)) == len(methods)
    assert all(find_method(name).data_kind == "interactions" for name in methods)
    options = config.build(CompareOptions, {**protocol.options, "out": "x"})
    metrics = str(options.metrics).split(",")
    assert options.metric in metrics
    assert all(str(parse(name)) == name for name in metrics)
    for settings in protocol.settings.values():
        assert set(settings) <= set(methods)
        for name, own in settings.items():
            built = config.build(find_method(name).config, own)
            assert {key: getattr(built, key) for key in own} == own
    assert set(protocol.settings) <= {*SOURCES, ""}


def test_held_out_queries_are_ranked_by_every_method_of_their_protocol() -> None:
    methods = PROTOCOLS["strong"].methods.split(",")
    assert all("histories" in find_method(name).answers for name in methods)


def test_grids_of_the_rg2_paper() -> None:
    """Appendix B.3: 12 points by gradient descent, 20 of WRMF, 64 of RG2; all fit in the trials."""
    sizes = {"bpr": 12, "softmax": 12, "uib": 12, "sml": 12, "wrmf": 20, "rgx": 64}
    for name, size in sizes.items():
        space = find_method(name).paper_space
        assert space is not None
        assert config_points(space) == size, name
    assert PROTOCOLS["rg2"].options["trials"] == 64


def config_points(space: object) -> int | None:
    from rankfold.types.spaces import count_points

    return count_points(space)  # type: ignore[arg-type]


@pytest.mark.parametrize(("protocol", "source", "table"), TABLES)
def test_published_figures_have_a_source_and_known_metrics(
    protocol: str, source: str, table: Table
) -> None:
    assert source in SOURCES
    assert set(table.metrics) <= set(PROTOCOLS[protocol].options["metrics"].split(","))
    for origin, rows in table.rows.items():
        assert re.search(r"[A-Z].*\w", origin)
        for values in rows.values():
            assert len(values) == len(table.metrics)
            assert all(0 < value < 1 for value in values)


@pytest.mark.parametrize(("protocol", "source", "table"), TABLES)
def test_documentation_has_the_same_figures(protocol: str, source: str, table: Table) -> None:
    lines = PAGE.splitlines()
    assert any(f"--source {source}" in line and "rankfold prepare" in line for line in lines)
    assert f"--protocol {protocol}" in PAGE
    cells = {cell.strip() for line in lines if line.startswith("|") for cell in line.split("|")}
    printed = {float(cell) for cell in cells if re.fullmatch(r"\.\d+", cell)}
    for rows in table.rows.values():
        for name, values in rows.items():
            assert name in cells
            assert set(values) <= printed, name
    assert f"{table.queries:,}" in PAGE
    assert f"{table.candidates:,}" in PAGE
