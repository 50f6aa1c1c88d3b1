"""Popularity of candidates, and negatives drawn by popularity."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool

PopularityMode = Literal["count", "log", "power"]


def popularity(counts: Tensor, mode: PopularityMode) -> Tensor:
    """pop, the share of each candidate in all choices, for sampling and corrections; sums to 1.

    With c = max(count, 1), since a candidate without choices would get an infinite correction::

        pop in proportion to   c ("count"),   log(1 + c) ("log"),   c^.75 ("power")

    Args:
        counts: [N], how many queries chose each candidate.
        mode: which of the three.

    Returns:
        [N] float64.
    """
    chosen = counts.clamp(min=1).double()
    weight = {"count": chosen, "log": chosen.log1p(), "power": chosen**0.75}[mode]
    return weight / weight.sum()


class Popularity(WholePool, Stateless):
    """``negatives`` candidates per query, each with q = its probability."""

    def __init__(self, probabilities: Tensor, negatives: int) -> None:
        self.table = alias_table(probabilities.double())
        self.log_q = probabilities.double().log().float()
        self.negatives = negatives

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        ids = draw(self.table, (len(batch.candidates), self.negatives), rng)
        return Pool(ids, self.log_q[ids], self.log_q[batch.candidates])


class Alias(NamedTuple):
    """N cells of equal mass: cell i gives i with probability ``keep[i]``, else ``other[i]``.

    A draw takes O(1), whatever N is.
    """

    keep: Tensor  # [N] float64
    other: Tensor  # [N] int64


def draw(table: Alias, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Independent draws; ``shape``, int64. One uniform number picks a cell and one of its two."""
    keep, other = table
    places = torch.rand(shape, generator=rng, dtype=keep.dtype, device=keep.device).mul_(len(keep))
    # N times a number just below 1 may round up to N
    cells = places.long().clamp_(max=len(keep) - 1)
    return torch.where(places - cells < keep[cells], cells, other[cells])


def alias_table(probabilities: Tensor) -> Alias:
    """The table of Walker's method [walker1977], without a loop.

    With m = N p, a candidate is *light* if m < 1, else *heavy*. Heavy candidates fill the missing
    1 - m of light ones, in order: a light one is filled by the first heavy one that still has 1 or
    more left. A heavy one that ends below 1 is filled by the next heavy one. The pairing follows
    from running sums of the missing mass of light ones and the spare mass of heavy ones.

    Args:
        probabilities: [N] float64 >= 0; they need not sum to 1.
    """
    mass = probabilities / probabilities.sum() * len(probabilities)
    is_light = mass < mass.max().clamp(max=1)  # after rounding, no mass may reach 1
    lights, heavies = is_light.nonzero()[:, 0], (~is_light).nonzero()[:, 0]
    lacking = (1 - mass[lights]).cumsum(0)
    spare = (mass[heavies] - 1).clamp(min=0).cumsum(0)

    keep, other = torch.ones_like(mass), torch.arange(len(mass), device=mass.device)
    filled = torch.cat([lacking.new_zeros(1), lacking])[:-1]  # before each light one
    giver = torch.searchsorted(spare, filled).clamp_(max=len(heavies) - 1)
    keep[lights], other[lights] = mass[lights], heavies[giver]

    spent = torch.searchsorted(lacking, spare, right=True)  # the light one that each ended on
    short = (spent < len(lights)).nonzero()[:, 0]
    short = short[short < len(heavies) - 1]
    keep[heavies[short]] = (1 - (lacking[spent[short]] - spare[short])).clamp(min=0)
    other[heavies[short]] = heavies[short + 1]
    return Alias(keep, other)
