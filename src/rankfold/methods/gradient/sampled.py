"""The combinations of a loss, a sampler and a correction that have a name, and ``sampled``."""

from typing import ClassVar

from rankfold.config import setting
from rankfold.losses import LOSSES
from rankfold.methods.gradient.comparison import (
    PAPER_SPACE,
    SPACE,
    UNIFORM_SPACE,
    Combination,
    ComparisonConfig,
    Mask,
    UniformConfig,
    method,
)
from rankfold.samplers import SAMPLERS
from rankfold.samplers.corrections import CORRECTIONS, RESAMPLED
from rankfold.samplers.popularity import PopularityMode
from rankfold.samplers.resampling import DRAWS
from rankfold.samplers.streaming import RATE
from rankfold.types import Choices, Range

_POPULARITY_SPACE = {**SPACE, "popularity": Choices(("count", "log", "power"))}


class _SharedConfig(UniformConfig):
    negatives: int = 1000


class InBatchConfig(ComparisonConfig):
    """Settings of ``ssl``: the candidates of a batch are the negatives."""

    schedule: str = "step"
    weight_decay: float | None = setting(
        None, at_least=0, help="weight decay; none: by the noise and the number of queries"
    )
    DECAY: ClassVar[float] = 0.5


class _StreamingConfig(InBatchConfig):
    rate: float = setting(RATE, above=0, at_most=1, help="how fast its counters learn; per batch")
    hash_size: int | None = setting(
        None, at_least=2, help="cells in each of its five arrays; none: about 5,000, as published"
    )


class _CorrectedConfig(InBatchConfig):
    """Settings of ``ssl-pop`` and ``mns``: corrected for how often a candidate is in a batch."""

    popularity: PopularityMode = setting("count", help="by count, its logarithm, or its power 0.75")


class _ResampledConfig(_CorrectedConfig):
    """Settings of ``bir``: negatives picked from the batch by their scores."""

    mask: Mask = "none"  # as released
    correction: str = setting("released", choices=RESAMPLED, help="correction of the picks' scores")
    draw: str = setting(
        "systematic", choices=DRAWS, help="even distances, or independent as published"
    )
    draws: int | None = setting(
        None, at_least=1, help="picks per query; none: as many as pairs in a batch"
    )


class CachedConfig(_ResampledConfig):
    """Settings of ``xir``: half of the picks come from a cache of earlier picks."""

    cache_share: float = setting(0.2, at_least=0, at_most=1, help="share of cached picks (lambda)")
    cache_size: int | None = setting(
        None, at_least=1, help="ids in the cache; none: as many as pairs in a batch"
    )


class _AnyConfig(ComparisonConfig):
    loss: str = setting("softmax", choices=LOSSES, help="the loss to minimise")
    sampler: str = setting("in-batch", choices=SAMPLERS, help="where negatives come from")
    proposed: str = setting("all", choices=CORRECTIONS, help="score correction, except bir and xir")
    correction: str = setting("released", choices=RESAMPLED, help="bir, xir: correction of scores")
    draw: str = setting("systematic", choices=DRAWS, help="bir and xir: how negatives are picked")
    negatives: int = setting(100, at_least=1, help="uniform, shared, popularity: random candidates")
    popularity: PopularityMode = setting("count", help="by count, its logarithm, or its power 0.75")
    cache_share: float = setting(0.2, at_least=0, at_most=1, help="xir: share of cached picks")
    draws: int | None = setting(None, at_least=1, help="bir, xir: picks per query; none: a batch")
    cache_size: int | None = setting(None, at_least=1, help="xir: ids in the cache; none: a batch")
    rate: float = setting(RATE, above=0, at_most=1, help="streaming: how fast its counters learn")
    hash_size: int | None = setting(None, at_least=2, help="streaming: cells; none: as published")


BPR = method(
    "bpr",
    Combination("uniform", "bpr"),
    UniformConfig,
    "each choice above a few random candidates, pair by pair",
    paper="rendle2009",
    own_threads=True,  # the operations of a batch are too short to divide
    space=UNIFORM_SPACE,
    paper_space=PAPER_SPACE,
)
BCE = method(
    "bce",
    Combination("uniform", "bce", bias=True),
    UniformConfig,
    "choices are ones, a few random candidates zeros: logistic regression",
    own_threads=True,  # the operations of a batch are too short to divide
    space=UNIFORM_SPACE,
    paper_space=PAPER_SPACE,
)
SAMPLED_SOFTMAX = method(
    "sampled-softmax",
    Combination("shared", "softmax", "negatives"),
    _SharedConfig,
    "softmax among random candidates, corrected for how they were drawn",
    space={**SPACE, "negatives": Range(100, 5000, log=True, whole=True)},
    paper_space=PAPER_SPACE,
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
    _CorrectedConfig,
    "softmax among the batch's candidates, corrected for popularity",
    paper="chen2022",
    space=_POPULARITY_SPACE,
)
MNS = method(
    "mns",
    Combination("mixed", "softmax", "all"),
    _CorrectedConfig,
    "softmax among the batch's candidates and as many random ones",
    paper="yang2020",
    space=_POPULARITY_SPACE,
)
G_TOWER = method(
    "g-tower",
    Combination("streaming", "softmax", "all"),
    _StreamingConfig,
    "softmax among the batch's candidates, popularity learnt on the way",
    paper="yi2019",
)
BIR = method(
    "bir",
    Combination("bir", "softmax"),
    _ResampledConfig,
    "softmax among candidates picked from the batch by score",
    paper="chen2022",
    space=_POPULARITY_SPACE,
)
XIR = method(
    "xir",
    Combination("xir", "softmax"),
    CachedConfig,
    "softmax among candidates picked from the batch and from a cache of earlier picks",
    paper="chen2022",
    space={**_POPULARITY_SPACE, "cache_share": Range(0.0, 1.0)},
    paper_space={"cache_share": Choices((0.0, 0.2, 0.5, 0.8, 1.0))},
)
SAMPLED = method(
    "sampled",
    lambda config: Combination(config.sampler, config.loss, config.proposed),
    _AnyConfig,
    "any loss on negatives from any sampler",
)
