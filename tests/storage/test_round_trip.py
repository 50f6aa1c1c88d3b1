"""A folder with any content and any name is read as it was written."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from folders import (
    ONE_FOLDER,
    files_of,
    forge_file,
    names,
    same,
    version_at,
    version_in,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError
from rankfold.storage import writer

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def shapes_of(dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors of all layouts, filled with random bits, including NaN."""
    rng = torch.Generator().manual_seed(0)
    width = torch.empty((), dtype=dtype).element_size()
    noise = torch.randint(0, 256, (24 * width,), dtype=torch.uint8, generator=rng)
    flat = noise % 2 == 0 if dtype == torch.bool else noise.view(dtype)
    matrix = flat.reshape(4, 6)
    return {
        "matrix": matrix,
        "scalar": flat[5],
        "single": flat[5:6],
        "empty": flat[:0],
        "no rows": matrix[:0],
        "no columns": matrix[:, :0],
        "transposed": matrix.T,
        "strided": flat[1::3],
        "expanded": flat[:1].expand(7),
        "cube": flat.reshape(2, 3, 4).permute(2, 0, 1),
    }


def test_empty_tensors_round_trip(tmp_path: Path) -> None:
    """Including one from NumPy, which has no strides."""
    none = {"tokens": torch.from_numpy(np.concatenate([np.empty(0, np.int32)])), "n": torch.ones(2)}
    storage.write(tmp_path / "f", "model", {}, {"texts": none})
    result = storage.read(tmp_path / "f", "model", full=True).tensors("texts")
    assert result["tokens"].shape == (0,)
    assert result["tokens"].dtype == torch.int32
    assert torch.equal(result["n"], torch.ones(2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_are_compatible_with_the_library(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = shapes_of(dtype)
    storage.write(tmp_path / "ours", "model", {}, {"t": tensors})
    ours = storage.read(tmp_path / "ours", "model", full=True)
    assert same(ours.tensors("t"), tensors)
    assert same(load_file(ours.file("t")), tensors)

    save_file({n: t.contiguous().clone() for n, t in tensors.items()}, tmp_path / "theirs")
    forge_file(tmp_path / "ours", "t", (tmp_path / "theirs").read_bytes())
    assert same(storage.read(tmp_path / "ours", "model", full=True).tensors("t"), tensors)


@given(st.dictionaries(st.text(max_size=5), st.sampled_from(DTYPES), max_size=6), st.data())
@ONE_FOLDER
def test_mixed_tensors_of_any_name_are_aligned(
    tmp_path: Path, dtypes: dict[str, torch.dtype], data: st.DataObject
) -> None:
    tensors = {
        name: torch.zeros(data.draw(st.lists(st.integers(0, 3), max_size=3)), dtype=dtype)
        for name, dtype in dtypes.items()
    }
    storage.write(tmp_path / "mixed", "model", {}, {"t": tensors})
    read = storage.read(tmp_path / "mixed", full=True)
    assert same(read.tensors("t"), tensors)
    assert same(load_file(read.file("t")), tensors)
    assert all(t.data_ptr() % t.element_size() == 0 for t in read.tensors("t").values())


def test_a_parameter_is_written_like_a_tensor(tmp_path: Path) -> None:
    weights = torch.nn.Parameter(torch.ones(2, 2))
    storage.write(tmp_path / "m", "model", {}, {"t": {"w": weights}})
    assert torch.equal(storage.read(tmp_path / "m").tensors("t")["w"], torch.ones(2, 2))


def test_the_chunk_size_does_not_change_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHUNK", 7)
    write(tmp_path / "pieces")
    assert {p.name: p.read_bytes() for p in files_of(tmp_path / "pieces")} == {
        p.name: p.read_bytes() for p in files_of(folder)
    }


@pytest.mark.parametrize(
    "table",
    [
        pl.DataFrame({"key": ["", "a", "grün", "\N{SNOWMAN}", "two\nlines", "\0"]}),
        pl.DataFrame({"key": [-(2**63), 0, 2**63 - 1], "x": [0.5, None, math.inf]}),
        pl.DataFrame({"key": pl.Series([], dtype=pl.String)}),
        pl.DataFrame(),
    ],
    ids=["text", "numbers", "no rows", "nothing"],
)
def test_tables_are_read_back(table: pl.DataFrame, tmp_path: Path) -> None:
    storage.write(tmp_path / "d", "data", {}, {"keys": table})
    result = storage.read(tmp_path / "d", "data", full=True).table("keys")
    assert result.schema == table.schema
    assert result.equals(table)


def test_the_manifest_keeps_its_values(tmp_path: Path) -> None:
    meta = {
        "text": 'grün, "quoted", \N{SNOWMAN}',
        "name of a file that is not UTF-8": "caf\udce9.csv",
        "numbers": [0.1, 1e300, math.inf, 2**70, -0.0, True, None],
        "nested": {"a": [{"b": []}]},
    }
    storage.write(tmp_path / "d", "data", meta, {})
    manifest = storage.read(tmp_path / "d", "data", full=True).manifest
    assert {name: manifest[name] for name in meta} == meta
    assert manifest["versions"].keys() == {"rankfold", "torch", "numpy", "python"}


def test_tensors_are_memory_mapped_and_not_written_through(folder: Path) -> None:
    opened = storage.read(folder, "model")
    held = opened.tensors("numbers")["values"]
    path = opened.file("numbers")
    before = path.read_bytes()
    held[0, 0] = 7.0
    assert path.read_bytes() == before
    untouched = opened.tensors("numbers")["values"]
    with path.open("r+b") as file:
        file.seek(before.index(torch.tensor(1.0).numpy().tobytes()))
        file.write(torch.tensor(5.0).numpy().tobytes())
    assert untouched[0, 0] == 5.0  # a copy would still be 1


NAMES = [
    "plain",
    "two words",
    "grün\N{SNOWMAN}",
    "run[1]",
    "what?*",
    "seed=1",
    "~",
    "-x",
    "a.b",
    "'",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spelling", ["{}", "./{}/", "{}//", "../{home}/{}"])
def test_a_folder_can_have_any_name(
    name: str, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    path = Path(spelling.format(name, home=tmp_path.name))
    for version in (1, 2):
        write(path, version)
        assert version_at(path) == version
    assert names(tmp_path) == {name}


def test_a_name_with_patterns_touches_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / ".abc.writing-0123456789abcdef").mkdir()
    (tmp_path / ".abc.writing-notes").mkdir()
    write(tmp_path / "a*")
    assert version_at(tmp_path / "a*") == 1
    assert len(names(tmp_path)) == 3


def test_the_current_folder_and_a_link_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    write(Path(), 1)
    assert version_at(Path()) == version_at(here) == 1
    write(tmp_path / "link", 2)
    assert version_at(Path()) == version_at(tmp_path / "link") == 2
    assert (tmp_path / "link").is_symlink()


def test_an_opened_folder_stays_open_after_chdir(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    opened = storage.read(Path("model"), "model")
    monkeypatch.chdir("/")
    assert version_in(opened) == 1


def test_a_text_is_stored_in_its_own_file(tmp_path: Path) -> None:
    storage.write(tmp_path / "m", "model", {}, {"tokenizer": '{"é": 1}'})
    folder = storage.read(tmp_path / "m", "model", full=True)
    assert folder.text("tokenizer") == '{"é": 1}'
    (file,) = (tmp_path / "m").glob("tokenizer-*.json")
    file.write_bytes(file.read_bytes().replace(b"1", b"2"))
    with pytest.raises(UserError, match=file.name):
        folder.text("tokenizer")
