"""The defaults of the command line are those of the library."""

from dataclasses import fields
from inspect import signature

from rankfold.cli import evaluate, fit, predict, prepare
from rankfold.data.options import Preparation
from rankfold.metrics.propensity import Propensity, parse_propensity
from rankfold.models import grader
from rankfold.tasks.evaluate import evaluate as evaluation
from rankfold.tasks.options import DEFAULT_PROPENSITY, FitOptions, GradeOptions, RankOptions


def shown(command: object) -> dict[str, object]:
    return {name: p.default for name, p in signature(command).parameters.items()}  # type: ignore[arg-type]


def test_prepare() -> None:
    own = {field.name: field.default for field in fields(Preparation)}
    options = shown(prepare.command)
    assert own.keys() - options.keys() == set()  # every option can be given
    assert {name: options[name] for name in own} == own


def test_fit() -> None:
    own = {field.name: field.default for field in fields(FitOptions)}
    options = shown(fit.command)
    shared = own.keys() & options.keys() - {"out"}
    assert shared >= {"seed", "device", "resume", "refit", "metric", "patience", "seconds"}
    assert {name: options[name] for name in shared} == {name: own[name] for name in shared}


def test_predict() -> None:
    kinds = (RankOptions, GradeOptions)
    own = {field.name: field.default for kind in kinds for field in fields(kind)}
    options = shown(predict.command)
    assert own.pop("fpr") == grader.DEFAULT_FPR
    assert own.pop("k") == 10
    assert {options[name] for name in (*own, "k", "fpr")} == {None}  # None: not given


def test_evaluate() -> None:
    assert shown(evaluate.command)["metrics"] is signature(evaluation).parameters["metrics"].default
    asked = {name: shown(evaluate.command)[name] for name in ("bootstrap", "index", "strata")}
    assert set(asked.values()) == {None}  # None: not given
    assert parse_propensity(DEFAULT_PROPENSITY) == Propensity()
    assert shown(evaluate.command)["propensity"] is None  # None: not given
