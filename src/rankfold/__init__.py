"""Learn to rank a few candidates out of very many.

    import rankfold as rf

    data = rf.prepare("ratings.parquet", query_column="user", candidate_column="item", kcore=5)
    model = rf.fit("rg2", data)
    model.search(["alice"], k=10)

Everything below is imported when it is first used, so that ``import rankfold`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rankfold.data.folder import load as load_data
    from rankfold.data.prepare import prepare
    from rankfold.errors import UserError
    from rankfold.methods import METHODS
    from rankfold.models.grader import Grader
    from rankfold.models.load import load
    from rankfold.models.ranker import Ranker
    from rankfold.tasks.compare import compare
    from rankfold.tasks.evaluate import evaluate
    from rankfold.tasks.export import export
    from rankfold.tasks.fit import fit
    from rankfold.tasks.tune import tune

_HOMES = {
    "Grader": ("rankfold.models.grader", "Grader"),
    "METHODS": ("rankfold.methods", "METHODS"),
    "Ranker": ("rankfold.models.ranker", "Ranker"),
    "UserError": ("rankfold.errors", "UserError"),
    "compare": ("rankfold.tasks.compare", "compare"),
    "evaluate": ("rankfold.tasks.evaluate", "evaluate"),
    "export": ("rankfold.tasks.export", "export"),
    "fit": ("rankfold.tasks.fit", "fit"),
    "load": ("rankfold.models.load", "load"),
    "load_data": ("rankfold.data.folder", "load"),
    "prepare": ("rankfold.data.prepare", "prepare"),
    "tune": ("rankfold.tasks.tune", "tune"),
}

__all__ = [
    "METHODS",
    "Grader",
    "Ranker",
    "UserError",
    "__version__",
    "compare",
    "evaluate",
    "export",
    "fit",
    "load",
    "load_data",
    "prepare",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankfold' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value
