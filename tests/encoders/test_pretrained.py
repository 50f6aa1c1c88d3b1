"""Pretrained encoders give the vectors of transformers; unusable folders are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_folders import WORDS, change, save_bert, save_decoder, save_minilm, write
from torch import Tensor

from rankfold.data.build.retokenise import Reading
from rankfold.data.build.tokens import n_tokens, same_tokens, tokenise, train_tokenizer
from rankfold.encoders.pretrained import Pretrained, build_network, load_network
from rankfold.encoders.pretrained_folder import Blueprint, Choices, read_blueprint
from rankfold.errors import UserError
from rankfold.types import Texts

pytest.importorskip("transformers", reason="transformers is not installed")

TEXTS = [
    "ak bl cm",
    "dn",
    " ".join(WORDS[:30]),
    "unknown wordz and ak",
    "Ak, Bl! (cm)",
    " ".join(WORDS[5:12]),
]
FOLDERS = {"bert": save_bert, "minilm": save_minilm, "decoder": save_decoder}


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return FOLDERS[request.param](tmp_path / request.param)


def opened(folder: Path, at_once: int = 2**14, **choices: Any) -> tuple[Pretrained, Reading]:
    blueprint, tokenizer = read_blueprint(folder, Choices(**choices))
    reading = Reading(tokenizer, blueprint.prompts, blueprint.lower)
    return Pretrained(load_network(folder, blueprint), blueprint, at_once).eval(), reading


def by_transformers(folder: Path, texts: list[str], pooling: str, max_length: int) -> Tensor:
    """Text by text, without padding."""
    from transformers import AutoModel, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder)
    vectors = []
    for text in texts:
        given = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        given.pop("token_type_ids", None)
        with torch.no_grad():
            hidden = model.eval()(**given).last_hidden_state[0]
        pooled = {
            "mean": hidden.mean(dim=0),
            "cls": hidden[0],
            "last": hidden[-1],
            "max": hidden.amax(dim=0),
        }[pooling]
        vectors.append(pooled / pooled.norm())
    return torch.stack(vectors)


@pytest.mark.parametrize("at_once", [1, 40, 2**14])
def test_vectors_are_those_of_transformers(folder: Path, at_once: int) -> None:
    encoder, reading = opened(folder, at_once, query_prompt="", candidate_prompt="")
    pooling = {"bert": "mean", "minilm": "mean", "decoder": "last"}[folder.name]
    max_length = {"bert": 32, "minilm": 12, "decoder": 32}[folder.name]
    with torch.no_grad():
        vectors = encoder(reading.tokens(TEXTS, "query"))
    expected = by_transformers(folder, TEXTS, pooling, max_length)
    torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max"])
def test_pooling_from_the_folder_and_from_a_setting(pooling: str, tmp_path: Path) -> None:
    own = save_minilm(tmp_path / "own", pooling=pooling)
    other = save_minilm(tmp_path / "other", pooling="cls" if pooling != "cls" else "max")
    none = {"query_prompt": ""}
    for folder, given in ((own, none), (other, {**none, "pooling": pooling})):
        encoder, reading = opened(folder, **given)
        with torch.no_grad():
            vectors = encoder(reading.tokens(TEXTS, "query"))
        expected = by_transformers(folder, TEXTS, pooling, 12)
        torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)


def test_vectors_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    module = pytest.importorskip("sentence_transformers", reason="it is not installed")
    folder = save_minilm(tmp_path / "minilm")
    encoder, reading = opened(folder)
    model = module.SentenceTransformer(str(folder), device="cpu")
    for side, prompt in (("query", "query"), ("candidate", "document")):
        with torch.no_grad():
            vectors = encoder(reading.tokens(TEXTS, side))
        expected = torch.from_numpy(model.encode(TEXTS, prompt_name=prompt))
        torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)


def test_prompts_by_side_from_the_folder_or_a_setting(tmp_path: Path) -> None:
    folder = save_minilm(tmp_path / "minilm", max_length=32)
    _, reading = opened(folder)
    plain = Reading(reading.tokenizer)
    for side, prompt in (("query", "ak bl "), ("candidate", "cm ")):
        texts = [prompt + text for text in TEXTS]
        assert torch.equal(reading.tokens(TEXTS, side).tokens, plain.tokens(texts, side).tokens)
    _, chosen = opened(folder, query_prompt="dn ")
    expected = plain.tokens(["dn ak"], "query")
    assert torch.equal(chosen.tokens(["ak"], "query").tokens, expected.tokens)
    assert reading.tokens(["", None, "  "], "query").counts().tolist() == [0, 0, 0]


def test_text_without_tokens_is_zeros_and_hidden_tokens_are_not_read(tmp_path: Path) -> None:
    encoder, reading = opened(save_bert(tmp_path / "bert"))
    both = reading.tokens(["", "ak bl", "ak bl cm"], "query")
    weights = torch.ones(len(both.tokens))
    weights[-2] = 0.0  # cm
    with torch.no_grad():
        vectors = encoder(Texts(both.offsets, both.tokens, weights))
        whole = encoder(both)
    assert torch.equal(vectors[0], torch.zeros(16))
    assert not torch.allclose(vectors[2], whole[2], atol=1e-3)
    ids = both.select(torch.tensor([2])).tokens.long()[None]
    mask = torch.tensor([[1, 1, 1, 0, 1]])
    with torch.no_grad():
        hidden = encoder.network(input_ids=ids, attention_mask=mask).last_hidden_state[0]
    pooled = hidden[mask[0] == 1].mean(dim=0)
    torch.testing.assert_close(vectors[2], pooled / pooled.norm(), rtol=0, atol=1e-6)


def test_gradients_with_caching_are_those_without(tmp_path: Path) -> None:
    """In train mode, with dropout off; the backward pass runs the network again, part by part."""
    folder = save_bert(tmp_path / "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    grads = []
    for at_once in (1, 2**14):
        encoder, reading = opened(folder, at_once)
        encoder.train()
        vectors = encoder(reading.tokens(TEXTS, "query"))
        (vectors @ vectors.T).logsumexp(dim=1).sum().backward()
        grads.append({name: p.grad.clone() for name, p in encoder.named_parameters()})
    for name, gradient in grads[0].items():
        torch.testing.assert_close(gradient, grads[1][name], rtol=1e-4, atol=1e-6)
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in grads[0].values())


def test_gradient_memory_does_not_grow_with_the_number_of_texts(tmp_path: Path) -> None:
    """What the graph keeps are vectors, not the activations of each token."""
    encoder, reading = opened(save_bert(tmp_path / "bert"), at_once=64)
    encoder.train()
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    texts = reading.tokens([" ".join(WORDS[:20])] * 50, "query")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        encoder(texts)
    assert sum(kept) < 50 * 22 * 16  # less than one layer's output


def test_vectors_in_mixed_precision_are_nearly_the_same(tmp_path: Path) -> None:
    encoder, reading = opened(save_bert(tmp_path / "bert"))
    texts = reading.tokens(TEXTS, "query")
    with torch.no_grad():
        expected = encoder(texts)
    with torch.autocast("cpu", torch.bfloat16):
        vectors = encoder(texts)  # with gradients: cached
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, expected, rtol=0, atol=0.02)
    vectors[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in encoder.parameters())


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    encoder, _ = opened(folder := save_bert(tmp_path / "bert"))
    blueprint, _ = read_blueprint(folder, Choices())
    state = encoder.network.state_dict()
    state.pop("embeddings.word_embeddings.weight")
    with pytest.raises(UserError, match="lacks weights of its encoder bert"):
        build_network(blueprint, state)


def test_network_is_built_again_without_its_folder(folder: Path) -> None:
    encoder, reading = opened(folder)
    blueprint, _ = read_blueprint(folder, Choices())
    again = Blueprint(**json.loads(json.dumps(blueprint.to_json())))
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    network = build_network(again, encoder.network.state_dict())
    texts = reading.tokens(TEXTS, "query")
    with torch.no_grad():
        assert torch.equal(Pretrained(network, again, 2**14)(texts), encoder(texts))


def test_checksum_is_of_weights_configuration_and_tokenizer(tmp_path: Path) -> None:
    one, other = save_bert(tmp_path / "one"), save_bert(tmp_path / "other")
    both = [read_blueprint(folder, Choices())[0].checksum for folder in (one, other)]
    assert both[0] == both[1]
    change(other / "config.json", layer_norm_eps=1e-6)
    assert read_blueprint(other, Choices())[0].checksum != both[0]


def without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: without(f, "config.json"), "has no config.json"),
        (lambda f: without(f, "tokenizer.json"), "has no tokenizer.json"),
        (lambda f: without(f, "model.safetensors"), "has no weights"),
        (pickled, "only pickled weights, pytorch_model.bin"),
        (lambda f: change(f / "config.json", auto_map={"AutoModel": "x.Y"}), "custom code"),
        (lambda f: change(f / "tokenizer_config.json", auto_map={"A": "x.Y"}), "custom code"),
        (lambda f: change(f / "config.json", is_encoder_decoder=True), "a decoder"),
        (lambda f: change(f / "config.json", quantization_config={"bits": 4}), "quantised"),
        (lambda f: change(f / "config.json", model_type="nosuch"), "cannot read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"no tensors"), "cannot read"),
        (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "must hold an object"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "not a tokenizer"),
        (lambda f: write(f / "modules.json", [{"type": "x.Dense", "path": "2"}]), "module Dense"),
        (lambda f: write(f / "modules.json", [{"type": "x.Pooling", "path": "../1"}]), "outside"),
        (lambda f: write(f / "modules.json", [3]), "damaged"),
        (lambda f: write(f / "1_Pooling/config.json", {"pooling_mode": "odd"}), "pooling odd"),
        (lambda f: write(f / "1_Pooling/config.json", {}), "pooling none"),
    ],
)
def test_unusable_folders_are_refused_by_name(spoil: Any, message: str, tmp_path: Path) -> None:
    folder = save_minilm(tmp_path / "minilm")
    spoil(folder)
    with pytest.raises(UserError, match=message) as caught:
        opened(folder)
    assert "minilm" in str(caught.value)
    assert caught.value.hint


def test_missing_folder_and_file_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        opened(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is not a folder"):
        opened(tmp_path / "file")


def test_tokens_differ_from_those_of_other_tokenizers(tmp_path: Path) -> None:
    _, reading = opened(save_bert(tmp_path / "bert"))
    own = train_tokenizer(TEXTS, "word")
    assert not same_tokens(own, reading.tokenizer)
    assert same_tokens(reading.tokenizer, reading.tokenizer)
    assert int(tokenise(reading.tokenizer, TEXTS).tokens.max()) < n_tokens(reading.tokenizer)
