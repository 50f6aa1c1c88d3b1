"""The card of a model in a notebook."""

from collections.abc import Mapping
from typing import Any

from rankfold.notebook import card
from rankfold.types import Model


def model_card(model: Model, facts: Mapping[str, Any]) -> str:
    """HTML: the method, what it ranks or grades, its validation score, and the scores by step."""
    history = model.notes.get("history", ())
    scores = [float(entry["score"]) for entry in history if "score" in entry]
    metric = model.notes.get("metric", "score")
    best = max(scores, default=model.notes.get("score"))
    shown = dict(facts)
    if "width" in model.config:
        shown["width"] = model.config["width"]
    if best is not None:
        shown["validation"] = f"{metric} {best:.4f}"
    if history:
        shown["fitted in"] = f"{sum(entry['seconds'] for entry in history):.1f} s"
    return card(f"Model: {model.method}", shown, scores, f"validation {metric} by step")
