"""The settings of SiameseXML, and what is made of those that are left open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from rankfold.encoders.bags import find_text_encoder
from rankfold.errors import UserError

SMALLEST_BATCH, LARGEST_BATCH = 256, 1024  # documents
LR = 0.005  # for the smallest batch
PAIRS_FROM, PAIRS_FROM_OF_MANY = 5, 2  # where documents are few, and where they are
MANY = 250_000  # documents

SIZES = ("width", "batch_size", "classifier_batch_size", "pool", "members")
PARTS = ("classifier_share", "centroid_weight", "popularity_weight")
COUNTS = (
    "pairs_from",
    "encoder_epochs",
    "classifier_epochs",
    "joint_epochs",
    "random",
    "neighbours",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesConfig:
    """What all of the family have."""

    width: int = 256
    pairs_from: int | None = None  # adjacent tokens are one more if they occur so often; 0: never
    vectors: str | None = None  # a file of word vectors for tokens to start at, as of fastText
    encoder_epochs: int = 1  # module I: the encoder alone
    classifier_epochs: int = 0  # module III: the refinements, with the encoder as it is
    joint_epochs: int = 4  # module IV: both
    batch_size: int | None = None  # None: 256 to 1,024, by the number of documents
    lr: float | None = None  # falls to 0 over a module; None: grows with the root of the batch
    classifier_batch_size: int | None = None  # of modules III and IV; None: the same
    classifier_lr: float | None = None  # likewise
    hardest: int = 4  # without a pool, module I: documents of the batch for each candidate
    shortlist: int = 500  # likewise, modules III and IV: candidates for each document
    random: int = 50  # likewise: candidates beside the shortlist
    members: int = 1  # models that differ in their seeds, whose scores are averaged
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: on CUDA alone

    def __post_init__(self) -> None:
        for name in (*SIZES, "hardest", "refresh", "shortlist"):
            given = getattr(self, name, None)
            if given is not None and given < 1:
                raise UserError(f"{name} is {given}", hint="it is at least 1")
        for name in COUNTS:
            given = getattr(self, name, None)
            if given is not None and given < 0:
                raise UserError(f"{name} is {given}", hint="it is 0 or more")
        for name in ("lr", "classifier_lr", "temperature"):
            given = getattr(self, name, None)
            if given is not None and not 0 < given < float("inf"):
                raise UserError(f"{name} is {given}", hint="it is more than 0")
        if (encoder := getattr(self, "encoder", None)) is not None:
            find_text_encoder(encoder)
        for name in (*PARTS, "thinning", "beta"):
            given = getattr(self, name, None)
            if given is not None and not 0 <= given <= 1:
                raise UserError(f"{name} is {given}", hint="it lies between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiameseConfig(ModulesConfig):
    """What is best within a few minutes: one pool of candidates per batch of documents."""

    thinning: float = 0.1  # the share of a document's tokens that a step does not see
    negatives: Literal["pool", "hardest"] = "pool"
    temperature: float = 0.06  # pool: cosines are divided by it
    pool: int = 2000  # pool: candidates that a batch is compared with, about
    refresh: int = 5  # without a pool, module I: epochs between two searches for harder documents
    encoder: str = "plain"  # residual: that of the paper; or the name of one of your own
    classifier_share: float | None = None  # of the refined vector in the mix; None: on validation
    centroid_weight: float | None = None  # of the mean of the documents; likewise
    popularity_weight: float | None = None  # of log(1 + documents of a candidate); likewise


C = TypeVar("C", bound=ModulesConfig)


def settled(config: C, n_documents: int) -> C:
    """The settings with what was left open: larger batches and steps where there is more to read.

    A batch is a 256th of the documents, from 256 to 1,024 of them; the rate grows with its root.
    Rarer pairs of tokens help where documents are many, and harm where they are not.
    """
    size = config.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, n_documents // 256))
    rate = config.lr or LR * (size / SMALLEST_BATCH) ** 0.5
    pairs_from = config.pairs_from
    if pairs_from is None:
        pairs_from = PAIRS_FROM_OF_MANY if n_documents >= MANY else PAIRS_FROM
    return replace(config, batch_size=size, lr=rate, pairs_from=pairs_from)
