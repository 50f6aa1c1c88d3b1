"""Boosted trees by LightGBM, round by round, so that a fit can be stopped, scored and resumed.

The outputs of a row are the sums of its leaves, one tree per output and round. The first trees are
constants, and losses are ours: then all that LightGBM knows after a round is in the trees' text.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.errors import UserError, require
from rankfold.kernels.threads import n_threads
from rankfold.methods.ordinal.tree_text import (
    constant_trees,
    head_and_trees,
    is_sound,
    write,
)
from rankfold.types import Graded

Floats = NDArray[np.float64]
Derivatives = Callable[[Tensor], tuple[Tensor, Tensor]]
"""``outputs [n, K] -> first and second derivatives of a loss by them``, the second above 0."""
_ALWAYS = {
    "objective": "none",
    "metric": "None",
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


class Booster:
    """Trees in the making, and their outputs on the training rows and the validation rows."""

    def __init__(
        self,
        train: Graded,
        validation: Graded | None,
        parameters: Mapping[str, Any],
        constants: Tensor,
        text: str = "",
    ) -> None:
        """``constants`` [K] become the first trees, unless ``text`` has trees."""
        library = require_lightgbm()
        self.width = len(constants)
        shared = {**_ALWAYS, **parameters, "num_class": self.width, "num_threads": n_threads()}
        self.trees = head_and_trees(text)[1] if text else constant_trees(constants.tolist())
        sets: list[Any] = []
        for rows in (train,) if validation is None else (train, validation):
            values, before = matrix(rows), rows.numbers.shape[1]
            outputs = constants.double().numpy() + np.zeros((len(rows), 1))
            sets.append(
                library.Dataset(
                    values,
                    rows.grades.cpu().numpy(),
                    reference=sets[0] if sets else None,
                    init_score=(_outputs_so_far(text, values) if text else outputs).ravel("F"),
                    categorical_feature=[before + c for c in range(rows.categories.shape[1])],
                    params=shared,
                )
            )
        self.booster = library.Booster(shared, sets[0])
        for one in sets[1:]:
            self.booster.add_valid(one, "validation")

    def grow(self, derivatives: Derivatives, seed: int) -> None:
        """One more round, against a loss of the outputs of the training rows.

        ``seed`` draws the columns of its trees.
        """

        def both(outputs: Floats, _rows: Any) -> tuple[Floats, Floats]:
            # here, since the first update of a booster resets its parameters, which draws columns
            self.booster.reset_parameter({"feature_fraction_seed": seed % 2**31})
            first, second = derivatives(self._by_row(outputs))
            return first.squeeze(1).numpy(), second.squeeze(1).numpy()

        self.booster.update(fobj=both)

    def outputs(self, *, validation: bool = False) -> Tensor:
        """The outputs so far; [n, K] float64."""
        kept: list[Tensor] = []

        def keep(outputs: Floats, _rows: Any) -> tuple[str, float, bool]:
            kept.append(self._by_row(outputs).clone())
            return "", 0.0, True

        (self.booster.eval_valid if validation else self.booster.eval_train)(feval=keep)
        return kept[0]

    def _by_row(self, outputs: Floats) -> Tensor:
        return torch.from_numpy(outputs).reshape(-1, self.width)

    def text(self, rounds: int | None = None) -> str:
        """The trees of the first ``rounds`` rounds; None: of all."""
        head, grown = head_and_trees(self.booster.model_to_string())
        trees = self.trees + grown
        return write(head, trees if rounds is None else trees[: self.width * (1 + rounds)])


def matrix(rows: Graded) -> NDArray[np.float32]:
    """Numbers, categories and pixels side by side, NaN where missing; [n, F + C + P]."""
    levels = rows.categories.float()
    parts = [rows.numbers, levels.masked_fill(levels < 0, torch.nan)]
    if rows.images is not None:
        parts.append(rows.images.flatten(1).float())
    values: NDArray[np.float32] = torch.cat(parts, dim=1).cpu().numpy()
    return values


def open_trees(text: str, n_columns: int) -> Callable[[Graded], Tensor]:
    """The function from rows to outputs; [n, K] float64."""
    booster = _read(text)
    width = booster.num_model_per_iteration()
    if booster.num_feature() != n_columns:
        raise UserError(
            f"the trees of this model read {booster.num_feature()} columns, and its rows have "
            f"{n_columns}",
            hint="fit it again",
        )

    def outputs(rows: Graded) -> Tensor:
        if len(rows) == 0:
            return torch.zeros(0, width, dtype=torch.float64)
        sums = booster.predict(matrix(rows), raw_score=True, num_threads=n_threads())
        return torch.from_numpy(sums.reshape(-1, width))

    return outputs


def gain(text: str) -> Tensor:
    """The share of each column in the gain of all splits; [F + C] float64."""
    gains = torch.from_numpy(_read(text).feature_importance("gain")).double()
    return gains / gains.sum().clamp(min=1e-300)


def contributions(text: str) -> Callable[[Graded], Tensor]:
    """The function from rows to what each column adds to each output, and the rest.

    Shapley values of the trees, exact; [n, K, F + C + 1] float64. They add up to the outputs.
    """
    booster = _read(text)
    width = booster.num_model_per_iteration()

    def of_rows(rows: Graded) -> Tensor:
        values = booster.predict(matrix(rows), pred_contrib=True, num_threads=n_threads())
        return torch.from_numpy(np.asarray(values)).reshape(len(rows), width, -1)

    return of_rows


def as_tensor(text: str) -> Tensor:
    """A text as its bytes, as checkpoints and models hold it."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def as_text(tensor: Tensor) -> str:
    return tensor.cpu().numpy().tobytes().decode("ascii", "replace")  # checked when it is read


def require_lightgbm() -> Any:
    """The library; a UserError if it is not installed."""
    return require("lightgbm", "boosting trees", "trees")


def _outputs_so_far(text: str, values: NDArray[np.float32]) -> Floats:
    """Summed in the order of the fit, so that they are what they were to the bit; [n, K]."""
    booster, threads = _read(text), n_threads()
    width = booster.num_model_per_iteration()
    sums = np.zeros((len(values), width))
    for number in range(booster.current_iteration()):
        one = {"start_iteration": number, "num_iteration": 1, "num_threads": threads}
        sums += booster.predict(values, raw_score=True, **one).reshape(-1, width)
    return sums


def _read(text: str) -> Any:
    library = require_lightgbm()
    if not is_sound(text):
        raise UserError("the trees of this model are damaged", hint="fit it again")
    try:
        return library.Booster(model_str=text)
    except library.basic.LightGBMError as error:
        raise UserError(
            f"LightGBM cannot read the trees of this model: {error}",
            hint="use the version of lightgbm that it was fitted with, or fit it again",
        ) from error
