"""An encoder whose scores are cosines, or are divided by a temperature."""

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import normalize

from rankfold.types import Encoder

MIN_NORM = 0.1  # shorter vectors are divided by this: near 0 the gradient of a cosine explodes


class Scaled(nn.Module):
    """Another encoder's vectors, of length 1 for cosines; queries are over the temperature."""

    def __init__(
        self, encoder: Encoder, similarity: Literal["dot", "cosine"], temperature: float
    ) -> None:
        super().__init__()
        self.encoder, self.similarity, self.temperature = encoder, similarity, temperature

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        return self._length(self.encoder.encode_queries(rows)) / self.temperature

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        return self._length(self.encoder.encode_candidates(rows))

    def _length(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=-1, eps=MIN_NORM) if self.similarity == "cosine" else vectors
