"""Two towers: the features of a row and a free vector, through a small network."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.row_inputs import moments
from rankfold.encoders.tables import INITIAL_STD, look_up, table
from rankfold.types import Batch, Comm, Features

_HIDDEN_FACTOR = 2  # hidden width / width


class RowRange(NamedTuple):
    """The rows that this process has of a divided side."""

    size: int  # of all processes
    own: tuple[int, int]  # start and stop
    comm: Comm


class NetworkSpec(NamedTuple):
    """The network of a tower, and how it is trained."""

    name: str = "residual"  # a key of ``NETWORKS``
    rows_at_once: int | None = None  # None: all


RESIDUAL = NetworkSpec()


class Towers(nn.Module):
    """A tower for each side."""

    def __init__(
        self,
        seen: tuple[Tensor, Tensor],
        width: int,
        rng: torch.Generator,
        features: tuple[Features | None, Features | None] = (None, None),
        *,
        sparse: bool = False,
        held: RowRange | None = None,
        network: NetworkSpec = RESIDUAL,
    ) -> None:
        """``seen`` [M], [N] bool: which rows have pairs to learn a free vector from.

        Each of several processes holds some of the queries; ``seen`` and features are theirs.
        """
        super().__init__()
        self.queries = Tower(
            seen[0], width, rng, features[0], sparse=sparse, held=held, network=network
        )
        self.candidates = Tower(seen[1], width, rng, features[1], sparse=sparse, network=network)

    def encode_queries(self, rows: Tensor | None) -> Tensor:
        vectors: Tensor = self.queries(rows)
        return vectors

    def encode_batch(self, batch: Batch) -> Tensor:
        return self.encode_queries(batch.queries)

    def encode_candidates(self, rows: Tensor | None) -> Tensor:
        vectors: Tensor = self.candidates(rows)
        return vectors


class Tower(nn.Module):
    """The vectors of one side.

    h = free vector + a vector per level of each category + a linear map of the numbers, and the
    result is that of a network on h. The parts of h are summed, so that a row that training never
    saw, which has no free vector, still has the vector of its features.

    With ``rows_at_once`` the network reads that many rows at a time. With gradients, only their
    vectors are kept: the backward pass runs the network again (gradient caching).
    """

    seen: Tensor

    def __init__(
        self,
        seen: Tensor,
        width: int,
        rng: torch.Generator,
        features: Features | None,
        *,
        sparse: bool = False,
        held: RowRange | None = None,
        network: NetworkSpec = RESIDUAL,
    ) -> None:
        super().__init__()
        size, own, comm = held or (len(seen), None, SINGLE_PROCESS)
        self.own = table(size, width, rng, sparse=sparse, own=own)
        self.register_buffer("seen", seen[:, None], persistent=False)
        self.known = None if features is None else FeatureVectors(features, width, rng, comm)
        self.layers = make_network(network.name, width, rng)
        self.rows_at_once = network.rows_at_once

    def forward(self, rows: Tensor | None) -> Tensor:
        own = look_up(self.own, rows) * (self.seen if rows is None else self.seen[rows])
        return self._finish(own if self.known is None else own + self.known(rows))

    def encode_new(self, features: Features) -> Tensor:
        """Vectors of rows that training never saw."""
        assert self.known is not None
        return self._finish(self.known.encode(features.numbers, features.categories))

    def _finish(self, sums: Tensor) -> Tensor:
        learns = torch.is_grad_enabled()
        self.layers.train(learns)
        rows = sums.flatten(0, -2)
        if not learns or self.rows_at_once is None or len(rows) <= self.rows_at_once:
            vectors: Tensor = self.layers(rows)
            return vectors.view(sums.shape)
        parts = rows.split(self.rows_at_once)
        return torch.cat([self._vectors_of(part) for part in parts]).view(sums.shape)

    def _vectors_of(self, rows: Tensor) -> Tensor:
        vectors: Tensor = checkpoint(self.layers, rows, use_reentrant=False)
        return vectors


class FeatureVectors(nn.Module):
    """The vectors that features add to rows.

    Numbers are scaled by their mean and deviation over the rows of all processes; a missing number
    counts as the mean.
    """

    numbers: Tensor
    categories: Tensor
    mean: Tensor
    scale: Tensor
    first: Tensor

    def __init__(
        self, features: Features, width: int, rng: torch.Generator, comm: Comm = SINGLE_PROCESS
    ) -> None:
        super().__init__()
        levels = [len(values) for values in features.columns.levels.values()]
        first = torch.tensor([0, *levels]).cumsum(0)  # of each category in one table of levels
        mean, scale = moments(features.numbers, comm)
        for name, tensor in (("mean", mean), ("scale", scale), ("first", first[:-1])):
            self.register_buffer(name, tensor)
        for name in ("numbers", "categories"):  # data, not state
            self.register_buffer(name, getattr(features, name), persistent=False)
        self.levels = table(int(first[-1]) + 1, width, rng)
        self.levels.weight.data[-1] = 0  # missing or unknown
        self.slopes = nn.Parameter(torch.randn(len(mean), width, generator=rng) * INITIAL_STD)

    def forward(self, rows: Tensor | None) -> Tensor:
        if rows is None:
            return self.encode(self.numbers, self.categories)
        return self.encode(self.numbers[rows], self.categories[rows])

    def encode(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """[..., F], [..., C] -> [..., D]."""
        scaled = ((numbers - self.mean) * self.scale).nan_to_num(0.0)
        unknown = self.levels.num_embeddings - 1
        places = torch.where(categories < 0, unknown, categories + self.first)
        vectors: Tensor = scaled @ self.slopes + self.levels(places).sum(dim=-2)
        return vectors


class Residual(nn.Sequential):
    """h + W2 relu(W1 h)."""

    def __init__(self, width: int, rng: torch.Generator) -> None:
        super().__init__(
            small_linear(width, _HIDDEN_FACTOR * width, rng),
            nn.ReLU(),
            small_linear(_HIDDEN_FACTOR * width, width, rng),
        )

    def forward(self, sums: Tensor) -> Tensor:
        vectors: Tensor = sums + super().forward(sums)  # type: ignore[no-untyped-call]
        return vectors


Network = Callable[[int, torch.Generator], nn.Module]
"""``(width, generator) -> module``, called with the sums of rows [n, D]; it returns [n, D]."""

NETWORKS: dict[str, Network] = {"residual": Residual}


def make_network(name: str, width: int, rng: torch.Generator) -> nn.Module:
    """A network by name.

    Parameters that a module draws from torch's global generator follow from ``rng``, too.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(rng.initial_seed())
        return NETWORKS[name](width, rng)


def small_linear(inputs: int, outputs: int, rng: torch.Generator) -> nn.Linear:
    """A linear layer with weights of deviation 1 / sqrt(inputs) and biases of 0."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(outputs, inputs, generator=rng) * max(inputs, 1) ** -0.5)
        layer.bias.zero_()
    return layer
