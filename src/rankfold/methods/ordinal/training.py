"""What the methods for ordered grades share: encoder, head, loop, model, scores.

A method differs in how many outputs its head has, in what they cost, and in how they become one
score. Thresholds k = 0..G-2 split the rows into those of grade > k, which are positive, and others.

Of several processes each encodes its own rows of a batch. The vectors of all come together, so that
head, loss and memory see the whole batch everywhere, as in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.rows import (
    CHANNELS,
    Scaling,
    Shape,
    check_by_row,
    check_name,
    find_encoder,
    flipped,
    is_ours,
)
from rankfold.encoders.sharded_table import GatherRows
from rankfold.encoders.towers import small_linear
from rankfold.errors import UserError
from rankfold.training.batches import RowBatches, share_of
from rankfold.training.loop import Memory, Nothing, Task, Training, seed_of, seeded, train
from rankfold.types import Comm, Dataset, Graded, Method, Model, Own, Run, Step

STEPS, SMALLEST, LARGEST = 16, 32, 256  # batches of an epoch at least, rows of a usual batch
BLOCK = 4096  # rows scored at a time, at most
ALIKE = 16  # rows, of which products are rounded alike
BLOCK_BYTES = 2**28  # of what the first layer makes of images
FLIPS = {"none": (), "one": (3,), "both": (2, 3)}  # axes of images [B, channels, height, width]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedConfig(Training):
    """Rows are trained on in batches, and every epoch is scored."""

    width: int = 64  # of the vectors before the head
    epochs: int = 30
    batch_size: int | None = None  # None: 32 to 256, by the number of rows
    lr: float = 0.002
    optimiser: Literal["adam", "adamw", "sgd"] = "adamw"
    weight_decay: float = 1e-4
    schedule: Literal["constant", "step", "cosine", "linear", "milestones"] = "cosine"
    warmup: float = 1.0
    weights: Literal["none"] = "none"  # grades are what is learnt
    encoder: str = (
        "auto"  # linear, mlp, convolution, timm:NAME, two with + between; auto: what suits
    )
    dropout: float = 0.1  # of the numbers between layers
    flips: Literal["none", "one", "both"] = "none"  # axes along which images may be mirrored

    def __post_init__(self) -> None:
        super(GradedConfig, self).__post_init__()
        check_name(self.encoder)
        for name in ("fpr", "memory"):
            if not 0 < getattr(self, name, 0.5) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is between 0 and 1")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout is {self.dropout}", hint="it is 0 or more, below 1")
        for name in ("sigma", "dual_lr"):
            given = getattr(self, name, None)
            if given is not None and not 0 < given < float("inf"):
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is more than 0")
        for name in ("classes", "focus"):
            if not 0 <= getattr(self, name, 0.0) < float("inf"):
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is 0 or more")
        if getattr(self, "cache", 1) < 1:
            raise UserError(f"cache is {getattr(self, 'cache', 1)}", hint="it is at least 1")


class Grading(nn.Module):
    """From rows to vectors, and from these to outputs."""

    def __init__(
        self,
        shape: Shape,
        encoder: str,
        config: GradedConfig,
        head: nn.Module,
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        self.scaling = Scaling(shape)
        _, make = find_encoder(encoder, shape)
        with seeded(rng.initial_seed(), torch.device("cpu")):  # one of your own may draw so
            self.encoder = make(shape, config.width, config.dropout, rng)
        self.name, self.width = encoder, config.width
        self.axes = FLIPS[config.flips]
        self.head = head

    def vectors(
        self, rows: Graded, rng: torch.Generator | None = None, own: Own | None = None
    ) -> Tensor:
        """[B, D]; by a generator in training, without one to score.

        Where the rows are some of a batch, ``own`` says which.
        """
        self.encoder.train(rng is not None)  # for parts of one of your own: dropout, batch norms
        inputs = self.scaling(rows)._replace(own=own)
        if rng is not None and inputs.images is not None:
            inputs = inputs._replace(images=flipped(inputs.images, self.axes, rng, own))
        found: Tensor = self.encoder(inputs, rng)
        if found.shape != (len(rows), self.width):
            raise UserError(
                f"encoder={self.name} made {list(found.shape)} of {len(rows)} rows",
                hint=f"it has to make [rows, width], here {[len(rows), self.width]}",
            )
        if not found.is_floating_point() or found.dtype == torch.float64:
            raise UserError(
                f"encoder={self.name} made vectors of {str(found.dtype)[6:]}",
                hint="it has to make float32: end it with .float()",
            )
        return found


class Divided:
    """Rows to learn from. Of several processes each has some, and knows the grades of all."""

    def __init__(self, own: Graded, comm: Comm = SINGLE_PROCESS) -> None:
        self.own, self.comm = own, comm
        self.grades = comm.gather(own.grades)  # [n], of the rows of all, one process after another
        self.share = share_of(len(own), comm)

    def __len__(self) -> int:
        return len(self.grades)

    def vectors(self, module: Grading, rows: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Of some rows by their numbers, on all processes; [B] -> [B, D].

        The way back sums what all of them do with a vector, at the process that has the row.
        """
        if self.comm.size == 1:
            return module.vectors(self.own.select(rows), rng)
        own = self.share.find(rows)
        some = self.own.select(rows[own.places] - self.share.first)
        found = module.vectors(some, rng, own)
        every: Tensor = GatherRows.apply(found, own.places, own.of, self.comm)  # type: ignore[no-untyped-call]
        return every


class Seen(NamedTuple):
    """What a loss sees of a batch."""

    rows: Tensor  # [B], their numbers in the training data
    grades: Tensor  # [B]
    vectors: Tensor  # [B, D]
    outputs: Tensor  # [B, O]


class Parts(NamedTuple):
    """What a rule can be made from."""

    module: Grading
    rows: Divided
    n_grades: int
    config: Any
    rng: torch.Generator  # on the rows' device


class Rule(NamedTuple):
    """What a batch costs, a value per row or per threshold, and what has to be kept for it."""

    losses: Callable[[Seen], Tensor]
    memory: Memory


@dataclass(frozen=True, slots=True)
class Recipe:
    """What makes a method of its own."""

    outputs: Callable[[int], int]  # of the head, for so many grades
    rule: Callable[[Parts], Rule]
    score: Callable[[Tensor, int], Tensor]  # [B, O] and the number of grades -> [B]
    head: Callable[[int, int, torch.Generator], nn.Module] = small_linear  # width, outputs


def plain(losses: Callable[[Tensor, Tensor, Any], Tensor]) -> Callable[[Parts], Rule]:
    """A rule without memory: ``losses(outputs [B, O], grades [B], config)``."""

    def make(parts: Parts) -> Rule:
        return Rule(lambda seen: losses(seen.outputs, seen.grades, parts.config), Nothing())

    return make


def fit(name: str, recipe: Recipe, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Train the encoder and the head on graded rows."""
    own, n_grades, comm = data.graded("train"), len(data.candidates), run.comm
    rows = Divided(own.to(run.device), comm)
    check_grades(rows.grades, n_grades)
    shape = Shape.of(own, data.columns, comm)
    encoder, _ = find_encoder(config.encoder, shape)
    rng = torch.Generator().manual_seed(seed_of(run, "vectors"))
    head = recipe.head(config.width, recipe.outputs(n_grades), rng)
    module = Grading(shape, encoder, config, head, rng)
    if comm.size > 1:
        check_by_row(encoder, module)
    module.scaling.fit(own, comm)
    module.to(run.device)
    draws = torch.Generator(run.device).manual_seed(seed_of(run, "memory"))
    rule = recipe.rule(Parts(module, rows, n_grades, config, draws))

    def losses(batch: Tensor, rng: torch.Generator) -> Tensor:
        vectors = rows.vectors(module, batch, rng)
        return rule.losses(Seen(batch, rows.grades[batch], vectors, module.head(vectors)))

    def export() -> Model:
        tensors = {key: tensor.detach().clone() for key, tensor in module.state_dict().items()}
        notes = {"shape": asdict(shape), "grades": n_grades}
        settings = {**asdict(config), "encoder": encoder, "batch_size": batches.batch_size}
        notes["image_shape"] = None if shape.image is None else list(shape.image)
        return Model(name, settings, tensors, notes)

    batches = batches_of(len(rows), config)
    how: dict[str, Any] = {"draws_elsewhere": not is_ours(encoder)}
    how["count"] = 1 / comm.size  # every process has all losses
    return train(Task(module, batches, losses, export, rule.memory, **how), config, run)


def batches_of(n_rows: int, config: GradedConfig) -> RowBatches:
    """Of the size that was asked for; else of a power of 2, ``STEPS`` of them in an epoch or more.

    Of few rows large batches make too few steps; of many rows small ones take longer for nothing.
    """
    usual = 2 ** (max(1, n_rows // STEPS).bit_length() - 1)
    return RowBatches(n_rows, config.batch_size or max(SMALLEST, min(LARGEST, usual)))


def check_grades(grades: Tensor, n_grades: int) -> None:
    """A UserError for grades of rows that there is nothing to learn from."""
    if n_grades < 2 or len(grades.unique()) < 2:
        raise UserError(
            "the training rows have one grade alone", hint="there is nothing to tell apart"
        )


@torch.no_grad()
def score_rows(recipe: Recipe, model: Model, rows: Graded) -> Tensor:
    """One score per row, the higher, the higher its grade; [n]."""
    found, n_grades = model.notes["shape"], int(model.notes["grades"])
    image = None if found["image"] is None else tuple(found["image"])
    shape = Shape(found["numbers"], tuple(found["levels"]), image)
    shape.check(rows)
    if len(rows) == 0:
        return torch.zeros(0, dtype=torch.float64)
    rng, device = torch.Generator(), next(iter(model.tensors.values())).device
    config = GradedConfig(width=model.config["width"], dropout=model.config["dropout"])
    head = recipe.head(config.width, recipe.outputs(n_grades), rng)
    module = Grading(shape, model.config["encoder"], config, head, rng).to(device)
    _load(module, model)
    scores = []
    for some in torch.arange(len(rows)).split(block_rows(shape)):
        alike = torch.cat([some, some[-1:].expand(-len(some) % ALIKE)])
        outputs = module.head(module.vectors(rows.select(alike).to(device)))
        scores.append(recipe.score(outputs, n_grades)[: len(some)])
    return torch.cat(scores).cpu()


def _load(module: Grading, model: Model) -> None:
    """The model's parameters; a UserError where its encoder is of another make."""
    try:
        module.load_state_dict({name: model.tensors[name] for name in module.state_dict()})
    except (KeyError, RuntimeError) as error:  # a name, a shape
        raise UserError(
            f"the model's encoder={module.name} is not what goes by that name here",
            hint="fit it anew, or with the version of rankfold, or the encoder, that it is of",
        ) from error


def block_rows(shape: Shape) -> int:
    """How many rows to encode at a time."""
    pixels = 0 if shape.image is None else shape.image[0] * shape.image[1]
    return max(1, min(BLOCK, BLOCK_BYTES // (4 * CHANNELS[0] * max(pixels, 1))))


def method(name: str, recipe: Recipe, config: type[Any], summary: str, paper: str) -> Method:
    """A method from its recipe."""

    def start(data: Dataset, settings: Any, run: Run) -> Iterator[Step]:
        return fit(name, recipe, data, settings, run)

    def score(model: Model, rows: Graded) -> Tensor:
        return score_rows(recipe, model, rows)

    return Method(summary, config, "graded", start, score_rows=score, paper=paper, distributed=True)


# ---------------------------------------------------------------------------------- scores


def expected_grade(probabilities: Tensor) -> Tensor:
    """sum_g p_g g / (G - 1), between 0 and 1; [B, G] -> [B]."""
    grades = torch.arange(probabilities.shape[1], device=probabilities.device)
    return probabilities @ grades.to(probabilities.dtype) / (probabilities.shape[1] - 1)


def by_classes(outputs: Tensor, _n_grades: int) -> Tensor:
    """Of a softmax over grades."""
    return expected_grade(outputs.double().softmax(dim=1))


def by_thresholds(outputs: Tensor, _n_grades: int) -> Tensor:
    """The sum of sigmoids, one per threshold."""
    return outputs.double().sigmoid().sum(dim=1)
