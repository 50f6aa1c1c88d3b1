"""Softmax among the candidates of a batch: ssl, ssl-pop, mns, g-tower.

They differ in the other candidates of the pool and in the correction for popularity.
"""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.methods.gradient.comparison import SPACE, Combination, ComparisonConfig, method
from rankfold.samplers.popularity import PopularityMode
from rankfold.types import Choices

POPULARITY_SPACE = {**SPACE, "popularity": Choices(("count", "log", "power"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class InBatchConfig(ComparisonConfig):
    """Settings of ``ssl`` and ``g-tower``: the candidates of a batch are the negatives."""

    schedule: str = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedConfig(InBatchConfig):
    """Settings of ``ssl-pop`` and ``mns``: corrected for how often a candidate is in a batch."""

    popularity: PopularityMode = setting(
        "count", help="popularity grows with the count, its logarithm, or its power 0.75"
    )


SSL = method(
    "ssl",
    Combination("in-batch", "softmax"),
    InBatchConfig,
    "softmax among the batch's candidates, uncorrected",
    paper="chen2022",
)
SSL_POP = method(
    "ssl-pop",
    Combination("in-batch", "softmax", "all"),
    CorrectedConfig,
    "softmax among the batch's candidates, corrected for popularity",
    paper="chen2022",
    space=POPULARITY_SPACE,
)
MNS = method(
    "mns",
    Combination("mixed", "softmax", "all"),
    CorrectedConfig,
    "softmax among the batch's candidates and as many random ones",
    paper="yang2020",
    space=POPULARITY_SPACE,
)
G_TOWER = method(
    "g-tower",
    Combination("streaming", "softmax", "all"),
    InBatchConfig,
    "softmax among the batch's candidates, popularity learnt on the way",
    paper="yi2019",
)
