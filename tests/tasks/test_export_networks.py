"""The ONNX files of a model give its vectors of new rows and texts, by onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from planted import groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.open_model import open_model
from rankfold.models.ranker import Ranker
from rankfold.tasks.export import export
from rankfold.types import Columns, Features, Side

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
SIDES: tuple[Side, ...] = ("query", "candidate")
WORDS = ["red", "blue", "green", "cat", "dog", "bird", "tea", "ink"]


def run(path: Path, **inputs: Any) -> NDArray[np.float32]:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (vectors,) = session.run(None, inputs)
    return np.asarray(vectors)


@pytest.mark.parametrize("settings", [{"similarity": "cosine", "temperature": 0.5}, {}])
def test_towers(tmp_path: Path, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    table = groups()
    sides = {}
    for side in SIDES:
        keys = table[side].unique().sort()
        words, sizes = [f"a{n % 5}" for n in range(len(keys))], rng.normal(size=len(keys))
        sides[f"{side}_features"] = pl.DataFrame({side: keys, "word": words, "size": sizes})
    data = rf.prepare(table, **sides)
    model = rf.fit("bpr", data, width=4, encoder="towers", epochs=1, **settings)
    assert isinstance(model, Ranker)
    about = export(model, tmp_path / "out", index=False, onnx=True)
    encode = open_model(model.model).features
    assert encode is not None
    numbers = np.array([[0.5], [np.nan], [-2.0]], np.float32)
    categories = np.array([[0], [-1], [4]])
    for side, (file, columns) in zip(SIDES, about["networks"].items(), strict=True):
        schema = Columns.from_json(model.model.notes[f"{side}_columns"])
        assert columns == schema.to_json()
        rows = Features(torch.from_numpy(numbers), torch.from_numpy(categories), schema)
        vectors = run(tmp_path / "out" / file, numbers=numbers, categories=categories)
        assert vectors == pytest.approx(encode(rows, side).numpy(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("settings", [{}, {"encoder": "residual", "members": 2}])
def test_encoders_of_texts(tmp_path: Path, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 4)) for _ in range(300)]
    table = pl.DataFrame({"text": texts, "labels": [text.split()[:2] for text in texts]})
    data = rf.prepare(table, format="texts")
    vectors_alone = {"linear_weight": 0.0, "neighbour_weight": 0.0}
    small = {"width": 8, "pairs_from": 5, "joint_epochs": 1}
    model = rf.fit("siamesexml", data, **small, **vectors_alone, **settings)
    assert isinstance(model, Ranker)
    assert len(model.model.tensors["pairs"]) > 0
    about = export(model, tmp_path / "out", index=False, onnx=True)
    new = ["red cat", "blue blue blue dog", "", "tea ink tea ink bird unheard"]
    given = model.tokens(new)
    tokens = np.full((4, int(given.counts().max())), -1)
    for row, part in zip(tokens, given.tokens.split(given.counts().tolist()), strict=True):
        row[: len(part)] = part
    encode = open_model(model.model).texts
    assert encode is not None
    for side, file in zip(SIDES, about["networks"], strict=True):
        vectors = run(tmp_path / "out" / file, tokens=tokens)
        assert vectors == pytest.approx(encode(given, side).numpy(), rel=1e-4, abs=1e-5)
    candidates = np.stack(pl.read_parquet(tmp_path / "out" / "candidates.parquet")["vector"])
    scores = run(tmp_path / "out" / "encode_queries.onnx", tokens=tokens[:2]) @ candidates.T
    best = [model.candidates.keys[int(place)] for place in scores.argmax(axis=1)]
    assert best == [keys[0] for keys in model.search(text=new[:2], k=1).keys]


def test_a_model_without_a_network_is_refused(tmp_path: Path) -> None:
    model = rf.fit("ials", groups(), width=4, sweeps=1)
    assert isinstance(model, Ranker)
    with pytest.raises(UserError, match="no network") as caught:
        export(model, tmp_path / "out", onnx=True)
    assert "encoder=towers" in caught.value.hint
    assert not (tmp_path / "out").exists()
