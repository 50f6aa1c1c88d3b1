"""Every cited paper is in the list of papers."""

import re
from pathlib import Path

from rankfold.methods import METHODS

ROOT = Path(__file__).parents[2]
KNOWN = set(re.findall(r"\*\*\[(\w+)\]\*\*", (ROOT / "docs/reference/papers.md").read_text()))


def test_methods_name_known_papers() -> None:
    assert {method.paper for method in METHODS.values()} - {""} <= KNOWN


def test_docstrings_cite_known_papers() -> None:
    cited = {
        key
        for path in (ROOT / "src").rglob("*.py")
        for key in re.findall(r"\[([a-z]+(?:19|20)\d\d)\]", path.read_text())
    }
    assert cited
    assert cited <= KNOWN
