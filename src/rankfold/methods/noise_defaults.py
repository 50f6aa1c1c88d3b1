"""Default weights and regularisation, which follow from the noise of the pairs.

docs/decisions/0027-defaults-from-the-data.md
"""

from typing import NamedTuple

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.solvers.held_out import held_out_shares
from rankfold.types import Comm, Interactions

_MAX_RATIO = 10.0
_MIN_STRENGTH = 0.5
_MAX_SHARE = 0.9  # some pairs are never without noise


class Noise(NamedTuple):
    """The noise of the pairs, and their numbers."""

    lost: float  # share of the components that does not hold, at least .1
    strength: float  # the same of the strongest components, at least 1/2
    n_pairs: float
    n_queries: float  # with pairs
    n_candidates: float
    factors: tuple[float, float] = (1.0, 1.0)  # of reg and ratio, chosen on validation

    def moved(self, reg: float, ratio: float) -> "Noise":
        """With these further factors of regularisation and ratio."""
        return self._replace(factors=(self.factors[0] * reg, self.factors[1] * ratio))

    @property
    def density(self) -> float:
        return self.n_pairs / (self.n_queries * self.n_candidates)

    @property
    def ratio(self) -> float:
        """The weight of all pairs, relative to that of the chosen ones."""
        return self.factors[1] * _MAX_RATIO * self.lost

    @property
    def reg(self) -> float:
        """The regularisation of a factorisation, relative to the weights of a row.

        Scaled by the sizes of its rows and columns, of means d and c, a random matrix has
        components of at most d^-1/2 + c^-1/2, and regularisation at that threshold removes them.
        Little is to be removed where components hold, and all only where not even the strongest do.
        """
        rows, columns = self.n_queries / self.n_pairs, self.n_candidates / self.n_pairs
        return self.factors[0] * self.strength * self.lost**2 * float(rows**0.5 + columns**0.5)

    @property
    def decay(self) -> float:
        """The decay of vectors that suits a loss which is a mean over M queries or over pairs.

        A pair has a share of about 1/(M d) in the loss. Noise of this size has components of at
        most (d^1/2 + c^1/2)/(M d), which is d^-1/2 + c^-1/2 over the root of M times N.
        """
        return self.reg / float((self.n_queries * self.n_candidates) ** 0.5)


def noise_of(rows: Interactions, comm: Comm) -> Noise:
    shares = held_out_shares(rows, comm)
    return Noise(
        lost=1 - min(_MAX_SHARE, shares.of_all),
        strength=max(_MIN_STRENGTH, 1 - shares.of_strongest),
        n_pairs=max(1.0, sum_over_ranks(rows.n_pairs, comm)),
        n_queries=max(1.0, sum_over_ranks(int((rows.counts() > 0).sum()), comm)),
        n_candidates=max(1.0, float(rows.n_candidates)),
    )
