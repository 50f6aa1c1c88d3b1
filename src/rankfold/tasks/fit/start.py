"""The model that a fit starts from, and what the data has in common with it."""

from pathlib import Path
from typing import Any

from rankfold.data.build.tokens import places_in
from rankfold.errors import UserError
from rankfold.models.load import load_ranker
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Start


def read_start(model: Any, method: str, data: Dataset) -> Start:
    """A model or its folder as a start for a fit of ``method``; a UserError if it is none."""
    if not isinstance(model, Ranker | str | Path):
        raise UserError(
            f"`from_model` must be a model or its folder, got {type(model).__name__}",
            hint="a model that ranks",
        )
    named = "the model" if isinstance(model, Ranker) else str(model)
    ranker = model if isinstance(model, Ranker) else load_ranker(model)
    if ranker.model.method != method:
        raise UserError(
            f"{named} was fitted by {ranker.model.method}, not by {method}",
            hint=f"fit {ranker.model.method}, or leave --from out",
        )
    tokens = places_in(data.tokenizer, ranker.tokenizer)
    if tokens is None:
        raise UserError(
            f"{named} and the data make words in different ways",
            hint="prepare the data with the same --tokens as before, from texts, or leave --from "
            "out",
        )
    return Start(ranker.model, tokens, ranker.candidates.find(data.candidates.keys))


def about(start: Start) -> dict[str, Any]:
    """What a fit has from its start, as JSON values."""
    return {
        "data": start.model.notes.get("data"),
        "seed": start.model.notes.get("seed"),
        "tokens": int((start.tokens >= 0).sum()),
        "candidates": int((start.candidates >= 0).sum()),
    }
