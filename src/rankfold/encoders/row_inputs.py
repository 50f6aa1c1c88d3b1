"""Graded rows as inputs of a network: scaled numbers, category ids, scaled images.

Several processes encode some rows of a batch each. Random draws are for the whole batch;
``inputs.own`` says which of its rows are here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rankfold.distributed.collectives import SINGLE_PROCESS, count_over_ranks, uniforms
from rankfold.errors import UserError
from rankfold.types import Columns, Comm, Graded, OwnRows

_IMAGE_BLOCK = 4096  # images measured at a time


class Inputs(NamedTuple):
    """The rows of a batch as a network takes them."""

    numbers: Tensor  # [B, 2 F]: with mean 0 and deviation 1, then 1 where one is missing
    categories: Tensor  # [B, C] int64, 0 for missing or unknown
    images: Tensor | None  # [B, channels, height, width], with mean 0 and deviation 1
    own: OwnRows | None = None  # which rows of a batch these are; None: all


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns and images of rows; saved as JSON in a model's notes."""

    numbers: int
    levels: tuple[int, ...]  # of each category
    image: tuple[int, int, int] | None  # height, width, channels

    @staticmethod
    def from_rows(rows: Graded, columns: Columns | None, comm: Comm = SINGLE_PROCESS) -> "RowShape":
        levels = () if columns is None else tuple(map(len, columns.levels.values()))
        if len(levels) != rows.categories.shape[1]:  # without names: count the ids
            highest = [int(column.max()) if len(column) else -1 for column in rows.categories.T]
            levels = tuple((comm.gather(torch.tensor([highest])).amax(dim=0) + 1).tolist())
        height, width, channels = (0, 0, 0) if rows.images is None else rows.images.shape[1:]
        image = None if rows.images is None else (height, width, channels)
        return RowShape(rows.numbers.shape[1], levels, image)

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "RowShape":
        """The shape that ``asdict`` wrote."""
        image = None if saved["image"] is None else tuple(saved["image"])
        return RowShape(saved["numbers"], tuple(saved["levels"]), image)

    @property
    def n_columns(self) -> int:
        """Numbers, categories and pixels."""
        pixels = 0 if self.image is None else prod(self.image)
        return self.numbers + len(self.levels) + pixels

    def check(self, rows: Graded) -> None:
        """Raise a UserError for rows of another shape."""
        image = None if rows.images is None else tuple(rows.images.shape[1:])
        columns = rows.numbers.shape[1], rows.categories.shape[1]
        if image != self.image or columns != (self.numbers, len(self.levels)):
            raise UserError(
                f"the model was fitted on rows with {self}, got {RowShape.from_rows(rows, None)}",
                hint="give the columns and images that the model was fitted on",
            )

    def __str__(self) -> str:
        images = f"images of {list(self.image)}" if self.image else "no images"
        return f"{self.numbers} numbers, {len(self.levels)} categories and {images}"


RowEncoder = Callable[[RowShape, int, float, torch.Generator], nn.Module]
"""``(shape of the rows, width D, dropout, generator) -> module``."""


class Scaling(nn.Module):
    """From rows to inputs, by the means and deviations of the training rows."""

    mean: Tensor
    scale: Tensor
    image_mean: Tensor
    image_scale: Tensor

    def __init__(self, shape: RowShape) -> None:
        super().__init__()
        channels = 0 if shape.image is None else shape.image[2]
        for name, size in (("mean", shape.numbers), ("image_mean", channels)):
            self.register_buffer(name, torch.zeros(size))
        for name, size in (("scale", shape.numbers), ("image_scale", channels)):
            self.register_buffer(name, torch.ones(size))

    def fit(self, rows: Graded, comm: Comm = SINGLE_PROCESS) -> None:
        """Measure the rows of all processes; sums are float64."""
        self.mean, self.scale = moments(rows.numbers, comm)
        if rows.images is not None:
            self.image_mean, self.image_scale = _channel_moments(rows.images, comm)

    def forward(self, rows: Graded) -> Inputs:
        images = None
        if rows.images is not None:
            scaled = (rows.images - self.image_mean) * self.image_scale
            images = scaled.permute(0, 3, 1, 2)
        numbers = torch.cat(scale_numbers(rows.numbers, self.mean, self.scale), dim=1)
        return Inputs(numbers, rows.categories.long() + 1, images)


class RareLevels(nn.Module):
    """Hides levels with few training rows in a training step, as if they were missing.

    With r the training rows of a level, it is hidden with probability m / (m + r). So a network
    learns what to do without a level that it cannot know well, or at all.
    """

    shares: Tensor  # [sum of (levels + 1)], of the steps in which a level is shown
    starts: Tensor  # [C], the place of each category's first

    def __init__(self, shape: RowShape, rows: float) -> None:
        """``rows`` is m; 0 hides nothing."""
        super().__init__()
        self.rows = rows
        sizes = torch.tensor([0, *(size + 1 for size in shape.levels)], dtype=torch.int64)
        self.register_buffer("starts", sizes.cumsum(0)[:-1], persistent=False)
        self.register_buffer("shares", torch.ones(int(sizes.sum())), persistent=False)

    def fit(self, rows: Graded, comm: Comm = SINGLE_PROCESS) -> None:
        """Count the rows of each level, of all processes."""
        places = (rows.categories.long() + 1 + self.starts).flatten()
        counts = comm.sum(torch.bincount(places, minlength=len(self.shares)))
        self.shares = counts / (counts + self.rows) if self.rows else torch.ones_like(self.shares)

    def forward(self, inputs: Inputs, rng: torch.Generator) -> Inputs:
        if not self.rows or not len(self.starts):
            return inputs
        shown = self.shares[inputs.categories + self.starts]
        odds = uniforms(shown.shape, rng, inputs.own)
        return inputs._replace(categories=inputs.categories * (odds < shown))


def scale_numbers(numbers: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers with mean 0 and deviation 1, 0 where missing, and 1 where missing; [B, F] each."""
    missing = numbers.isnan()
    scaled = (numbers - mean).mul_(scale).masked_fill_(missing, 0.0)
    return scaled.clamp_(-10, 10), missing.float()


def moments(numbers: Tensor, comm: Comm = SINGLE_PROCESS) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation of each column; 0 and 1 for a column without numbers."""
    there = ~numbers.isnan()
    count = comm.sum(there.sum(dim=0)).clamp(min=1)
    values = numbers.nan_to_num(0.0).double()
    mean = comm.sum(values.sum(dim=0)) / count
    variance = comm.sum((torch.where(there, values - mean, 0.0) ** 2).sum(dim=0)) / count
    return mean.float(), torch.where(variance > 0, variance.rsqrt(), 1.0).float()


def _channel_moments(images: Tensor, comm: Comm) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation of each channel."""
    sums = torch.zeros(2, images.shape[-1], dtype=torch.float64, device=images.device)
    for block in images.split(_IMAGE_BLOCK):
        values = block.flatten(0, 2).double()
        sums += torch.stack([values.sum(dim=0), (values**2).sum(dim=0)])
    sums = comm.sum(sums)
    count = max(1, count_over_ranks(images[..., 0].numel(), comm))
    mean = sums[0] / count
    variance = (sums[1] / count - mean**2).clamp(min=0)
    return mean.float(), torch.where(variance > 0, variance.rsqrt(), 1.0).float()


def random_flips(
    images: Tensor, axes: Sequence[int], rng: torch.Generator, own: OwnRows | None = None
) -> Tensor:
    """Each image mirrored along each of the axes with probability 1/2."""
    for axis in axes:
        odds = uniforms((len(images), 1, 1, 1), rng, own)
        images = torch.where(odds < 0.5, images.flip(axis), images)
    return images


def dropout(
    values: Tensor, share: float, rng: torch.Generator | None, own: OwnRows | None = None
) -> Tensor:
    """Set about a ``share`` of the values to 0 and divide the others by 1 - share.

    ``values`` [b, ...] belong to the rows of a batch, or to its ``own`` rows. Without a generator
    nothing is dropped.
    """
    if rng is None or share == 0:
        return values
    kept = uniforms(values.shape, rng, own) >= share
    return values * kept / (1 - share)
