"""Encoders whose vectors are given: a frozen network, or vectors made elsewhere, with a linear map.

With v the given vector of length 1 and H a square matrix that starts at 0::

    normalise(v + H v)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rankfold.encoders.bag_encoder import unit
from rankfold.encoders.pretrained_folder import Blueprint
from rankfold.errors import UserError
from rankfold.storage.tensors import tensor_bytes
from rankfold.types import Texts

if TYPE_CHECKING:
    from rankfold.encoders.pretrained import Pretrained


@dataclass(frozen=True, slots=True)
class Source:
    """Where an encoder on disk comes from, and what it gives for the texts of a fit."""

    width: int
    blueprint: Blueprint | None = None  # of a network; None: vectors of a file
    frozen: bool = False
    network: Pretrained | None = None  # a frozen one, in a fit
    table: Tensor | None = None  # [M + N, D] vectors of queries, then candidates
    file: Mapping[str, Any] = field(default_factory=dict)  # name, checksum, counts of a file

    def notes(self) -> dict[str, Any]:
        """For a model, as JSON values."""
        if self.blueprint is None:
            return {"given_vectors": dict(self.file)}
        return {"pretrained": self.blueprint.to_json()}


class Given(nn.Module):
    """Text i is one token: the row of its vector in a table. A text without one gets zeros."""

    def __init__(self, table: Tensor, *, keep: bool) -> None:
        """``table`` [n, D]; ``keep``: it is saved with the model."""
        super().__init__()
        self.head = nn.Parameter(torch.zeros(table.shape[1], table.shape[1]))
        self.register_buffer("table", table, persistent=keep)

    def forward(self, texts: Texts) -> Tensor:
        """[n, D]."""
        vectors = self.head.new_zeros(len(texts), self.head.shape[0])
        filled = texts.counts().nonzero().flatten()
        known = self.table[texts.tokens[texts.offsets[filled]].long()]  # type: ignore[index]
        return mapped(vectors.index_copy(0, filled, known.float()), self.head)


class Frozen(nn.Module):
    """A network that is not trained, and the linear map after it."""

    def __init__(self, network: Pretrained, head: Tensor) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, texts: Texts) -> Tensor:
        """[n, D]."""
        with torch.no_grad():
            vectors = self.network(texts)
        return mapped(vectors, self.head)


def mapped(vectors: Tensor, head: Tensor) -> Tensor:
    """normalise(v + H v)."""
    return unit(vectors + vectors @ head.T)


def cached(folder: str | None, name: str, make: Callable[[], Tensor]) -> Tensor:
    """The tensor of a file in ``folder``, made and written if it is not there; None: no file.

    The file has the vectors as float16 and their checksum in its name.
    """
    if folder is None:
        return make().half()
    path = Path(folder) / f"vectors-{name}.safetensors"
    if path.is_file():
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)["vectors"]
        except (SafetensorError, KeyError) as error:
            raise UserError(f"{path} is damaged: {error}", hint="remove the file") from error
    vectors = make().half()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            for piece in tensor_bytes({"vectors": vectors}):
                file.write(piece)
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}", hint="choose another cache") from None
    return vectors


def name_of(checksum: str, *sides: Texts) -> str:
    """The name of the vectors of some texts by an encoder."""
    whole = hashlib.sha256(checksum.encode())
    for texts in sides:
        for tensor in (texts.offsets, texts.tokens):
            whole.update(tensor.cpu().contiguous().numpy().data)
    return whole.hexdigest()[:32]
