"""Texts as tokens.

A token is a ``word`` (see ``words``) or a ``word-piece``. An unknown word has no token; in a short
text it is read as the known word that looks most like it. Word pieces are made by the
``tokenizers`` library. Pretrained encoders bring tokenizers of their own.

A tokenizer is stored as the library's JSON. Only its kind, its rules and its words are read from
there, so a forged one is harmless. Older ones have no ``rules``: words were runs of letters, with
or without spaces, and unknown ones had no token. They are read as they were written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from rankfold.data.build import pretrained_tokens
from rankfold.data.build.similar_words import SimilarWords
from rankfold.data.build.words import REMOVED, casefold, has_symbols, normalise, words_of
from rankfold.errors import UserError, require
from rankfold.notebook import silent
from rankfold.types import Progress, Texts

if TYPE_CHECKING:
    import polars as pl
    from tokenizers import Tokenizer

BATCH = 10_000  # texts tokenised at once
UNKNOWN = "[UNK]"  # the last token of every tokenizer; it is removed from all texts
RULES = 2  # of new tokenizers; those of version 1 have none
_OLD_WORD = r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*"
_CONTINUATION = "##"  # prefix of a word piece inside a word
_MAX_LETTERS = 1000  # single letters among the word pieces: some scripts have very many
_MIN_SYMBOL_WORDS = 2  # occurrences of a word with symbols
_MANY_WORDS = 4  # known ones, in a text whose unknown words have no token
_SIMILAR_KEPT = 100_000  # unknown words whose similar word is remembered
Encode = Callable[[Iterable[str]], Iterator[list[int]]]
"""The tokens of each text, ``UNKNOWN`` included."""


def train_tokenizer(texts: Iterable[str], kind: str, size: int | None = None) -> str:
    """Train a tokenizer and return its JSON; the order of the texts does not matter.

    It has at most ``size`` tokens, the most frequent ones; None: the default of the kind.
    """
    token_kind = KINDS[kind]
    words = token_kind.train(map(words_of, texts), size or token_kind.size)
    if not words:
        raise UserError("the training texts have no words", hint="is it the right column?")
    return _to_json(kind, words)


def tokenise(
    tokenizer: str,
    texts: Sequence[str | None] | pl.Series,
    progress: Progress = silent,
    change: Callable[[str], str] = str,
) -> Texts:
    """The tokens of each text, in the order of its words; none for a missing text.

    ``change`` is done to each text first, such as adding a prompt, unless it is blank.
    """
    encode, unknown = _open(tokenizer), n_tokens(tokenizer)
    counts, tokens = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    for start in range(0, len(texts), BATCH):
        progress("tokenising", start / len(texts))
        block = (text or "" for text in texts[start : start + BATCH])
        encoded = list(encode(change(text) if text.strip() else "" for text in block))
        ids = np.fromiter(chain.from_iterable(encoded), np.int32)
        known = ids != unknown
        row = np.repeat(np.arange(len(encoded)), [len(text) for text in encoded])
        counts.append(np.bincount(row[known], minlength=len(encoded)))
        tokens.append(ids[known])
    offsets = np.cumsum(np.concatenate(counts))
    return Texts(torch.from_numpy(offsets), torch.from_numpy(np.concatenate(tokens)))


def same_tokens(one: str | None, other: str | None) -> bool:
    """Whether two tokenizers give the same tokens for all texts."""
    if one == other or one is None or other is None:
        return one == other
    pretrained = any(map(pretrained_tokens.is_pretrained, (one, other)))
    return not pretrained and _parse(one) == _parse(other)


def n_tokens(tokenizer: str) -> int:
    """The number of tokens of a tokenizer; a ValueError if it is not valid."""
    if pretrained_tokens.is_pretrained(tokenizer):
        return pretrained_tokens.size_of(tokenizer)
    return len(_parse(tokenizer)[2])


def vocabulary_of(tokenizer: str | None) -> list[str] | None:
    """The words in the order of the tokens; None without a tokenizer, or for a pretrained one."""
    if tokenizer is None or pretrained_tokens.is_pretrained(tokenizer):
        return None
    return _parse(tokenizer)[2]


def places_in(own: str | None, other: str | None) -> torch.Tensor | None:
    """For each token of a tokenizer that of the same word in another, -1: it has none; [V].

    None for tokenizers that make words in different ways, and without tokenizers.
    """
    if own is None or other is None or any(map(pretrained_tokens.is_pretrained, (own, other))):
        return None
    (*rules, words), (*other_rules, other_words) = _parse(own), _parse(other)
    if rules != other_rules:
        return None
    numbers = {word: number for number, word in enumerate(other_words)}
    return torch.tensor([numbers.get(word, -1) for word in words])


def check_tokenizers() -> None:
    """A UserError if the library is missing."""
    require("tokenizers", "reading texts", "text")


# ---------------------------------------------------------------------------------- tokenizers


def _to_json(kind: str, words: Sequence[str]) -> str:
    """The tokenizer of a kind whose token i is ``words[i]``."""
    vocabulary = {word: number for number, word in enumerate([*words, UNKNOWN])}
    model = {"type": KINDS[kind].model, "vocab": vocabulary, "unk_token": UNKNOWN}
    return json.dumps({"version": "1.0", "rules": RULES, "model": model}, ensure_ascii=False)


@lru_cache(maxsize=2)
def _open(tokenizer: str) -> Encode:
    if pretrained_tokens.is_pretrained(tokenizer):
        return pretrained_tokens.encoder_of(tokenizer)
    kind, rules, words = _parse(tokenizer)
    if rules == 1:
        return _by_library(_old_tokenizer(kind, words), _clean)
    if kind == "word-piece":
        return _by_library(_piece_tokenizer(words), lambda text: " ".join(words_of(text)))
    return _Words(words)


class _Words:
    """The token of each word. In a short text, an unknown word has that of the most similar one.

    In a longer text the known words tell enough, and most unknown ones are new, not misspelt.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.unknown = words, len(words)
        self.numbers = {word: number for number, word in enumerate(words)}
        self.similar: SimilarWords | None = None
        self.nearest = lru_cache(_SIMILAR_KEPT)(self._nearest)

    def __call__(self, texts: Iterable[str]) -> Iterator[list[int]]:
        get, unknown = self.numbers.get, self.unknown
        for text in texts:
            words = words_of(text)
            numbers = [get(word, unknown) for word in words]
            if unknown in numbers and len(numbers) - numbers.count(unknown) < _MANY_WORDS:
                both = zip(words, numbers, strict=True)
                numbers = [self.nearest(word) if n == unknown else n for word, n in both]
            yield numbers

    def _nearest(self, word: str) -> int:
        if self.similar is None:
            self.similar = SimilarWords(self.words)
        number = self.similar.find(word)
        return self.unknown if number is None else number


def _by_library(tokenizer: Tokenizer, clean: Callable[[str], str]) -> Encode:
    def encode(texts: Iterable[str]) -> Iterator[list[int]]:
        cleaned = [clean(text) for text in texts]
        encoded = tokenizer.encode_batch_fast(cleaned, add_special_tokens=False)
        return (text.ids for text in encoded)

    return encode


def _piece_tokenizer(words: Sequence[str]) -> Tokenizer:
    """Cuts words, separated by spaces, into known pieces."""
    check_tokenizers()
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate([*words, UNKNOWN])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _old_tokenizer(kind: str, words: Sequence[str]) -> Tokenizer:
    """A tokenizer of version 1.

    Words are normalised, as the oldest were stored without; of equal words the first counts.
    """
    check_tokenizers()
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary: dict[str, int] = {}
    for number, word in enumerate(words):
        vocabulary.setdefault(word if word.isascii() else normalise(word), number)
    vocabulary[UNKNOWN] = len(words)
    tokenizer = Tokenizer(getattr(models, KINDS[kind].model)(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(REMOVED), ""),
            normalizers.NFC(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(_OLD_WORD), behavior="removed", invert=True
    )
    return tokenizer


@lru_cache(maxsize=2)
def _parse(tokenizer: str) -> tuple[str, int, list[str]]:
    """The kind of a tokenizer, the version of its rules, and its words, in order."""
    try:
        parsed = json.loads(tokenizer)
        model, rules = parsed["model"], parsed.get("rules", 1)
        kind = next(name for name, known in KINDS.items() if known.model == model["type"])
        words = sorted(model["vocab"], key=model["vocab"].__getitem__)
        numbers = [model["vocab"][word] for word in words]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        raise ValueError("not a tokenizer of rankfold") from None
    if rules not in range(1, RULES + 1):
        raise ValueError(f"a tokenizer with rules of version {rules!r}, which are not known")
    if numbers != list(range(len(words))) or words[-1:] != [UNKNOWN]:
        raise ValueError("a tokenizer whose tokens are not numbered without gaps")
    return kind, rules, words[:-1]


def _clean(text: str) -> str:
    """A text without lone surrogates, which the library refuses, and with case folded.

    The library only knows lower case, which is not enough outside of ASCII.
    """
    return text if text.isascii() else casefold(text.encode("utf-8", "replace").decode())


# ---------------------------------------------------------------------------------- training


def _train_words(texts: Iterable[list[str]], size: int) -> list[str]:
    """Words by descending frequency, then by letters; rare words with symbols are left out."""
    counts = Counter(chain.from_iterable(texts))
    known = [w for w, n in counts.items() if n >= _MIN_SYMBOL_WORDS or not has_symbols(w)]
    return sorted(known, key=lambda word: (-counts[word], word))[:size]


def _train_pieces(texts: Iterable[list[str]], size: int) -> list[str]:
    """Letters, then pieces in the order in which they were joined from smaller ones.

    The library numbers letters inside words in no fixed order, and the joins depend on that. As
    special tokens, letters have fixed numbers.
    """
    tokenizer = _piece_tokenizer([])
    from tokenizers import trainers

    joined = [" ".join(words) for words in texts]
    counts = Counter(chain.from_iterable(joined))
    letters = sorted(counts.keys() - {" "}, key=lambda letter: (-counts[letter], letter))
    letters = letters[: min(_MAX_LETTERS, max(1, size // 4))]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=1,
        show_progress=False,
        special_tokens=[_CONTINUATION + letter for letter in sorted(letters)],
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        continuing_subword_prefix=_CONTINUATION,
    )
    tokenizer.train_from_iterator(joined, trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary.keys() - {UNKNOWN}, key=vocabulary.__getitem__)


class TokenKind(NamedTuple):
    """A kind of tokens."""

    model: str  # the library's name for it
    train: Callable[[Iterable[list[str]], int], list[str]]  # from the words of each text
    size: int  # the default size of the vocabulary


KINDS: dict[str, TokenKind] = {
    "word": TokenKind("WordLevel", _train_words, 500_000),
    "word-piece": TokenKind("WordPiece", _train_pieces, 30_000),
}
