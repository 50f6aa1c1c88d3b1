"""Every input of the corpus is read, or refused with an error for users."""

from pathlib import Path

import pytest
from fuzzed import TARGETS, corpus, defect


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_read_or_refused(target: str, tmp_path: Path) -> None:
    for number, content in enumerate(corpus(target)):
        (home := tmp_path / str(number)).mkdir()
        if (error := defect(target, content, home)) is not None:
            error.add_note(f"read {content[:300]!r}")
            raise error
