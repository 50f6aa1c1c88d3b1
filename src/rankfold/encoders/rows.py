"""Encoders of graded rows: numbers, categories and images become one vector per row.

An encoder is a module that is called with ``Inputs`` and a generator, and gives vectors [B, D]. The
generator draws what is random in training (what is dropped); None: nothing is, the row is scored,
and the module is in ``eval`` mode. What training never showed it, a number that is missing or a new
category, adds nothing to a vector.

Several processes encode some rows of a batch each, and draw what is random for all of them: an
encoder says whose rows it has with ``inputs.own`` when it drops something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.towers import moments, small_linear
from rankfold.errors import UserError
from rankfold.types import Columns, Comm, Graded, Own

EMBEDDED = 24  # numbers for a category at most
CHANNELS = (32, 64, 128)  # of the layers of a convolution
TIMM = "timm:"  # before the name of a backbone
JOINED = "+"  # between the names of two encoders


class Inputs(NamedTuple):
    """Rows as a network likes them."""

    numbers: Tensor  # [B, 2 F]: of mean 0 and deviation 1, then 1 where they are missing
    categories: Tensor  # [B, C] int64, 0 is missing or unknown
    images: Tensor | None  # [B, channels, height, width]: of mean 0 and deviation 1
    own: Own | None = None  # which rows of a batch these are; None: all


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows consist of; as plain JSON in a model's notes."""

    numbers: int
    levels: tuple[int, ...]  # of each category
    image: tuple[int, int, int] | None  # height, width, channels

    @staticmethod
    def of(rows: Graded, columns: Columns | None, comm: Comm = SINGLE_PROCESS) -> Shape:
        levels = () if columns is None else tuple(map(len, columns.levels.values()))
        if len(levels) != rows.categories.shape[1]:  # without names: as many as there are
            highest = [int(column.max()) if len(column) else -1 for column in rows.categories.T]
            levels = tuple((comm.gather(torch.tensor([highest])).amax(dim=0) + 1).tolist())
        height, width, channels = (0, 0, 0) if rows.images is None else rows.images.shape[1:]
        image = None if rows.images is None else (height, width, channels)
        return Shape(rows.numbers.shape[1], levels, image)

    def check(self, rows: Graded) -> None:
        """A UserError where rows are not such."""
        found = Shape.of(rows, None)
        same = found.image == self.image and found.numbers == self.numbers
        if not same or len(found.levels) != len(self.levels):
            raise UserError(
                "the rows are not like those that the model was fitted on",
                hint=f"it takes {self.numbers} numbers, {len(self.levels)} categories, "
                f"and {'images of ' + str(list(self.image)) if self.image else 'no images'}",
            )


RowEncoder = Callable[[Shape, int, float, torch.Generator], nn.Module]
"""``(shape of the rows, width D, share to drop in training, generator) -> module``."""


class Scaling(nn.Module):
    """From rows to inputs, by the means and deviations of the rows that are trained on."""

    mean: Tensor
    scale: Tensor
    image_mean: Tensor
    image_scale: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        channels = 0 if shape.image is None else shape.image[2]
        for name, size in (("mean", shape.numbers), ("image_mean", channels)):
            self.register_buffer(name, torch.zeros(size))
        for name, size in (("scale", shape.numbers), ("image_scale", channels)):
            self.register_buffer(name, torch.ones(size))

    def fit(self, rows: Graded, comm: Comm = SINGLE_PROCESS) -> None:
        """Measure the rows of all processes: sums in float64."""
        self.mean, self.scale = moments(rows.numbers, comm)
        if rows.images is not None:
            self.image_mean, self.image_scale = _channel_moments(rows.images, comm)

    def forward(self, rows: Graded) -> Inputs:
        missing = rows.numbers.isnan()
        numbers = ((rows.numbers - self.mean) * self.scale).masked_fill(missing, 0.0)
        images = None
        if rows.images is not None:
            scaled = (rows.images - self.image_mean) * self.image_scale
            images = scaled.permute(0, 3, 1, 2)
        return Inputs(
            torch.cat([numbers.clamp(-10, 10), missing.to(numbers.dtype)], dim=1),
            rows.categories.long() + 1,
            images,
        )


def _channel_moments(images: Tensor, comm: Comm) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation of each channel, image after image."""
    sums = torch.zeros(2, images.shape[-1], dtype=torch.float64, device=images.device)
    for some in images.split(4096):
        values = some.flatten(0, 2).double()
        sums += torch.stack([values.sum(dim=0), (values**2).sum(dim=0)])
    sums = comm.sum(sums)
    count = max(1, int(comm.sum(torch.tensor(images[..., 0].numel()))))
    mean = sums[0] / count
    spread = (sums[1] / count - mean**2).clamp(min=0)
    return mean.float(), torch.where(spread > 0, spread.rsqrt(), 1.0).float()


def flipped(
    images: Tensor, axes: Sequence[int], rng: torch.Generator, own: Own | None = None
) -> Tensor:
    """Each image as it is or mirrored, along each of some axes with even odds."""
    for axis in axes:
        odds = _drawn((len(images), 1, 1, 1), rng, own)
        images = torch.where(odds < 0.5, images.flip(axis), images)
    return images


def dropped(
    values: Tensor, share: float, rng: torch.Generator | None, own: Own | None = None
) -> Tensor:
    """Without about a ``share`` of the values, the others the larger for it; by a generator.

    ``values`` [b, ...] are of the batch's rows, or of its ``own`` ones.
    """
    if rng is None or share == 0:
        return values
    kept = _drawn(values.shape, rng, own) >= share
    return values * kept / (1 - share)


def _drawn(shape: Sequence[int], rng: torch.Generator, own: Own | None) -> Tensor:
    """Numbers between 0 and 1; of own rows, what they get when it is drawn for all."""
    if own is None:
        return torch.rand(shape, generator=rng, device=rng.device)
    every = torch.rand((own.of, *shape[1:]), generator=rng, device=rng.device)
    return every[own.places]


# ---------------------------------------------------------------------------------- encoders


class Linear(nn.Module):
    """A vector per level of each category, and a linear map of the numbers, summed."""

    def __init__(self, shape: Shape, width: int, _drop: float, rng: torch.Generator) -> None:
        super().__init__()
        self.numbers = _of_inputs(shape, 0, width, rng)
        self.levels = nn.ModuleList(_levels(size, width, rng) for size in shape.levels)

    def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> Tensor:
        found: Tensor = self.numbers(inputs.numbers)
        for levels, places in zip(self.levels, inputs.categories.T, strict=True):
            found = found + levels(places)
        return found


class Perceptron(nn.Module):
    """Categories embedded, numbers beside them, two hidden layers."""

    def __init__(self, shape: Shape, width: int, drop: float, rng: torch.Generator) -> None:
        super().__init__()
        self.drop = drop
        sizes = [min(EMBEDDED, 2 + size // 2) for size in shape.levels]
        self.levels = nn.ModuleList(
            _levels(*both, rng) for both in zip(shape.levels, sizes, strict=True)
        )
        self.first = _of_inputs(shape, sum(sizes), 4 * width, rng)
        self.second = small_linear(4 * width, width, rng)

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        places = inputs.categories.T
        parts = [levels(some) for levels, some in zip(self.levels, places, strict=True)]
        hidden = self.first(torch.cat([inputs.numbers, *parts], dim=1)).relu()
        found: Tensor = self.second(dropped(hidden, self.drop, rng, inputs.own)).relu()
        return dropped(found, self.drop, rng, inputs.own)


class Convolution(nn.Module):
    """Three convolutions, each of half the size of the one before, then a mean.

    Nothing is normalised on the way, neither over a batch, on which a row's vector would depend
    then, nor within an image, which would lose how bright it is and how rich in contrast.
    """

    def __init__(self, shape: Shape, width: int, drop: float, rng: torch.Generator) -> None:
        super().__init__()
        assert shape.image is not None
        self.drop = drop
        before = (shape.image[2], *CHANNELS[:-1])
        self.layers = nn.ModuleList(
            _convolution(*both, rng) for both in zip(before, CHANNELS, strict=True)
        )
        self.last = small_linear(CHANNELS[-1], width, rng)

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        assert inputs.images is not None
        found = inputs.images
        for layer in self.layers:
            found = F.max_pool2d(layer(found).relu(), 2, ceil_mode=True)
        mean = dropped(found.mean(dim=(2, 3)), self.drop, rng, inputs.own)
        vectors: Tensor = self.last(mean).relu()
        return vectors


def _convolution(inputs: int, outputs: int, rng: torch.Generator) -> nn.Conv2d:
    """Of 3 x 3 pixels; what is random of a size that a ReLU lets pass as large as it came."""
    layer: nn.Conv2d = nn.utils.skip_init(nn.Conv2d, inputs, outputs, 3, padding=1)
    start = torch.randn(layer.weight.shape, generator=rng) * (9 * inputs / 2) ** -0.5
    layer.load_state_dict({"weight": start, "bias": torch.zeros(outputs)})
    return layer


def _of_inputs(shape: Shape, others: int, width: int, rng: torch.Generator) -> nn.Linear:
    """A linear map of the numbers, where they are missing, and others; missing begins at 0."""
    layer = small_linear(2 * shape.numbers + others, width, rng)
    with torch.no_grad():
        layer.weight[:, shape.numbers : 2 * shape.numbers] = 0
    return layer


def _levels(size: int, width: int, rng: torch.Generator) -> nn.Embedding:
    """A vector per level; the first is that of what is missing or unknown, and begins at 0."""
    start = torch.randn(size + 1, width, generator=rng) * width**-0.5
    start[0] = 0
    return nn.Embedding(size + 1, width, _weight=start)


class Backbone(nn.Module):
    """A backbone of timm, and a linear map of its features to the width."""

    def __init__(self, module: nn.Module, features: int, width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.module, self.last = module, small_linear(features, width, rng)

    def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> Tensor:
        images = inputs.images
        assert images is not None
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        found: Tensor = self.last(self.module(images))
        return found.relu()


def backbone(name: str) -> RowEncoder:
    """``timm:NAME`` as an encoder. Weights are random: give a pretrained module of your own."""

    def make(_shape: Shape, width: int, _drop: float, rng: torch.Generator) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # timm draws from the global generator
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=rng)))
            module = _created(name)
        return Backbone(module, int(module.num_features), width, rng)

    return make


class Both(nn.Module):
    """The vectors of two encoders side by side, and a linear map of them to the width."""

    def __init__(self, parts: Sequence[nn.Module], width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.last = small_linear(len(parts) * width, width, rng)

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        found: Tensor = self.last(torch.cat([part(inputs, rng) for part in self.parts], dim=1))
        return found.relu()


def both(*makers: RowEncoder) -> RowEncoder:
    """Encoders of images and of columns as one."""

    def make(shape: Shape, width: int, drop: float, rng: torch.Generator) -> nn.Module:
        return Both([make(shape, width, drop, rng) for make in makers], width, rng)

    return make


def _created(name: str) -> Any:
    try:
        return _timm().create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:  # timm's for a name that it does not know
        raise UserError(
            f"timm makes no {name!r}: {error}", hint="timm.list_models() tells its names"
        ) from error


def _timm() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # a torchvision of another torch is the latter
        raise UserError(
            f"timm cannot be imported: {error}",
            hint="pip install 'rankfold[images]', with a torchvision that matches torch; "
            "or use encoder=convolution",
        ) from error
    return timm


def check_by_row(name: str, module: nn.Module) -> None:
    """A UserError for an encoder whose vectors depend on the other rows of a batch."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"encoder={name} normalises over the rows of a batch ({type(part).__name__}): "
                "several processes cannot share a batch of it",
                hint="start it without torchrun, or use encoder=convolution or mlp",
            )


ROW_ENCODERS: dict[str, RowEncoder] = {
    "linear": Linear,
    "mlp": Perceptron,
    "convolution": Convolution,
}
OURS = tuple(ROW_ENCODERS)


def is_ours(name: str) -> bool:
    """Whether an encoder draws from nothing but the generator that it is given."""
    return all(part in OURS for part in name.split(JOINED))


CHOICES = (
    f"it is auto, {', '.join(ROW_ENCODERS)} or {TIMM}NAME, or two of them, {TIMM}NAME{JOINED}mlp; "
    "one of your own is put into rankfold.encoders.rows.ROW_ENCODERS first"
)


def check_name(name: str) -> None:
    """A UserError for what is no encoder, whatever the rows are."""
    for part in name.split(JOINED):
        if name != "auto" and part not in ROW_ENCODERS and not part.startswith(TIMM):
            raise UserError(f"encoder cannot be {name!r}", hint=CHOICES)


def find_encoder(name: str, shape: Shape) -> tuple[str, RowEncoder]:
    """An encoder by name, and the name; ``auto`` is what suits the rows."""
    if name == "auto":
        name = _suiting(shape)
    check_name(name)
    if JOINED in name:
        return name, both(*(find_encoder(part, shape)[1] for part in name.split(JOINED)))
    if name.startswith(TIMM):
        _check_images(name, shape, needed=True)
        if shape.image is not None and shape.image[2] not in (1, 3):
            found = f"images of {shape.image[2]} channels"
            raise UserError(f"{name} takes no {found}", hint="use encoder=convolution")
        return name, backbone(name.removeprefix(TIMM))
    if name in OURS:
        _check_images(name, shape, needed=name == "convolution")
    return name, ROW_ENCODERS[name]


def _suiting(shape: Shape) -> str:
    """By what the rows have: nothing of it is left out."""
    images = [] if shape.image is None else ["convolution"]
    columns = ["mlp"] if shape.numbers or shape.levels or not images else []
    return JOINED.join(images + columns)


def _check_images(name: str, shape: Shape, *, needed: bool) -> None:
    if needed and shape.image is None:
        raise UserError(f"{name} takes images, and the data has none", hint="use encoder=mlp")
    if not needed and not shape.numbers and not shape.levels:
        raise UserError(
            f"{name} takes columns, and the data has none", hint="use encoder=convolution"
        )
