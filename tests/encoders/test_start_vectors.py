"""Token vectors start from a file of word vectors."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
import torch

import rankfold as rf
from rankfold.distributed.collectives import SingleProcess
from rankfold.encoders import start_vectors
from rankfold.encoders.start_vectors import read_vectors
from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import fit as recipe
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import build_corpus
from rankfold.types import Dataset, Run, Texts, Vocabulary, from_pairs

WORDS = ["ant", "bee", "çow", "dog"]


def data_of(words: list[str] | None = WORDS) -> Dataset:
    """Four documents of one word; two have the first label, two the second."""
    tokenizer = None
    if words is not None:
        vocabulary = {word: token for token, word in enumerate([*words, "[UNK]"])}
        tokenizer = json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary}})
    documents = Texts(torch.arange(5), torch.arange(4).int())
    labels = Texts(torch.tensor([0, 1, 2]), torch.tensor([0, 3]).int())
    train = from_pairs(torch.arange(4), torch.tensor([0, 0, 1, 1]), None, (4, 2))
    names = Vocabulary.numbered(4), Vocabulary.numbered(2)
    how = {"tokenizer": tokenizer, "n_tokens": len(words or WORDS)}
    return Dataset("texts", train, None, None, *names, documents, labels, **how)  # type: ignore[arg-type]


def written(folder: Path, text: str, name: str = "some.vec") -> str:
    path = folder / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


GOOD = "4 2\nzebra 1 1\nbee 3 4 \nçow 0 -2\nbee 9 9\n"


@pytest.mark.parametrize("name", ["some.vec", "some.vec.gz"])
def test_tokens_in_the_file_have_its_vectors_of_length_1(tmp_path: Path, name: str) -> None:
    result = read_vectors(written(tmp_path, GOOD, name), data_of(), 2)
    assert result.tokens.tolist() == [1, 2]
    torch.testing.assert_close(result.vectors, torch.tensor([[0.6, 0.8], [0.0, -1.0]]))
    assert result.notes == {"found": 2, "tokens": 4}


def test_words_with_accents_or_upper_case_match(tmp_path: Path) -> None:
    """With accents, or letters without lower case; an exact match comes first."""
    tokens = ["strasse", "cafe", "ant"]
    data = data_of(tokens)
    lines = ["café 3 4", "straße 0 2", "strässe 1 1", "cafe 1 0", "ant 1 0"]
    path = written(tmp_path, f"{len(lines)} 2\n" + "\n".join(lines) + "\n")
    read = read_vectors(path, data, 2)
    result = dict(zip(read.tokens.tolist(), read.vectors.tolist(), strict=True))
    assert result == {0: [0, 1], 1: [1, 0], 2: [1, 0]}


def test_a_vector_of_zeros_does_not_count(tmp_path: Path) -> None:
    result = read_vectors(written(tmp_path, "2 2\nant 0 0\nbee 0 1\n"), data_of(), 2)
    assert result.tokens.tolist() == [1]


@pytest.mark.parametrize("text", ["2 2\nAnt 1 1\nBee 0 1\n", "1 2\nant 0 0\n", "0 2\n"])
def test_a_file_without_any_of_the_tokens_is_refused(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match="a vector for none of the 4 tokens") as error:
        read_vectors(path, data_of(), 2)
    assert path in str(error.value)
    assert "lower case" in error.value.hint
    assert "'ant'" in error.value.hint


def test_nothing_is_read_after_the_last_token(tmp_path: Path) -> None:
    path = written(tmp_path, "9 2\nbee 1 0\nant 0 1\nno numbers at all\n")
    assert read_vectors(path, data_of(["ant", "bee"]), 2).tokens.tolist() == [1, 0]


def test_the_unknown_token_is_not_a_word() -> None:
    assert "[UNK]" not in start_vectors.tokens_of(data_of())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with '', expected two numbers"),
        ("ant 1 0\n", "begins with 'ant 1 0', expected two numbers"),
        ("-3 2\nant 1 0\n", "begins with '-3 2', expected two numbers"),
        ("9" * 5000 + " 2\nant 1 0\n", "expected two numbers"),
        ("1 3\nant 1 0 0\n", "has vectors of width 3, expected 2"),
        ("1 2\nant 1\n", "line 2 of .* is not a word and 2 numbers: 'ant 1'"),
        ("1 2\nant\n", "line 2 of"),
        ("1 2\nant 1 0 0\n", "line 2 of"),
        ("2 2\n\nant one two\n", "line 3 of"),
        ("1 2\nant 1 nan\n", "line 2 of"),
        ("3 2\nant 1 0\nbee 0 1\n", "ends after 2 of the 3 words"),
        ("1 2\nant 1 0\nbee 0 1\n", "has more lines than the 1 words"),
    ],
)
def test_a_malformed_file_of_vectors_is_a_user_error(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=message) as error:
        read_vectors(path, data_of(), 2)
    assert path in str(error.value)
    assert error.value.hint


def test_the_hint_names_the_width_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_vectors(written(tmp_path, "1 3\nant 1 0 0\n"), data_of(), 2)
    assert error.value.hint == "width=3"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(GOOD.encode())[:-12])
    missing = tmp_path / "none.vec"
    problems = {
        missing: f"cannot read {missing}",
        tmp_path: f"{tmp_path} is a folder",
        broken: "broken.gz is truncated",
    }
    for path, problem in problems.items():
        with pytest.raises(UserError, match=re.escape(problem)) as error:
            read_vectors(str(path), data_of(), 2)
        assert error.value.hint


def test_bags_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="without their words") as error:
        read_vectors(written(tmp_path, GOOD), data_of(None), 2)
    assert error.value.hint


def test_tokens_not_in_the_file_start_at_random(tmp_path: Path) -> None:
    run = Run(
        torch.Generator().manual_seed(0), torch.device("cpu"), SingleProcess(), build_index=Exact
    )
    configs = [SiameseConfig(width=2, vectors=v) for v in (None, written(tmp_path, GOOD))]
    parts = [build_corpus(data_of(), config, run) for config in configs]
    without, read = (
        recipe.start_tokens(part, config, torch.Generator().manual_seed(1))
        for part, config in zip(parts, configs, strict=True)
    )
    torch.testing.assert_close(read[[1, 2]], torch.tensor([[0.6, 0.8], [0.0, -1.0]]))
    assert torch.equal(read[[0, 3]], without[[0, 3]])


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("siamesexml")])
def test_notes_count_the_tokens_with_vectors(name: str, tmp_path: Path) -> None:
    run = Run(
        torch.Generator().manual_seed(0), torch.device("cpu"), SingleProcess(), build_index=Exact
    )
    few = {"encoder_epochs": 1, "classifier_epochs": 1, "joint_epochs": 0, "width": 2}
    config = METHODS[name].config(**few, vectors=written(tmp_path, GOOD))
    *_, last = METHODS[name].fit(data_of(), config, run)
    assert last.model is not None
    assert last.model.notes["vectors"] == {"found": 2, "tokens": 4}


def test_a_finished_model_is_not_fitted_again(tmp_path: Path) -> None:
    """The notes about vectors do not hide which file was requested."""
    how = {"width": 2, "vectors": written(tmp_path, GOOD), "out": tmp_path / "model"}
    made = rf.fit("siamesexml", data_of(), **how)
    again = rf.fit("siamesexml", data_of(), resume=True, **how)
    assert torch.equal(again.model.tensors["candidates"], made.model.tensors["candidates"])
    with pytest.raises(UserError, match="vectors"):
        rf.fit("siamesexml", data_of(), resume=True, **{**how, "vectors": "other.vec"})
