"""A fit with a pretrained encoder, from texts to a model that needs its folder no more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import siamese_samples as samples
import torch
from pretrained_folders import WORDS, save_bert, save_minilm
from pretrained_folders import documents_folder as documents_folder
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cli import app
from rankfold.data.folder import load as load_data
from rankfold.encoders.pretrained import load_network
from rankfold.encoders.pretrained_folder import Choices, read_blueprint
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset

pytest.importorskip("transformers", reason="transformers is not installed")

QUICK = {"batch_size": 16, "pool": 12, "joint_epochs": 1, "encoder_lr": 1e-3, "tokens_at_once": 99}


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return save_minilm(tmp_path / "minilm")


def fitted(data: Any, folder: Path, **given: Any) -> Ranker:
    model = rf.fit("siamesexml", data, encoder=f"hf:{folder}", **{**QUICK, **given})
    assert isinstance(model, Ranker)
    return model


def test_fit_save_load_and_search_without_the_folder(
    data: Path, encoder: Path, tmp_path: Path
) -> None:
    model = fitted(data, encoder, out=tmp_path / "model", encoder_epochs=3, joint_epochs=3)
    checksum = model.model.notes["pretrained"]["checksum"]
    own = f"{WORDS[21]} {WORDS[22]} {WORDS[25]}"
    expected = model.search(text=[own, ""], k=3)
    assert expected.keys[0][0] == WORDS[20]
    shutil.rmtree(encoder)
    loaded = rf.load(tmp_path / "model")
    assert isinstance(loaded, Ranker)
    again = loaded.search(text=[own, ""], k=3)
    assert again.keys == expected.keys
    torch.testing.assert_close(torch.as_tensor(again.scores), torch.as_tensor(expected.scores))
    notes = loaded.model.notes["pretrained"]
    assert (notes["folder"], notes["checksum"]) == ("minilm", checksum)
    files = {path.name.split("-")[0] for path in (tmp_path / "model").iterdir()}
    suffixes = {path.suffix for path in (tmp_path / "model").iterdir()}
    assert "tokenizer" in files
    assert suffixes <= {".json", ".safetensors", ".parquet", ".md"}
    first = rf.evaluate(loaded, data, metrics=["ndcg@3"])["ndcg@3"]
    assert first > 0.8
    assert rf.evaluate(model, data, metrics=["ndcg@3"])["ndcg@3"] == pytest.approx(first)
    assert loaded.search(["d0"], k=1, include_seen=True).keys[0][0] == WORDS[0]


def test_training_changes_the_network_and_nothing_is_taken_from_the_tokens_of_words(
    data: Path, encoder: Path
) -> None:
    before = load_network(encoder, read_blueprint(encoder, Choices())[0]).state_dict()
    model = fitted(data, encoder)
    tensors = model.model.tensors
    names = {name.removeprefix("0.network.") for name in tensors if name.startswith("0.network.")}
    assert names == set(before)
    changed = [n for n in names if not torch.equal(before[n], tensors[f"0.network.{n}"])]
    assert "encoder.layer.0.attention.self.query.weight" in changed
    assert model.n_tokens == 156
    assert tensors["candidates"].shape[1] in (16, 17)


def test_equal_seeds_give_equal_models(data: Path, encoder: Path) -> None:
    one, other = (fitted(data, encoder, seed=3).model.tensors for _ in range(2))
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_resumed_fit_is_the_same(data: Path, encoder: Path) -> None:
    """From the end of module I; dropout follows the number of the step."""
    method = METHODS["siamesexml"]
    config = method.config(encoder=f"hf:{encoder}", **QUICK, thinning=0.0)
    given = samples.run()
    own = method.read(load_data(data), config, given.comm)
    whole, state = None, None
    for step in method.fit(own, config, given):
        if state is None and step.whole:
            kept = {key: tensor.clone() for key, tensor in step.state().items()}
            state = {**kept, "number": torch.tensor(step.number)}
        whole = step.model
    assert whole is not None
    again = list(method.fit(own, config, samples.run(resume=state)))[-1].model
    assert again is not None
    assert all(torch.equal(tensor, again.tensors[n]) for n, tensor in whole.tensors.items())


def test_hard_negatives_instead_of_a_pool(data: Path, encoder: Path) -> None:
    given = {"negatives": "hardest", "classifier_epochs": 1, "shortlist": 4, "random": 2}
    assert fitted(data, encoder, **given).search(text=WORDS[3], k=2).keys[0]


def test_members_have_networks_of_their_own(data: Path, encoder: Path) -> None:
    model = fitted(data, encoder, members=2)
    name = "network.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(model.model.tensors[f"0.{name}"], model.model.tensors[f"1.{name}"])
    assert model.search(text=WORDS[3], k=2).keys[0]


def test_new_candidates_are_read_with_the_prompt_of_candidates(data: Path, encoder: Path) -> None:
    model = fitted(data, encoder)
    grown = model.extend(pl.DataFrame({"candidate": ["new"], "text": [f"{WORDS[13]} {WORDS[14]}"]}))
    row = int(grown.candidates.find(pl.Series(["new"]))[0])
    encode = grown.searcher.opened.texts
    assert encode is not None
    expected = encode(model.tokens([f"{WORDS[13]} {WORDS[14]}"], "candidate"), "candidate")
    torch.testing.assert_close(grown.model.tensors["candidates"][row], expected[0])


def test_data_without_texts_as_written_is_refused(data: Path, encoder: Path) -> None:
    from dataclasses import replace

    from rankfold.types import Vocabulary

    opened = load_data(data)
    assert isinstance(opened, Dataset)
    older = replace(opened, queries=Vocabulary.of(opened.queries.keys))
    with pytest.raises(UserError, match="not their texts as they were written"):
        fitted(older, encoder)


@pytest.mark.parametrize("name", ["hf:", "hf", "nosuch"])
def test_unknown_encoders_are_refused(name: str, data: Path) -> None:
    with pytest.raises(UserError, match="must be one of plain, residual, hf:FOLDER"):
        rf.fit("siamesexml", data, encoder=name)


def test_missing_library_is_named(
    data: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match="needs transformers, which is not installed") as caught:
        fitted(data, encoder)
    assert caught.value.hint == "pip install 'rankfold[transformers]'"


def test_on_the_command_line(data: Path, tmp_path: Path) -> None:
    folder, runner, out = save_bert(tmp_path / "bert"), CliRunner(), tmp_path / "model"
    settings = [f"{name}={value}" for name, value in {**QUICK, "encoder": f"hf:{folder}"}.items()]
    options = [part for one in settings for part in ("--set", one)]
    done = runner.invoke(app, ["fit", "siamesexml", str(data), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    shutil.rmtree(folder)
    found = runner.invoke(app, ["search", str(out), "--text", WORDS[33], "-k", "2", "--json"])
    assert len(json.loads(found.stdout)["results"]) == 2
    shown = runner.invoke(app, ["info", str(out)])
    assert "encoder from the folder bert (" in shown.stderr
    texts, lists = tmp_path / "texts.csv", tmp_path / "lists.parquet"
    pl.DataFrame({"id": ["a", "b"], "text": [WORDS[1], WORDS[2]]}).write_csv(texts)
    predicted = runner.invoke(
        app, ["predict", str(out), str(texts), "--out", str(lists), "-k", "3"]
    )
    assert predicted.exit_code == 0, predicted.output
    assert len(pl.read_parquet(lists)) == 6
    refused = runner.invoke(
        app, ["fit", "siamesexml", str(data), "--out", str(out), "--set", f"encoder=hf:{folder}"]
    )
    assert isinstance(refused.exception, UserError)
    assert "does not exist" in str(refused.exception)
