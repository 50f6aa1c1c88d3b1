"""Files are expanded, decompressed or refused with a message."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.read.files import base_suffix, expand, lines, open_binary
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError

Pack = Callable[[bytes, str], bytes]
Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]
TEXT = b"".join(b"%d,%d\n" % (i, i * i) for i in range(30_000))


# ---------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("suffix", [".gz", ".zst", ""])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.zst"])
def test_compression_is_detected_from_the_content(
    suffix: str, name: str, tmp_path: Path, pack: Pack
) -> None:
    (tmp_path / name).write_bytes(pack(TEXT, suffix))
    with open_binary(tmp_path / name) as file:
        assert file.read() == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_parts_are_concatenated(suffix: str, tmp_path: Path, pack: Pack) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pack(TEXT[:100], suffix) + pack(b"", suffix) + pack(TEXT[100:], suffix))
    with open_binary(path) as file:
        assert file.read(7) + file.readline() + file.read() == TEXT


@given(sizes=st.lists(st.integers(1, 4000), max_size=30), suffix=st.sampled_from([".gz", ".zst"]))
def test_reads_of_any_size_give_every_byte(
    sizes: list[int],
    suffix: str,
    written: Written,
    pack: Pack,
) -> None:
    with written("a", pack(TEXT, suffix)) as (path, _), open_binary(path) as file:
        pieces = [file.read(size) for size in sizes]
        assert b"".join(pieces) + file.read() == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("missing", [1, 4, 9, 1000])
def test_truncated_file_is_refused(suffix: str, missing: int, tmp_path: Path, pack: Pack) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(pack(TEXT, suffix)[:-missing])
    with open_binary(path) as file, pytest.raises(UserError, match=rf"a\.csv{suffix} is truncated"):
        file.read()


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_file_is_refused(suffix: str, tmp_path: Path, pack: Pack) -> None:
    packed = bytearray(pack(TEXT, suffix))
    packed[len(packed) // 2 : len(packed) // 2 + 8] = bytes(8)
    (tmp_path / f"a{suffix}").write_bytes(packed)
    with (
        open_binary(tmp_path / f"a{suffix}") as file,
        pytest.raises(UserError, match=f"a{suffix} is damaged"),
    ):
        file.read()


def test_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.gz").touch()
    with open_binary(tmp_path / "a.gz") as file:
        assert file.read() == b""


def test_compressed_file_is_closed_with_its_content(tmp_path: Path, pack: Pack) -> None:
    (tmp_path / "a.gz").write_bytes(pack(TEXT, ".gz"))
    file = open_binary(tmp_path / "a.gz")
    assert isinstance(file, io.BufferedReader)
    compressed = file.raw._file  # type: ignore[attr-defined]
    file.close()
    assert compressed.closed


def test_folder_and_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        open_binary(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        open_binary(tmp_path / "a.csv")


def test_unreadable_file_is_refused(unprivileged: Path) -> None:
    (unprivileged / "a.csv").touch(mode=0)
    with pytest.raises(UserError, match=r"cannot read .*a\.csv: Permission denied"):
        open_binary(unprivileged / "a.csv")
    (unprivileged / "sub").mkdir(mode=0)
    with pytest.raises(UserError, match=r"cannot read .*a\.csv: Permission denied"):
        expand([unprivileged / "sub" / "a.csv"])


def test_lines_are_numbered_and_end_at_newlines_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\ntwo\u2028\x0b\x85 three\rfour\ncaf".encode() + b"\xe9")
    assert list(lines(path)) == [
        (1, "one"),
        (2, ""),
        (3, "two\u2028\x0b\x85 three\rfour"),
        (4, "caf\ufffd"),
    ]


# ---------------------------------------------------------------------------------- names


def test_globs_are_expanded_in_order_and_plain_paths_kept(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.tsv", "sub/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    result = expand([tmp_path / "c.tsv", f"{tmp_path}/*.csv", f"{tmp_path}/**/*.csv"])
    names = [path.relative_to(tmp_path).as_posix() for path in result]
    assert names == ["c.tsv", "a.csv", "b.csv", "a.csv", "b.csv", "sub/d.csv"]


def test_name_with_glob_characters_is_a_plain_name(tmp_path: Path) -> None:
    for name in ("a[1].csv", "a1.csv", "b*.csv", "bb.csv"):
        (tmp_path / name).touch()
    assert expand([tmp_path / "a[1].csv"]) == [tmp_path / "a[1].csv"]
    assert expand([f"{tmp_path}/b*.csv"]) == [tmp_path / "b*.csv"]


def test_glob_names_no_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.csv").touch()
    assert expand([f"{tmp_path}/**"]) == [tmp_path / "sub" / "a.csv"]
    with pytest.raises(UserError, match="there is no file"):
        expand([f"{tmp_path}/*"])


def test_missing_file_error_lists_similar_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*x\.csv") as error:
        expand([tmp_path / "x.csv"])
    assert error.value.hint == f"{tmp_path} is empty"
    for i in range(9):
        (tmp_path / f"{i}.csv").touch()
    (tmp_path / ".hidden").touch()
    with pytest.raises(UserError) as error:
        expand([tmp_path / "x.csv"])
    first = ", ".join(f"{i}.csv" for i in range(8))
    assert error.value.hint == f"{tmp_path} has {first}, ..."
    with pytest.raises(UserError) as error:
        expand([tmp_path / "none" / "x.csv"])
    assert error.value.hint == f"there is no folder {tmp_path / 'none'}"


def test_invalid_file_name_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"(cannot read|there is no file) x+"):
        expand(["x" * 10_000])


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.csv", ".csv"), ("a.CSV.GZ", ".csv"), ("a.b.tsv.zst", ".tsv"), ("a", ""), ("a.gz", "")],
)
def test_suffix_before_the_compression_suffix(name: str, suffix: str) -> None:
    assert base_suffix(Path(name)) == suffix
