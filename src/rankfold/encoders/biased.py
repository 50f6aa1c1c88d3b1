"""An encoder with a bias for each candidate, as one more column."""

import torch
from torch import Tensor, nn

from rankfold.encoders.tables import look_up
from rankfold.types import Encoder


class Biased(nn.Module):
    """Scores of another encoder plus a number for each candidate."""

    def __init__(self, encoder: Encoder, biases: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.biases = nn.Embedding(len(biases), 1, _weight=biases[:, None].clone())

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        vectors = self.encoder.encode_queries(rows)
        return torch.cat([vectors, torch.ones_like(vectors[..., :1])], dim=-1)

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        return torch.cat([self.encoder.encode_candidates(rows), look_up(self.biases, rows)], dim=-1)
