"""Encoders of graded rows: numbers, categories and images become one vector per row.

An encoder is a module that is called with ``Inputs`` and a generator, and returns vectors [B, D].
The generator draws what is random in training, such as dropout. When rows are scored, it is None
and the module is in ``eval`` mode. A missing number or a new category adds nothing to a vector.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankfold.encoders.row_inputs import (
    Inputs,
    RowEncoder,
    RowShape,
    Scaling,
    dropout,
    scale_numbers,
)
from rankfold.encoders.timm_backbone import backbone
from rankfold.encoders.towers import small_linear
from rankfold.errors import UserError
from rankfold.types import Graded

_MAX_EMBEDDING = 24  # width of a category's embedding
_FIRST_LEVEL = 0.1  # length of a level's vector before the fit: a rare level stays near 0
_BINS = 16  # per number, of equal shares of the training rows
_NARROWEST = 1e-4  # width of a bin, in standard deviations
CHANNELS = (32, 64, 128)  # of the convolution's layers
_TIMM_PREFIX = "timm:"
_SEPARATOR = "+"  # between the names of two encoders


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {"silu": F.silu, "relu": F.relu}


class Linear(nn.Module):
    """A vector per level of each category, and a linear map of the numbers, summed."""

    def __init__(self, shape: RowShape, width: int, _dropout: float, rng: torch.Generator) -> None:
        super().__init__()
        self.numbers = _of_inputs(shape, 0, width, rng)
        self.levels = nn.ModuleList(_levels(size, width, rng) for size in shape.levels)

    def forward(self, inputs: Inputs, _rng: torch.Generator | None) -> Tensor:
        vectors: Tensor = self.numbers(inputs.numbers)
        for levels, places in zip(self.levels, inputs.categories.T, strict=True):
            vectors = vectors + levels(places)
        return vectors


class Perceptron(nn.Module):
    """Embedded categories beside the numbers, then two hidden layers with SiLU.

    With ReLU, as in models of earlier versions, a score may end where all units are 0. Where most
    rows are negatives, the rows beyond that end are the highest ones, and all equal.

    With ``bins``, a number also becomes its place among the quantiles of the training rows: one
    value per bin, 0 below it, 1 above it, the share of the bin that is below the number inside;
    [gorishniy2022]. So a step or a peak at any quantile is a linear function. The mean over the
    training rows is subtracted, so that a missing number is an average one. A bin at an end is
    wide: where it matters how extreme a number is, the ``scaled`` number says it.
    """

    low: Tensor  # [F, bins], where a bin begins
    steep: Tensor  # [F, bins], 1 / its width
    middle: Tensor  # [F, bins], the mean value of the training rows

    def __init__(
        self,
        shape: RowShape,
        width: int,
        dropout: float,
        rng: torch.Generator,
        *,
        bins: int = 0,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.dropout, self.bins, self.activation = dropout, bins, ACTIVATIONS["silu"]
        self.scaled, self.per_number = scaled, bins + scaled
        sizes = [min(_MAX_EMBEDDING, 2 + size // 2) for size in shape.levels]
        self.levels = nn.ModuleList(
            _levels(*both, rng) for both in zip(shape.levels, sizes, strict=True)
        )
        if bins:
            for name in ("low", "steep", "middle"):
                self.register_buffer(name, torch.zeros(shape.numbers, bins))
        self.first = _of_inputs(shape, sum(sizes), 4 * width, rng, per_number=self.per_number)
        self.second = small_linear(4 * width, width, rng)

    @torch.no_grad()
    def measure(self, numbers: Tensor) -> None:
        """The bins, from scaled numbers [n, 2 F] of training rows."""
        if not self.bins or not len(self.low):
            return
        scaled, missing = numbers.chunk(2, dim=1)
        known = scaled.masked_fill(missing > 0, torch.nan)
        places = torch.linspace(0, 1, self.bins + 1, device=numbers.device)
        self.middle = torch.zeros_like(self.middle)
        edges = torch.stack([column.nanquantile(places) for column in known.T]).nan_to_num()
        width = edges.diff(dim=1).clamp(min=_NARROWEST)  # equal edges: a step
        self.low, self.steep = edges[:, 1:] - width, 1 / width
        total = self._inside(scaled, missing).sum(dim=0)
        self.middle = total / (1 - missing).sum(dim=0).clamp(min=1)[:, None]

    def _inside(self, scaled: Tensor, missing: Tensor) -> Tensor:
        """The values of all bins less their means, 0 where a number is missing; [B, F, bins]."""
        inside = ((scaled[..., None] - self.low) * self.steep).clamp_(0, 1)
        return (inside - self.middle) * (1 - missing[..., None])

    def of_numbers(self, scaled: Tensor, missing: Tensor) -> list[Tensor]:
        """The inputs of the first layer that come from numbers."""
        bins = [self._inside(scaled, missing).flatten(1)] if self.bins else []
        return [*bins, *([scaled] if self.scaled else []), missing]

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        both = zip(self.levels, inputs.categories.unbind(dim=1), strict=True)
        parts = [F.embedding(places, levels.weight) for levels, places in both]  # type: ignore[arg-type]
        numbers = (
            self.of_numbers(*inputs.numbers.chunk(2, dim=1)) if self.bins else [inputs.numbers]
        )
        hidden = self.activation(self.first(torch.cat([*numbers, *parts], dim=1)))
        vectors = self.activation(self.second(dropout(hidden, self.dropout, rng, inputs.own)))
        return dropout(vectors, self.dropout, rng, inputs.own)

    @torch.no_grad()
    def fuse(self, scaling: Scaling) -> Callable[[Graded], Tensor]:
        """The function ``self(scaling(rows), None)`` of the present weights, in fewer calls.

        For a single row, a call takes longer than its arithmetic. So the levels of all categories
        are in one table, padded with zeros to the same width, and no module is called.
        """
        tables = [levels.get_parameter("weight") for levels in self.levels]
        widths = [table.shape[1] for table in tables]
        mean, scale = scaling.mean.clone(), scaling.scale.clone()
        n_inputs = (1 + self.per_number) * len(mean)
        of_numbers, *of_levels = self.first.weight.split([n_inputs, *widths], dim=1)

        def padded(tensors: Sequence[Tensor]) -> list[Tensor]:
            return [F.pad(each, (0, max(widths) - each.shape[1])) for each in tensors]

        table = torch.cat([*padded(tables), of_numbers.new_zeros(0, max(widths, default=0))])
        sizes = torch.tensor([len(each) for each in tables], dtype=torch.int64, device=mean.device)
        starts = sizes.cumsum(dim=0) - sizes + 1  # where the known levels of a category start
        known = sizes - 1
        first, bias = torch.cat([of_numbers, *padded(of_levels)], dim=1), self.first.bias.clone()
        second, second_bias = self.second.weight.clone(), self.second.bias.clone()
        activation = self.activation

        def vectors(rows: Graded) -> Tensor:
            if bool((rows.categories >= known).any()):  # it would be a level of the next category
                raise UserError(
                    "a row has a category that the model does not know",
                    hint="-1 stands for a missing or unknown one",
                )
            levels = torch.embedding(table, rows.categories + starts).flatten(1)
            numbers = self.of_numbers(*scale_numbers(rows.numbers, mean, scale))
            inputs = torch.cat([*numbers, levels], dim=1)
            hidden = activation(F.linear(inputs, first, bias), inplace=True)
            return activation(F.linear(hidden, second, second_bias), inplace=True)

        return vectors


class Towers(nn.Module):
    """Two perceptrons side by side, each of half the width: scaled numbers, and bins as well.

    Where one of them reads a column badly, the other one often does not. Nothing joins them here:
    a method that reads each half by outputs of its own has two networks. Fewer inputs are memorised
    less: the first one drops a third as many values.
    """

    def __init__(self, shape: RowShape, width: int, dropout: float, rng: torch.Generator) -> None:
        super().__init__()
        self.scaled = Perceptron(shape, width // 2, dropout / 3, rng)
        self.binned = Perceptron(shape, width - width // 2, dropout, rng, bins=_BINS)

    def measure(self, numbers: Tensor) -> None:
        self.binned.measure(numbers)

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        return torch.cat([self.scaled(inputs, rng), self.binned(inputs, rng)], dim=1)

    def fuse(self, scaling: Scaling) -> Callable[[Graded], Tensor]:
        """``Perceptron.fuse`` of both."""
        scaled, binned = self.scaled.fuse(scaling), self.binned.fuse(scaling)
        return lambda rows: torch.cat([scaled(rows), binned(rows)], dim=1)


class Convolution(nn.Module):
    """Three convolutions, each at half the size of the one before, then a mean over pixels.

    There is no normalisation: over a batch it would make a row's vector depend on other rows, and
    within an image it would lose brightness and contrast.
    """

    def __init__(self, shape: RowShape, width: int, dropout: float, rng: torch.Generator) -> None:
        super().__init__()
        assert shape.image is not None
        self.dropout = dropout
        before = (shape.image[2], *CHANNELS[:-1])
        self.layers = nn.ModuleList(
            _convolution(*both, rng) for both in zip(before, CHANNELS, strict=True)
        )
        self.last = small_linear(CHANNELS[-1], width, rng)

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        assert inputs.images is not None
        maps = inputs.images
        for layer in self.layers:
            maps = F.max_pool2d(layer(maps).relu(), 2, ceil_mode=True)
        mean = dropout(maps.mean(dim=(2, 3)), self.dropout, rng, inputs.own)
        vectors: Tensor = self.last(mean).relu()
        return vectors


class JoinedEncoders(nn.Module):
    """The vectors of several encoders side by side, and a linear map to the width."""

    def __init__(self, parts: Sequence[nn.Module], width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.last = small_linear(len(parts) * width, width, rng)

    def measure(self, numbers: Tensor) -> None:
        """The bins of the parts that have some."""
        for part in self.parts:
            if isinstance(part, Perceptron | Towers):
                part.measure(numbers)

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        vectors: Tensor = self.last(torch.cat([part(inputs, rng) for part in self.parts], dim=1))
        return vectors.relu()


def joined(*makers: RowEncoder) -> RowEncoder:
    """Several encoders, such as one of images and one of columns, as one."""

    def make(shape: RowShape, width: int, dropout: float, rng: torch.Generator) -> nn.Module:
        return JoinedEncoders([make(shape, width, dropout, rng) for make in makers], width, rng)

    return make


def _convolution(inputs: int, outputs: int, rng: torch.Generator) -> nn.Conv2d:
    """3 x 3 pixels; the initial weights keep the scale of their inputs through a ReLU."""
    layer: nn.Conv2d = nn.utils.skip_init(nn.Conv2d, inputs, outputs, 3, padding=1)
    start = torch.randn(layer.weight.shape, generator=rng) * (9 * inputs / 2) ** -0.5
    layer.load_state_dict({"weight": start, "bias": torch.zeros(outputs)})
    return layer


def _of_inputs(
    shape: RowShape, others: int, width: int, rng: torch.Generator, per_number: int = 1
) -> nn.Linear:
    """A linear map of numbers, missing flags and ``others``; the weights of flags start at 0."""
    first = per_number * shape.numbers
    layer = small_linear(first + shape.numbers + others, width, rng)
    with torch.no_grad():
        layer.weight[:, first : first + shape.numbers] = 0
    return layer


def _levels(size: int, width: int, rng: torch.Generator) -> nn.Embedding:
    """A vector per level; the first, for missing and unknown levels, starts at 0."""
    start = torch.randn(size + 1, width, generator=rng) * (_FIRST_LEVEL * width**-0.5)
    start[0] = 0
    return nn.Embedding(size + 1, width, _weight=start)


ROW_ENCODERS: dict[str, RowEncoder] = {
    "linear": Linear,
    "mlp": Perceptron,
    "piecewise": partial(Perceptron, bins=_BINS, scaled=False),
    "mixed": partial(Perceptron, bins=_BINS),
    "towers": Towers,
    "convolution": Convolution,
}
_BUILT_IN = tuple(ROW_ENCODERS)


def is_built_in(name: str) -> bool:
    """Whether an encoder draws only from the generator that it is given."""
    return all(part in _BUILT_IN for part in name.split(_SEPARATOR))


def check_name(name: str) -> None:
    """Raise a UserError if a name is not an encoder, whatever the rows are."""
    for part in name.split(_SEPARATOR):
        if name != "auto" and part not in ROW_ENCODERS and not part.startswith(_TIMM_PREFIX):
            known = f"auto, {', '.join(ROW_ENCODERS)}, {_TIMM_PREFIX}NAME"
            hint = "add your own to rankfold.encoders.rows.ROW_ENCODERS"
            if part.startswith("vectors:"):
                hint = "join the vectors to the table as a column of lists: its entries are numbers"
            raise UserError(
                f"`encoder` must be one of {known}, or two joined by {_SEPARATOR}, got {name!r}",
                hint=hint,
            )


def find_encoder(name: str, shape: RowShape, columns: str = "mlp") -> tuple[str, RowEncoder]:
    """The full name of an encoder, and the encoder.

    ``auto`` depends on the rows; ``columns`` is what it takes to read their columns.
    """
    if name == "auto":  # reads all of a row: its images, its columns, or both
        images = [] if shape.image is None else ["convolution"]
        others = [columns] if shape.numbers or shape.levels or not images else []
        name = _SEPARATOR.join(images + others)
    check_name(name)
    if _SEPARATOR in name:
        return name, joined(*(find_encoder(part, shape)[1] for part in name.split(_SEPARATOR)))
    if name.startswith(_TIMM_PREFIX):
        _check_images(name, shape, needed=True)
        if shape.image is not None and shape.image[2] not in (1, 3):
            raise UserError(
                f"{name} needs images of 1 or 3 channels, got {shape.image[2]}",
                hint="use encoder=convolution",
            )
        return name, backbone(name.removeprefix(_TIMM_PREFIX))
    if name in _BUILT_IN:
        _check_images(name, shape, needed=name == "convolution")
    return name, ROW_ENCODERS[name]


def _check_images(name: str, shape: RowShape, *, needed: bool) -> None:
    if needed and shape.image is None:
        raise UserError(f"{name} needs images, and the data has none", hint="use encoder=mlp")
    if not needed and not shape.numbers and not shape.levels:
        raise UserError(
            f"{name} needs columns, and the data has none", hint="use encoder=convolution"
        )
