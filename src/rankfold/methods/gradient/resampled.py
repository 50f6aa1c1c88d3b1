"""BIR and XIR: negatives picked by score from a batch, and from a cache; [chen2022]."""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.methods.gradient.comparison import Combination, Mask, method
from rankfold.methods.gradient.in_batch import POPULARITY_SPACE, CorrectedConfig
from rankfold.samplers.corrections import RESAMPLED
from rankfold.samplers.resampling import DRAWS
from rankfold.types import Choices, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampledConfig(CorrectedConfig):
    """Settings of ``bir``: negatives picked from the batch by their scores."""

    mask: Mask = "none"  # as released
    correction: str = setting(
        "released", choices=RESAMPLED, help="correction of the scores of the picks"
    )
    draw: str = setting(
        "systematic",
        choices=DRAWS,
        help="systematic: at even distances; multinomial: independent, as published",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedConfig(ResampledConfig):
    """Settings of ``xir``: half of the picks come from a cache of earlier picks."""

    cache_share: float = setting(
        0.2, at_least=0, at_most=1, help="share of the loss on picks from the cache (lambda)"
    )


BIR = method(
    "bir",
    Combination("bir", "softmax"),
    ResampledConfig,
    "softmax among candidates picked from the batch by score",
    paper="chen2022",
    space=POPULARITY_SPACE,
)
XIR = method(
    "xir",
    Combination("xir", "softmax"),
    CachedConfig,
    "softmax among candidates picked from the batch and from a cache of earlier picks",
    paper="chen2022",
    space={**POPULARITY_SPACE, "cache_share": Range(0.0, 1.0)},
    paper_space={"cache_share": Choices((0.0, 0.2, 0.5, 0.8, 1.0))},
)
