"""Word vectors from a file, to start token vectors from."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rankfold.data.build.words import normalise
from rankfold.errors import UserError
from rankfold.types import Dataset

_MAX_LINE_BYTES = 2**16


class TokenVectors(NamedTuple):
    """Tokens that have a vector in the file."""

    tokens: Tensor  # [n] int64
    vectors: Tensor  # [n, D], of length 1
    notes: dict[str, int]  # how many tokens have a vector, of how many


def read_vectors(path: str, data: Dataset, width: int) -> TokenVectors:
    """The vectors of the data's tokens in a file of word vectors, scaled to length 1.

    The file is text, as fastText writes it, plain or compressed: first a line ``n width``, then n
    lines ``word v_1 ... v_width``. The first line of a word counts; a vector of zeros does
    not. A token without a line takes the vector of a word that equals it without accents and case.
    Reading stops after the last token. A file without any of the tokens is a UserError.
    """
    tokens = tokens_of(data)
    exact: dict[int, NDArray[np.float32]] = {}
    folded: dict[int, NDArray[np.float32]] = {}
    wanted = {word.encode(): token for word, token in tokens.items()}
    for number, line in _lines(path, width):
        word = next(iter(line.split(maxsplit=1)), b"")
        token = wanted.pop(word, None)
        if token is not None:
            exact[token] = _vector(line, path, number, width)
            if not wanted:
                break
        elif not word.isascii():
            token = wanted.get(normalise(word.decode(errors="replace")).encode())
            if token is not None and token not in folded:
                folded[token] = _vector(line, path, number, width)
    by_token = folded | exact
    vectors = torch.from_numpy(np.stack([*by_token.values(), np.zeros(width, np.float32)])[:-1])
    usable = vectors.norm(dim=1) > 0
    rows = torch.tensor(list(by_token), dtype=torch.int64)[usable]
    if len(rows) == 0:
        some = ", ".join(map(repr, list(tokens)[:3]))
        raise UserError(
            f"{path} has a vector for none of the {len(tokens):,} tokens of the data",
            hint=f"tokens are in lower case, without accents: {some}; is it the right file?",
        )
    notes = {"found": len(rows), "tokens": len(tokens)}
    return TokenVectors(rows, normalize(vectors[usable], dim=1, eps=0.0), notes)


def tokens_of(data: Dataset) -> dict[str, int]:
    """The id of each word or word piece of the data's tokenizer."""
    if data.tokenizer is None:
        raise UserError(
            "this data has bags of tokens without their words, so `vectors` cannot be used",
            hint="prepare the data from texts, or leave out `vectors`",
        )
    known = json.loads(data.tokenizer)["model"]["vocab"]
    return {word: token for word, token in known.items() if token < data.n_tokens}


def _lines(path: str, width: int) -> Iterator[tuple[int, bytes]]:
    """The lines after the first with their numbers; a UserError if the first line is wrong."""
    from rankfold.data.read.files import open_binary  # needs zstandard, which fits do not

    number = 1
    with open_binary(Path(path)) as file:
        rows = _rows(file.readline(_MAX_LINE_BYTES), path, width)
        while line := file.readline(_MAX_LINE_BYTES):
            if number > rows and line.strip():
                raise UserError(
                    f"{path} has more lines than the {rows:,} words of its first line",
                    hint="correct the number in the first line; were two files joined?",
                )
            number += 1
            yield number, line
    if number <= rows:
        raise UserError(
            f"{path} ends after {number - 1:,} of the {rows:,} words of its first line",
            hint="the file is incomplete: download it again",
        )


def _rows(line: bytes, path: str, width: int) -> int:
    """The number of words, from the first line."""
    numbers = re.fullmatch(rb"(?:\xef\xbb\xbf)?\s*(\d{1,18})\s+(\d{1,9})\s*", line)
    if numbers is None:
        raise UserError(
            f"{path} begins with {_shown(line)}, expected two numbers: words and width",
            hint="`vectors` takes text files such as fastText's .vec",
        )
    rows, own_width = map(int, numbers.groups())
    if own_width != width:
        raise UserError(
            f"{path} has vectors of width {own_width}, expected {width}", hint=f"width={own_width}"
        )
    return rows


def _vector(line: bytes, path: str, number: int, width: int) -> NDArray[np.float32]:
    """The numbers of a line."""
    parts = line.split()[1:]
    try:
        values = np.array(parts, dtype=np.float32)
    except ValueError:
        values = np.full(width, np.nan, np.float32)
    if len(parts) != width or not np.isfinite(values).all():
        raise UserError(
            f"line {number} of {path} is not a word and {width} numbers: {_shown(line)}",
            hint="repair or remove the line",
        )
    return values


def _shown(line: bytes) -> str:
    """The beginning of a line, for messages."""
    text = line[:40].decode(errors="replace").rstrip("\n")
    return repr(text + ("..." if len(line) > 40 else ""))
