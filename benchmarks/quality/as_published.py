"""SiameseXML as published, and what its modules do to the figures, with only torch and numpy.

    python -m benchmarks.quality.as_published --arrays FILE ... --out FILE [--device cpu]

FILE of arrays is that of ``scale/texts_gpu.py export``. Each variant of ``siamesexml-paper`` is one
fit on train. Its mixes give the figures of the modules by themselves (nDCG@5 on validation): I (the
text alone), I-II (with the mean of a label's documents), all. The test figures are of the best mix.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.scale.texts_gpu import FULL, Judged, Place, Row, load, tested, trained
from rankfold.losses.likelihood import likelihood_loss
from rankfold.losses.sides import split
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import modules

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
_LARGEST_RIVAL = 0.7  # cosine; nearer documents and labels are taken as unknown positives
_FLOOR = 0.05  # the release sets smaller losses of negatives to 0


def summed(scores: Tensor, grades: Tensor, valid: Tensor, *, c: float, d: float) -> Tensor:
    """Sums over positives and negatives: each pair counts once, as in the likelihood."""
    count = ((grades > 0) & valid).sum(dim=1)
    return likelihood_loss(scores, grades, valid, c=c, d=d) * count


def floored(scores: Tensor, grades: Tensor, valid: Tensor, *, c: float, d: float) -> Tensor:
    """Negatives whose loss is small have none."""
    loss = -torch.log1p(-c * torch.exp(d * (scores.clamp(max=1) - 1)))
    return likelihood_loss(scores, grades, valid & ((grades > 0) | (loss >= _FLOOR)), c=c, d=d)


def shared(scores: Tensor, grades: Tensor, valid: Tensor, *, c: float, d: float) -> Tensor:
    """The mean of the negatives: as many of them as positives, by weight."""
    sides = split(scores, grades, valid, None)
    log_p = d * (sides.safe.clamp(max=1) - 1) + torch.log(scores.new_tensor(c))
    down = -(sides.negative * torch.log1p(-log_p.exp())).sum(dim=1)
    negatives = sides.negative.sum(dim=1).clamp(min=1)
    return torch.where(sides.counted, -sides.over_positives(log_p) + down / negatives, 0.0)


def softmax(scores: Tensor, grades: Tensor, valid: Tensor, **_: float) -> Tensor:
    """The decoupled softmax at a temperature of .06 in place of the likelihood."""
    sides = split(scores / 0.06, grades, valid, None)
    rest = torch.where(sides.negative > 0, sides.safe, -torch.inf).logsumexp(dim=1, keepdim=True)
    value = torch.logaddexp(sides.safe, rest) - sides.safe
    return torch.where(sides.counted, sides.over_positives(value), 0.0)


def without_near(rivals: Tensor, count: int) -> Tensor:
    """The hardest that are not nearer than ``_LARGEST_RIVAL``."""
    return HARDEST(rivals.masked_fill(rivals > _LARGEST_RIVAL, -torch.inf), count)


def no_documents(_encoder: Any, corpus: Any, _build: Any) -> Tensor:
    return torch.full_like(corpus.own_counts, -1, dtype=torch.int64)


def frozen_mixing(module: Any, stage: Any) -> None:
    """As ``train_in``, but module III keeps the matrix R."""
    TRAIN_IN(module, stage)
    if stage.name == "classifiers" and module.encoder.mixing is not None:
        module.encoder.mixing.requires_grad_(False)


HARDEST, TRAIN_IN = modules.hardest_of, modules.Siamese.train_in
FROZEN = {"Siamese.train_in": frozen_mixing}
FAR = {"hardest_of": without_near, "mine_documents": no_documents}


def both(loss: Callable[..., Tensor]) -> dict[str, Any]:
    """The loss in all modules."""
    return {
        "encoder_loss": partial(loss, c=0.9, d=1.5),
        "classifier_loss": partial(loss, c=0.75, d=3.0),
    }


VARIANTS: dict[str, tuple[Row, dict[str, Any]]] = {
    "as published": ({}, {}),
    "I of 200 epochs": ({"encoder_epochs": 200}, {}),
    "sums": ({}, both(summed)),
    "small losses of negatives are 0": ({}, both(floored)),
    "mean of negatives": ({}, both(shared)),
    "no near negatives": ({}, FAR),
    "no near negatives, mean of negatives, R frozen": ({}, {**FAR, **both(shared), **FROZEN}),
    "the same, I of 200 epochs": (
        {"encoder_epochs": 200},
        {**FAR, **both(shared), **FROZEN},
    ),
    "softmax": ({}, both(softmax)),
    "softmax, no near negatives, I of 200 epochs": (
        {"encoder_epochs": 200},
        {**FAR, **both(softmax)},
    ),
    "softmax, the same and IV": (
        {"encoder_epochs": 200, "classifier_epochs": 10, "joint_epochs": 5},
        {**FAR, **both(softmax)},
    ),
    "softmax, the same and -3": (
        {"encoder_epochs": 200, "classifier_epochs": 10, "joint_epochs": 5, "members": 3},
        {**FAR, **both(softmax)},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--arrays", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", dest="settings")
    args = parser.parse_args()
    given = {key: json.loads(value) for key, value in (s.split("=", 1) for s in args.settings)}
    result = json.loads(args.out.read_text()) if args.out.exists() else {}
    for variant in VARIANTS:
        for arrays in args.arrays:
            key = f"{arrays.stem}: {variant}"
            if key in result:
                continue
            place = Place(torch.device(args.device), FULL, arrays)
            result[key] = study(variant, given, place)
            print(key, json.dumps(result[key]), flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(result, indent=1) + "\n")


def study(variant: str, given: Row, place: Place) -> Row:
    """One fit."""
    settings, changes = VARIANTS[variant]
    data, pairs = load(place.arrays)
    config = METHODS["siamesexml-paper"].config(**{**settings, **given})
    with ExitStack() as stack:
        for name, value in changes.items():
            owner, _, last = name.rpartition(".")
            target = getattr(modules, owner) if owner else modules
            stack.enter_context(patch.object(target, last, value))
        model, seconds = trained("siamesexml-paper", data, config, place, place.run(Judged(data)))
    mixes = model.notes["mixes"]
    return {
        "settings": settings,
        "fit_s": seconds["fit_s"],
        "I": best_of(mixes, lambda mix: mix["classifier_share"] == mix["centroid_weight"] == 0),
        "I-II": best_of(mixes, lambda mix: mix["classifier_share"] == 0),
        "all": best_of(mixes, lambda _mix: True),
        **tested(model, data, pairs, place),
    }


def best_of(mixes: list[dict[str, float]], chosen: Callable[[dict[str, float]], bool]) -> float:
    return round(100 * max(mix["score"] for mix in mixes if chosen(mix)), 2)


if __name__ == "__main__":
    main()
