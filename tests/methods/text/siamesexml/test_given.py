"""Fits with a frozen network, and with vectors made elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pretrained_folders import TOPICS, WORDS, documents, save_minilm
from pretrained_folders import documents_folder as documents_folder
from torch.nn.functional import normalize

import rankfold as rf
from rankfold.encoders.frozen import Given, mapped
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.types import Texts

QUICK = {"batch_size": 16, "pool": 12, "joint_epochs": 2}


def fitted(data: Any, encoder: str, **given: Any) -> Ranker:
    model = rf.fit("siamesexml", data, encoder=encoder, **{**QUICK, **given})
    assert isinstance(model, Ranker)
    return model


def test_given_vectors_by_the_formula() -> None:
    table = normalize(torch.randn(4, 3), dim=1)
    encoder = Given(table, keep=True)
    texts = Texts(torch.tensor([0, 1, 1, 2]), torch.tensor([2, 0], dtype=torch.int32))
    expected = torch.stack([table[2], torch.zeros(3), table[0]])
    torch.testing.assert_close(encoder(texts), expected)
    head = torch.randn(3, 3)
    vector = table[2] + head @ table[2]
    torch.testing.assert_close(mapped(table[2:3], head)[0], vector / vector.norm())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("transformers", reason="transformers is not installed")
    return save_minilm(tmp_path / "minilm")


def test_a_frozen_network_is_not_changed_and_answers_without_its_folder(
    data: Path, folder: Path, tmp_path: Path
) -> None:
    from rankfold.encoders.pretrained import load_network
    from rankfold.encoders.pretrained_folder import Choices, read_blueprint

    before = load_network(folder, read_blueprint(folder, Choices())[0]).state_dict()
    model = fitted(data, f"hf:{folder}", frozen=True, out=tmp_path / "model")
    for name, tensor in before.items():
        assert torch.equal(model.model.tensors[f"network.{name}"], tensor)
    assert float(model.model.tensors["0.head"].abs().max()) > 0
    text = f"{WORDS[21]} {WORDS[22]}"
    expected = model.search(text=text, k=3)
    shutil.rmtree(folder)
    loaded = rf.load(tmp_path / "model")
    assert isinstance(loaded, Ranker)
    assert loaded.search(text=text, k=3).keys == expected.keys
    assert rf.evaluate(loaded, data, metrics=["ndcg@3"])["ndcg@3"] > 0.5


def test_cached_vectors_are_read_again(
    data: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.encoders import pretrained

    cache, calls = tmp_path / "cache", []
    own = pretrained.Pretrained.forward

    def counted(self: Any, texts: Texts) -> torch.Tensor:
        calls.append(len(texts))
        return own(self, texts)

    monkeypatch.setattr(pretrained.Pretrained, "forward", counted)
    given = {"frozen": True, "cache": str(cache)}
    one = fitted(data, f"hf:{folder}", **given)
    first = len(calls)
    assert first > 0
    assert [path.suffix for path in cache.iterdir()] == [".safetensors"]
    other = fitted(data, f"hf:{folder}", **given)
    assert sum(calls[first:]) == 6  # validation texts, read by the model for its probabilities
    for name, tensor in one.model.tensors.items():
        assert torch.equal(other.model.tensors[name], tensor)
    fitted(data, f"hf:{folder}", **given, pooling="cls")
    assert len(list(cache.iterdir())) == 2
    for path in cache.iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="is damaged"):
        fitted(data, f"hf:{folder}", **given)


def vectors_of(words: list[str]) -> np.ndarray[Any, Any]:
    """A vector for each text by its topics, with some noise."""
    rng = np.random.default_rng(0)
    places = [[WORDS.index(word) // 10 for word in text.split()] for text in words]
    vectors = np.stack([np.bincount(own, minlength=TOPICS + 2) for own in places])
    return (vectors + 0.05 * rng.standard_normal(vectors.shape)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table = documents()
    labels = sorted({label for own in table["labels"] for label in own})
    np.savez(
        tmp_path / "v.npz",
        query_keys=table["id"].to_numpy()[:-1].astype(str),
        query_vectors=vectors_of(table["text"].to_list())[:-1],
        candidate_keys=np.array(labels),
        candidate_vectors=vectors_of(labels),
    )
    return tmp_path / "v.npz"


def test_vectors_of_a_file_rank_known_queries(data: Path, file: Path, tmp_path: Path) -> None:
    model = fitted(data, f"vectors:{file}", out=tmp_path / "model")
    file.unlink()
    loaded = rf.load(tmp_path / "model")
    assert isinstance(loaded, Ranker)
    found = loaded.search(["d0", "d1", "d59"], k=6, include_seen=True)
    assert [keys[0] for keys in found.keys[:2]] == [WORDS[0], WORDS[10]]
    assert len(found.keys[2]) == 6  # without a vector: the most popular
    assert rf.evaluate(loaded, data, metrics=["ndcg@3"])["ndcg@3"] > 0.9
    assert rf.evaluate(model, data, metrics=["ndcg@3"])["ndcg@3"] > 0.9
    with pytest.raises(UserError, match="cannot read texts"):
        loaded.search(text=WORDS[0])
    notes = loaded.model.notes["given_vectors"]
    assert (notes["file"], notes["queries"], notes["candidates"]) == ("v.npz", 59, 6)
    assert len(notes["checksum"]) == 64


def test_vectors_of_words_are_refused(data: Path, file: Path) -> None:
    with pytest.raises(UserError, match="`vectors` are of words"):
        fitted(data, f"vectors:{file}", vectors="words.vec")


def test_data_without_texts_can_have_vectors(file: Path) -> None:
    pairs = documents().select(query="id", candidate=pl.col("labels").list.first())
    model = fitted(rf.prepare(pairs, split=(1.0, 0.0, 0.0)), f"vectors:{file}")
    assert model.search(["d3"], k=1, include_seen=True).keys == [[WORDS[30]]]


def test_a_file_with_none_of_the_keys_is_refused(data: Path, tmp_path: Path) -> None:
    given = {"query_vectors": np.eye(3), "candidate_vectors": np.eye(3)}
    np.savez(tmp_path / "v.npz", **given)
    with pytest.raises(UserError, match="a vector for none of the"):
        fitted(data, f"vectors:{tmp_path / 'v.npz'}")
