"""The probability that a result is right, from its score.

Scores of a method have no unit. Where validation queries were ranked, the share of right results
rises with the score: isotonic regression turns it into a probability.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.metrics.calibration import calibration
from rankfold.metrics.isotonic import Steps, isotonic
from rankfold.types import Interactions, Model, TopK

NOTE = "probabilities"
DEPTH = 20  # results of each query that probabilities are learnt from
_BINS = 10  # of the reliability diagram


def learn(lists: TopK, right: Tensor) -> dict[str, Any] | None:
    """A note for ``at``, with the calibration error and the reliability of its bins.

    These are measured on lists that others calibrate: even ones by odd ones, and odd by even.
    ``right`` [B, K] are the results that are true. None without a right and a wrong result.
    """
    valid = lists.ids >= 0
    scores, hits = lists.scores[valid], right[valid]
    even = (torch.arange(len(lists.ids)) % 2 == 0)[:, None].expand_as(valid)[valid]
    if any(len(hits[side].unique()) < 2 for side in (even, ~even)):
        return None
    held_out = torch.empty(len(scores), dtype=torch.float64)
    for side in (even, ~even):
        held_out[side] = _at(isotonic(scores[~side], hits[~side]), scores[side])
    measured, steps = calibration(held_out, hits, _BINS, held_out), isotonic(scores, hits)
    assert measured.probabilities is not None
    return {
        "scores": steps.scores.tolist(),
        "values": steps.values.tolist(),
        "queries": len(lists.ids),
        "error": measured.error,
        "reliability": torch.stack([measured.probabilities, measured.shares], dim=1).tolist(),
    }


def at(model: Model, scores: Tensor) -> Tensor:
    """The probabilities of results by their scores, of the same shape; 0 at -inf."""
    note = model.notes.get(NOTE)
    if note is None:
        raise UserError(
            "this model has no probabilities",
            hint="fit a method for texts on data with validation pairs, in one process",
        )
    steps = Steps(np.array(note["scores"]), np.array(note["values"]))
    values = _at(steps, scores).to(torch.float32)
    return values.masked_fill(scores == -torch.inf, 0.0)


def of_lists(
    model: Model, lists: TopK, chosen: Interactions, known: Tensor | None = None
) -> Tensor:
    """The probabilities of results; [B, K].

    ``known`` [B] says which texts have a known word. Results for the others are the most popular
    ones: their probabilities are the shares of the queries that chose them.
    """
    chances = at(model, lists.scores.cpu())
    if known is None:
        return chances
    return torch.where(known[:, None], chances, _of_popular(chosen, lists.ids.cpu()))


def _of_popular(chosen: Interactions, ids: Tensor) -> Tensor:
    queries = max(1, int((chosen.counts() > 0).sum()))
    shares = chosen.candidate_counts().float() / queries
    return shares[ids.clamp(min=0)].masked_fill(ids < 0, 0.0)


def _at(steps: Steps, scores: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(steps.at(scores.double().numpy())))
