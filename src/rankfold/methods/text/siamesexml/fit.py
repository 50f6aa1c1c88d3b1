"""SiameseXML: texts of both sides in one space, and a refinement for each candidate.

Training goes through modules, each a stage of epochs, as [siamesexml] has them:

    I    the encoder alone: a candidate is what its text says
    III  the refinements alone: a candidate is its text and a vector of its own
    IV   both

and module II, what a candidate's documents say, is their mean. In the end a candidate is one
vector, a mix of the three with its popularity as one more column, so that search is by inner
product, like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.encoders.bags import common_pairs, rarity, weighed, with_pairs
from rankfold.encoders.rows import check_by_row
from rankfold.encoders.shard import Shard
from rankfold.encoders.start_vectors import read_vectors
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml.config import C, ModulesConfig, SiameseConfig, settled
from rankfold.methods.text.siamesexml.mining import centroids
from rankfold.methods.text.siamesexml.mix import (
    MIXED,
    chosen_mix,
    encode_texts,
    kept_encoders,
    made,
    mixture,
)
from rankfold.methods.text.siamesexml.modules import (
    Siamese,
    Stage,
    stages_of,
    task_of,
    training,
)
from rankfold.methods.text.siamesexml.parts import Parts, encoded
from rankfold.solvers.shards import Shards
from rankfold.training.loop import Task, Training, seed_of, train
from rankfold.types import Dataset, Method, Model, Run, Step


def fit(name: str, data: Dataset, config: SiameseConfig, run: Run) -> Iterator[Step]:
    """All stages, then the mix."""
    assert run.build_index is not None
    n_documents = int(sum_over_ranks((data.split("train").counts() > 0).sum(), run.comm))
    config = settled(config, n_documents)
    build_index, parts = run.build_index, prepare(data, config, run)
    done = yield from by_stages(
        config,
        run,
        start=lambda member: start(parts, config, run, member),
        task=lambda module, stage: task_of(module, stage, parts, config, build_index),
        training=training,
        exported=lambda module: exported(module, parts),
        divided=MIXED,
    )
    began = perf_counter()
    model = mixed(name, config, done, parts, run)
    divided = ("candidates", *divided_of(done, MIXED))
    yield last_step(config, model, done, perf_counter() - began, divided)


M = TypeVar("M", bound=nn.Module)


def by_stages(
    config: C,
    run: Run,
    *,
    start: Callable[[int], M],
    task: Callable[[M, Stage], Task],
    training: Callable[[Stage, C], Training],
    exported: Callable[[M], dict[str, Tensor]],
    divided: tuple[str, ...] = (),
) -> Generator[Step, None, dict[str, Tensor]]:
    """Stage after stage, member after member; what each member left, under its number.

    A member trains what ``start`` makes for its number; ``task`` and ``training`` say what a stage
    does with it, and how. Of what is ``exported``, each of several processes has its share of the
    tables in ``divided``.
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
            shared = divided_of(done, divided)
            for step in train(task(module, stage), training(stage, config), mine):
                step = step._replace(divided=[*step.divided, *shared])
                then = following(stages[place + 1 :], config) if step.final else ""
                step = moved(step, before, stage.epochs, config.members * epochs, where)
                yield step._replace(stage=name_of(stage, member, config.members) + then)
        done |= {f"{member}.{key}": value for key, value in exported(module).items()}
        first = (member + 1, 0)
    return done


def name_of(stage: Stage, member: int, members: int) -> str:
    """For people: ``encoder``, of one among several members ``member 2 of 3, encoder``."""
    return stage.name if members == 1 else f"member {member + 1} of {members}, {stage.name}"


def following(stages: list[Stage], config: ModulesConfig) -> str:
    """What is done after a stage and before the next one, for people; it may take a while."""
    if not stages:
        return ", then vectors of all"
    by_shortlists = getattr(config, "negatives", "hardest") == "hardest"
    return ", then shortlists (module II)" if by_shortlists else ""


def divided_of(done: Mapping[str, Tensor], names: tuple[str, ...]) -> list[str]:
    """Of what members left, the tables with these names."""
    return [key for key in done if key.split(".", 1)[1] in names]


def last_step(
    config: ModulesConfig,
    model: Model,
    done: Mapping[str, Tensor],
    seconds: float,
    divided: Collection[str] = (),
) -> Step:
    """The one after all epochs, of so many seconds; who goes on from it has all members."""
    epochs = sum(stage.epochs for stage in stages_of(config))
    where = {"member": torch.tensor(config.members), "stage": torch.tensor(0), **done}
    number = config.members * epochs + 1
    how: dict[str, Any] = {"final": True, "divided": divided, "stage": "the mix"}
    return Step(number, 0.0, seconds, model, lambda: where, **how)


def prepare(data: Dataset, config: ModulesConfig, run: Run) -> Parts:
    """Weighed texts of both sides."""
    if data.query_texts is None or data.candidate_texts is None:
        lacking = {"query": data.query_texts, "candidate": data.candidate_texts}
        options = [f"--{side}-texts" for side, texts in lacking.items() if texts is None]
        documents = data.query_texts is None
        other = ", or as documents: --format texts" if documents else ", or fit text-neighbours"
        raise UserError(
            f"this data has no texts of {'queries' if documents else 'candidates'}",
            hint=f"prepare it with {' and '.join(options)}{other}",
        )
    rows, comm = replace(data.split("train"), grades=None), run.comm
    asking = rows.counts() > 0
    n_asking = comm.sum(asking.sum())
    if not bool(n_asking > 0):
        raise UserError("no document has a label to learn from", hint="is the train split empty?")
    held = Shard(rows.n_candidates, comm, run.memory_budget)
    _check_share(held)
    own = data.candidate_texts
    own = own if comm.size == 1 else own.part(held.start, held.stop)
    sides, n = [data.query_texts, own], data.n_tokens
    trained = asking.nonzero().flatten()
    pairs = torch.zeros(0, dtype=torch.int64)
    if config.pairs_from:
        pairs = common_pairs([sides[0].select(trained), own], n, config.pairs_from, comm)
    queries, candidates = (with_pairs(side, pairs, n) for side in sides)
    idf = rarity([queries.select(trained), candidates], n + len(pairs), comm)
    counts = comm.sum(rows.candidate_counts())
    shares = counts / n_asking
    shards = None
    if comm.size > 1:
        shards = Shards(rows.to(run.device), comm, run.memory_budget // (4 * config.width))
    encoder = getattr(config, "encoder", "plain")  # the released one is of bags, too
    return Parts(
        weighed(encoder, queries, idf).to(run.device),
        weighed(encoder, candidates, idf).to(run.device),
        pairs.to(run.device),
        idf.to(run.device),
        rows.to(run.device),
        None if data.excluded is None else data.excluded.to(run.device),
        data.seen("validation").to(run.device),
        counts.to(run.device),
        shares.clamp(max=1 - 1e-6).to(run.device),
        None if config.vectors is None else read_vectors(config.vectors, data, config.width),
        Shard(data.n_queries, comm, run.memory_budget),
        held,
        shards,
    )


def _check_share(held: Shard) -> None:
    if held.size < held.comm.size:
        raise UserError(
            f"{held.size} candidates cannot be divided among {held.comm.size} processes",
            hint="start fewer",
        )


def start(parts: Parts, config: SiameseConfig, run: Run, member: int) -> Siamese:
    """The encoder as it is at first, and refinements of 0."""
    rng = torch.Generator().manual_seed(seed_of(run, f"vectors of member {member}"))
    tokens = start_tokens(parts, config, rng)
    encoder = made(config.encoder, tokens, seed_of(run, f"encoder of member {member}"))
    if parts.comm.size > 1:
        check_by_row(config.encoder, encoder)
    return Siamese(encoder, len(parts.labels), config.width).to(run.device)


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
    score = max((mix["score"] for mix in mixes), default=None)
    return {**found, "mixes": mixes, "score": score} if mixes else found


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
    """All that a member leaves: its encoder, and three vectors for each candidate here."""
    module.eval()
    texts = encoded(module.encoder, parts.labels)
    rows = torch.arange(len(texts), device=texts.device)
    found = {
        "texts": texts,
        "refined": module.refined(texts, rows),
        "centroids": centroids(module.encoder, parts, texts),
    }
    encoder = {key: tensor.clone() for key, tensor in module.encoder.state_dict().items()}
    return {**found, **encoder}


def mixed(
    name: str, config: SiameseConfig, done: Mapping[str, Tensor], parts: Parts, run: Run
) -> Model:
    """The model, with the mix that validation prefers."""
    mix, mixes = chosen_mix(done, config, parts, run)
    encoders = kept_encoders(done, config)
    return Model(
        name,
        asdict(replace(config, **mix._asdict())),
        {
            **encoders,
            "pairs": parts.pairs,
            "rarity": parts.idf,
            "candidates": mixture(done, mix, config.members, parts.own_counts),
        },
        notes_of(parts, mixes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble(SiameseConfig):
    """Three members."""

    members: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper(SiameseConfig):
    """As in the paper; what it leaves open is marked."""

    width: int = 300
    pairs_from: int | None = 5  # open
    encoder_epochs: int = 20  # open
    classifier_epochs: int = 20
    joint_epochs: int = 0
    batch_size: int | None = 4096  # candidates in module I
    lr: float | None = 0.005
    classifier_batch_size: int | None = 256  # documents
    classifier_lr: float | None = 0.0005
    thinning: float = 0.0
    negatives: Literal["pool", "hardest"] = "hardest"
    encoder: str = "residual"
    popularity_weight: float | None = 0.0


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
        self_tuning=True,
        distributed=True,
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
