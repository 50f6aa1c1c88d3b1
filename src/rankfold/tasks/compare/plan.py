"""What is compared with what: names, settings, seeds. All that can be wrong is told beforehand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rankfold.config import check_names, normalize_none
from rankfold.errors import UserError
from rankfold.metrics import parse, parse_graded
from rankfold.metrics.graded import check_two_grades
from rankfold.tasks.evaluate import DEFAULT_METRICS
from rankfold.tasks.evaluate_graded import GRADED_DEFAULTS
from rankfold.tasks.fit import USUAL, find_method
from rankfold.tasks.fit import plan as check
from rankfold.tasks.tune.plan import parse_budget
from rankfold.types import Dataset, Graded, Progress, silent

_ENTRY = re.compile(r"(?:(?P<label>[^=]+)=)?(?P<method>[^=@]+)(?:@(?P<seed>\d+))?")
_LABEL = re.compile(r"[^\W_][\w.@+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How to compare, whatever the methods."""

    out: str | Path  # the folder of results; one that is there is gone on with
    trials: int | None = None  # of tuning, for each method
    budget: float | str | None = None  # of tuning each method: 120s; without either: the defaults
    seeds: int = 1  # fits of each method with what was chosen
    metrics: Sequence[str] | str | None = None  # None: those of ``evaluate``
    metric: str | None = None  # the validation score that chooses; None: that of ``fit``
    refit: bool = True  # fit what was chosen again, on train and validation
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # one setting, its values
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name or method
    device: str = "auto"  # auto, cpu, cuda
    progress: Progress = silent


@dataclass(frozen=True, slots=True)
class Entry:
    """A method as it takes part."""

    name: str
    label: str  # the name without the value of a sweep
    method: str
    first_seed: int
    settings: Mapping[str, Any]  # that were given: they are not tuned
    value: str | None = None  # of the setting that is swept

    def identity(self) -> dict[str, Any]:
        """What must be equal for a kept result to be one of this entry."""
        given = {name: str(value) for name, value in self.settings.items()}
        return {"method": self.method, "first seed": self.first_seed, "settings": given}

    @property
    def folder(self) -> str:
        return quote(self.name.replace(" ", "-"), safe="=@+")


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison, with every word checked."""

    data: Dataset
    data_name: str
    entries: Sequence[Entry]
    metrics: Sequence[str]
    how: Comparing

    @property
    def out(self) -> Path:
        return Path(self.how.out)

    @property
    def selected_by(self) -> str:
        return self.how.metric or USUAL[self.data.kind][0]

    @property
    def tunes(self) -> bool:
        return self.how.trials is not None or self.how.budget is not None

    @property
    def seconds(self) -> float | None:
        """Of tuning, for each method."""
        return None if self.how.budget is None else parse_budget(self.how.budget)

    @property
    def refits(self) -> bool:
        return self.how.refit and self.data.validation is not None

    def seeds(self, entry: Entry) -> list[int]:
        return [entry.first_seed + number for number in range(self.how.seeds)]

    def identity(self) -> dict[str, Any]:
        """What must be equal for a folder to be gone on with; methods may come and go."""
        return {
            "data": self.data.fingerprint,
            "trials": self.how.trials,
            "budget": self.seconds,
            "seeds": self.how.seeds,
            "metrics": list(self.metrics),
            "metric": self.selected_by,
            "refit": self.how.refit,
        }


def make_plan(data: Dataset, name: str, methods: Sequence[str] | str, how: Comparing) -> Plan:
    """Check everything that can be checked before the work begins."""
    words = methods.split(",") if isinstance(methods, str) else list(methods)
    entries = [_entry(word.strip(), how.settings) for word in words if word.strip()]
    if not entries:
        raise UserError("no method was named", hint="say --methods rg2,ease,bpr")
    _check_settings(entries, how.settings)
    entries = _swept(entries, how.sweep)
    plan = Plan(data, name, entries, _metrics(how.metrics, data), how)
    _check_budget(plan)
    for entry in entries:
        _check_entry(entry, plan)
    return plan


def parse_settings(words: Sequence[str]) -> dict[str, dict[str, str]]:
    """``["bpr.lr=.1"] -> {"bpr": {"lr": ".1"}}``."""
    found: dict[str, dict[str, str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        who, dot, key = name.rpartition(".")
        if not (who and dot and key and equals and value):
            raise UserError(f"cannot read --set {word}", hint="write --set METHOD.key=value")
        found.setdefault(who.strip(), {})[key.strip().replace("-", "_")] = value.strip()
    return found


def parse_sweep(word: str | None) -> dict[str, list[str]]:
    """``"batch_size=256,1024" -> {"batch_size": ["256", "1024"]}``."""
    if word is None:
        return {}
    name, equals, values = word.partition("=")
    found = [value.strip() for value in values.split(",") if value.strip()]
    if not (name and equals and found):
        raise UserError(f"cannot read --sweep {word}", hint="write --sweep batch_size=256,1024")
    return {name.strip().replace("-", "_"): found}


def command_of(plan: Plan) -> str:
    """The words that do it again."""
    how = plan.how
    words = ["rankfold", "compare", plan.data_name, "--methods", ",".join(_spellings(plan))]
    words += ["--out", str(plan.out)]
    if how.trials is not None:
        words += ["--trials", str(how.trials)]
    if plan.seconds is not None:
        words += ["--budget", f"{plan.seconds:g}s"]
    words += ["--seeds", str(how.seeds), "--metrics", ",".join(plan.metrics)]
    words += ["--metric", plan.selected_by]
    words += [] if how.refit else ["--no-refit"]
    for name, values in how.sweep.items():
        words += ["--sweep", f"{name}={','.join(map(str, values))}"]
    for who, given in how.settings.items():
        for name, value in given.items():
            words += ["--set", f"{who}.{name}={value}"]
    words += [] if how.device == "auto" else ["--device", how.device]
    return shlex.join(words)


def _spellings(plan: Plan) -> list[str]:
    found: dict[str, str] = {}
    for entry in plan.entries:
        seed = f"@{entry.first_seed}" if entry.first_seed else ""
        plain = f"{entry.method}{seed}"
        found[entry.label] = plain if entry.label == plain else f"{entry.label}={plain}"
    return list(found.values())


def _entry(word: str, settings: Mapping[str, Mapping[str, Any]]) -> Entry:
    """``[NAME=]METHOD[@SEED]``."""
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise UserError(
            f"cannot read the method {word!r}",
            hint="write METHOD, NAME=METHOD, or METHOD@SEED for other seeds",
        )
    method, seed = match["method"].strip(), int(match["seed"] or 0)
    label = (match["label"] or (f"{method}@{seed}" if match["seed"] else method)).strip()
    if not _LABEL.fullmatch(label):
        raise UserError(f"{label!r} cannot be a name", hint="use letters, digits, . _ @ + -")
    kind = find_method(method).config
    given = {**settings.get(method, {}), **settings.get(label, {})}
    given = {name: normalize_none(kind, name, value) for name, value in given.items()}
    return Entry(label, label, method, seed, given)


def _swept(entries: Sequence[Entry], sweep: Mapping[str, Sequence[Any]]) -> list[Entry]:
    """An entry per value, of those that have the setting; the others as they are."""
    if not sweep:
        return list(entries)
    if len(sweep) > 1:
        raise UserError(f"cannot sweep {' and '.join(sweep)} at once", hint="name one setting")
    [(setting, values)] = sweep.items()
    having = [entry for entry in entries if _has(find_method(entry.method).config, setting)]
    if not having or not values:
        what = "no method that is compared has" if values else "no value is given for"
        raise UserError(
            f"{what} the setting {setting!r}", hint="`rankfold methods` lists what each can be told"
        )
    found = []
    for entry in entries:
        found += (
            [_variant(entry, setting, value) for value in values] if entry in having else [entry]
        )
    return found


def _variant(entry: Entry, setting: str, value: Any) -> Entry:
    if setting in entry.settings:
        raise UserError(
            f"{entry.label}.{setting} is set, and swept too", hint="leave --set or --sweep out"
        )
    value = normalize_none(find_method(entry.method).config, setting, value)
    given = {**entry.settings, setting: value}
    name = f"{entry.label} {setting}={value}"
    return replace(entry, name=name, settings=given, value=str(value))


def _has(kind: type[Any], setting: str) -> bool:
    return setting in [option.name for option in fields(kind)]


def _check_settings(entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]]) -> None:
    known = {name for entry in entries for name in (entry.label, entry.method)}
    for name in settings:
        if name not in known:
            raise UserError(
                f"settings are given for {name!r}, which is not compared",
                hint=f"compared are {', '.join(dict.fromkeys(entry.label for entry in entries))}",
            )


def _check_entry(entry: Entry, plan: Plan) -> None:
    if sum(other.folder == entry.folder for other in plan.entries) > 1:
        raise UserError(
            f"{entry.name} is named twice",
            hint=f"give them names: a={entry.method},b={entry.method}@100",
        )
    check_names(find_method(entry.method).config, entry.settings)
    options = {"metric": plan.how.metric, "device": plan.how.device}
    check(entry.method, plan.data, {**entry.settings, **options})


def _metrics(given: Sequence[str] | str | None, data: Dataset) -> list[str]:
    """Their usual spelling."""
    graded = data.kind == "graded"
    if given is None:
        given = GRADED_DEFAULTS if graded else DEFAULT_METRICS
    words = given.split(",") if isinstance(given, str) else given
    read = parse_graded if graded else parse
    found = list(dict.fromkeys(str(read(word)) for word in words if word.strip()))
    if not found:
        raise UserError("no metric was asked for", hint="leave --metrics out for the usual ones")
    return found


def _check_budget(plan: Plan) -> None:
    how, data = plan.how, plan.data
    for name in ("trials", "seeds"):
        value = getattr(how, name)
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}", hint="it is at least 1")
    if how.trials is not None and how.budget is not None:
        raise UserError("both trials and a budget are given", hint="give one of them")
    if plan.tunes and data.validation is None:
        raise UserError(
            "there is no validation split to tune on",
            hint="prepare the data with --validation-share .1, or leave --trials and --budget out",
        )
    if plan.tunes and find_spec("optuna") is None:
        raise UserError(
            "tuning needs optuna, which is not installed",
            hint="pip install 'rankfold[tune]', or compare the defaults without --trials, --budget",
        )
    _check_test(data)


def _check_test(data: Dataset) -> None:
    hint = "prepare the data with another --split"
    held_out = data.graded("test") if data.kind == "graded" else data.split("test")
    if (len(held_out) if isinstance(held_out, Graded) else held_out.n_pairs) == 0:
        raise UserError("the test split is empty", hint=hint)
    if isinstance(held_out, Graded):
        check_two_grades(held_out.grades, "rows of the test split", hint)
