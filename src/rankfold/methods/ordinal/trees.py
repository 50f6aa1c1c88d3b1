"""trees: boosted trees by LightGBM, a method for ordered grades like the others; [ke2017].

A tree per threshold and round, against a logistic loss per threshold: is the grade above it?
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.config import Settings, setting
from rankfold.encoders.row_inputs import RowShape
from rankfold.losses.low_fpr import above
from rankfold.methods.ordinal import boosting
from rankfold.methods.ordinal.boosting import Booster, Derivatives
from rankfold.methods.ordinal.training import check_grades
from rankfold.methods.ordinal.tree_text import averaged, constant_trees, head_and_trees, write
from rankfold.training.loop import seed_of
from rankfold.types import Dataset, Graded, Method, Model, Opened, Run, Space, Step
from rankfold.types.spaces import Range

TREES = "trees"  # the tensor with the bytes of the trees' text
_ROUNDS_PER_STEP = 10
_DEFAULT_ROUNDS = 200  # where no validation rows choose
_FEW_ROWS, _MEMBERS = 20_000, 4  # with fewer rows four fits are averaged: they vary by chance
_SMALL = 1e-6  # differences of outputs below it: the slope is the derivative


class TreesConfig(Settings):
    """The size and the number of the trees."""

    leaves: int = setting(31, at_least=2, help="leaves of a tree, at most")
    lr: float = setting(0.05, above=0, at_most=1, help="share of each tree that is added")
    rounds: int | None = setting(
        None, at_least=1, help="rounds of trees; none: chosen on validation, else 200"
    )
    max_rounds: int = setting(2000, at_least=1, help="rounds at most, where validation chooses")
    wait: int = setting(100, at_least=1, help="stop after this many rounds without an improvement")
    min_rows: int = setting(20, at_least=1, help="rows of a leaf, at least")
    reg: float = setting(1.0, at_least=0, help="penalty on the squared values of leaves")
    columns: float = setting(
        0.7, above=0, at_most=1, help="share of the columns that a split may use, drawn at random"
    )
    members: int | None = setting(
        None,
        at_least=1,
        at_most=64,
        help="fits with other columns, whose outputs are averaged; none: 4, from 20,000 rows on 1",
    )


class Loss(NamedTuple):
    """A loss of outputs [n, K], as boosting takes it."""

    start: Tensor  # [K], the outputs before the first round
    derivatives: Callable[[int], Derivatives]  # of a member, by the outputs of the training rows
    value: Callable[[Tensor, Tensor], float]  # of any rows, from their outputs and grades
    fit: Callable[[Tensor, Tensor], float]  # of the validation rows; the highest is kept
    cuts: Callable[[Tensor, Tensor | None], Tensor] | None = None  # what the model subtracts; [K]


Losses = Callable[[Dataset, Any], Loss]
Score = Callable[[Tensor], Tensor]  # from outputs [n, K] to scores [n]


def fit(name: str, losses: Losses, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Add trees round by round; the likelihood of validation chooses how many rounds are kept.

    A step is ten rounds. A resumed fit goes on with its trees: nothing else is remembered. The
    columns of a round follow from the seed and the number of the round.
    """
    train, n_grades, state = data.graded("train"), len(data.candidates), run.resume or {}
    check_grades(train.grades, n_grades)
    chooses = config.rounds is None and data.validation is not None
    validation = data.graded("validation") if chooses else None
    limit = config.rounds or (config.max_rounds if chooses else _DEFAULT_ROUNDS)
    config = replace(config, members=config.members or members_for(len(train)))
    fits: list[float] = state["fits"].tolist() if state else []
    loss, done = losses(data, config), int(state.get("number", 0)) * _ROUNDS_PER_STEP
    members = Members(train, validation, config, loss, run)

    def kept() -> int:
        return int(np.argmax(fits)) + 1 if fits else done

    def state_of_step() -> dict[str, Tensor]:
        return {**members.state(), "fits": torch.tensor(fits, dtype=torch.float64)}

    final = False
    while not final:
        for _ in range(_ROUNDS_PER_STEP):
            members.grow(done)
            done += 1
            if validation is not None:
                fits.append(loss.fit(members.outputs(validation=True), validation.grades))
            final = done == limit or done - kept() >= config.wait
            if final:
                break
        value, model = loss.value(members.outputs(), train.grades), None
        if final:
            text, settings = members.text(kept()), {**asdict(config), "rounds": kept()}
            if loss.cuts is not None:
                grown = boosting.open_trees(text, RowShape.from_rows(train, None).n_columns)
                cuts = loss.cuts(grown(train), None if validation is None else grown(validation))
                text = _less(text, loss.start, cuts)
                settings["score"] = "passed" if bool(cuts.any()) else "expected"
            model = _model(name, settings, text, data, run)
        yield Step(-(-done // _ROUNDS_PER_STEP), value, model, state_of_step, final)


class Members:
    """Boosted trees that differ by the columns they draw, and perhaps by their loss.

    Each follows its own outputs. The average has fewer errors of chance than any of them, and most
    of the highest negatives are such errors.
    """

    def __init__(
        self, train: Graded, validation: Graded | None, config: Any, loss: Loss, run: Run
    ) -> None:
        state, numbers = run.resume or {}, range(config.members)
        texts = [boosting.as_text(state[_tensor(number)]) if state else "" for number in numbers]
        parameters = _parameters(config)
        self.boosters = [Booster(train, validation, parameters, loss.start, text) for text in texts]
        self.derivatives = [loss.derivatives(number) for number in numbers]
        self.seeds = [seed_of(run, f"columns {number}") for number in numbers]

    def grow(self, done: int) -> None:
        """One more round of each; its columns follow from the rounds that are done."""
        for one, derivatives, seed in zip(self.boosters, self.derivatives, self.seeds, strict=True):
            one.grow(derivatives, seed + done)

    def outputs(self, *, validation: bool = False) -> Tensor:
        """The average; [n, K] float64."""
        each = [one.outputs(validation=validation) for one in self.boosters]
        return torch.stack(each).mean(dim=0)

    def text(self, rounds: int) -> str:
        return averaged([one.text(rounds) for one in self.boosters], self.boosters[0].width)

    def state(self) -> dict[str, Tensor]:
        texts = (one.text() for one in self.boosters)
        return {_tensor(number): boosting.as_tensor(text) for number, text in enumerate(texts)}


def _tensor(member: int) -> str:
    return f"{TREES}.{member}"


def members_for(n_rows: int) -> int:
    """How many fits are averaged, where the setting is open."""
    return _MEMBERS if n_rows < _FEW_ROWS else 1


def _less(text: str, start: Tensor, cuts: Tensor) -> str:
    """The text of trees whose outputs are less by the cuts."""
    head, grown = head_and_trees(text)
    return write(head, [*constant_trees((start - cuts).tolist()), *grown[len(cuts) :]])


def _parameters(config: TreesConfig) -> dict[str, Any]:
    """The settings under LightGBM's names."""
    return {
        "num_leaves": config.leaves,
        "learning_rate": config.lr,
        "min_data_in_leaf": config.min_rows,
        "lambda_l2": config.reg,
        "feature_fraction_bynode": config.columns,  # by tree, some never meet: a loss if all count
    }


def _model(name: str, settings: dict[str, Any], text: str, data: Dataset, run: Run) -> Model:
    """The trees as a model, with their score on validation by the metric of the fit."""
    shape = RowShape.from_rows(data.graded("train"), data.columns)
    image = None if shape.image is None else list(shape.image)
    notes = {"shape": asdict(shape), "grades": len(data.candidates), "image_shape": image}
    model = Model(name, settings, {TREES: boosting.as_tensor(text)}, notes)
    if run.validate is None:
        return model
    return replace(model, notes={**notes, "score": run.validate(model)})


def open_model(score: Score, model: Model) -> Opened:
    """Reads the trees."""
    shape = RowShape.from_json(model.notes["shape"])
    text = boosting.as_text(model.tensors[TREES])
    outputs = boosting.open_trees(text, shape.n_columns)

    def scores(rows: Graded) -> Tensor:
        shape.check(rows)
        return score(outputs(rows))

    def contributions(rows: Graded) -> Tensor:
        shape.check(rows)
        return of_columns(boosting.contributions(text)(rows))

    return Opened(
        rows=scores,
        gain=lambda: boosting.gain(text),
        contributions=contributions if shape.image is None else None,
    )


def of_columns(parts: Tensor) -> Tensor:
    """What each column adds to the score; [n, K, F + C + 1] -> [n, F + C].

    With a_k the last part of output k, what a row has without its columns, and o_k the sum of all::

        contribution_j = sum_k parts_kj (sigmoid(o_k) - sigmoid(a_k)) / (o_k - a_k)

    So the contributions add up to the score less that of the a_k. With one output: its parts.
    """
    columns, last = parts[..., :-1], parts[..., -1]
    if parts.shape[1] == 1:
        return columns[:, 0]
    difference = columns.sum(dim=2)
    slope = last.sigmoid() * (1 - last.sigmoid())
    steady = difference.abs() < _SMALL
    rise = (last + difference).sigmoid() - last.sigmoid()
    slope = torch.where(steady, slope, rise / torch.where(steady, 1.0, difference))
    return (columns * slope[..., None]).sum(dim=1)


def logistic(data: Dataset, _config: TreesConfig) -> Loss:
    """The logistic loss of each threshold k, the mean over rows: K = G - 1 outputs.

    With y_ik = 1 if the grade of row i is above k, else 0::

        loss = sum_k mean_i log(1 + exp(output_ik)) - y_ik output_ik
    """
    n_grades = len(data.candidates)
    positive = above(data.graded("train").grades, n_grades).T.double()
    n = len(positive)
    shares = positive.mean(dim=0).clamp(0.5 / n, 1 - 0.5 / n)

    def derivatives(outputs: Tensor) -> tuple[Tensor, Tensor]:
        p = outputs.sigmoid()
        return p - positive, p * (1 - p)

    def value(outputs: Tensor, grades: Tensor) -> float:
        is_above = above(grades, n_grades).T
        return float(softplus(torch.where(is_above, -outputs, outputs)).mean(dim=0).sum())

    def fit(outputs: Tensor, grades: Tensor) -> float:
        return -value(outputs, grades)

    return Loss(shares.logit(), lambda _member: derivatives, value, fit)


def sum_of_sigmoids(outputs: Tensor) -> Tensor:
    """The expected number of thresholds below the grade. With one threshold: its output."""
    return outputs.sigmoid().sum(dim=1) if outputs.shape[1] > 1 else outputs[:, 0]


def describe(model: Model) -> str:
    """How many rounds were kept, in words."""
    return f"{model.config['rounds']} rounds of trees"


def method(
    name: str, losses: Losses, score: Score, summary: str, paper: str, config: type[Any]
) -> Method:
    """A method of boosted trees."""
    return Method(
        summary,
        config,
        "graded",
        partial(fit, name, losses),
        open=partial(open_model, score),
        answers=("rows",),
        self_tuning=True,
        own_threads=True,
        paper=paper,
        space=_SPACE,
        describe=describe,
    )


_SPACE: Space = {
    "lr": Range(0.02, 0.2, log=True),
    "leaves": Range(7, 127, log=True, whole=True),
    "min_rows": Range(5, 200, log=True, whole=True),
    "reg": Range(0.01, 100.0, log=True),
}

METHOD = method(
    "trees",
    logistic,
    sum_of_sigmoids,
    "boosted trees (LightGBM), a logistic loss per threshold",
    "ke2017",
    TreesConfig,
)
