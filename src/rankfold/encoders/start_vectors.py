"""Vectors of words from elsewhere, for token vectors to start at."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rankfold.data.build.tokens import normalise
from rankfold.errors import UserError
from rankfold.types import Dataset

LONGEST = 2**16  # bytes of a line; what is longer is no line of vectors


class Given(NamedTuple):
    """Tokens that have a vector."""

    tokens: Tensor  # [n] int64
    vectors: Tensor  # [n, D], of length 1
    notes: dict[str, int]  # how many were found, of how many


def read_vectors(path: str, data: Dataset, width: int) -> Given:
    """The vectors of the data's tokens that a file of word vectors has, scaled to length 1.

    The file is text, as fastText writes it, plain or ending in ``.gz``: first a line ``n width``,
    then n lines ``word v_1 ... v_width``. A word counts where it first occurs, and not at all if
    its vector is 0. A token that the file does not have is one that it writes otherwise: with
    accents, or letters that have no lower case. Lines of other words are passed over; nothing is
    read after the last token. A file without any of the tokens is refused.
    """
    tokens = tokens_of(data)
    found: dict[int, NDArray[np.float32]] = {}
    alike: dict[int, NDArray[np.float32]] = {}
    wanted = {word.encode(): token for word, token in tokens.items()}
    for number, line in _lines(path, width):
        word = next(iter(line.split(maxsplit=1)), b"")
        token = wanted.pop(word, None)
        if token is not None:
            found[token] = _vector(line, path, number, width)
            if not wanted:
                break
        elif not word.isascii():
            token = wanted.get(normalise(word.decode(errors="replace")).encode())
            if token is not None and token not in alike:
                alike[token] = _vector(line, path, number, width)
    found = alike | found
    vectors = torch.from_numpy(np.stack([*found.values(), np.zeros(width, np.float32)])[:-1])
    usable = vectors.norm(dim=1) > 0
    rows = torch.tensor(list(found), dtype=torch.int64)[usable]
    if len(rows) == 0:
        some = ", ".join(map(repr, list(tokens)[:3]))
        raise UserError(
            f"{path} has a vector for none of the {len(tokens):,} tokens of the data",
            hint=f"tokens are in lower case, without accents: {some}; is it the right file?",
        )
    notes = {"found": len(rows), "tokens": len(tokens)}
    return Given(rows, normalize(vectors[usable], dim=1, eps=0.0), notes)


def tokens_of(data: Dataset) -> dict[str, int]:
    """The number of each word or word piece that the data's tokenizer knows."""
    if data.tokenizer is None:
        raise UserError(
            "this data has bags of tokens without their words, which vectors cannot be found for",
            hint="prepare it from texts, or leave the setting vectors out",
        )
    known = json.loads(data.tokenizer)["model"]["vocab"]
    return {word: token for word, token in known.items() if token < data.n_tokens}


def _lines(path: str, width: int) -> Iterator[tuple[int, bytes]]:
    """The lines after the first with their numbers; UserErrors where the file is not as it says."""
    number, rows = 1, 0
    try:
        with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
            rows = _rows(file.readline(LONGEST), path, width)
            while line := file.readline(LONGEST):
                if number > rows and line.strip():
                    raise UserError(
                        f"{path} has more lines than the {rows:,} words of its first line",
                        hint="were two files joined? correct the number in its first line",
                    )
                number += 1
                yield number, line
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path} cannot be read: {reason}", hint="vectors names a file of word vectors"
        ) from None
    if number <= rows:
        raise UserError(
            f"{path} ends after {number - 1:,} of the {rows:,} words of its first line",
            hint="is it a part of a file? fetch it again",
        )


def _rows(line: bytes, path: str, width: int) -> int:
    """The number of words that the first line tells."""
    numbers = re.fullmatch(rb"(?:\xef\xbb\xbf)?\s*(\d{1,18})\s+(\d{1,9})\s*", line)
    if numbers is None:
        raise UserError(
            f"{path} begins with {_shown(line)}, not with two numbers: of words, and their width",
            hint="vectors takes text files as fastText's .vec",
        )
    rows, found = map(int, numbers.groups())
    if found != width:
        raise UserError(f"{path} has vectors of width {found}, not {width}", hint=f"width={found}")
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
            f"line {number} of {path} does not hold a word and {width} numbers: {_shown(line)}",
            hint="repair the line or take it out",
        )
    return values


def _shown(line: bytes) -> str:
    """The beginning of a line, to recognise it by."""
    text = line[:40].decode(errors="replace").rstrip("\n")
    return repr(text + ("..." if len(line) > 40 else ""))
