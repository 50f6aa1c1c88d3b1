"""Texts become tokens."""

import json
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from document_samples import TEXTS, documents, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.data.build.tokens import KINDS, n_tokens, same_tokens, tokenise, train_tokenizer
from rankfold.data.prepare import prepare
from rankfold.errors import UserError


def test_words_are_runs_of_letters_and_digits_in_their_order() -> None:
    tokenizer = train_tokenizer(TEXTS, "word")
    texts = tokenise(tokenizer, TEXTS)
    assert words_of(tokenizer, texts, 0) == ["the", "cat", "the", "dog", "and", "the", "emu"]
    assert words_of(tokenizer, texts, 1) == ["emile", "s", "cafe", "42", "cats"]
    assert texts.offsets.tolist() == [0, 7, 12, 14, 16]
    assert (texts.tokens.dtype, texts.offsets.dtype) == (torch.int32, torch.int64)


def test_marks_that_are_vowels_stay_in_their_words() -> None:
    tokenizer = train_tokenizer(["हिन्दी", "हन्द"], "word")
    assert n_tokens(tokenizer) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ΟΔΟΣ", "οδός"),
        ("STRASSE", "straße"),
        ("cooperate", "co\u00adoperate"),
        ("می‌خواهم", "میخواهم"),
        ("\ufeffword", "word"),
        ("ﬁne", "FINE"),
    ],
)
def test_words_that_look_the_same_have_the_same_token(one: str, other: str) -> None:
    tokenizer = train_tokenizer([one], "word")
    assert n_tokens(tokenizer) == 1
    assert tokenise(tokenizer, [one, other]).tokens.tolist() == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_old_tokenizers_without_case_folding_are_read(kind: str) -> None:
    """Their words are not normalised, those of new texts are."""
    kept = json.loads(train_tokenizer(["strasse weg"], kind, 60))
    vocabulary = kept["model"]["vocab"]
    size = len(vocabulary) - 1
    old = [*sorted(vocabulary, key=vocabulary.__getitem__)[:-1], "straße", "weiß", "οδος"]
    kept["model"]["vocab"] = {word: number for number, word in enumerate([*old, "[UNK]"])}
    kept["normalizer"] = None
    del kept["rules"]
    tokenizer = json.dumps(kept)
    assert n_tokens(tokenizer) == size + 3
    result = tokenise(tokenizer, ["Straße", "strasse", "WEISS", "ὁδός", "nothing"])
    texts = [result.tokens[a:b].tolist() for a, b in pairwise(result.offsets.tolist())]
    assert texts[0] == texts[1]
    assert all(token < size for token in texts[0])  # the first of two equal words
    assert (texts[2], texts[3]) == ([size + 1], [size + 2])
    again = json.dumps({**kept, "normalizer": {"type": "NFC"}})
    assert same_tokens(tokenizer, again)
    assert not same_tokens(tokenizer, train_tokenizer(["strasse weg"], kind, 60))


OLD = {  # as the first version wrote them
    "WordLevel": ["the", "and", "c", "cafe", "cat", "dog", "js", "node", "ภาษาไทย", "東京都の天気"],
    "WordPiece": ["##t", "##h", "##e", "c", "t", "the", "ca", "##東"],
}


@pytest.mark.parametrize(
    ("kind", "text", "tokens"),
    [
        ("WordLevel", "the cat and C++ 東京都の天気 café", [0, 4, 1, 2, 9, 3]),
        ("WordLevel", "The dog; ภาษาไทย node.js, dogs", [0, 5, 8, 7, 6]),
        ("WordLevel", "東京 ภาษา thee", []),
        ("WordPiece", "the cat 東", [5, 6, 0]),
    ],
)
def test_tokens_of_the_first_version_keep_their_meaning(
    kind: str, text: str, tokens: list[int]
) -> None:
    vocabulary = {word: number for number, word in enumerate([*OLD[kind], "[UNK]"])}
    model = {"type": kind, "vocab": vocabulary, "unk_token": "[UNK]"}
    tokenizer = json.dumps({"version": "1.0", "normalizer": None, "model": model})
    assert tokenise(tokenizer, [text]).tokens.tolist() == tokens
    assert not same_tokens(tokenizer, json.dumps({"rules": 2, "model": model}))


def test_rare_words_with_symbols_are_not_learnt() -> None:
    tokenizer = train_tokenizer(["C++ and word.Next", "C++"], "word")
    texts = tokenise(tokenizer, ["C++ word.Next"])
    assert words_of(tokenizer, texts, 0) == ["c", "c++", "word", "next"]


def test_unknown_word_of_a_short_text_is_read_as_the_most_similar_one() -> None:
    others = "apple banana cherry orange lemon melon grape peach walnut almond"
    tokenizer = train_tokenizer(["receive the letters", "receive numbers", others], "word")
    queries = ["recieve leters", "numberz 12 zebra", "the apple banana cherry recieve"]
    texts = tokenise(tokenizer, queries)
    assert words_of(tokenizer, texts, 0) == ["receive", "letters"]
    assert words_of(tokenizer, texts, 1) == ["numbers"]
    assert words_of(tokenizer, texts, 2) == ["the", "apple", "banana", "cherry"]  # enough


def test_pieces_of_scripts_without_spaces() -> None:
    tokenizer = train_tokenizer(["東京都の天気 C++", "ภาษาไทย"], "word-piece", 200)
    texts = tokenise(tokenizer, ["天気 ไทย c++"])
    pieces = "".join(piece.removeprefix("##") for piece in words_of(tokenizer, texts, 0))
    assert pieces == "天気天気ไทยไทยcc++"


def test_zero_width_space_separates_words() -> None:
    assert n_tokens(train_tokenizer(["one\u200btwo"], "word")) == 2


def test_frequent_words_come_first_and_rare_ones_are_dropped() -> None:
    tokenizer = train_tokenizer(["b a c", "b a", "b"], "word")
    assert words_of(tokenizer, tokenise(tokenizer, ["a b c"]), 0) == ["a", "b", "c"]
    assert tokenise(tokenizer, ["b a c"]).tokens.tolist() == [0, 1, 2]
    assert n_tokens(train_tokenizer(["b a c", "b a", "b"], "word", size=2)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_words_have_no_token(kind: str) -> None:
    tokenizer = train_tokenizer(["abc abc"], kind)
    texts = tokenise(tokenizer, ["xyz abc xyz", "xyz", "", None, "abc"])
    counts = texts.counts().tolist()
    assert counts == [counts[4], 0, 0, 0, counts[4]]
    assert 0 < counts[4] <= 3
    assert int(texts.tokens.max()) < n_tokens(tokenizer)


def test_pieces_make_up_the_words() -> None:
    texts = ["walking talking walker talker walks talks"] * 3
    tokenizer = train_tokenizer(texts, "word-piece", size=60)
    pieces = words_of(tokenizer, tokenise(tokenizer, ["walkings"]), 0)
    assert "".join(piece.removeprefix("##") for piece in pieces) == "walkings"
    assert 1 < len(pieces) < 8
    assert n_tokens(tokenizer) <= 60


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_does_not_depend_on_the_order_of_texts(kind: str) -> None:
    texts = [f"w{i % 7} x{i % 5} common ワード{i % 3}" for i in range(60)]
    first = train_tokenizer(texts, kind, 50)
    assert all(train_tokenizer(texts[i:] + texts[:i], kind, 50) == first for i in (1, 17, 40))


def test_texts_without_words_are_refused() -> None:
    with pytest.raises(UserError, match="no words"):
        train_tokenizer(["", "?!"], "word")


def test_lone_surrogates_are_not_letters() -> None:
    tokenizer = train_tokenizer(["a \ud800 b"], "word")
    assert words_of(tokenizer, tokenise(tokenizer, ["b\udc80 a"]), 0) == ["b", "a"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_forms_of_a_text_have_the_same_tokens(texts: list[str]) -> None:
    tokenizer = train_tokenizer([*texts, "word"], "word")
    expected = tokenise(tokenizer, texts)
    for form in ("NFC", "NFD"):
        result = tokenise(tokenizer, [unicodedata.normalize(form, text) for text in texts])
        assert torch.equal(result.tokens, expected.tokens)
        assert torch.equal(result.offsets, expected.offsets)


@given(st.lists(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), max_size=8))
@settings(max_examples=60, deadline=None)
def test_plain_words_round_trip(words: list[str]) -> None:
    tokenizer = train_tokenizer([*words, "word"], "word")
    wide = "".join(
        chr(ord(letter) + 0xFEE0) if letter != " " else " " for letter in " ".join(words)
    )
    for text in (" ".join(words), ", ".join(words).upper(), wide):
        assert words_of(tokenizer, tokenise(tokenizer, [text]), 0) == words


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 100_000, '{"model": {"type": "BPE", "vocab": {}}}']
    + [
        json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary}})
        for vocabulary in ([], {"a": 0}, {"a": 0, "[UNK]": 2}, {"a": "0", "[UNK]": 1})
    ],
)
def test_invalid_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="tokenizer"):
        n_tokens(text)


@pytest.mark.parametrize("rules", [3, 0, "2", None])
def test_unknown_rules_are_refused(rules: object) -> None:
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0}}
    with pytest.raises(ValueError, match="rules of version"):
        n_tokens(json.dumps({"rules": rules, "model": model}))


def test_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    path = documents(tmp_path / "d.jsonl")
    with pytest.raises(UserError, match="needs tokenizers") as caught:
        prepare(path, format="texts", tokens="word-piece")
    prepare(path, format="texts")
    assert caught.value.hint == "pip install 'rankfold[text]'"
