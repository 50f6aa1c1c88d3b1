"""The network of the ordinal methods, and the training rows divided among processes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.row_inputs import RareLevels, RowShape, Scaling, random_flips
from rankfold.encoders.rows import (
    ACTIVATIONS,
    JoinedEncoders,
    Perceptron,
    Towers,
    find_encoder,
)
from rankfold.encoders.sharded_table import GatherRows
from rankfold.errors import UserError
from rankfold.training.batches import share_of
from rankfold.training.loop import seeded
from rankfold.types import Comm, Graded, OwnRows

MEASURED = 20_000  # rows of a process, at least, to find the bins of numbers
_FLIP_AXES = {"none": (), "one": (3,), "both": (2, 3)}  # of images [B, channels, height, width]


class GradingModule(nn.Module):
    """From rows to vectors, and from vectors to outputs."""

    def __init__(
        self,
        shape: RowShape,
        encoder: str,
        head: nn.Module,
        rng: torch.Generator,
        *,
        width: int,
        dropout: float,
        flips: str = "none",
        rare: float = 0.0,
        activation: str = "silu",
    ) -> None:
        super().__init__()
        self.scaling, self.levels = Scaling(shape), RareLevels(shape, rare)
        _, make = find_encoder(encoder, shape)
        with seeded(rng.initial_seed(), torch.device("cpu")):  # for draws from torch's generator
            self.encoder = make(shape, width, dropout, rng)
        for part in self.encoder.modules():
            if isinstance(part, Perceptron):
                part.activation = ACTIVATIONS[activation]
        self.name, self.width = encoder, width
        self.axes = _FLIP_AXES[flips]
        self.head = head

    def fit_inputs(self, rows: Graded, comm: Comm) -> None:
        """Measure the training rows of all processes: means, deviations, and bins of numbers."""
        self.scaling.fit(rows, comm)
        self.levels.fit(rows, comm)
        if isinstance(self.encoder, Perceptron | Towers | JoinedEncoders):
            some = rows.select(torch.arange(0, len(rows), max(1, len(rows) // MEASURED)))
            self.encoder.measure(comm.gather(self.scaling(some).numbers))

    def vectors(
        self, rows: Graded, rng: torch.Generator | None = None, own: OwnRows | None = None
    ) -> Tensor:
        """[B, D]; with a generator in training, without one to score.

        If the rows are part of a batch, ``own`` says which.
        """
        if self.encoder.training != (rng is not None):  # for a custom encoder; `train` is slow
            self.encoder.train(rng is not None)
        inputs = self.scaling(rows)._replace(own=own)
        if rng is not None:
            inputs = self.levels(inputs, rng)
        if rng is not None and inputs.images is not None:
            inputs = inputs._replace(images=random_flips(inputs.images, self.axes, rng, own))
        vectors: Tensor = self.encoder(inputs, rng)
        expected = (len(rows), self.width)
        if vectors.shape != expected:
            raise UserError(
                f"encoder={self.name} must return shape {list(expected)}, got "
                f"{list(vectors.shape)}",
                hint="an encoder returns one vector of `width` numbers per row",
            )
        if not vectors.is_floating_point() or vectors.dtype == torch.float64:
            raise UserError(
                f"encoder={self.name} must return float32, got {str(vectors.dtype)[6:]}",
                hint="end its forward with .float()",
            )
        return vectors

    def fuse(self) -> Callable[[Graded], Tensor]:
        """The function from rows to outputs of the present weights, to score rows.

        It has fewer calls than the modules where encoder and head are known.
        """
        encoder, head = self.encoder, self.head
        vectors: Callable[[Graded], Tensor] = self.vectors
        if isinstance(encoder, Perceptron | Towers):
            vectors = encoder.fuse(self.scaling)
        if type(head) is not nn.Linear:
            return lambda rows: head(vectors(rows))
        weight, bias = head.weight.detach(), head.bias.detach()
        return lambda rows: F.linear(vectors(rows), weight, bias)


class ShardedRows:
    """Training rows. Each of several processes has some of them, and the grades of all."""

    def __init__(self, own: Graded, comm: Comm = SINGLE_PROCESS) -> None:
        self.own, self.comm = own, comm
        self.grades = comm.gather(own.grades)  # [n], of all processes, in the order of their ranks
        self.share = share_of(len(own), comm)

    def __len__(self) -> int:
        return len(self.grades)

    def vectors(
        self, module: GradingModule, rows: Tensor, rng: torch.Generator | None = None
    ) -> Tensor:
        """The vectors of some rows by number, on all processes; [B] -> [B, D].

        The backward pass sums the gradients of all processes at the owner of a row.
        """
        if self.comm.size == 1:
            return module.vectors(self.own.select(rows), rng)
        own = self.share.find(rows)
        vectors = module.vectors(self.own.select(rows[own.places] - self.share.first), rng, own)
        every: Tensor = GatherRows.apply(vectors, own.places, own.total, self.comm)  # type: ignore[no-untyped-call]
        return every
