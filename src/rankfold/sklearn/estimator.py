"""Parameters and pickles of the estimators.

The settings of a method are parameters as well, so that a grid search can vary them. A pickled
estimator holds its model as the files of a model folder.
"""

import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Self

from sklearn.base import BaseEstimator

from rankfold.models.load import load

_MODEL = "model_"


class Estimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose public attributes without a final underscore are its parameters."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """``arguments``: the local variables of the subclass's ``__init__``."""
        own = {name: arguments[name] for name in self._get_param_names()}
        self.set_params(**own, **arguments["settings"])

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001
        """The parameters by name, settings of the method included."""
        del deep  # no parameter is an estimator
        return {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_") and not name.endswith("_")
        }

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; any setting of the method is one."""
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def settings(self) -> dict[str, Any]:
        """What is passed on to ``rankfold.fit``: all parameters that ``__init__`` does not name."""
        own = set(self._get_param_names()) - {"metric", "seed"}
        return {name: value for name, value in self.get_params().items() if name not in own}

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if _MODEL in state:
            with TemporaryDirectory() as scratch:
                folder = Path(scratch) / "model"
                state[_MODEL].save(folder)
                state[_MODEL] = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        if _MODEL in state:
            folder = Path(mkdtemp())  # a model reads its files when they are first needed
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            for name, content in state[_MODEL].items():
                (folder / name).write_bytes(content)
            state[_MODEL] = load(folder)
        super().__setstate__(state)
