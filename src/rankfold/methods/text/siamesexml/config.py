"""The settings of SiameseXML, and the defaults that depend on the data."""

from dataclasses import replace
from typing import Literal, Self, TypeVar

from rankfold.config import Settings, setting
from rankfold.encoders.bag_encoder import BUILT_IN, ENCODER_NAMES, PRETRAINED, VECTORS
from rankfold.encoders.pretrained_folder import POOLINGS
from rankfold.errors import UserError
from rankfold.types import Comm, Interactions, Start

SMALLEST_BATCH, _LARGEST_BATCH = 256, 1024  # documents, where batch_size is open
BASE_LR = 0.007  # learning rate of a batch of this size or more; smaller ones have less
_MIN_PAIR_COUNT, _MIN_PAIR_COUNT_OF_MANY = 5, 2  # with fewer and with more documents than:
_MANY_DOCUMENTS = 250_000
_EPOCHS_FROM_MODEL = 2
_JOINT_EPOCHS, _MOST_JOINT_EPOCHS, _JOINT_STEPS = 4, 12, 270


class ModulesConfig(Settings):
    """The settings that the whole family shares."""

    width: int = setting(256, at_least=1, help="length of the vectors")
    pairs_from: int | None = setting(
        None, at_least=0, help="count from which token pairs are tokens; 0: never; none: 5 or 2"
    )
    vectors: str | None = setting(None, help="file of word vectors (fastText .vec) to start from")
    encoder_epochs: int = setting(0, at_least=0, help="epochs of module I: the encoder alone")
    classifier_epochs: int = setting(0, at_least=0, help="epochs of module III: refinements alone")
    joint_epochs: int | None = setting(
        None,
        at_least=0,
        help="epochs of module IV: encoder and refinements; none: 4 to 12, from a model 2",
    )
    batch_size: int | None = setting(None, at_least=1, help="documents per batch; none: 256-1,024")
    lr: float | None = setting(None, above=0, help="initial learning rate; none: by batch size")
    classifier_batch_size: int | None = setting(
        None, at_least=1, help="batch size of modules III and IV; none: batch_size"
    )
    classifier_lr: float | None = setting(None, above=0, help="lr of modules III and IV; none: lr")
    hardest: int = setting(4, at_least=1, help="no pool, module I: hardest documents per candidate")
    shortlist: int = setting(500, at_least=1, help="no pool, III and IV: candidates per document")
    random: int = setting(50, at_least=0, help="no pool, III and IV: random negatives per document")
    members: int = setting(1, at_least=1, help="models with different seeds, scores averaged")
    precision: Literal["float32", "bfloat16"] = setting("float32", help="bfloat16 needs CUDA")


class EncoderConfig(ModulesConfig):
    """The settings of encoders; most are for pretrained ones."""

    encoder: str = setting(
        "plain",
        choices=ENCODER_NAMES,
        help="text encoder; residual: the paper's; hf:FOLDER: a pretrained one; vectors:FILE",
    )
    encoder_lr: float | None = setting(
        None, above=0, help="lr of an encoder on disk; none: 3e-5, of a linear map .001"
    )
    frozen: bool = setting(False, help="with hf:FOLDER: train a linear map after the network")
    cache: str | None = setting(None, help="with frozen: a folder that keeps the texts' vectors")
    pooling: str | None = setting(
        None, choices=POOLINGS, help="with hf:FOLDER: how token vectors become one; none: its own"
    )
    max_length: int | None = setting(
        None, at_least=2, help="with hf:FOLDER: tokens of a text that are read; none: its own"
    )
    query_prompt: str | None = setting(
        None, help="with hf:FOLDER: put before each query; none: its own"
    )
    candidate_prompt: str | None = setting(
        None, help="with hf:FOLDER: put before each candidate; none: its own"
    )
    tokens_at_once: int = setting(
        2**14, at_least=1, help="with hf:FOLDER: tokens in the network at a time; bounds memory"
    )


class SiameseConfig(EncoderConfig):
    """The best settings for a few minutes of training: one pool of candidates per batch."""

    thinning: float = setting(0.1, at_least=0, at_most=1, help="share of tokens that a step drops")
    negatives: Literal["pool", "hardest"] = setting(
        "pool", help="pool: a batch shares one pool; hardest: hard negatives as in the paper"
    )
    temperature: float = setting(0.06, above=0, help="with a pool: cosines are divided by it")
    pool: int = setting(500, at_least=1, help="with a pool: its approximate size")
    refresh: int = setting(5, at_least=1, help="no pool, module I: epochs between searches")
    table: Literal["float32", "float16"] = setting(
        "float32", help="numbers of the candidates' vectors in the model; float16 halves them"
    )
    classifier_share: float | None = setting(
        None, at_least=0, at_most=1, help="share of the refined vector; none: chosen on validation"
    )
    centroid_weight: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="weight of the documents' mean; none: chosen on validation",
    )
    popularity_weight: float | None = setting(
        None, at_least=0, at_most=1, help="weight of log(1 + documents); none: chosen on validation"
    )
    linear_weight: float | None = setting(
        None, at_least=0, help="weight of classifiers over words; none: chosen on validation"
    )
    linear_rare: float | None = setting(
        None, at_least=0, help="its factor for fewer than 10 documents; none: chosen on validation"
    )
    linear_middle: float | None = setting(
        None, at_least=0, help="its factor for 10 to 49 documents; none: chosen on validation"
    )
    neighbour_weight: float | None = setting(
        None, at_least=0, help="weight of documents with near vectors; none: chosen on validation"
    )

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        return fill_defaults(self, int(comm.sum((rows.counts() > 0).sum())))


class ReleasedConfig(ModulesConfig):
    """As in the authors' release; "open" marks what it leaves open."""

    width: int = 300
    pairs_from: int | None = None  # never
    encoder_epochs: int = 50
    classifier_epochs: int = 20
    joint_epochs: int | None = 0  # open
    batch_size: int = 4095  # candidates in module I
    lr: float = 0.01  # times .75 after 60, 90 and 98 % of a module's epochs
    classifier_batch_size: int | None = 253  # documents
    classifier_lr: float | None = 0.0002
    hardest: int = 2
    neighbours: int = setting(300, at_least=0, help="near documents whose candidates join a list")
    beta: float | None = setting(
        None, at_least=0, at_most=1, help="share of the classifiers; none: chosen on validation"
    )


C = TypeVar("C", bound=ModulesConfig)


def is_on_disk(config: ModulesConfig) -> bool:
    """Whether the encoder is a folder or a file."""
    return str(getattr(config, "encoder", "")).startswith((PRETRAINED, VECTORS))


def fill_defaults(config: C, n_documents: int) -> C:
    """The settings with batch size, learning rate, epochs and pair count filled in.

    A batch is 1/256 of the documents, from 256 to 1,024; the rate of smaller ones falls with the
    square root of their size. Few documents get more epochs, for 270 steps. Rare pairs of tokens
    help with many documents and harm with few.
    """
    size = config.batch_size or min(_LARGEST_BATCH, max(SMALLEST_BATCH, n_documents // 256))
    rate = config.lr or BASE_LR * min(1.0, size / SMALLEST_BATCH) ** 0.5
    pairs_from = config.pairs_from
    if is_on_disk(config):
        pairs_from = 0  # tokens are pieces of words, or rows of a table
    if pairs_from is None:
        many = n_documents >= _MANY_DOCUMENTS
        pairs_from = _MIN_PAIR_COUNT_OF_MANY if many else _MIN_PAIR_COUNT
    epochs = config.joint_epochs
    if epochs is None:
        batches = -(-n_documents // (config.classifier_batch_size or size))
        epochs = max(_JOINT_EPOCHS, min(_MOST_JOINT_EPOCHS, -(-_JOINT_STEPS // max(1, batches))))
        epochs = _JOINT_EPOCHS if is_on_disk(config) else epochs
    return replace(config, batch_size=size, lr=rate, pairs_from=pairs_from, joint_epochs=epochs)


def from_model(config: SiameseConfig, start: Start) -> SiameseConfig:
    """The settings of a fit that starts from a model; a UserError if they do not suit it."""
    for name in ("width", "members", "encoder"):
        own, other = getattr(config, name), start.model.config.get(name)
        if own != other:
            raise UserError(
                f"the model to start from has {name}={other}, not {own}",
                hint=f"set {name}={other}, or leave --from out",
            )
    if config.encoder not in BUILT_IN:
        raise UserError(
            f"a fit with encoder={config.encoder} cannot start from a model",
            hint=f"use encoder={' or '.join(BUILT_IN)}, or leave --from out",
        )
    joint = _EPOCHS_FROM_MODEL if config.joint_epochs is None else config.joint_epochs
    return replace(config, joint_epochs=joint)
