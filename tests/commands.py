"""Run commands in this process; check exit code, stdout and stderr."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rankfold.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Done]


def assert_refused(done: Done, message: str, hint: str) -> None:
    """The command ended with one error and one hint, and without output."""
    assert (done.code, done.out) == (2, ""), done.err
    before, _, said = done.err.rpartition("error: ")
    assert "error" not in before
    error, _, advice = (" ".join(part.split()) for part in said.partition("\nhint: "))
    assert message in error
    assert hint in advice


@pytest.fixture
def rankfold(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*words: object) -> Done:
        monkeypatch.setattr("sys.argv", ["rankfold", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run
