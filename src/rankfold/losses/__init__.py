"""Losses: pure functions of scores. To add one: one file, one line here, one test."""

from rankfold.losses.bce import bce_loss
from rankfold.losses.bpr import bpr_loss
from rankfold.losses.decoupled_softmax import decoupled_softmax_loss
from rankfold.losses.expected import expected_loss
from rankfold.losses.hinge import hinge_loss
from rankfold.losses.likelihood import likelihood_loss
from rankfold.losses.low_fpr import low_fpr_loss
from rankfold.losses.rg2 import rg2_loss
from rankfold.losses.rgx import rgx_loss
from rankfold.losses.softmax import softmax_loss
from rankfold.losses.sparsemax import sparsemax_loss
from rankfold.losses.uib import uib_loss
from rankfold.losses.warp import warp_loss
from rankfold.types import Loss

LOSSES: dict[str, Loss] = {
    "softmax": softmax_loss,
    "decoupled-softmax": decoupled_softmax_loss,
    "sparsemax": sparsemax_loss,
    "rg2": rg2_loss,
    "rgx": rgx_loss,
    "expected": expected_loss,
    "bpr": bpr_loss,
    "bce": bce_loss,
    "uib": uib_loss,
    "hinge": hinge_loss,
    "warp": warp_loss,
    "likelihood": likelihood_loss,
    "low-fpr": low_fpr_loss,
}
