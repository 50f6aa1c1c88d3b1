"""``rankfold serve``: its options, and its errors before the server starts."""

import shutil
import socket
import sys
from pathlib import Path

import pytest
from commands import Command

from rankfold.serve.limits import Limits
from rankfold.serve.server import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that a server would get; none is started."""
    import torch

    calls: list[Settings] = []
    monkeypatch.setattr("rankfold.serve.server.serve", calls.append)
    monkeypatch.setattr(torch, "set_num_threads", lambda _n: None)
    monkeypatch.delenv("RANKFOLD_TOKEN", raising=False)
    return calls


def test_only_this_machine_by_default(
    rankfold: Command, model: Path, served: list[Settings]
) -> None:
    done = rankfold("serve", model)
    assert (done.code, done.err) == (0, "")
    (settings,) = served
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.folders == {"model": model}
    assert settings.token is None
    assert settings.limits == Limits()  # the defaults are stated once


def test_limits(rankfold: Command, model: Path, served: list[Settings]) -> None:
    words = ("--max-k", 7, "--max-batch", 3, "--max-body", 99, "--max-text", 8, "--timeout", 2)
    assert rankfold("serve", model, *words, "--max-requests", 5).code == 0
    expected = Limits(k=7, batch=3, body=99, text=8, timeout=2.0, requests=5)
    assert served[0].limits == expected


def test_a_public_address_without_a_token_warns(
    rankfold: Command,
    model: Path,
    served: list[Settings],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    done = rankfold("serve", model, "--host", "0.0.0.0")
    assert done.code == 0
    assert "warning: other machines can reach 0.0.0.0" in done.err
    assert "hint: set RANKFOLD_TOKEN" in done.err
    monkeypatch.setenv("RANKFOLD_TOKEN", "abc")
    assert rankfold("serve", model, "--host", "0.0.0.0").err == ""
    (tmp_path / "token").write_text("def\n")
    assert rankfold("serve", model, "--token-file", tmp_path / "token").err == ""
    assert [settings.token for settings in served] == [None, "abc", "def"]


@pytest.mark.parametrize("content", ["", " \n", "two words", "é", "a\x00b"])
def test_invalid_tokens_are_refused(
    rankfold: Command, model: Path, served: list[Settings], tmp_path: Path, content: str
) -> None:
    (tmp_path / "token").write_text(content)
    done = rankfold("serve", model, "--token-file", tmp_path / "token")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "hint: " in done.err
    assert content.strip() == "" or content not in done.err
    assert served == []


def test_invalid_input_is_explained(
    rankfold: Command, model: Path, tmp_path: Path, served: list[Settings]
) -> None:
    shutil.copytree(model, tmp_path / "other" / "model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "picture").write_bytes(b"\xff\xfe")
    for words, message in (
        ([tmp_path / "nothing"], "there is no folder"),
        ([tmp_path / "empty"], "is not a rankfold folder"),
        ([model.with_name("data")], "is a data folder, not a model folder"),
        ([model, tmp_path / "other" / "model"], "two models have the name 'model'"),
        ([model, "--token-file", tmp_path / "nothing"], "No such file"),
        ([model, "--token-file", tmp_path / "picture"], "picture is not text"),
    ):
        done = rankfold("serve", *words)
        assert done.code == 2
        assert done.err.startswith("error: ")
        assert message in done.err
        assert "\nhint: " in done.err
    assert served == []
    assert rankfold("serve", model, f"second={tmp_path / 'other' / 'model'}").code == 0
    assert list(served[0].folders) == ["model", "second"]


def test_a_taken_port_is_an_error(rankfold: Command, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = rankfold("serve", model, "--port", taken.getsockname()[1])
    assert done.code == 2
    assert "error: cannot listen on 127.0.0.1, port" in done.err
    assert "hint: choose another --port" in done.err


def test_an_address_of_another_machine_is_an_error(rankfold: Command, model: Path) -> None:
    done = rankfold(
        "serve", model, "--host", "192.0.2.1", "--port", 0
    )  # reserved for documentation
    assert done.code == 2
    assert "hint: --host must be an address of this machine" in done.err


def test_a_damaged_model_stops_the_server(rankfold: Command, model: Path) -> None:
    """The file's size and header are right, so only its checksum shows the damage."""
    largest = max(model.glob("tensors-*"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.write_bytes(bytes(content))
    done = rankfold("serve", model, "--port", 0)
    assert done.code == 2
    assert "does not match its checksum" in done.err


def test_a_missing_extra_is_explained(
    rankfold: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = rankfold("serve", model)
    assert done.code == 2
    assert "error: the server needs fastapi" in done.err
    assert "hint: pip install 'rankfold[serve]'" in done.err
