"""Any registered loss on negatives from any registered sampler."""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.losses import LOSSES
from rankfold.methods.gradient.comparison import Combination, ComparisonConfig, method
from rankfold.samplers import SAMPLERS
from rankfold.samplers.corrections import CORRECTIONS, RESAMPLED
from rankfold.samplers.popularity import PopularityMode
from rankfold.samplers.resampling import DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyConfig(ComparisonConfig):
    """Settings of ``sampled``."""

    loss: str = setting("softmax", choices=LOSSES, help="the loss to minimise")
    sampler: str = setting("in-batch", choices=SAMPLERS, help="where negatives come from")
    proposed: str = setting(
        "all", choices=CORRECTIONS, help="correction of the scores; bir and xir use `correction`"
    )
    correction: str = setting(
        "released", choices=RESAMPLED, help="bir and xir: correction of the scores of the picks"
    )
    draw: str = setting("systematic", choices=DRAWS, help="bir and xir: how negatives are picked")
    negatives: int = setting(
        100, at_least=1, help="uniform, shared and popularity: random candidates"
    )
    popularity: PopularityMode = setting(
        "count", help="popularity grows with the count, its logarithm, or its power 0.75"
    )
    cache_share: float = setting(
        0.2, at_least=0, at_most=1, help="xir: share of the loss on picks from the cache"
    )


def combination(config: AnyConfig) -> Combination:
    """The parts that the settings name."""
    return Combination(config.sampler, config.loss, config.proposed)


METHOD = method("sampled", combination, AnyConfig, "any loss on negatives from any sampler")
