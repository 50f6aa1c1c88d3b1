"""SiameseXML: texts of both sides in one space, and a refinement for each candidate.

Training goes through modules, each a stage of epochs, as [siamesexml] has them:

    I    the encoder alone: a candidate is what its text says
    III  the refinements alone: a candidate is its text and a vector of its own
    IV   both

and module II, what a candidate's documents say, is their mean. In the end a candidate is one
vector, a mix of the three, so that search is by inner product, like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from rankfold.encoders.bags import Bags, common_pairs, rarity, weigh, with_pairs
from rankfold.encoders.start_vectors import read_vectors
from rankfold.errors import UserError
from rankfold.methods.siamese_modules import (
    C,
    ModulesConfig,
    Parts,
    Siamese,
    SiameseConfig,
    Stage,
    centroids,
    encoded,
    settled,
    stages_of,
    task_of,
    training,
)
from rankfold.training.loop import Task, Training, seed_of, train
from rankfold.types import Dataset, Method, Model, Run, Side, Step, Texts

CHOOSING = 3000  # validation queries that the mix is chosen on, at most
CLASSIFIER_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
CENTROID_WEIGHTS = (0.0, 0.1, 0.3, 0.6)
ENCODER = ("tokens.weight", "mixing")  # its parameters, the second where it is residual


def fit(name: str, data: Dataset, config: SiameseConfig, run: Run) -> Iterator[Step]:
    """All stages, then the mix."""
    assert run.build_index is not None
    build_index, parts = run.build_index, prepare(data, config, run)
    config = settled(config, int((parts.rows.counts() > 0).sum()))
    done = yield from by_stages(
        config,
        run,
        start=lambda member: start(parts, config, run, member),
        task=lambda module, stage: task_of(module, stage, parts, config, build_index),
        training=training,
        exported=lambda module: exported(module, parts),
    )
    yield last_step(config, mixed(name, config, done, parts, run))


M = TypeVar("M", bound=nn.Module)


def by_stages(
    config: C,
    run: Run,
    *,
    start: Callable[[int], M],
    task: Callable[[M, Stage], Task],
    training: Callable[[Stage, C], Training],
    exported: Callable[[M], dict[str, Tensor]],
) -> Generator[Step, None, dict[str, Tensor]]:
    """Stage after stage, member after member; what each member left, under its number.

    A member trains what ``start`` makes for its number; ``task`` and ``training`` say what a stage
    does with it, and how.
    """
    stages, resume, done = stages_of(config), run.resume, finished(run)
    first = (int(resume["member"]), int(resume["stage"])) if resume is not None else (0, 0)
    epochs = sum(stage.epochs for stage in stages)
    for member in range(first[0], config.members):
        module = start(member)
        for place, stage in enumerate(stages):
            if (member, place) < first:
                continue
            before = member * epochs + sum(earlier.epochs for earlier in stages[:place])
            seed = seed_of(run, f"member {member}, {stage.name}")
            mine = replace(run, rng=torch.Generator().manual_seed(seed), resume=resume)
            resume = None  # what was kept belongs to the first stage that goes on
            where = {"member": torch.tensor(member), "stage": torch.tensor(place), **done}
            for step in train(task(module, stage), training(stage, config), mine):
                yield moved(step, before, stage.epochs, config.members * epochs, where)
        done |= {f"{member}.{key}": value for key, value in exported(module).items()}
        first = (member + 1, 0)
    return done


def last_step(config: ModulesConfig, model: Model) -> Step:
    """The one after all epochs."""
    epochs = sum(stage.epochs for stage in stages_of(config))
    return Step(config.members * epochs + 1, 0.0, 0.0, model, dict, final=True)


def prepare(data: Dataset, config: ModulesConfig, run: Run) -> Parts:
    """Weighed bags of both sides."""
    if data.query_texts is None or data.candidate_texts is None:
        side = "queries" if data.query_texts is None else "candidates"
        raise UserError(
            f"this data has no texts of {side}",
            hint="prepare it with --query-texts and --candidate-texts, or fit text-neighbours",
        )
    rows = replace(data.split("train"), grades=None)
    asking = rows.counts() > 0
    if not bool(asking.any()):
        raise UserError("no document has a label to learn from", hint="is the train split empty?")
    sides, n = [data.query_texts, data.candidate_texts], data.n_tokens
    trained = asking.nonzero().flatten()
    pairs = torch.zeros(0, dtype=torch.int64)
    if config.pairs_from is not None:
        pairs = common_pairs([sides[0].select(trained), sides[1]], n, config.pairs_from)
    queries, candidates = (with_pairs(side, pairs, n) for side in sides)
    idf = rarity([queries.select(trained), candidates], n + len(pairs))
    shares = rows.candidate_counts() / asking.sum()
    return Parts(
        weigh(queries, idf).to(run.device),
        weigh(candidates, idf).to(run.device),
        pairs.to(run.device),
        idf.to(run.device),
        rows.to(run.device),
        None if data.excluded is None else data.excluded.to(run.device),
        data.seen("validation").to(run.device),
        shares.clamp(max=1 - 1e-6).to(run.device),
        None if config.vectors is None else read_vectors(config.vectors, data, config.width),
    )


def start(parts: Parts, config: SiameseConfig, run: Run, member: int) -> Siamese:
    """The encoder as it is at first, and refinements of 0."""
    rng = torch.Generator().manual_seed(seed_of(run, f"vectors of member {member}"))
    encoder = Bags(start_tokens(parts, config, rng), residual=config.residual, rng=rng)
    return Siamese(encoder, parts.rows.n_candidates).to(run.device)


def start_tokens(parts: Parts, config: ModulesConfig, rng: torch.Generator) -> Tensor:
    """Random token vectors of about length 1, but for those given; [V + P, D].

    With random ones a cosine is, nearly, that of the bags.
    """
    tokens: Tensor = torch.randn(len(parts.idf), config.width, generator=rng) * config.width**-0.5
    if parts.given is not None:
        tokens[parts.given.tokens] = parts.given.vectors
    return tokens


def notes_of(parts: Parts, mixes: list[dict[str, float]]) -> dict[str, Any]:
    """What a model says of its fit: tokens that had vectors, mixes that were tried."""
    found = {} if parts.given is None else {"vectors": parts.given.notes}
    return {**found, "mixes": mixes}


def moved(step: Step, before: int, epochs: int, total: int, where: Mapping[str, Tensor]) -> Step:
    """A stage's step as one of the whole fit."""
    state, share = step.state, step.share or 0.0
    return step._replace(
        number=before + step.number,
        final=False,
        share=(before + share * epochs) / total,
        state=lambda: {**state(), **where},
    )


def finished(run: Run) -> dict[str, Tensor]:
    """What the members that are done left, in the state of a run that goes on."""
    if run.resume is None:
        return {}
    members = tuple(f"{number}." for number in range(int(run.resume["member"])))
    kept = {key: tensor for key, tensor in run.resume.items() if key.startswith(members)}
    return {key: tensor.to(run.device) for key, tensor in kept.items()}


# ---------------------------------------------------------------------------------- vectors


@torch.no_grad()
def exported(module: Siamese, parts: Parts) -> dict[str, Tensor]:
    """All that a member leaves: its encoder, and three vectors for each candidate."""
    texts = encoded(module.encoder, parts.labels)
    rows = torch.arange(parts.rows.n_candidates, device=texts.device)
    found = {
        "texts": texts,
        "refined": module.refined(texts, rows),
        "centroids": centroids(module.encoder, parts, texts),
    }
    encoder = {key: tensor.clone() for key, tensor in module.encoder.state_dict().items()}
    return {**found, **encoder}


class Mix(NamedTuple):
    """How much of what a candidate's vector is; its text has the rest of the classifier's share."""

    classifier_share: float
    centroid_weight: float


UNCHOSEN = Mix(0.75, 0.0)  # where there is no validation


def mixture(done: Mapping[str, Tensor], mix: Mix, members: int) -> Tensor:
    """Share classifier + (1 - share) text + weight centroid, member beside member; [N, D]."""
    share, weight = mix
    return torch.cat(
        [
            share * done[f"{number}.refined"]
            + (1 - share) * done[f"{number}.texts"]
            + weight * done[f"{number}.centroids"]
            for number in range(members)
        ],
        dim=1,
    ).div_(members)


def mixed(
    name: str, config: SiameseConfig, done: Mapping[str, Tensor], parts: Parts, run: Run
) -> Model:
    """The model, with the mix that validation prefers."""
    shares = CLASSIFIER_SHARES if config.classifier_share is None else (config.classifier_share,)
    weights = CENTROID_WEIGHTS if config.centroid_weight is None else (config.centroid_weight,)
    choices = [Mix(*pair) for pair in product(shares, weights)]
    scores: list[float] = []
    if len(choices) > 1 and run.judge is not None:
        scores = score_mixes(choices, done, config, parts, run)
        best = choices[max(range(len(choices)), key=scores.__getitem__)]
    else:
        best = UNCHOSEN if UNCHOSEN in choices else choices[0]
    mixes = [{**c._asdict(), "score": s} for c, s in zip(choices, scores, strict=False)]
    encoders = {key: tensor.half() for key, tensor in done.items() if key.endswith(ENCODER)}
    return Model(
        name,
        asdict(replace(config, **best._asdict())),
        {
            **encoders,
            "pairs": parts.pairs,
            "rarity": parts.idf,
            "candidates": mixture(done, best, config.members),
        },
        notes_of(parts, mixes),
    )


def score_mixes(
    choices: list[Mix], done: Mapping[str, Tensor], config: SiameseConfig, parts: Parts, run: Run
) -> list[float]:
    """The mean of the metric over (the first of) the validation queries, for each mix."""
    assert run.judge is not None
    assert run.build_index is not None
    queries = run.judge.queries[:CHOOSING]
    encoders = encoders_of(done, config)
    vectors = encode(encoders, parts.documents.select(queries.to(parts.idf.device)))
    hidden = run.judge.hidden(queries).to(parts.idf.device)
    found = []
    for mix in choices:
        index = run.build_index(mixture(done, mix, config.members))
        ids = index.search(vectors, run.judge.depth, hidden).ids.cpu()
        found.append(float(run.judge.values(queries, ids).double().mean()))
    return found


def encode_texts(model: Model, texts: Texts, side: Side) -> Tensor:
    """Vectors of texts, as a model has them; a new candidate is what its text says."""
    config = SiameseConfig(**model.config)
    idf, pairs = model.tensors["rarity"], model.tensors["pairs"]
    given = with_pairs(texts.to(idf.device), pairs, len(idf) - len(pairs))
    vectors = encode(encoders_of(model.tensors, config), weigh(given, idf))
    if side == "query":
        return vectors
    assert config.centroid_weight is not None
    return vectors * ((1 + config.centroid_weight) / config.members)


@torch.no_grad()
def encode(encoders: list[Bags], bags: Texts) -> Tensor:
    """Member beside member; [n, D]."""
    return torch.cat([encoded(encoder, bags) for encoder in encoders], dim=1)


def encoders_of(tensors: Mapping[str, Tensor], config: SiameseConfig) -> list[Bags]:
    """The members' encoders again; their tables are not copied."""
    found = []
    for number in range(config.members):
        tokens, mixing = (tensors.get(f"{number}.{name}") for name in ENCODER)
        assert tokens is not None
        encoder = Bags(tokens, residual=False, rng=torch.Generator())
        if mixing is not None:
            encoder.mixing = nn.Parameter(mixing.float())
        found.append(encoder)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble(SiameseConfig):
    """Three members."""

    members: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper(SiameseConfig):
    """As in the paper; what it leaves open is marked."""

    width: int = 300
    encoder_epochs: int = 20  # open
    classifier_epochs: int = 20
    joint_epochs: int = 0
    batch_size: int | None = 4096  # candidates in module I
    lr: float | None = 0.005
    classifier_batch_size: int | None = 256  # documents
    classifier_lr: float | None = 0.0005
    thinning: float = 0.0
    negatives: Literal["pool", "hardest"] = "hardest"
    residual: bool = True


def method(name: str, config: type[SiameseConfig], summary: str) -> Method:
    def begin(data: Dataset, settings: SiameseConfig, run: Run) -> Iterator[Step]:
        return fit(name, data, settings, run)

    return Method(
        summary,
        config,
        "texts",
        begin,
        encode_texts=encode_texts,
        paper="siamesexml",
        selects_itself=True,
    )


SIAMESE = {
    "siamesexml": method(
        "siamesexml", SiameseConfig, "texts of both sides in one space, refined by classifiers"
    ),
    "siamesexml-paper": method(
        "siamesexml-paper", Paper, "the same by the paper's modules and losses"
    ),
    "siamesexml-3": method("siamesexml-3", Ensemble, "three of them, their scores averaged"),
}
