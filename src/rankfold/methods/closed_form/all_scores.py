"""Search by the scores of all candidates, some queries at a time."""

from collections.abc import Callable

import torch
from torch import Tensor

from rankfold.kernels.sparse import blocks
from rankfold.kernels.topk import top_k
from rankfold.types import Exclude, Interactions, Model, Opened, TopK

QUERY_BLOCK, PAIR_BLOCK = 1024, 2**22  # of a block
_BYTES = 2**28  # of a block of scores

Scores = Callable[[Interactions], Tensor]
"""The scores of all candidates for some histories, [B, N]; the tensor may be changed."""


def search(scores: Scores, rows: Interactions, k: int, exclude: Exclude) -> TopK:
    """The k best candidates for each history."""
    most = max(1, min(QUERY_BLOCK, _BYTES // (4 * max(1, rows.n_candidates))))
    width, parts = min(k, rows.n_candidates), []
    for start, stop in blocks(rows, most, PAIR_BLOCK):
        block = scores(rows.part(start, stop))
        if exclude is not None:
            hidden = exclude.part(start, stop)
            block[hidden.query_of_pair().long(), hidden.candidates.long()] = -torch.inf
        parts.append(top_k(block, width))
    if not parts:
        return TopK(torch.empty(0, width, dtype=torch.int64), torch.empty(0, width))
    ids, values = zip(*parts, strict=True)
    return TopK(torch.cat(ids), torch.cat(values))


def scores_of(model: Model, opened: Opened) -> Scores:
    """The scores of a model that answers histories: its own, or inner products."""
    if opened.scores is not None:
        return opened.scores

    def scores(rows: Interactions) -> Tensor:
        assert opened.histories is not None
        candidates = model.tensors["candidates"]
        result = opened.histories(rows).to(candidates) @ candidates.T
        if opened.extra is not None:
            extra = opened.extra(rows)
            assert extra.grades is not None
            result.view(-1).scatter_add_(0, extra.codes(), extra.grades.to(result))
        return result

    return scores
