"""Sampled softmax: random candidates that a batch shares, corrected for the sampling."""

from dataclasses import dataclass

from rankfold.methods.gradient.comparison import (
    PAPER_SPACE,
    SPACE,
    Combination,
    UniformConfig,
    method,
)
from rankfold.types import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedConfig(UniformConfig):
    """Settings of ``sampled-softmax``."""

    negatives: int = 1000


METHOD = method(
    "sampled-softmax",
    Combination("shared", "softmax", "negatives"),
    SharedConfig,
    "softmax among random candidates, corrected for how they were drawn",
    space={**SPACE, "negatives": Range(100, 5000, log=True, whole=True)},
    paper_space=PAPER_SPACE,
)
