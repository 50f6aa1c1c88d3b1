"""Every method refuses meaningless settings before it begins, with a hint."""

from dataclasses import fields
from typing import Any, Literal

import pytest

import rankfold as rf
from rankfold.config import Settings, build, declarations, describe_type, setting
from rankfold.errors import UserError
from rankfold.methods import METHODS

MEANINGLESS: dict[str, list[Any]] = {  # other settings are tested just outside their bounds
    "width": [0, -3],
    "sweeps": [0],
    "steps": [0],
    "negatives": [0, -1],
    "rank": [0],
    "path_queries": [0],
    "largest": [],  # any limit is valid
    "reg": [-1.0, float("nan"), float("inf")],
    "alpha": [-0.1, float("nan"), float("inf")],
    "background": [-0.1, float("nan")],
    "nu": [-1.0, float("nan")],
    "beta": [-0.1, float("nan"), 1.5],  # beyond 1 the Gram matrix is negative
    "threshold": [1.0, -0.1, float("nan")],
    "tolerance": [0.0, 1.0, -1.0, float("nan")],
    "query_exponent": [float("nan"), float("inf"), 7.0],
    "candidate_exponent": [float("nan"), float("-inf"), 7.0],
    "discount": [float("nan"), 7.0],
    "epochs": [0],
    "batch_size": [0, -5],
    "products": [0],
    "lr": [0.0, -1.0, float("nan"), float("inf")],
    "clip": [0.0, float("nan")],
    "temperature": [0.0, float("nan"), float("inf")],
    "weight_decay": [-1.0, float("nan")],
    "warmup": [-1.0, float("nan")],
    "candidate_weight": [-1.0, float("nan")],
    "margin_weight": [-1.0, float("inf")],
    "cache_share": [-0.1, 1.1, float("nan")],
    "optimiser": ["lion"],
    "schedule": ["sometimes"],
    "precision": ["int4"],
    "encoder": ["none"],
    "similarity": ["manhattan"],
    "mask": ["some"],
    "popularity": ["fame"],
    "correction": ["other"],
    "proposed": ["other"],
    "draw": ["cards"],
    "loss": ["magic"],
    "sampler": ["magic"],
    "inner": ["lu"],
    "start": ["warm"],
    "solver": ["magic"],
    "weights": ["heavy"],
    "regulariser": ["none"],
    "variant": ["other"],
    "neighbours": [-1],
    "label_weight": [-0.1, float("nan"), float("inf")],
    "bigrams": ["maybe"],
    "shortlist": [0, -1],
    "pairs_from": [-1],
    "vectors": [],  # any path is valid
    "encoder_epochs": [-1],
    "classifier_epochs": [-1],
    "joint_epochs": [-1],
    "classifier_batch_size": [0],
    "classifier_lr": [0.0, float("nan"), float("inf")],
    "thinning": [-0.1, 1.1, float("nan")],
    "pool": [0],
    "hardest": [0],
    "refresh": [0],
    "random": [-1],
    "classifier_share": [-0.1, 1.1, float("nan")],
    "centroid_weight": [-0.1, 1.1, float("nan")],
    "popularity_weight": [-0.1, 1.1, float("nan")],
    "members": [0],
    "dropout": [-0.1, 1.0, float("nan")],
    "flips": ["maybe"],
    "fpr": [0.0, 1.0, float("nan")],
    "sigma": [0.0, float("nan"), float("inf")],
    "ranks": ["maybe"],
    "cache_weights": ["maybe"],
    "classes": [-0.1, float("nan"), float("inf")],
    "focus": [-0.1, float("nan"), float("inf")],
    "memory": [0.0, 1.0, float("nan")],
    "dual_lr": [0.0, float("nan"), float("inf")],
}


def refused(config: type[Any], name: str) -> list[Any]:
    """The values above or, for a setting without any, values that its declaration excludes."""
    if name in MEANINGLESS:
        return MEANINGLESS[name]
    declared, kind = declarations(config)[name], describe_type(config, name)
    if declared.choices is not None or "true" in kind:
        return ["neither of them"]
    steps = {"at_least": -1, "above": 0, "below": 0, "at_most": 1}
    outside = [bound + steps[side] for side, bound in declared.bounds.items()]
    return [*outside, float("nan"), float("inf")] if kind.startswith("a number") else outside


CASES = [
    pytest.param(name, {field.name: value}, id=f"{name}-{field.name}-{value}")
    for name, method in METHODS.items()
    for field in fields(method.config)
    for value in refused(method.config, field.name)
]


def test_every_setting_above_exists() -> None:
    known = {field.name for method in METHODS.values() for field in fields(method.config)}
    assert known >= MEANINGLESS.keys()


def test_a_setting_without_values_above_is_tested_at_its_bounds() -> None:
    class New(Settings):
        share: float = setting(0.5, above=0, at_most=1, help="a share")
        number: int = setting(3, at_least=1, help="a number")
        way: Literal["one", "other"] = setting("one", help="a choice")
        exact: bool = setting(False, help="a switch")

    for field in fields(New):
        values = refused(New, field.name)
        assert values
        for value in values:
            with pytest.raises(UserError, match=rf"^`{field.name}` must be "):
                build(New, {field.name: value})


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_meaningless_settings_are_refused(name: str, settings: dict[str, Any]) -> None:
    (option,) = settings
    with pytest.raises(UserError, match=rf"^`?{option}`? ") as error:
        rf.fit(name, ([1, 2], [3, 4]), **settings)
    assert error.value.hint


UNUSED: list[tuple[str, dict[str, Any], str]] = [
    ("rgx", {"beta": 0.5}, "with variant=exact"),
    ("rg2-weighted", {"beta": 0.5}, "in this method"),
    ("rg2-weighted", {"beta": 0.5, "variant": "released"}, "in this method"),
    ("rgx", {"nu": 0.5, "regulariser": "plain"}, "with regulariser=plain"),
    ("rg2-weighted", {"nu": 0.5, "regulariser": "weighted"}, "with regulariser=weighted"),
    ("ials", {"steps": 5, "inner": "cholesky"}, "with inner=cholesky"),
    ("rg2-plain", {"tolerance": 0.1, "solver": "als"}, "with solver=als"),
    ("rg2-plain", {"sweeps": 3}, "with solver=spectral"),
    ("rg2-plain", {"start": "spectral"}, "with solver=spectral"),
]


@pytest.mark.parametrize(("name", "settings", "why"), UNUSED)
def test_settings_without_effect_are_refused(name: str, settings: dict[str, Any], why: str) -> None:
    unused = next(iter(settings))
    with pytest.raises(UserError, match=rf"^`{unused}` has no effect {why}(\n|$)") as error:
        rf.fit(name, ([1, 2], [3, 4]), **settings)
    assert error.value.hint.startswith(f"leave out {unused}")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("rgx", {"beta": 0.5, "variant": "released"}),
        ("rgx", {"beta": 0.1}),  # the default
        ("rgx", {"nu": 0.5}),
        ("ials", {"steps": 5}),
        ("rg2-plain", {"tolerance": 0.1}),
        ("rg2-plain", {"solver": "als", "sweeps": 3, "start": "spectral"}),
    ],
)
def test_settings_with_effect_and_defaults_are_accepted(
    name: str, settings: dict[str, Any]
) -> None:
    assert build(METHODS[name].config, settings)


@pytest.mark.parametrize("name", METHODS)
def test_declared_uses_name_settings_and_their_values(name: str) -> None:
    config = METHODS[name].config
    for owner in config.__mro__:
        for unused, need in vars(owner).get("used_with", {}).items():
            assert unused in declarations(config)
            if need is not None:
                assert declarations(config)[need[0]].accepts(need[1])
