"""Tokens of a pretrained tokenizer: a ``tokenizer.json`` of the ``tokenizers`` library.

It always truncates; those of rankfold never do, which distinguishes them. The library runs it: JSON
without code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from rankfold.errors import UserError, require

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def truncating(tokenizer: str, max_length: int, name: str) -> str:
    """The JSON of a tokenizer that cuts texts at ``max_length`` tokens and does not pad them."""
    require("tokenizers", "reading texts", "transformers")
    from tokenizers import Tokenizer

    try:
        opened = Tokenizer.from_str(tokenizer)
        opened.enable_truncation(max_length)
    except Exception as error:  # the library raises Exception itself
        raise UserError(
            f"{name} is not a tokenizer of the tokenizers library: {error}",
            hint="save it again with tokenizer.save_pretrained() of a fast tokenizer",
        ) from error
    opened.no_padding()
    return str(opened.to_str())


@lru_cache(maxsize=4)
def is_pretrained(tokenizer: str) -> bool:
    try:
        parsed = json.loads(tokenizer)
    except (ValueError, RecursionError):
        return False
    return isinstance(parsed, dict) and isinstance(parsed.get("truncation"), dict)


@lru_cache(maxsize=2)
def opened(tokenizer: str) -> Tokenizer:
    """A ValueError if the library cannot read it."""
    require("tokenizers", "reading texts", "transformers")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(tokenizer)
    except Exception as error:  # the library raises Exception itself
        raise ValueError("not a tokenizer") from error


@lru_cache(maxsize=2)
def size_of(tokenizer: str) -> int:
    """All tokens are below it."""
    return 1 + max(opened(tokenizer).get_vocab(with_added_tokens=True).values(), default=-1)


def changed_by(prompt: str, *, lower: bool) -> Callable[[str], str]:
    """What a pretrained encoder reads for a text."""
    return lambda text: prompt + (text.lower() if lower else text)


def encoder_of(tokenizer: str) -> Callable[[Iterable[str]], Iterator[list[int]]]:
    """The tokens of each text with those that begin and end it; none for a blank text."""

    def encode(texts: Iterable[str]) -> Iterator[list[int]]:
        cleaned = [text.encode("utf-8", "replace").decode() for text in texts]
        encoded = opened(tokenizer).encode_batch_fast(cleaned, add_special_tokens=True)
        both = zip(cleaned, encoded, strict=True)
        return (list(tokens.ids) if text.strip() else [] for text, tokens in both)

    return encode
