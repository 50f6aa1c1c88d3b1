"""A command has an option for each declared setting."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from rankfold.cli.options import given, with_settings
from rankfold.config import Settings, setting


class Config(Settings):
    k: int = setting(3, help="how many")
    rate: float | None = setting(None, help="a rate")
    budget: float | str | None = setting(None, help="a time")
    fast: bool = setting(False, help="do less")
    tidy: bool = setting(True, help="clean up")
    hidden: int = setting(1, help="not an option")
    own: str = setting("x", help="the command has its own")
    report: Callable[..., None] = setting(print, help="a function is not an option")
    table: Mapping[str, str] | None = setting(None, help="nor is a mapping")


def command_with(**arguments: Any) -> tuple[typer.Typer, list[dict[str, Any]]]:
    app, seen = typer.Typer(), []

    @app.command()
    @with_settings(Config, omit=["hidden"], **arguments)
    def command(*, own: str = "mine", json: bool = False, **options: Any) -> None:
        seen.append({"own": own, "json": json, **options})

    names = [*signature(command).parameters]
    assert names == ["own", "k", "rate", "budget", "fast", "tidy", "json"]
    return app, seen


def test_options_have_the_types_defaults_and_help_of_settings() -> None:
    app, seen = command_with(metavar={"budget": "TIME"})
    words = ["-k", "7", "--rate", ".5", "--budget", "2", "--fast", "--no-tidy"]
    for arguments in ([], words):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    default = {"k": 3, "rate": None, "budget": None, "fast": False, "tidy": True}
    assert seen[0] == {"own": "mine", "json": False, **default}
    changed = {"k": 7, "rate": 0.5, "budget": "2", "fast": True, "tidy": False}
    assert seen[1] == {"own": "mine", "json": False, **changed}
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "How many." in shown
    assert "TIME" in shown
    assert "--no-fast" not in shown


def test_unset_options_are_not_given() -> None:
    app, seen = command_with(unset=True)
    assert CliRunner().invoke(app, []).exit_code == 0
    assert CliRunner().invoke(app, ["-k", "0", "--fast", "--no-tidy"]).exit_code == 0
    first, second = ({key: one[key] for key in one if key not in ("own", "json")} for one in seen)
    assert given(first) == {}
    assert given(second) == {"k": 0, "fast": True, "tidy": False}
    assert "how many; default: 3." in CliRunner().invoke(app, ["--help"]).output.lower()


def test_help_is_that_of_the_setting() -> None:
    @with_settings(Config)
    def command(**options: Any) -> None: ...

    kind, info = get_args(signature(command).parameters["rate"].annotation)
    assert kind == float | None
    assert info.help == "A rate."
    with pytest.raises(KeyError):
        _ = signature(command).parameters["report"]
