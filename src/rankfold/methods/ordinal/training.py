"""Training and scoring of the ordinal methods, which differ only in their ``Recipe``.

A recipe has the number of outputs of its head, the loss of these outputs, and the score that they
become. Thresholds k = 0..G-2 split the rows: those of grade > k are positive, the others negative.

Each of several processes encodes its own rows of a batch. The vectors are then gathered, so that
head, loss and memory see the whole batch on every process.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankfold.config import check, setting
from rankfold.encoders.row_inputs import RowShape
from rankfold.encoders.rows import CHANNELS, check_name, find_encoder, is_built_in
from rankfold.encoders.towers import small_linear
from rankfold.errors import UserError
from rankfold.methods.ordinal.module import GradingModule, ShardedRows
from rankfold.training.batches import RowBatches, default_batch
from rankfold.training.gradient_sync import refuse_batch_norm
from rankfold.training.loop import EMPTY_MEMORY, Memory, Task, Training, seed_of, train
from rankfold.types import Dataset, Graded, Method, Model, Opened, Range, Run, Space, Step

_SMALLEST_BATCH, _LARGEST_BATCH = 32, 256  # rows, where batch_size is open
_EPOCHS, _MOST_EPOCHS, _IMAGE_EPOCHS = 10, 60, 30
_STEPS = 1000  # at least, up to the most epochs: few rows make short epochs
MAX_BLOCK_ROWS = 4096  # rows scored at a time
_ROW_MULTIPLE = 16  # a product with a multiple of so many rows rounds all of them the same way
BLOCK_BYTES = 2**28  # of the first layer's outputs for images


class GradedConfig(Training):
    """The settings that all ordinal methods share."""

    width: int = 64
    epochs: int | None = setting(  # type: ignore[assignment]  # ``fit`` finds the number
        None, at_least=1, help="passes over the rows; none: 10, few rows up to 60, images 30"
    )
    batch_size: int | None = setting(None, at_least=1, help="rows per batch; none: 32 to 256")
    lr: float = 0.002
    optimiser: Literal["adam", "adamw", "sgd"] = setting("adamw", help="optimiser of all weights")

    weight_decay: float = 1e-4
    schedule: str = "cosine"
    warmup: float = 1.0
    weights: Literal["none"] = setting("none", help="always none: grades are the target")
    encoder: str = setting(
        "auto",
        help="row encoder: auto, linear, mlp, piecewise, mixed, towers, convolution, timm:NAME, or "
        "two joined by +",
    )
    dropout: float = setting(0.1, at_least=0, below=1, help="share of hidden values a step drops")
    rare: float = setting(
        30.0, at_least=0, help="levels with fewer rows are hidden in most steps; 0: none is hidden"
    )
    activation: Literal["silu", "relu"] = setting("silu", help="of the hidden layers of columns")
    flips: Literal["none", "one", "both"] = setting("none", help="image axes mirrored at random")

    def __post_init__(self) -> None:
        check(self)
        check_name(self.encoder)


class GradedBatch(NamedTuple):
    """A batch of rows, with the vectors and outputs of the module."""

    rows: Tensor  # [B], numbers of training rows
    grades: Tensor  # [B]
    vectors: Tensor  # [B, D]
    outputs: Tensor  # [B, O]


class FitContext(NamedTuple):
    """The arguments that a loss is built from."""

    module: GradingModule
    rows: ShardedRows
    n_grades: int
    config: Any
    rng: torch.Generator  # on the rows' device


class BatchLoss(NamedTuple):
    """The losses of a batch, one per row or per threshold, and the state they need."""

    losses: Callable[[GradedBatch], Tensor]
    memory: Memory = EMPTY_MEMORY


Score = Callable[[Tensor, int], Tensor]
"""``(outputs [B, O], number of grades) -> [B]``."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parts in which ordinal methods differ."""

    outputs: Callable[[int], int]  # number of grades -> number of outputs O
    loss: Callable[[FitContext], BatchLoss]
    score: Score
    head: Callable[[int, int, torch.Generator], nn.Module] = small_linear  # width, outputs
    columns: str = "mlp"  # the encoder of columns that ``auto`` stands for


def fit(name: str, recipe: Recipe, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Train the encoder and the head on graded rows."""
    own, n_grades, comm = data.graded("train"), len(data.candidates), run.comm
    rows = ShardedRows(own.to(run.device), comm)
    check_grades(rows.grades, n_grades)
    shape = RowShape.from_rows(own, data.columns, comm)
    encoder, _ = find_encoder(config.encoder, shape, recipe.columns)
    config = replace(config, epochs=epochs_of(config, len(rows), images=own.images is not None))
    rng = torch.Generator().manual_seed(seed_of(run, "vectors"))
    head = recipe.head(config.width, recipe.outputs(n_grades), rng)
    options: dict[str, Any] = {
        key: getattr(config, key) for key in ("width", "dropout", "flips", "rare", "activation")
    }
    module = GradingModule(shape, encoder, head, rng, **options)
    if comm.size > 1:
        refuse_batch_norm(encoder, module)
    module.fit_inputs(own, comm)
    module.to(run.device)
    draws = torch.Generator(run.device).manual_seed(seed_of(run, "memory"))
    loss = recipe.loss(FitContext(module, rows, n_grades, config, draws))

    def losses(numbers: Tensor, rng: torch.Generator) -> Tensor:
        vectors = rows.vectors(module, numbers, rng)
        batch = GradedBatch(numbers, rows.grades[numbers], vectors, module.head(vectors))
        return loss.losses(batch)

    def export() -> Model:
        tensors = {key: tensor.detach().clone() for key, tensor in module.state_dict().items()}
        settings = {**asdict(config), "encoder": encoder, "batch_size": batches.batch_size}
        image = None if shape.image is None else list(shape.image)
        notes = {"shape": asdict(shape), "grades": n_grades, "image_shape": image}
        return Model(name, settings, tensors, notes)

    batches = batches_of(len(rows), config)
    task = Task(
        module,
        batches,
        losses,
        export,
        loss.memory,
        count=1 / comm.size,  # every process has all losses
        draws_elsewhere=not is_built_in(encoder),
    )
    return train(task, config, run)


def check_grades(grades: Tensor, n_grades: int) -> None:
    """A UserError unless the training rows have at least two grades."""
    if n_grades < 2 or len(grades.unique()) < 2:
        raise UserError(
            "the training rows must have at least two grades, got one",
            hint="check the grade column and the train split",
        )


def epochs_of(config: GradedConfig, n_rows: int, *, images: bool) -> int:
    """How often the rows are seen."""
    enough = -(-_STEPS // len(batches_of(n_rows, config)))
    by_rows = _IMAGE_EPOCHS if images else max(_EPOCHS, min(_MOST_EPOCHS, enough))
    return config.epochs or by_rows


def batches_of(n_rows: int, config: GradedConfig) -> RowBatches:
    default = default_batch(n_rows, _SMALLEST_BATCH, _LARGEST_BATCH)
    return RowBatches(n_rows, config.batch_size or default)


def open_model(recipe: Recipe, model: Model) -> Opened:
    """Builds the encoder and the head."""
    shape, n_grades = RowShape.from_json(model.notes["shape"]), int(model.notes["grades"])
    rng, device = torch.Generator(), next(iter(model.tensors.values())).device
    width, encoder = model.config["width"], model.config["encoder"]
    head = recipe.head(width, recipe.outputs(n_grades), rng)
    activation = model.config.get("activation", "relu")  # of earlier versions
    options = {"width": width, "dropout": model.config["dropout"], "activation": activation}
    module = GradingModule(shape, encoder, head, rng, **options).to(device)
    _load(module, model)
    outputs = module.fuse()

    @torch.inference_mode()
    def score(rows: Graded) -> Tensor:
        here = rows if rows.numbers.device == device else rows.to(device)
        return recipe.score(outputs(here), n_grades).cpu()

    return Opened(rows=partial(_score_rows, score, shape))


def _score_rows(score: Callable[[Graded], Tensor], shape: RowShape, rows: Graded) -> Tensor:
    """One score per row, in blocks; a higher score predicts a higher grade; [n].

    Several rows are padded to a multiple of ``_ROW_MULTIPLE``, so that equal rows score the same.
    """
    shape.check(rows)
    if len(rows) == 1:
        return score(rows)
    scores, step = [torch.zeros(0, dtype=torch.float64)], block_rows(shape)
    for start in range(0, len(rows), step):
        end = min(start + step, len(rows))
        padded = torch.arange(start, end + (start - end) % _ROW_MULTIPLE).clamp(max=end - 1)
        scores.append(score(rows.select(padded))[: end - start])
    return torch.cat(scores)


def _load(module: GradingModule, model: Model) -> None:
    """Load the model's parameters; a UserError if the encoder of that name has changed."""
    try:
        module.load_state_dict({name: model.tensors[name] for name in module.state_dict()})
    except (KeyError, RuntimeError) as error:  # a name, a shape
        raise UserError(
            f"the model's tensors do not fit the encoder named {module.name} here",
            hint="use the rankfold version or the encoder of the fit, or fit it again",
        ) from error


def expected_grade(probabilities: Tensor) -> Tensor:
    """sum_g p_g g / (G - 1), between 0 and 1; [B, G] -> [B]."""
    grades = torch.arange(probabilities.shape[1], device=probabilities.device)
    return probabilities @ grades.to(probabilities.dtype) / (probabilities.shape[1] - 1)


def mean_score(outputs: Tensor, _n_grades: int) -> Tensor:
    """The mean of outputs that differ only by constants."""
    return outputs.double().mean(dim=1)


def block_rows(shape: RowShape) -> int:
    """How many rows to encode at a time."""
    pixels = 0 if shape.image is None else shape.image[0] * shape.image[1]
    return max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (4 * CHANNELS[0] * max(pixels, 1))))


_SPACE: Space = {
    "lr": Range(0.0003, 0.01, log=True),
    "weight_decay": Range(1e-6, 0.1, log=True),
    "dropout": Range(0.0, 0.5),
}


def method(
    name: str,
    recipe: Recipe,
    summary: str,
    paper: str = "",
    config: type[Any] = GradedConfig,
    **space: Range,
) -> Method:
    """A method from its recipe; its search space has these settings besides the common ones."""
    return Method(
        summary,
        config,
        "graded",
        partial(fit, name, recipe),
        open=partial(open_model, recipe),
        answers=("rows",),
        paper=paper,
        distributed=True,
        space={**_SPACE, **space},
    )
