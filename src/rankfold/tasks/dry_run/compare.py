"""The plan of ``compare``, after all of its checks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold import config
from rankfold.data.folder import check_content
from rankfold.data.prepare import as_data
from rankfold.tasks.compare.plan import ComparePlan, Entry, make_plan
from rankfold.tasks.compare.protocols import with_protocol
from rankfold.tasks.compare.records import check_folder, load
from rankfold.tasks.dry_run import outline
from rankfold.tasks.options import CompareOptions


def outline_compare(
    data: str | Path, methods: Sequence[str] | str | None = None, **options: Any
) -> dict[str, Any]:
    """Check a comparison and outline it; the arguments are those of ``compare``."""
    loaded = as_data(data)
    methods, options = with_protocol(methods, loaded, options)
    plan = make_plan(loaded, str(data), methods, config.build(CompareOptions, options))
    check_content(plan.data)
    check_folder(plan)
    done = {entry.name: _finished(plan, entry) for entry in plan.entries}
    n_done, n_fits = sum(map(len, done.values())), len(plan.entries) * plan.options.seeds
    work = {
        "methods": ", ".join(_described(entry) for entry in plan.entries),
        "tuned by": _tuning(plan),
        "fits after tuning" if plan.tunes else "fits": n_fits,
        "of these done": n_done or None,
        "metrics": ", ".join(plan.metrics),
        "selected by": plan.selected_by,
        "refit": plan.refits,
    }
    time = _seconds(plan, done, n_fits - n_done)
    return outline("compare", work, [data], {plan.out: None}, time=time)


def _finished(plan: ComparePlan, entry: Entry) -> list[float]:
    """The seconds of the fits that an earlier call finished."""
    folders = (load(plan, entry, f"seed-{seed}") for seed in plan.seeds(entry))
    return [one.manifest["record"]["fit_seconds"] for one in folders if one is not None]


def _described(entry: Entry) -> str:
    settings = " ".join(f"{name}={value}" for name, value in entry.settings.items())
    label = entry.name if entry.label == entry.method else f"{entry.name} = {entry.method}"
    return f"{label} ({settings})" if settings and "=" not in entry.name else label


def _tuning(plan: ComparePlan) -> str:
    if plan.seconds is not None:
        return f"{plan.seconds:g} s for each"
    return "none: defaults" if not plan.tunes else f"{plan.options.trials} trials for each"


def _seconds(
    plan: ComparePlan, done: Mapping[str, Sequence[float]], left: int
) -> tuple[float | None, str | None]:
    """The remaining time, where earlier fits or a budget give it."""
    if left == 0:
        return 0.0, "all fits are done"
    if plan.seconds is not None:
        begun = sum(map(bool, done.values()))
        tuning = plan.seconds * (len(done) - begun)
        return tuning, "the tuning alone: the fits after it are not known"
    if plan.tunes or not all(done.values()):
        return None, None
    seeds = plan.options.seeds
    means = ((seeds - len(some)) * sum(some) / len(some) for some in done.values())
    return sum(means), "the fits so far"
