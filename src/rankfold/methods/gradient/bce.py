"""BCE: logistic regression on choices and a few random candidates, with candidate biases."""

from rankfold.methods.gradient.comparison import (
    PAPER_SPACE,
    SPACE,
    Combination,
    UniformConfig,
    method,
)
from rankfold.types import Range

METHOD = method(
    "bce",
    Combination("uniform", "bce", bias=True),
    UniformConfig,
    "choices are ones, a few random candidates zeros: logistic regression",
    space={**SPACE, "negatives": Range(3, 50, log=True, whole=True)},
    paper_space=PAPER_SPACE,
)
