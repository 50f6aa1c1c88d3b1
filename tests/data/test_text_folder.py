"""Documents on disk: a saved folder is loaded, a damaged one is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from document_samples import documents

from rankfold import storage
from rankfold.data import folder
from rankfold.data.build.tokens import train_tokenizer
from rankfold.data.prepare import prepare
from rankfold.errors import UserError


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    prepare(documents(tmp_path / "d.jsonl"), out=tmp_path / "data", format="texts")
    return tmp_path / "data"


def test_saved_data_is_loaded(saved: Path) -> None:
    data = prepare(saved.parent / "d.jsonl", format="texts")
    loaded = folder.load(saved)
    folder.check_content(loaded)
    for side in ("query_texts", "candidate_texts"):
        mine, theirs = getattr(data, side), getattr(loaded, side)
        assert torch.equal(mine.tokens, theirs.tokens)
        assert torch.equal(mine.offsets, theirs.offsets)
    assert (loaded.tokenizer, loaded.n_tokens) == (data.tokenizer, data.n_tokens)
    assert (loaded.fingerprint, loaded.kind) == (data.fingerprint, "texts")
    assert loaded.candidates.texts is not None
    assert loaded.candidates.texts.to_list() == loaded.candidates.keys.to_list()


def replaced(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Rewrite a folder with one of its files changed and valid checksums."""
    opened = storage.read(path, "data")
    files: dict[str, Any] = {}
    for file, entry in opened.manifest["files"].items():
        kind = entry["file"].rpartition(".")[2]
        read = {"json": opened.text, "parquet": opened.table, "safetensors": opened.tensors}[kind]
        files[file] = change(read(file)) if file == name else read(file)
    own = {"format", "kind", "versions", "files", "checksum"}
    meta = {key: value for key, value in opened.manifest.items() if key not in own}
    storage.write(path, "data", meta, files)


@pytest.mark.parametrize("text", ["", "{}", '{"model": 3}'])
def test_damaged_tokenizer_is_named(text: str, saved: Path) -> None:
    replaced(saved, "tokenizer", lambda _: text)
    with pytest.raises(UserError, match=r"damaged: tokenizer-[0-9a-f]{16}\.json"):
        folder.load(saved)


def test_tokenizer_of_another_size_is_refused(saved: Path) -> None:
    replaced(saved, "tokenizer", lambda _: train_tokenizer(["x"], "word"))
    with pytest.raises(UserError, match="damaged"):
        folder.load(saved)


def test_tokens_out_of_range_are_damage(saved: Path) -> None:
    def shift(tensors: dict[str, Any]) -> dict[str, Any]:
        return tensors | {"tokens": tensors["tokens"] + 10}

    replaced(saved, "query_texts", shift)
    with pytest.raises(UserError, match="query texts are damaged"):
        folder.check_content(folder.load(saved))


def test_changed_byte_of_the_tokenizer_is_detected(saved: Path) -> None:
    (path,) = saved.glob("tokenizer-*.json")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match=r"tokenizer-.*checksum"):
        storage.read(saved, "data", full=True)
