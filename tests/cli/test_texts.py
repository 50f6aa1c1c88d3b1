"""Texts on the command line: prepare, info, verify."""

import json
from pathlib import Path

import pytest
from commands import Command

from rankfold.data import folder


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rows = [{"title": f"the title {i % 7}", "tags": [f"tag {i % 3}"]} for i in range(40)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "d.jsonl"


def test_prepare_info_and_verify(rankfold: Command, documents: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    done = rankfold("prepare", documents, "--format", "texts", "--out", out)
    assert done.code == 0, done.err
    assert folder.load(out).n_tokens == 10  # the, title, tag, and the numbers of seven titles
    shown = " ".join(rankfold("info", out).err.split())
    assert "tokens are words, 10 distinct" in shown
    assert "query texts: tokens per text: median 3, maximum 3; empty: 0" in shown
    assert rankfold("verify", out).code == 0
    (file,) = out.glob("tokenizer-*.json")
    file.write_bytes(file.read_bytes()[:-1] + b" ")
    done = rankfold("verify", out)
    assert done.code == 2
    assert file.name in done.err


def test_options_reach_the_tokenizer(rankfold: Command, documents: Path, tmp_path: Path) -> None:
    options = ("--tokens", "word-piece", "--vocabulary", 60, "--split", "0.8,0.1,0.1")
    done = rankfold("prepare", documents, "--format", "texts", "--out", tmp_path / "data", *options)
    assert done.code == 0, done.err
    tokenizer = folder.load(tmp_path / "data").tokenizer
    assert tokenizer is not None
    assert json.loads(tokenizer)["model"]["type"] == "WordPiece"


def test_error_is_a_line_with_a_hint(rankfold: Command, documents: Path, tmp_path: Path) -> None:
    done = rankfold(
        *("prepare", documents, "--format", "texts", "--out", tmp_path / "data"),
        *("--candidate-column", "labels"),
    )
    assert done.code == 2
    assert "error: d.jsonl has no column 'labels'" in done.err
    assert "hint: it has title, tags; use --candidate-column NAME" in done.err
    assert not (tmp_path / "data").exists()


def test_a_script_without_separated_words_is_named(rankfold: Command, tmp_path: Path) -> None:
    signs = ["".join(chr(0x12000 + i + n) for n in range(20)) for i in range(30)]
    rows = [{"title": text, "tags": [f"tag {i % 3}"]} for i, text in enumerate(signs)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = rankfold("prepare", tmp_path / "d.jsonl", "--format", "texts", "--out", tmp_path / "x")
    shown = " ".join(done.err.split())
    assert "query texts: 30 in the script Cuneiform have 1 words each" in shown
