"""Methods and encoders of modules outside rankfold: imported by name, and named by their models.

A model folder holds data, never code. So its notes say which module has each part that is not
rankfold's, and loading never imports it: a person does, by ``--import`` or in Python.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from rankfold.errors import UserError
from rankfold.types import Method

NOTE = "modules"  # of a model: the module of each part, by the name of the part
imported: list[str] = []  # by ``import_modules``, for processes that are started later
_registered: dict[str, str] = {}  # by those modules: the module of each part


def import_modules(names: Iterable[str]) -> None:
    """Import modules by name, from the current folder as well; each registers its own parts."""
    home = os.getcwd()  # noqa: PTH109
    if home not in sys.path and "" not in sys.path:
        sys.path.append(home)
    for name in names:
        before = {part for registry in _registries() for part in registry}
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0] and error.name != name:
                raise UserError(
                    f"module {name!r} needs {error.name!r}, which is not installed",
                    hint=f"pip install {error.name}",
                ) from error
            raise UserError(
                f"there is no module {name!r}",
                hint="name a module of the current folder, or of an installed package",
            ) from None
        imported.append(name)
        for part in {part for registry in _registries() for part in registry} - before:
            _registered[part] = name


def modules_of(method: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The modules of a method and its encoders, by their names, without those of rankfold."""
    homes = {
        name: _registered.get(name) or _home(registry[name])
        for name in (
            method,
            *str(settings.get("encoder", "")).split("+"),
            str(settings.get("pooling", "")),
            str(settings.get("network", "")),
        )
        for registry in _registries()
        if name in registry
    }
    return {name: home for name, home in homes.items() if home is not None}


def check_known(path: Any, meta: Mapping[str, Any]) -> None:
    """A UserError that names the module of a part that is not registered."""
    for name, home in meta["notes"].get(NOTE, {}).items():
        if not any(name in registry for registry in _registries()):
            raise UserError(
                f"{path} was fitted with {name!r} of the module {home!r}, which is not imported",
                hint=f"add --import {home}; in Python, import it before the model is loaded",
            )


def _home(part: Any) -> str | None:
    """The module of a part; None if it is rankfold's or unknown."""
    function = part.fit if isinstance(part, Method) else part
    home = getattr(function, "__module__", None)
    own = home is None or home == "functools" or home.split(".")[0] == "rankfold"
    return None if own else str(home)


def _registries() -> tuple[Mapping[str, Any], ...]:
    """Methods and encoders by name."""
    from rankfold.encoders.bag_encoder import TEXT_ENCODERS
    from rankfold.encoders.history import POOLINGS
    from rankfold.encoders.rows import ROW_ENCODERS
    from rankfold.encoders.towers import NETWORKS
    from rankfold.methods import METHODS

    return METHODS, TEXT_ENCODERS, ROW_ENCODERS, POOLINGS, NETWORKS
