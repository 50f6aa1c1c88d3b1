"""Every source says what it takes, is documented, and refuses files of another kind."""

import re
from pathlib import Path

import pytest

import rankfold as rf
from rankfold.data.sources import SOURCES
from rankfold.errors import UserError

PAGE = (Path(__file__).parents[2] / "docs/reference/sources.md").read_text()
WITH_INPUTS = [name for name, source in SOURCES.items() if source.inputs]


def test_names_are_sorted() -> None:
    assert list(SOURCES) == sorted(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_source_is_documented(name: str) -> None:
    assert SOURCES[name].summary
    assert re.search(rf"^\|.*`{name}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", WITH_INPUTS)
def test_other_file_is_refused_with_a_hint(name: str, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("neither a table\nnor a release of anything\n")
    with pytest.raises(UserError) as error:
        rf.prepare(tmp_path / "other.txt", source=name)
    assert error.value.hint


@pytest.mark.parametrize("name", WITH_INPUTS)
def test_empty_folder_is_refused_with_a_hint(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as error:
        rf.prepare(tmp_path / "empty", source=name)
    assert error.value.hint
