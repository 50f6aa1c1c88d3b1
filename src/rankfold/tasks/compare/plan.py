"""The plan of a comparison: names, settings, seeds. All errors are raised before the work."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rankfold.config import check_names, normalize_none
from rankfold.errors import UserError
from rankfold.methods import find_method
from rankfold.metrics import parse
from rankfold.metrics.graded import check_two_grades, parse_graded
from rankfold.tasks.fit.plan import DEFAULT_METRIC
from rankfold.tasks.fit.plan import make_plan as make_fit_plan
from rankfold.tasks.options import DEFAULT_METRICS, GRADED_DEFAULTS, CompareOptions, parse_budget
from rankfold.types import Dataset, Graded

_ENTRY = re.compile(r"(?:(?P<label>[^=]+)=)?(?P<method>[^=@]+)(?:@(?P<seed>\d+))?")
_LABEL = re.compile(r"[^\W_][\w.@+-]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One method of the comparison, with its settings."""

    name: str
    label: str  # the name without the swept value
    method: str
    first_seed: int
    settings: Mapping[str, Any]  # given ones, which are not tuned
    value: str | None = None  # of the swept setting
    equal_terms: bool = True  # False: a second row, with the method's default width

    def identity(self) -> dict[str, Any]:
        """Values that a stored result must share with this entry."""
        given = {name: str(value) for name, value in self.settings.items()}
        return {"method": self.method, "first seed": self.first_seed, "settings": given}

    @property
    def folder(self) -> str:
        return quote(self.name.replace(" ", "-"), safe="=@+")


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """A comparison, after all checks."""

    data: Dataset
    data_name: str
    entries: Sequence[Entry]
    metrics: Sequence[str]
    options: CompareOptions

    @property
    def out(self) -> Path:
        return Path(self.options.out)

    @property
    def selected_by(self) -> str:
        return self.options.metric or DEFAULT_METRIC[self.data.kind]

    @property
    def shared(self) -> dict[str, Any]:
        """The options of every fit."""
        own = {name: getattr(self.options, name) for name in ("patience", "device")}
        return {"metric": self.selected_by, **own}

    @property
    def tunes(self) -> bool:
        return self.options.trials is not None or self.options.budget is not None

    @property
    def seconds(self) -> float | None:
        """The tuning time of each method."""
        return parse_budget(self.options.budget)

    @property
    def refits(self) -> bool:
        return self.options.refit and self.data.validation is not None

    def space(self, entry: Entry) -> str:
        """The space to tune in: that of a paper only if there is one."""
        stated = find_method(entry.method).paper_space is not None
        return self.options.space if stated else "usual"

    def seeds(self, entry: Entry) -> list[int]:
        return [entry.first_seed + number for number in range(self.options.seeds)]

    def identity(self) -> dict[str, Any]:
        """Values that an existing folder must share to be resumed; the methods may differ."""
        return {
            "data": self.data.fingerprint,
            "trials": self.options.trials,
            **({} if self.options.space == "usual" else {"space": self.options.space}),
            "budget": self.seconds,
            "seeds": self.options.seeds,
            "metrics": list(self.metrics),
            "metric": self.selected_by,
            "refit": self.options.refit,
            "patience": self.options.patience,
        }


def make_plan(
    data: Dataset, name: str, methods: Sequence[str] | str, options: CompareOptions
) -> ComparePlan:
    """Check everything that can be checked before the work begins."""
    words = methods.split(",") if isinstance(methods, str) else list(methods)
    entries = [_entry(word.strip(), options.settings) for word in words if word.strip()]
    if not entries:
        raise UserError(
            "no method was named", hint="write --methods rg2,ease,bpr, or --protocol NAME"
        )
    _check_settings(entries, options.settings)
    entries = _with_equal_width(_sweep(entries, options.sweep), options.width)
    plan = ComparePlan(data, name, entries, _metrics(options.metrics, data), options)
    _check_budget(plan)
    for entry in entries:
        _check_entry(entry, plan)
    return plan


def parse_settings(words: Sequence[str]) -> dict[str, dict[str, str]]:
    """``["bpr.lr=.1"] -> {"bpr": {"lr": ".1"}}``."""
    settings: dict[str, dict[str, str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        entry, dot, key = name.rpartition(".")
        if not (entry and dot and key and equals and value):
            raise UserError(f"cannot read --set {word}", hint="write --set METHOD.key=value")
        settings.setdefault(entry.strip(), {})[key.strip().replace("-", "_")] = value.strip()
    return settings


def parse_sweep(word: str | None) -> dict[str, list[str]]:
    """``"batch_size=256,1024" -> {"batch_size": ["256", "1024"]}``."""
    if word is None:
        return {}
    name, equals, values = word.partition("=")
    listed = [value.strip() for value in values.split(",") if value.strip()]
    if not (name and equals and listed):
        raise UserError(f"cannot read --sweep {word}", hint="write --sweep batch_size=256,1024")
    return {name.strip().replace("-", "_"): listed}


def command_of(plan: ComparePlan) -> str:
    """The command line that repeats the comparison."""
    options = plan.options
    words = ["rankfold", "compare", plan.data_name, "--methods", ",".join(_spellings(plan))]
    words += ["--out", str(plan.out)]
    if options.protocol is not None:  # its defaults are overridden
        words += ["--protocol", options.protocol]
        words += ["--refit"] if options.refit else []
    if options.protocol is not None or options.space != "usual":
        words += ["--space", options.space]
    if options.trials is not None:
        words += ["--trials", str(options.trials)]
    if plan.seconds is not None:
        words += ["--budget", f"{plan.seconds:g}s"]
    words += ["--seeds", str(options.seeds), "--metrics", ",".join(plan.metrics)]
    words += ["--metric", plan.selected_by]
    words += [] if options.width is None else ["--width", str(options.width)]
    words += [] if options.patience is None else ["--patience", str(options.patience)]
    words += [] if options.refit else ["--no-refit"]
    for name, values in options.sweep.items():
        words += ["--sweep", f"{name}={','.join(map(str, values))}"]
    for entry, given in options.settings.items():
        for name, value in given.items():
            words += ["--set", f"{entry}.{name}={value}"]
    words += [] if options.device == "auto" else ["--device", options.device]
    return shlex.join(words)


def _spellings(plan: ComparePlan) -> list[str]:
    """Each method as it is written after --methods."""
    words: dict[str, str] = {}
    for entry in plan.entries:
        seed = f"@{entry.first_seed}" if entry.first_seed else ""
        plain = f"{entry.method}{seed}"
        words[entry.label] = plain if entry.label == plain else f"{entry.label}={plain}"
    return list(words.values())


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
        raise UserError(f"{label!r} is not a valid name", hint="use letters, digits, . _ @ + -")
    kind = find_method(method).config
    given = {**settings.get(method, {}), **settings.get(label, {})}
    given = {name: normalize_none(kind, name, value) for name, value in given.items()}
    return Entry(label, label, method, seed, given)


def _sweep(entries: Sequence[Entry], sweep: Mapping[str, Sequence[Any]]) -> list[Entry]:
    """One entry per value for each method with the setting; other entries stay as they are."""
    if not sweep:
        return list(entries)
    if len(sweep) > 1:
        raise UserError(f"cannot sweep {' and '.join(sweep)} at once", hint="name one setting")
    [(setting, values)] = sweep.items()
    having = [entry for entry in entries if _has(find_method(entry.method).config, setting)]
    if not having or not values:
        what = "no compared method has" if values else "no value is given for"
        raise UserError(
            f"{what} the setting {setting!r}", hint="`rankfold methods` lists the settings of each"
        )
    variants = []
    for entry in entries:
        swept = [_variant(entry, setting, value) for value in values] if entry in having else []
        variants += swept or [entry]
    return variants


def _variant(entry: Entry, setting: str, value: Any) -> Entry:
    if setting in entry.settings:
        raise UserError(
            f"{entry.label}.{setting} is both set and swept", hint="leave --set or --sweep out"
        )
    value = normalize_none(find_method(entry.method).config, setting, value)
    return replace(_named_after(entry, setting, value), value=str(value))


def _named_after(entry: Entry, setting: str, value: Any) -> Entry:
    name, given = f"{entry.name} {setting}={value}", {**entry.settings, setting: value}
    return replace(entry, name=name, settings=given)


def _with_equal_width(entries: Sequence[Entry], width: int | None) -> list[Entry]:
    """Give every method the same width, or the one that was set or swept for it.

    A method with another default width gets a second entry. Only entries with the common width, or
    without a width, are on equal terms; those of a sweep always are.
    """
    defaults = {
        entry.name: int(entry.settings.get("width", find_method(entry.method).config().width))
        for entry in entries
        if _has(find_method(entry.method).config, "width")
    }
    common = min(defaults.values(), default=None) if width is None else width
    result = []
    for entry in entries:
        default = defaults.get(entry.name, common)
        is_other = default != common and entry.value is None
        if "width" in entry.settings:
            result.append(replace(entry, equal_terms=not is_other))
            continue
        given = {"width": common} if entry.name in defaults else {}
        result.append(replace(entry, settings={**entry.settings, **given}))
        if is_other:
            result.append(replace(_named_after(entry, "width", default), equal_terms=False))
    return result


def _has(config: type[Any], setting: str) -> bool:
    return setting in [one.name for one in fields(config)]


def _check_settings(entries: Sequence[Entry], settings: Mapping[str, Mapping[str, Any]]) -> None:
    known = {name for entry in entries for name in (entry.label, entry.method)}
    for name in settings:
        if name not in known:
            labels = dict.fromkeys(entry.label for entry in entries)
            raise UserError(
                f"settings are given for {name!r}, which is not compared",
                hint=f"compared methods: {', '.join(labels)}",
            )


def _check_entry(entry: Entry, plan: ComparePlan) -> None:
    if sum(other.folder == entry.folder for other in plan.entries) > 1:
        raise UserError(
            f"{entry.name} is listed twice",
            hint=f"rename one: a={entry.method},b={entry.method}@100",
        )
    check_names(find_method(entry.method).config, entry.settings)
    make_fit_plan(entry.method, plan.data, {**entry.settings, **plan.shared})


def _metrics(given: Sequence[str] | str | None, data: Dataset) -> list[str]:
    """The metrics in their normal spelling."""
    graded = data.kind == "graded"
    if given is None:
        given = GRADED_DEFAULTS if graded else DEFAULT_METRICS
    words = given.split(",") if isinstance(given, str) else given
    read = parse_graded if graded else parse
    metrics = list(dict.fromkeys(str(read(word)) for word in words if word.strip()))
    if not metrics:
        raise UserError("no metric was given", hint="leave --metrics out for the defaults")
    return metrics


def _check_budget(plan: ComparePlan) -> None:
    options, data = plan.options, plan.data
    if options.trials is not None and options.budget is not None:
        raise UserError("both trials and a budget are given", hint="give one of them")
    if plan.tunes and data.validation is None:
        raise UserError(
            "tuning needs a validation split, and the data has none",
            hint="prepare the data with --validation-share .1, or leave --trials and --budget out",
        )
    if plan.tunes and find_spec("optuna") is None:
        raise UserError(
            "tuning needs optuna, which is not installed",
            hint="pip install 'rankfold[tune]', or compare the defaults without --trials, --budget",
        )
    hint = "prepare the data with another --split"
    held_out = data.graded("test") if data.kind == "graded" else data.split("test")
    if (len(held_out) if isinstance(held_out, Graded) else held_out.n_pairs) == 0:
        raise UserError("the test split is empty", hint=hint)
    if isinstance(held_out, Graded):
        check_two_grades(held_out.grades, "rows of the test split", hint)
