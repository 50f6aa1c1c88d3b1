"""The plan of ``blend``, after all of its checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold.tasks.blend import plan_blend
from rankfold.tasks.dry_run import bytes_of, outline


def outline_blend(
    models: Sequence[Path], data: Path, out: Path, share: float | None = None, **options: Any
) -> dict[str, Any]:
    """Check a blend and outline it; the arguments are those of ``blend``."""
    plan = plan_blend(models, data, {**options, "share": share, "out": out})
    reads = [*models, data]
    chosen = plan.settings.share is None and plan.data.validation is not None
    work = {
        "first": plan.settings.first,
        "second": plan.settings.second,
        "share": "chosen on validation" if chosen else plan.settings.share,
        "queries": len(plan.data.queries),
        "candidates": len(plan.data.candidates),
        "metric": plan.metric if chosen else None,
    }
    return outline("blend", work, reads, {out: None}, memory=sum(map(bytes_of, reads)))
