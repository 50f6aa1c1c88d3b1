"""The settings of SiameseXML, and the defaults that depend on the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from rankfold.config import Settings, setting
from rankfold.encoders.bag_encoder import TEXT_ENCODERS

SMALLEST_BATCH, _LARGEST_BATCH = 256, 1024  # documents, where batch_size is open
BASE_LR = 0.005  # learning rate of the smallest batch
_MIN_PAIR_COUNT, _MIN_PAIR_COUNT_OF_MANY = 5, 2  # with fewer and with more documents than:
_MANY_DOCUMENTS = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesConfig(Settings):
    """The settings that the whole family shares."""

    width: int = setting(256, at_least=1, help="length of the vectors")
    pairs_from: int | None = setting(
        None,
        at_least=0,
        help="adjacent tokens seen this often form one more token; 0: never, "
        "none: 5, or 2 from 250,000 documents",
    )
    vectors: str | None = setting(None, help="file of word vectors (fastText .vec) to start from")
    encoder_epochs: int = setting(1, at_least=0, help="epochs of module I: the encoder alone")
    classifier_epochs: int = setting(
        0, at_least=0, help="epochs of module III: the refinements, with the encoder fixed"
    )
    joint_epochs: int = setting(
        4, at_least=0, help="epochs of module IV: encoder and refinements together"
    )
    batch_size: int | None = setting(
        None, at_least=1, help="documents per batch; none: 256 to 1,024, by the number of documents"
    )
    lr: float | None = setting(
        None,
        above=0,
        help="learning rate, which falls to 0 over a module; none: grows as sqrt(batch_size)",
    )
    classifier_batch_size: int | None = setting(
        None, at_least=1, help="batch size of modules III and IV; none: batch_size"
    )
    classifier_lr: float | None = setting(
        None, above=0, help="learning rate of modules III and IV; none: lr"
    )
    hardest: int = setting(
        4, at_least=1, help="module I without a pool: hardest documents of the batch per candidate"
    )
    shortlist: int = setting(
        500, at_least=1, help="modules III and IV without a pool: candidates per document"
    )
    random: int = setting(
        50, at_least=0, help="modules III and IV without a pool: random candidates per document"
    )
    members: int = setting(
        1, at_least=1, help="models with different seeds whose scores are averaged"
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", help="number format of training; bfloat16 needs a CUDA device"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiameseConfig(ModulesConfig):
    """The best settings for a few minutes of training: one pool of candidates per batch."""

    thinning: float = setting(
        0.1, at_least=0, at_most=1, help="share of a document's tokens that a step drops"
    )
    negatives: Literal["pool", "hardest"] = setting(
        "pool", help="pool: a batch shares one pool; hardest: hard negatives as in the paper"
    )
    temperature: float = setting(0.06, above=0, help="with a pool: cosines are divided by it")
    pool: int = setting(2000, at_least=1, help="with a pool: its approximate size")
    refresh: int = setting(
        5, at_least=1, help="module I without a pool: epochs between searches for hard documents"
    )
    encoder: str = setting(
        "plain",
        choices=TEXT_ENCODERS,
        help="text encoder; residual is the paper's, and "
        "rankfold.encoders.bag_encoder.TEXT_ENCODERS takes your own",
    )
    classifier_share: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="share of the refined vector in the mix; none: chosen on validation",
    )
    centroid_weight: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="weight of the mean of a candidate's documents; none: chosen on validation",
    )
    popularity_weight: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="weight of log(1 + documents of a candidate); none: chosen on validation",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedConfig(ModulesConfig):
    """As in the authors' release; "open" marks what it leaves open."""

    width: int = 300
    pairs_from: int | None = None  # never
    encoder_epochs: int = 50
    classifier_epochs: int = 20
    joint_epochs: int = 0  # open
    batch_size: int = 4095  # candidates in module I
    lr: float = 0.01  # times .75 after 60, 90 and 98 % of a module's epochs
    classifier_batch_size: int | None = 253  # documents
    classifier_lr: float | None = 0.0002
    hardest: int = 2
    neighbours: int = setting(
        300, at_least=0, help="nearest training documents whose candidates join a shortlist"
    )
    beta: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="share of the classifiers in the mix; none: chosen on validation",
    )


C = TypeVar("C", bound=ModulesConfig)


def fill_defaults(config: C, n_documents: int) -> C:
    """The settings with batch size, learning rate and pair count filled in.

    A batch is 1/256 of the documents, from 256 to 1,024; the rate grows with the square root of
    the batch. Rare pairs of tokens help with many documents and harm with few.
    """
    size = config.batch_size or min(_LARGEST_BATCH, max(SMALLEST_BATCH, n_documents // 256))
    rate = config.lr or BASE_LR * (size / SMALLEST_BATCH) ** 0.5
    pairs_from = config.pairs_from
    if pairs_from is None:
        many = n_documents >= _MANY_DOCUMENTS
        pairs_from = _MIN_PAIR_COUNT_OF_MANY if many else _MIN_PAIR_COUNT
    return replace(config, batch_size=size, lr=rate, pairs_from=pairs_from)
