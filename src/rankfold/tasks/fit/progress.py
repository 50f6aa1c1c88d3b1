"""A fit in one line: the step, the score, the best score and since when, the time left."""

from collections.abc import Callable
from time import perf_counter

from rankfold.training.early_stopping import History, Report
from rankfold.types import Step


def reporter(callback: Callable[[str, float], None], metric: str) -> Report:
    """Reports each step of a fit to a ``Progress``."""
    began: dict[str, tuple[float, float]] = {}  # by phase and stage: when, and the share done then

    def report(history: History, step: Step) -> None:
        sweeps = step.model.config.get("sweeps") if step.model else None
        of = history.steps or sweeps or step.number
        share = step.number / of if step.share is None else step.share
        if history.steps is not None:
            share = (step.number - (not step.whole)) / history.steps
        count = f"step {step.number:,}" + (f" of {of:,}" if of > step.number else "")
        stage = "" if step.stage is None else f"{step.stage}, "
        loss = f", loss {step.loss:.6g}" if step.loss else ""  # 0: the method has no loss
        hits = f", hits {step.measured['hits']:.2%}" if "hits" in step.measured else ""
        line = f"{history.phase}: {stage}{count}{loss}{hits}{_scores(history, step, metric)}"
        now = perf_counter()  # the first report does not count: modules are loaded before it
        start, done = began.setdefault(f"{history.phase} {step.stage}", (now, share))
        if done < share < 1:
            line += f", at most {_duration((now - start) * (1 - share) / (share - done))} left"
        callback(line, share)

    return report


def _scores(history: History, step: Step, metric: str) -> str:
    """The score of the step and, if another is better, the best and its step."""
    entry = history.entries[-1] if step.whole else {}
    if "score" not in entry:
        return ""
    best = f" (best {history.score:.4f} at step {history.number:,})"
    is_best = history.score is None or history.number == step.number
    return f", {metric} {entry['score']:.4f}{'' if is_best else best}"


def _duration(seconds: float) -> str:
    """``40 s``, ``5 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def cut_after(history: list[dict[str, float]]) -> float | None:
    """The ``seconds`` that ended a fit before its last step; None if they did not."""
    return next((entry["cut_after"] for entry in history if "cut_after" in entry), None)
