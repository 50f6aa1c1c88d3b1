"""Losses: pure functions of scores. To add one: one file, one line here, one test."""

from rankfold.losses.softmax import softmax_loss
from rankfold.types import Loss

LOSSES: dict[str, Loss] = {
    "softmax": softmax_loss,
}
