"""A free vector for each query and each candidate; biases and scaling for any encoder."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankfold.encoders.half_precision import to_float32
from rankfold.encoders.sharded_table import TableShard
from rankfold.types import Batch, Encoder

INITIAL_STD = 0.1  # of a coordinate
MIN_NORM = 0.1  # shorter vectors are divided by this: near 0 the gradient of a cosine explodes
BLOCK = 2**16  # rows drawn at a time if not all are kept
GRADIENT_SCALE = 2.0**14  # of tables in half precision: about the largest batch


class Tables(nn.Module):
    """Two tables of vectors.

    With ``sparse`` gradients a step costs as much as its batch, not as much as the tables. ``own``
    is the range of queries that are held here; ``shard`` that of candidates, with access to others.
    With ``half`` the tables are float16, and the gradients times ``GRADIENT_SCALE``.
    """

    def __init__(
        self,
        sizes: tuple[int, int],
        width: int,
        rng: torch.Generator,
        *,
        sparse: bool = False,
        own: tuple[int, int] | None = None,
        shard: TableShard | None = None,
        half: bool = False,
    ) -> None:
        super().__init__()
        held = None if shard is None else (shard.start, shard.stop)
        self.queries = table(sizes[0], width, rng, sparse=sparse, own=own, half=half)
        self.candidates = table(sizes[1], width, rng, sparse=sparse, own=held, half=half)
        self.shard = shard

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        return look_up(self.queries, rows)

    def encode_batch(self, batch: Batch) -> Tensor:
        return self.encode_queries(batch.queries)

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        if self.shard is not None:
            assert rows is not None
            return self.shard.look_up(self.candidates, rows)
        return look_up(self.candidates, rows)


def look_up(table: nn.Embedding, rows: Tensor | None) -> Tensor:
    """Some rows of a table, or all."""
    if rows is None:
        return table.weight
    if table.weight.is_cpu and not table.sparse:  # its gradient takes half the time
        return table.weight.index_select(0, rows.flatten()).view(*rows.shape, table.embedding_dim)
    vectors: Tensor = table(rows)
    if vectors.dtype == torch.float16:
        return to_float32(vectors, GRADIENT_SCALE)
    return vectors


def table(
    size: int,
    width: int,
    rng: torch.Generator,
    *,
    sparse: bool = False,
    own: tuple[int, int] | None = None,
    half: bool = False,
) -> nn.Embedding:
    """Random vectors, the same on every device; with ``own``, only these rows."""
    dtype = torch.float16 if half else torch.get_default_dtype()
    drawn = _drawn(size, width, rng, own or (0, size), dtype).mul_(INITIAL_STD)
    return nn.Embedding(len(drawn), width, sparse=sparse, _weight=drawn)


def _drawn(
    size: int, width: int, rng: torch.Generator, own: tuple[int, int], dtype: torch.dtype
) -> Tensor:
    """Some rows of ``torch.randn(size, width)``, drawn in blocks if they are not all.

    torch draws sixteen numbers at a time: blocks of a multiple of 16 rows give the same numbers.
    The last block is the longest, since fewer than 16 numbers are drawn differently.
    """
    if own == (0, size) and dtype == torch.get_default_dtype():
        return torch.randn(size, width, generator=rng)
    starts = [block * BLOCK for block in range(max(1, size // BLOCK))]
    kept, place = torch.empty(own[1] - own[0], width, dtype=dtype), 0
    for start, stop in pairwise([*starts, size]):
        block = torch.randn(stop - start, width, generator=rng)
        block = block[max(0, own[0] - start) : max(0, own[1] - start)]
        kept[place : place + len(block)] = block
        place += len(block)
    return kept


class Biased(nn.Module):
    """Scores of another encoder plus a number for each candidate, as one more column."""

    def __init__(self, encoder: Encoder, biases: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.biases = nn.Embedding(len(biases), 1, _weight=biases[:, None].clone())

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        return _with_one(self.encoder.encode_queries(rows))

    def encode_batch(self, batch: Batch) -> Tensor:
        return _with_one(self.encoder.encode_batch(batch))

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        return torch.cat([self.encoder.encode_candidates(rows), look_up(self.biases, rows)], dim=-1)


def _with_one(vectors: Tensor) -> Tensor:
    return torch.cat([vectors, torch.ones_like(vectors[..., :1])], dim=-1)


class Scaled(nn.Module):
    """Another encoder's vectors, of length 1 for cosines; queries are over the temperature."""

    def __init__(
        self, encoder: Encoder, similarity: Literal["dot", "cosine"], temperature: float
    ) -> None:
        super().__init__()
        self.encoder, self.similarity, self.temperature = encoder, similarity, temperature

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        return self._length(self.encoder.encode_queries(rows)) / self.temperature

    def encode_batch(self, batch: Batch) -> Tensor:
        return self._length(self.encoder.encode_batch(batch)) / self.temperature

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        return self._length(self.encoder.encode_candidates(rows))

    def _length(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=-1, eps=MIN_NORM) if self.similarity == "cosine" else vectors
