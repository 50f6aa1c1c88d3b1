"""Texts as tokens, by the ``tokenizers`` library.

A text is normalised first: compatibility forms are unified (NFKC), case is folded (one Greek sigma,
ss for sharp s), accents and invisible characters (soft hyphens, joiners) are removed. Words are
runs of letters and digits; all else is dropped. A token is a ``word`` or a ``word-piece``. Unknown
words have no token.

A tokenizer is stored as the library's JSON. Only its kind and its words are read from there, so a
forged one is harmless.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from rankfold.errors import UserError, require
from rankfold.notebook import silent
from rankfold.types import Progress, Texts

if TYPE_CHECKING:
    import polars as pl
    from tokenizers import Tokenizer

BATCH = 10_000  # texts tokenised at once
UNKNOWN = "[UNK]"  # the last token of every tokenizer; it is removed from all texts
_WORD = r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*"
_CONTINUATION = "##"  # prefix of a word piece inside a word
_MAX_LETTERS = 1000  # single letters among the word pieces: some scripts have very many
_ACCENTS = "\u0300-\u036f"  # not all marks: vowels are marks in some scripts
_INVISIBLE = "\u00ad\u200c-\u200f\u2060\ufeff"  # inside words; a zero-width space is a space
_REMOVED = f"[{_ACCENTS}{_INVISIBLE}]+"


def casefold(text: str) -> str:
    """A text without case. Letters and marks are separated first: folding is letter by letter."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKD", text).casefold()


def normalise(word: str) -> str:
    """A word without case, accents and invisible characters, as tokenizers store it."""
    return unicodedata.normalize("NFC", re.sub(_REMOVED, "", casefold(word)))


def train_tokenizer(texts: Iterable[str], kind: str, size: int | None = None) -> str:
    """Train a tokenizer and return its JSON; the order of the texts does not matter.

    It has at most ``size`` tokens, the most frequent ones; None: the default of the kind.
    """
    token_kind = KINDS[kind]
    cleaned = map(_clean, texts)
    batches = iter(lambda: list(islice(cleaned, BATCH)), [])
    words = token_kind.train(batches, size or token_kind.size)
    if not words:
        raise UserError("the training texts have no words", hint="is it the right column?")
    return _tokenizer(kind, words).to_str()


def tokenise(
    tokenizer: str, texts: Sequence[str | None] | pl.Series, progress: Progress = silent
) -> Texts:
    """The tokens of each text, in the order of its words; none for a missing text."""
    opened, unknown = _open(tokenizer), n_tokens(tokenizer)
    counts, tokens = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    for start in range(0, len(texts), BATCH):
        progress("tokenising", start / len(texts))
        batch = [_clean(text) for text in texts[start : start + BATCH]]
        encoded = [text.ids for text in opened.encode_batch_fast(batch, add_special_tokens=False)]
        ids = np.fromiter(chain.from_iterable(encoded), np.int32)
        known = ids != unknown
        row = np.repeat(np.arange(len(encoded)), [len(text) for text in encoded])
        counts.append(np.bincount(row[known], minlength=len(encoded)))
        tokens.append(ids[known])
    offsets = np.cumsum(np.concatenate(counts))
    return Texts(torch.from_numpy(offsets), torch.from_numpy(np.concatenate(tokens)))


def same_tokens(one: str | None, other: str | None) -> bool:
    """Whether two tokenizers give the same tokens for all texts."""
    return one == other or (one is not None and other is not None and _parse(one) == _parse(other))


def n_tokens(tokenizer: str) -> int:
    """The number of tokens of a tokenizer; a ValueError if it is not one of rankfold."""
    return len(_parse(tokenizer)[1])


def check_tokenizers() -> None:
    """A UserError if the library is missing."""
    require("tokenizers", "reading texts", "text")


# ---------------------------------------------------------------------------------- tokenizers


def _tokenizer(kind: str, words: Sequence[str]) -> Tokenizer:
    """The tokenizer of a kind whose token i is ``words[i]``.

    Words are normalised, as old tokenizers were stored without; of equal words the first counts.
    """
    check_tokenizers()
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary: dict[str, int] = {}
    for number, word in enumerate(words):
        vocabulary.setdefault(word if word.isascii() else normalise(word), number)
    vocabulary[UNKNOWN] = len(words)
    model = getattr(models, KINDS[kind].model)(vocabulary, unk_token=UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(_REMOVED), ""),
            normalizers.NFC(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_WORD), behavior="removed", invert=True)
    return tokenizer


@lru_cache(maxsize=2)
def _open(tokenizer: str) -> Tokenizer:
    return _tokenizer(*_parse(tokenizer))


@lru_cache(maxsize=2)
def _parse(tokenizer: str) -> tuple[str, list[str]]:
    """The kind of a tokenizer and its words, in order."""
    try:
        model = json.loads(tokenizer)["model"]
        kind = next(name for name, known in KINDS.items() if known.model == model["type"])
        words = sorted(model["vocab"], key=model["vocab"].__getitem__)
        numbers = [model["vocab"][word] for word in words]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        raise ValueError("not a tokenizer of rankfold") from None
    if numbers != list(range(len(words))) or words[-1:] != [UNKNOWN]:
        raise ValueError("a tokenizer whose tokens are not numbered without gaps")
    return kind, words[:-1]


def _clean(text: str | None) -> str:
    """A text without lone surrogates, which the library refuses, and with case folded.

    The library only knows lower case, which is not enough outside of ASCII.
    """
    if not text or text.isascii():
        return text or ""
    return casefold(text.encode("utf-8", "replace").decode())


# ---------------------------------------------------------------------------------- training


def _train_words(batches: Iterable[list[str]], size: int) -> list[str]:
    """Words by descending frequency, then by letters."""
    from tokenizers import trainers

    tokenizer = _tokenizer("word", [])
    trainer = trainers.WordLevelTrainer(vocab_size=size, show_progress=False, special_tokens=[])
    tokenizer.train_from_iterator(batches, trainer)
    return _words(tokenizer)


def _train_pieces(batches: Iterable[list[str]], size: int) -> list[str]:
    """Letters, then pieces in the order in which they were joined from smaller ones.

    The library numbers letters inside words in no fixed order, and the joins depend on that. As
    special tokens, letters have fixed numbers.
    """
    from tokenizers import trainers

    tokenizer = _tokenizer("word-piece", [])
    assert tokenizer.normalizer is not None
    texts = [text for batch in batches for text in batch]
    counts = Counter(chain.from_iterable(map(tokenizer.normalizer.normalize_str, texts)))
    letters = [letter for letter in counts if unicodedata.category(letter)[0] in "LNM"]
    letters.sort(key=lambda letter: (-counts[letter], letter))
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
    tokenizer.train_from_iterator(texts, trainer)
    return _words(tokenizer)


def _words(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary.keys() - {UNKNOWN}, key=vocabulary.__getitem__)


class TokenKind(NamedTuple):
    """A kind of tokens."""

    model: str  # the library's name for it
    train: Callable[[Iterable[list[str]], int], list[str]]
    size: int  # the default size of the vocabulary


KINDS: dict[str, TokenKind] = {
    "word": TokenKind("WordLevel", _train_words, 500_000),
    "word-piece": TokenKind("WordPiece", _train_pieces, 30_000),
}
