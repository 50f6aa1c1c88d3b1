"""An encoder whose scores are cosines, or are divided by a temperature."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import normalize

from rankfold.types import Encoder

SHORTEST = 0.1  # a shorter vector is scaled as one so long: near 0 the gradient would be anything


class Scaled(nn.Module):
    """Vectors of another encoder, of length one for cosines; queries over the temperature."""

    def __init__(
        self, encoder: Encoder, similarity: Literal["dot", "cosine"], temperature: float
    ) -> None:
        super().__init__()
        self.encoder, self.similarity, self.temperature = encoder, similarity, temperature

    def of_queries(self, rows: Tensor | None) -> Tensor:
        return self._length(self.encoder.of_queries(rows)) / self.temperature

    def of_candidates(self, rows: Tensor | None) -> Tensor:
        return self._length(self.encoder.of_candidates(rows))

    def _length(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=-1, eps=SHORTEST) if self.similarity == "cosine" else vectors
