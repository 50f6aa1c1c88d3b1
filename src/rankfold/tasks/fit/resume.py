"""Resume a fit: from its checkpoint, or from the model if the fit was finished."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rankfold.errors import UserError
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit.plan import FitPlan
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint


def find_checkpoint(plan: FitPlan) -> Checkpoint | None:
    """The checkpoint to resume from, if resuming was requested and there is one."""
    if plan.out is None or not plan.options.resume:
        return None
    path = checkpoint.path_of(plan.out)
    if not path.exists():
        return None
    saved = checkpoint.load(path, plan.comm)
    checkpoint.check_same_fit(path, saved.identity, plan.identity())
    return saved


def load_finished(plan: FitPlan, path: Path) -> Ranker | Grader:
    """The finished model of this fit; a UserError if it is the model of another."""
    loaded = load(path)
    model = loaded.model
    saved = {
        "is_chosen": True,
        **model.notes,
        **model.config,
        "method": model.method,
        **model.notes.get("asked", {}),
    }
    settings = asdict(plan.settings)
    if "asked" not in model.notes:  # an older model: settings left to the method are not recorded
        settings = {key: value for key, value in settings.items() if value is not None}
    refit = plan.options.refit and plan.data.validation is not None
    wanted = {"method": plan.name, **settings, "seed": plan.options.seed, "refit": refit}
    wanted |= {"metric": plan.metric, "data": plan.data.fingerprint}
    difference = checkpoint.describe_difference(saved, wanted)
    if difference is None and saved["is_chosen"] != plan.is_chosen:
        difference = "another patience"
    if difference is not None:
        raise UserError(
            f"{path} was finished with {difference}: there is nothing to resume",
            hint="leave --resume out to replace it, or choose another folder",
        )
    return loaded
