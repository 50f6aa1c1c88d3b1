"""The plan of ``fit``, after all of its checks."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rankfold import config, storage
from rankfold.tasks.dry_run import bytes_of, outline
from rankfold.tasks.fit import find_checkpoint, load_finished
from rankfold.tasks.fit.plan import FitPlan, make_plan
from rankfold.tasks.update import check_addition, check_fitted, exists
from rankfold.training import checkpoint
from rankfold.training.checkpoint import describe_difference
from rankfold.training.tracking import parse_place
from rankfold.types import Graded, Interactions

_FLOAT_BYTES = 4


def outline_fit(
    method: str,
    data: str | Path,
    *,
    add: str | Path | None = None,
    track: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Check a fit and outline it; the arguments are those of ``fit`` and ``fit_and_add``."""
    if track is not None:
        parse_place(track)
    given = {name: value for name, value in options.items() if name != "out"}
    if add is not None:
        check_addition(method, add, options["out"], given)
    reads = [data] if add is None else [data, add]
    out = Path(options["out"])
    if add is not None and exists(out):
        check_fitted(out, method, data)
        work = {"method": method, "adds": str(add), "steps": None}
        notes = [f"{out} exists: pairs are added, it is not fitted again"]
        return outline("fit", work, reads, {out: None}, notes=notes)
    plan = make_plan(method, data, options)
    if (folder := checkpoint.path_of(out)).exists():
        with storage.locked(folder, of=out):
            pass
    saved = find_checkpoint(plan)
    if saved is None and plan.options.resume and out.exists():
        load_finished(plan, out)
        work = {"method": method, "steps": None}
        notes = [f"{out} is already finished: nothing to do"]
        return outline("fit", work, reads, {}, time=(0.0, None), notes=notes)
    vectors = _vector_bytes(plan)
    memory = None if vectors is None else vectors + bytes_of(data)
    writes = {out: vectors, folder: None}
    notes = _notes(plan, 0 if saved is None else int(saved.state["number"]))
    time = _seconds(plan)
    return outline("fit", _work(plan), reads, writes, memory=memory, time=time, notes=notes)


def _work(plan: FitPlan) -> dict[str, Any]:
    data = plan.data
    parts = {name: getattr(data, name) for name in ("train", "validation")}
    return {
        "method": plan.name,
        "settings": _settings(plan),
        "queries": None if data.kind == "graded" else len(data.queries),
        "candidates": None if data.kind == "graded" else len(data.candidates),
        **{name: _size(part) for name, part in parts.items()},
        "rows": "rows" if data.kind == "graded" else "pairs",
        "steps": _steps(plan),
        "metric": plan.metric if data.validation is not None else None,
        "refit": plan.options.refit and data.validation is not None,
    }


def _size(part: Interactions | Graded | None) -> int:
    if part is None:
        return 0
    return len(part) if isinstance(part, Graded) else part.n_pairs


def _settings(plan: FitPlan) -> dict[str, Any]:
    """The settings of the method, those that follow from the data included."""
    settings, train = plan.settings, plan.data.train
    if isinstance(settings, config.Settings) and isinstance(train, Interactions):
        settings = settings.for_data(train, plan.comm)
    return asdict(settings)


def _steps(plan: FitPlan) -> dict[str, int] | None:
    """The largest numbers of epochs and sweeps that the settings allow, by setting."""
    settings = plan.settings
    unused = {
        name
        for name, needs in config.needs_of(type(settings)).items()
        if needs is None or getattr(settings, needs[0]) != needs[1]
    }
    names = (one.name for one in fields(settings) if one.name not in unused)
    steps = {
        name: getattr(settings, name)
        for name in names
        if name in ("sweeps", "epochs") or name.endswith("_epochs")
    }
    return {name: number for name, number in steps.items() if number is not None} or None


def _vector_bytes(plan: FitPlan) -> int | None:
    """The vectors of all queries and candidates, where their width is certain.

    A decomposition may find fewer columns than asked for, and an encoder may hold no vectors.
    """
    width, encoder = (getattr(plan.settings, name, None) for name in ("width", "encoder"))
    plain = plan.method.data_kind == "interactions" and not plan.method.own_search
    learnt = _steps(plan) is not None and not plan.method.self_tuning
    if width is None or encoder not in (None, "tables") or not (plain and learnt):
        return None
    return _FLOAT_BYTES * int(width) * (len(plan.data.queries) + len(plan.data.candidates))


def _seconds(plan: FitPlan) -> tuple[float | None, str | None]:
    """The time that a fit of the same method on the same data took, if ``out`` holds one."""
    if plan.out is None or not exists(plan.out):
        return None, None
    manifest = storage.read(plan.out, "model").manifest
    notes = manifest.get("notes", {})
    wanted = {
        "method": plan.name,
        "data": plan.data.fingerprint,
        "asked": asdict(plan.settings),
        "refit": plan.options.refit and plan.data.validation is not None,
    }
    if describe_difference({**notes, "method": manifest.get("method")}, wanted) is not None:
        return None, None
    seconds = sum(entry.get("seconds", 0.0) for entry in notes.get("history", ()))
    return seconds, f"the fit in {plan.out}, with the same settings on the same data"


def _notes(plan: FitPlan, done: int) -> list[str]:
    notes = []
    if done:
        notes.append(f"resumes after step {done}")
    elif plan.out is not None and checkpoint.exists(checkpoint.path_of(plan.out)):
        notes.append("the checkpoint of an unfinished fit will be replaced")
    if plan.method.self_tuning:
        notes.append(f"{plan.name} selects its own settings")
    elif plan.options.seconds is not None:
        notes.append(f"stops at the first step that ends after {plan.options.seconds:g} s")
    return notes
