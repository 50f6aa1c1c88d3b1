"""A method with known best settings, and data to tune it on."""

from collections.abc import Iterator
from functools import cache

import pytest
from alembic.util import pyfiles
from level_method import Level, fit_level
from planted import split_groups

from rankfold.methods import METHODS
from rankfold.types import Dataset, Method, Opened

LOAD_ONCE = cache(pyfiles.load_module_py)


@pytest.fixture(scope="module", autouse=True)
def level() -> Iterator[None]:
    """A method with known best settings, and searches that learn from the third trial on.

    The modules of database versions, which every new study executes again, are executed once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyfiles, "load_module_py", LOAD_ONCE)
        method = Method("known", Level, "interactions", fit_level, lambda _model: Opened())
        patch.setitem(METHODS, "level", method)
        patch.setattr("rankfold.tasks.tune.RANDOM_TRIALS", 2)
        yield


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()
