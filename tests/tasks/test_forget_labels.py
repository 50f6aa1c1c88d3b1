"""Labels of a text model are forgotten: no file of the folder holds a trace of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

import rankfold as rf
from rankfold import storage
from rankfold.models.ranker import Ranker
from rankfold.tasks.update import forget

GONE, WORDS = "someone-in-particular", "the matter of someone"
LABELS = ["ink", GONE, "tea", "water"]
PLANTED = torch.tensor([3.14159265, 2.71828182, 1.41421356, 1.61803398])


def save_model(out: Path) -> None:
    """A model with every kind of tensor; the second label has planted numbers everywhere."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, 4, 80)
    table = pl.DataFrame(
        {
            "key": [f"d{row}" for row in range(80)],
            "text": [
                f"about {['ink', 'folk', 'tea', 'water'][one]} {row % 5}"
                for row, one in enumerate(own)
            ],
            "labels": [[LABELS[one]] for one in own],
        }
    )
    texts = pl.DataFrame({"candidate": LABELS, "text": ["ink", WORDS, "tea", "water"]})
    data = rf.prepare(table, format="texts", candidate_texts=texts, split="queries:0.7,0.3,0")
    settings = {"linear_weight": 1.0, "neighbour_weight": 0.5, "popularity_weight": 0.0}
    ranker = rf.fit("siamesexml", data, width=4, joint_epochs=1, **settings)
    assert isinstance(ranker, Ranker)
    assert ranker.candidates.keys.to_list() == LABELS
    tensors = dict(ranker.model.tensors)
    tensors["candidates"][1] = PLANTED
    tensors["linear.bias"][1] = PLANTED[0]
    first, last = tensors["linear.offsets"][1:3].tolist()
    assert last > first
    tensors["linear.weights"][first:last] = PLANTED[1]
    tensors["thresholds.scores"][tensors["thresholds.candidates"] == 1] = PLANTED[2]
    replace(ranker, model=replace(ranker.model, tensors=tensors)).save(out)


def traces(folder: Path) -> set[str]:
    """Where a key, text, number or pair of the label is; a file of unknown format is an error."""
    found = set()
    for path in folder.iterdir():
        content, name = path.read_bytes(), path.name.split("-")[0]
        if GONE.encode() in content or WORDS.encode() in content:
            found.add(f"{name}: written")
        match path.suffix:
            case ".parquet":
                for column in pl.read_parquet(path, memory_map=False).get_columns():
                    if column.is_in([GONE, WORDS]).any():
                        found.add(f"{name}: {column.name}")
            case ".safetensors":
                for key, tensor in load_file(path).items():
                    if (
                        tensor.is_floating_point()
                        and torch.isclose(
                            tensor.double().flatten()[:, None], PLANTED.double()
                        ).any()
                    ):
                        found.add(f"{name}: {key}")
                    if "candidates" in key and tensor.ndim == 1 and int(tensor.max()) == 3:
                        found.add(f"{name}: {key}")
            case suffix:
                assert suffix in (".json", ".md"), path
    return found


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("forget") / "model"
    save_model(out)
    return out


def test_no_file_holds_a_forgotten_label(out: Path) -> None:
    before = rf.load(out)
    assert isinstance(before, Ranker)
    kept = before.model.tensors["candidates"][[0, 2, 3]]
    counts = before.seen.candidate_counts()[[0, 2, 3]]
    assert traces(out) == {
        *("candidates: written", "candidates: key", "candidates: text", "seen: candidates"),
        *("tensors: candidates", "tensors: candidates_of_queries", "tensors: linear.bias"),
        *(
            "tensors: linear.weights",
            "tensors: thresholds.scores",
            "tensors: thresholds.candidates",
        ),
    }
    done = forget(out, [GONE], "candidate")
    assert (done.forgotten, done.unknown) == (1, [])
    assert traces(out) == set()
    assert storage.leftovers(out) == storage.foreign(out) == []
    after = rf.load(out)
    assert isinstance(after, Ranker)
    torch.testing.assert_close(after.model.tensors["candidates"], kept)
    assert torch.equal(after.seen.candidate_counts(), counts)
    assert GONE not in after.search(text="about folk", k=4).keys[0]
