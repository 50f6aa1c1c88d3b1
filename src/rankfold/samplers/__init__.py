"""Samplers of negatives. To add one: one file, one line here, one test."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.samplers.bir import Bir
from rankfold.samplers.in_batch import InBatch
from rankfold.samplers.mixed import Mixed
from rankfold.samplers.popularity import Popularity, PopularityMode, popularity
from rankfold.samplers.resampling import DRAWS
from rankfold.samplers.streaming import RATE, Streaming, hash_sizes
from rankfold.samplers.uniform import Uniform
from rankfold.samplers.xir import Xir
from rankfold.types import Comm, Sampler


class SamplerContext(NamedTuple):
    """The arguments of all samplers; each uses what it needs."""

    counts: Tensor  # [N], how often an epoch draws each candidate; on the device of the batches
    batch_size: int  # as configured; the last batch may be shorter
    negatives: int = 1  # per query, or per batch if the batch shares them
    popularity: PopularityMode = "count"
    cache_share: float = 0.0  # lambda, the weight of the cache's half of the loss
    draw: str = "systematic"  # a key of DRAWS: how resamplers pick
    draws: int | None = None  # picks per query of resamplers; None: the batch size
    cache_size: int | None = None  # of xir; None: the batch size
    rate: float = RATE  # of g-tower's counters
    hash_size: int | None = None  # cells in each of g-tower's arrays; None: as published
    comm: Comm = SINGLE_PROCESS  # counts and batches are those of all processes

    @property
    def pop(self) -> Tensor:
        return popularity(self.counts, self.popularity)

    @property
    def log_pop(self) -> Tensor:
        return self.pop.log().float()


SAMPLERS: dict[str, Callable[[SamplerContext], Sampler]] = {
    "uniform": lambda s: Uniform(len(s.counts), s.negatives),
    "shared": lambda s: Uniform(len(s.counts), s.negatives, shared=True),
    "popularity": lambda s: Popularity(s.pop, s.negatives),
    "in-batch": lambda s: InBatch(s.log_pop),
    "mixed": lambda s: Mixed(s.log_pop, negatives=s.batch_size),
    "streaming": lambda s: Streaming(s.counts.device, s.rate, hash_sizes(s.hash_size)),
    "bir": lambda s: Bir(s.log_pop, s.draws or s.batch_size, DRAWS[s.draw]),
    "xir": lambda s: Xir(
        s.log_pop,
        s.cache_size or s.batch_size,
        s.cache_share,
        DRAWS[s.draw],
        s.comm,
        draws=s.draws or s.batch_size,
    ),
}
