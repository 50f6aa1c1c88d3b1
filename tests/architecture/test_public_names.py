"""The public names are the same for type checkers, for ``dir`` and for ``import *``."""

import ast
from pathlib import Path

import pytest

import rankfold as rf


def test_names_for_type_checkers_are_those_at_run_time() -> None:
    tree = ast.parse(Path(rf.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # an explicit re-export
    }
    homes["load_data"] = "rankfold.data.folder.load"
    assert dir(rf) == rf.__all__ == sorted(["__version__", *homes])
    for name, home in homes.items():
        module, _, attribute = home.rpartition(".")
        value = getattr(__import__(module, fromlist=[attribute]), attribute)
        assert getattr(rf, name) is value


def test_import_star_and_unknown_names() -> None:
    names: dict[str, object] = {}
    exec("from rankfold import *", names)
    assert set(rf.__all__) <= names.keys()
    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        _ = rf.fitt
