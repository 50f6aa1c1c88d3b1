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
    from rankfold.data import folder as _folder
    from rankfold.data.prepare import prepare as prepare
    from rankfold.errors import UserError as UserError
    from rankfold.methods import METHODS as METHODS
    from rankfold.models.grader import Grader as Grader
    from rankfold.models.load import load as load
    from rankfold.models.ranker import Ranker as Ranker
    from rankfold.tasks.blend import blend as blend
    from rankfold.tasks.compare import compare as compare
    from rankfold.tasks.diagnose import diagnose as diagnose
    from rankfold.tasks.evaluate import evaluate as evaluate
    from rankfold.tasks.export import export as export
    from rankfold.tasks.fit import fit as fit
    from rankfold.tasks.predict import predict as predict
    from rankfold.tasks.tune import tune as tune
    from rankfold.tasks.update import add as add
    from rankfold.tasks.update import extend as extend

    load_data = _folder.load

_HOMES = {  # of the names above, which only type checkers import
    **{
        name: f"rankfold.tasks.{name}"
        for name in ("blend", "compare", "diagnose", "evaluate", "export", "fit", "predict", "tune")
    },
    "Grader": "rankfold.models.grader",
    "METHODS": "rankfold.methods",
    "Ranker": "rankfold.models.ranker",
    "UserError": "rankfold.errors",
    "add": "rankfold.tasks.update",
    "extend": "rankfold.tasks.update",
    "load": "rankfold.models.load",
    "load_data": "rankfold.data.folder",
    "prepare": "rankfold.data.prepare",
}


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name not in _HOMES:
        raise AttributeError(f"module 'rankfold' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), "load" if name == "load_data" else name)
    globals()[name] = value
    return value
