"""Texts as tokens, by the ``tokenizers`` library.

A text is normalised first: one form of every letter (NFKC), no case (of Greek sigmas one, ss for
sharp s), no accents, nothing that does not show (soft hyphens, joiners). Its words are the runs of
letters and digits; what stands between them is dropped. A token is a ``word`` as a
whole, or a ``word-piece``. A word that the tokenizer does not know has no token.

A tokenizer is kept as the library's JSON. Of such a text only the kind and the words are ever used,
so that one from elsewhere can do no harm.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from rankfold.data.build.folding import LEFT_OUT, bare, folded
from rankfold.data.read.files import silent
from rankfold.errors import UserError
from rankfold.types import Progress, Texts

if TYPE_CHECKING:
    import polars as pl
    from tokenizers import Tokenizer

BATCH = 10_000  # texts that are turned into tokens at once
UNKNOWN = "[UNK]"  # the last token of every tokenizer; no word can be it, and no text keeps it
WORD = r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*"
CONTINUES = "##"  # begins a word piece that does not begin a word
LETTERS = 1000  # at most so many of them are word pieces: some scripts have very many


def train_tokenizer(
    texts: Iterable[str], kind: str, size: int | None = None, min_count: int = 1
) -> str:
    """The JSON of a tokenizer for texts like these; the same for the same texts in any order.

    Args:
        texts: to find the words in.
        kind: one of ``KINDS``.
        size: how many tokens at most, the most frequent ones; None: as usual for the kind.
        min_count: how often a token must occur.
    """
    tokens = KINDS[kind]
    words = tokens.train(_batches(texts), size or tokens.size, min_count)
    if not words:
        raise UserError("the texts for training hold no words", hint="is it the right column?")
    return _tokenizer(kind, words).to_str()


def tokenise(
    tokenizer: str, texts: Sequence[str | None] | pl.Series, progress: Progress = silent
) -> Texts:
    """The tokens of each text, in the order of its words; none where there is no text."""
    opened, unknown = _opened(tokenizer), n_tokens(tokenizer)
    counts, tokens = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    for start in range(0, len(texts), BATCH):
        progress("tokenising", start / len(texts))
        batch = [_sound(text) for text in texts[start : start + BATCH]]
        found = [text.ids for text in opened.encode_batch_fast(batch, add_special_tokens=False)]
        ids = np.fromiter(chain.from_iterable(found), np.int32)
        known = ids != unknown
        row = np.repeat(np.arange(len(found)), [len(text) for text in found])
        counts.append(np.bincount(row[known], minlength=len(found)))
        tokens.append(ids[known])
    offsets = np.cumsum(np.concatenate(counts))
    return Texts(torch.from_numpy(offsets), torch.from_numpy(np.concatenate(tokens)))


def same_tokens(one: str | None, other: str | None) -> bool:
    """Whether two tokenizers make the same of all texts."""
    return one == other or (
        one is not None and other is not None and _parsed(one) == _parsed(other)
    )


def n_tokens(tokenizer: str) -> int:
    """How many tokens a tokenizer knows; a ValueError for what is no tokenizer of ours."""
    return len(_parsed(tokenizer)[1])


def check_library() -> None:
    """A UserError where the library is missing; worth asking before long work."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise UserError(
            "texts need the library tokenizers", hint="pip install 'rankfold[text]'"
        ) from None


# ---------------------------------------------------------------------------------- tokenizers


def _tokenizer(kind: str, words: Sequence[str]) -> Tokenizer:
    """The tokenizer of a kind whose token i is ``words[i]``.

    Words of one from before case was folded are folded; of two that are the same, the first counts.
    """
    check_library()
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary: dict[str, int] = {}
    for number, word in enumerate(words):
        vocabulary.setdefault(word if word.isascii() else bare(word), number)
    vocabulary[UNKNOWN] = len(words)
    model = getattr(models, KINDS[kind].model)(vocabulary, unk_token=UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(LEFT_OUT), ""),
            normalizers.NFC(),
        ]
    )
    words_alone = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = words_alone
    return tokenizer


@lru_cache(maxsize=2)
def _opened(tokenizer: str) -> Tokenizer:
    return _tokenizer(*_parsed(tokenizer))


@lru_cache(maxsize=2)
def _parsed(tokenizer: str) -> tuple[str, list[str]]:
    """The kind of a tokenizer and its words in their order."""
    try:
        model = json.loads(tokenizer)["model"]
        kind = next(name for name, tokens in KINDS.items() if tokens.model == model["type"])
        words = sorted(model["vocab"], key=model["vocab"].__getitem__)
        numbers = [model["vocab"][word] for word in words]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        raise ValueError("not a tokenizer of rankfold's") from None
    if numbers != list(range(len(words))) or words[-1:] != [UNKNOWN]:
        raise ValueError("a tokenizer whose tokens are not numbered without gaps")
    return kind, words[:-1]


def _sound(text: str | None) -> str:
    """A text without case, where lower case is not enough, nor lone surrogates.

    The library refuses these, and knows lower case alone.
    """
    if not text or text.isascii():
        return text or ""
    return folded(text.encode("utf-8", "replace").decode())


# ---------------------------------------------------------------------------------- training


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = map(_sound, texts)
    return iter(lambda: list(islice(remaining, BATCH)), [])


def _train_words(batches: Iterable[list[str]], size: int, min_count: int) -> list[str]:
    """Words by how often they occur, then by letters."""
    from tokenizers import trainers

    tokenizer = _tokenizer("word", [])
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=min_count, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(batches, trainer)
    return _words(tokenizer)


def _train_pieces(batches: Iterable[list[str]], size: int, min_count: int) -> list[str]:
    """Letters, and pieces in the order in which they were joined from smaller ones.

    The library numbers the letters inside of words as it meets them, in an order of its own, and
    what it joins depends on that: named as special tokens, they have their numbers beforehand.
    """
    from tokenizers import trainers

    tokenizer = _tokenizer("word-piece", [])
    texts = [text for batch in batches for text in batch]
    letters = _letters(tokenizer, texts)[: min(LETTERS, max(1, size // 4))]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_count,
        show_progress=False,
        special_tokens=[CONTINUES + letter for letter in sorted(letters)],
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        continuing_subword_prefix=CONTINUES,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _words(tokenizer)


def _letters(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The letters of all words, the most frequent first."""
    assert tokenizer.normalizer is not None
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenizer.normalizer.normalize_str(text))
    letters = [letter for letter in counts if unicodedata.category(letter)[0] in "LNM"]
    return sorted(letters, key=lambda letter: (-counts[letter], letter))


def _words(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary.keys() - {UNKNOWN}, key=vocabulary.__getitem__)


class Tokens(NamedTuple):
    """A kind of tokens."""

    model: str  # the library's name for it
    train: Callable[[Iterable[list[str]], int, int], list[str]]
    size: int  # of the vocabulary, unless another is asked for


KINDS: dict[str, Tokens] = {
    "word": Tokens("WordLevel", _train_words, 500_000),
    "word-piece": Tokens("WordPiece", _train_pieces, 30_000),
}
