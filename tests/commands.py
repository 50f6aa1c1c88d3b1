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


@pytest.fixture
def rankfold(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*words: object) -> Done:
        monkeypatch.setattr("sys.argv", ["rankfold", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run
