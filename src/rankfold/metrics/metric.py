"""What a metric declares about itself."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

from rankfold.metrics.judged import Judged

PerQuery: TypeAlias = Callable[[Judged, int], Tensor]
"""``(judged, k) -> [B]`` float32: one value per query, of its first k results."""


class Metric(NamedTuple):
    """A mean over queries of ``value``, divided by the mean of ``best`` if there is one."""

    value: PerQuery
    ordered: bool  # whether the order of the first k results matters
    best: PerQuery | None = None  # the largest value that a list of k results can have
    more_is_better: bool = True  # False: methods are not ranked by it
    reads: Literal["truth", "popularity", "propensity"] = "truth"
    """``"popularity"`` reads ``popularity_rank`` instead of the truth, ``"propensity"`` reads
    ``inverse_propensity`` as well as the truth; see ``judge``."""


class CatalogMetric(NamedTuple):
    """One value for all queries, from how often each candidate was returned."""

    value: Callable[[Tensor], Tensor]  # ``(returned [N]) -> []`` float32
    ordered: bool = False
    more_is_better: bool = True
