"""BPR: each choice above a few random candidates, pair by pair; [rendle2009]."""

from rankfold.methods.gradient.comparison import (
    PAPER_SPACE,
    SPACE,
    Combination,
    UniformConfig,
    method,
)
from rankfold.types import Range

METHOD = method(
    "bpr",
    Combination("uniform", "bpr"),
    UniformConfig,
    "each choice above a few random candidates, pair by pair",
    paper="rendle2009",
    space={**SPACE, "negatives": Range(3, 50, log=True, whole=True)},
    paper_space=PAPER_SPACE,
)
