"""Names from files and keys are shown as they are, and never steer the terminal."""

from pathlib import Path

import polars as pl
from commands import Command


def test_keys_with_brackets_are_shown_unchanged(rankfold: Command, tmp_path: Path) -> None:
    pairs = [("a", "[/b8]"), ("a", "[i3]x"), ("b", "[/b8]"), ("b", "[red]y")]
    pl.DataFrame(pairs, schema=["user", "item"], orient="row").write_csv(tmp_path / "t.csv")
    data, out = tmp_path / "data [1]", tmp_path / "model [b]"
    assert rankfold("prepare", tmp_path / "t.csv", "--out", data, "--split", "1,0,0").code == 0
    assert rankfold("fit", "popularity", data, "--out", out).code == 0
    shown = rankfold("search", out, "--query", "a", "--include-seen")
    assert shown.code == 0
    assert all(key in shown.err for key in ("[/b8]", "[i3]x", "[red]y"))


def test_control_characters_of_a_file_are_escaped(rankfold: Command, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("us\x1b[31mer,it\x1b[2Jem,stars\na,b,1\n")
    done = rankfold("prepare", table, "--out", tmp_path / "data")
    assert done.code == 2
    assert "\x1b" not in done.err
    assert "us\\x1b[31mer" in done.err


def test_control_characters_of_a_key_are_escaped(rankfold: Command, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    keys = ["\x1b[2Jclear", "tea", "ink", "jam"]
    rows = [f"u{i},{key}" for i in range(8) for key in keys if (i + len(key)) % 3 != 0]
    table.write_text("\n".join(["query,candidate", *rows]) + "\n")
    assert rankfold("prepare", table, "--out", tmp_path / "data").code == 0
    assert rankfold("fit", "popularity", tmp_path / "data", "--out", tmp_path / "model").code == 0
    done = rankfold("search", tmp_path / "model", "--history", "tea")
    assert done.code == 0
    assert "\x1b[2J" not in done.out + done.err
    assert "\\x1b[2Jclear" in done.out + done.err


def test_no_name_steers_the_terminal(rankfold: Command, model: Path, tmp_path: Path) -> None:
    """A colour, and the title of the window."""
    marks = "\x1b[31m\x1b]0;title\x07"
    path = tmp_path / f"r{marks}.csv"
    path.write_text(f"user{marks},item{marks},{marks}\na{marks},b,c\n")
    how = ("--query-column", f"user{marks}", "--candidate-column", f"item{marks}")
    (tmp_path / "h.csv").write_text(f"{marks}\na\n")
    for words in (
        ("prepare", path, "--out", tmp_path / f"d{marks}", *how),
        ("info", tmp_path / f"d{marks}"),
        ("search", model, "--history", marks),
        ("predict", model, tmp_path / "h.csv", "--out", tmp_path / f"p{marks}.csv"),
    ):
        done = rankfold(*words)
        assert not set("\x1b\x07") & set(done.out + done.err), (words, done)
        assert "\\x1b[31m" in done.err
