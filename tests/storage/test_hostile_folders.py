"""A forged folder is refused with a message, never a traceback."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from folders import ONE_FOLDER, content, file_of, forge, forge_file, refusal, version_at, write
from hypothesis import example, given
from hypothesis import strategies as st

from rankfold import storage
from rankfold.errors import UserError


def setting(*where: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that changes one value of a manifest."""

    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        place: Any = manifest
        for name in where[:-1]:
            place = place[name]
        place[where[-1]] = value
        return manifest

    return change


def test_a_forged_manifest_is_read_if_it_is_well_formed(folder: Path) -> None:
    """Otherwise the tests below could pass for the wrong reason."""
    forge(folder, lambda manifest: {**manifest, "more": 1})
    forge_file(folder, "numbers", file_of(folder, "numbers").read_bytes())
    assert version_at(folder) == 1


@pytest.mark.parametrize("field", ["kind", "versions", "files"])
@pytest.mark.parametrize("value", [None, 1, [], ["x"], True], ids=repr)
def test_a_manifest_without_its_fields_is_refused(field: str, value: Any, folder: Path) -> None:
    forge(folder, setting(field, value=value))
    message = f"{folder} is damaged: manifest.json: '{field}' is missing or not of type"
    assert refusal(folder, "model").startswith(message)
    with pytest.raises(UserError, match=f"'{field}' is missing"):
        write(folder, 2)
    forge(folder, lambda manifest: {n: v for n, v in manifest.items() if n != field})
    assert refusal(folder, "model").startswith(message)


@pytest.mark.parametrize("field", ["file", "size", "head", "sha256"])
@pytest.mark.parametrize("value", [None, [], {}, 1.5], ids=repr)
def test_an_entry_without_its_fields_is_refused(field: str, value: Any, folder: Path) -> None:
    forge(folder, setting("files", "keys", field, value=value))
    message = f"manifest.json, files, keys: '{field}' is missing or not of type"
    assert message in refusal(folder, "model")


OUTSIDE = ["../x", "../model/{}", "./{}", "/etc/passwd", "{path}/{}", "..", ".", "", "x/../{}"]
OUTSIDE += ["a\0b", "..\\x", "manifest.json", "{}\n", "x" * 300, "caf\udce9"]


@pytest.mark.parametrize("spelling", OUTSIDE, ids=ascii)
def test_an_entry_that_leaves_the_folder_is_refused(spelling: str, folder: Path) -> None:
    good = file_of(folder, "keys")
    shutil.copy(good, folder.parent / "x")
    file = spelling.replace("{path}", str(folder)).replace("{}", good.name)
    forge(folder, setting("files", "keys", "file", value=file))
    for full in (False, True):
        message = refusal(folder, "model", full=full)
        assert message.endswith(f"manifest.json names {file!r}, which is not a file of the folder")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
PLACES = [("kind",), ("files",), ("format",), ("versions",), ("version",)]
PLACES += [("files", "keys"), ("files", "numbers"), ("files", "new")]
PLACES += [("files", "keys", field) for field in ("file", "size", "head", "sha256", "new")]


@given(st.sampled_from(PLACES), JSON)
@example(("files", "keys", "size"), "12")
@example(("files", "keys"), "file")
@ONE_FOLDER
def test_no_manifest_causes_a_traceback(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    path = tmp_path / "model"
    shutil.rmtree(path, ignore_errors=True)
    write(path)
    forge(path, setting(*place, value=value))
    with suppress(UserError):
        opened = storage.read(path)
        opened.tensors("numbers"), opened.table("keys")
    with suppress(UserError):
        write(path, 2)
        assert version_at(path) == 2


def header(entries: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(shape: list[int], offsets: list[int], dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BAD_TENSORS = {
    "nothing": b"",
    "short": b"1234567",
    "length beyond memory": header({}, length=2**64 - 1),
    "length beyond the file": header({}, length=10**7),
    "not JSON": header(b"xxxx"),
    "list": header([]),
    "deep": header(b"[" * 10**5),
    "overlapping": header({"a": tensor([4], [0, 4]), "b": tensor([4], [2, 6])}, bytes(6)),
    "hole": header({"a": tensor([4], [0, 4]), "b": tensor([4], [5, 9])}, bytes(9)),
    "backwards": header({"a": tensor([4], [4, 0])}, bytes(4)),
    "beyond the end": header({"a": tensor([4], [0, 4])}, bytes(2)),
    "before the end": header({"a": tensor([4], [0, 4])}, bytes(6)),
    "other shape": header({"a": tensor([5], [0, 4])}, bytes(4)),
    "negative shape": header({"a": tensor([-4], [0, 4])}, bytes(4)),
    "overflow": header({"a": tensor([2**62, 2**62, 0], [0, 0])}),
    "overflow in torch": header({"a": tensor([0, 2**63], [0, 0])}),
    "no such type": header({"a": tensor([4], [0, 4], "X8")}, bytes(4)),
    "type that torch lacks": header({"a": tensor([4], [0, 3], "F6_E2M3")}, bytes(3)),
    "no shape": header({"a": {"dtype": "U8", "data_offsets": [0, 4]}}, bytes(4)),
    "pickle": b"\x80\x04\x95" + bytes(100),
}


@pytest.mark.parametrize("data", BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_hostile_tensors_are_refused(data: bytes, folder: Path) -> None:
    forge_file(folder, "numbers", data)
    opened = storage.read(folder, "model", full=True)
    with pytest.raises(UserError, match=r"is damaged: numbers-\w+.safetensors is not readable"):
        opened.tensors("numbers")


@pytest.mark.parametrize("value", [0, 255])
def test_no_table_causes_a_traceback(value: int, folder: Path) -> None:
    """Polars panics at some of these, with an exception that is not an Exception.

    Each byte is replaced by one value, not by all: at a page length near ``2**64`` Polars requests
    that much memory and ends the process, which cannot be caught.
    """
    keys = content(1)["keys"]
    assert isinstance(keys, pl.DataFrame)
    keys.write_parquet(folder.parent / "keys")
    whole = (folder.parent / "keys").read_bytes()
    refused = 0
    for place in range(len(whole)):
        forge_file(folder, "keys", whole[:place] + bytes([value]) + whole[place + 1 :])
        try:
            storage.read(folder, "model", full=True).table("keys")
        except UserError as error:
            assert "parquet is not readable" in str(error)  # noqa: PT017
            refused += 1
    assert refused > len(whole) // 3


def test_a_panic_of_a_parser_is_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_file: Any) -> None:
        raise pl.exceptions.PanicException("unwrap")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(UserError, match=r"keys-\w+.parquet is not readable"):
        storage.read(folder).table("keys")


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_other_errors_are_not_called_damage(
    error: type[BaseException], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_file: Any) -> None:
        raise error

    monkeypatch.setattr(pl, "read_parquet", stop)
    with pytest.raises(error):
        storage.read(folder).table("keys")


def test_an_unknown_file_name_is_refused(folder: Path) -> None:
    opened = storage.read(folder)
    assert "keys" in opened
    assert "more" not in opened
    for ask in (opened.file, opened.tensors, opened.table):
        with pytest.raises(UserError, match=r"manifest.json has no entry 'more'"):
            ask("more")
