"""The plan of ``diagnose``: all arguments are checked, and nothing is fitted or measured."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rankfold.tasks.diagnose import make_plan
from rankfold.tasks.dry_run import outline

_FITS = {"training": "trains", "model": "fits"}


def outline_diagnose(
    name: str,
    data: Path | None,
    options: Mapping[str, Any],
    out: str | Path,
    *,
    model: Path | None,
    **more: Any,
) -> dict[str, Any]:
    """Check a diagnosis and outline it; the arguments are those of ``diagnose``."""
    plan = make_plan(name, data, options, model=model, **more)
    own = plan.diagnosis
    fits = {_FITS[own.subject]: plan.method} if plan.method else {}
    work = {"question": own.summary, **fits, "settings": asdict(plan.settings)}
    reads = [path for path in (data, model) if path is not None and plan.data]
    return outline("diagnose", work, reads, {out: None})
