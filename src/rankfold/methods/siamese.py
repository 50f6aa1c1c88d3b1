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
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from rankfold.encoders.bags import Bags, common_pairs, rarity, weigh, with_pairs
from rankfold.encoders.shard import Shard
from rankfold.encoders.start_vectors import read_vectors
from rankfold.errors import UserError
from rankfold.methods.siamese_mining import centroids
from rankfold.methods.siamese_modules import (
    C,
    ModulesConfig,
    Siamese,
    SiameseConfig,
    Stage,
    settled,
    stages_of,
    task_of,
    training,
)
from rankfold.methods.siamese_parts import Parts, encoded
from rankfold.methods.siamese_ranks import best_of_all, first_of_all, of_all_queries
from rankfold.methods.text_neighbours import best
from rankfold.objectives.quadratic import in_all
from rankfold.solvers.shards import Shards
from rankfold.training.loop import Task, Training, seed_of, train
from rankfold.types import Dataset, Interactions, Method, Model, Run, Side, Step, Texts, TopK

CHOOSING = 3000  # validation queries that the mix is chosen on, at most
CLASSIFIER_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
CENTROID_WEIGHTS = (0.0, 0.1, 0.3, 0.6)
POPULARITY_WEIGHTS = (0.0, 0.03, 0.06, 0.09, 0.12)
OF_QUERIES = 0.5  # in the column of popularity; candidates have theirs divided by it
PRODUCT_BYTES = 2**26  # of the scores by one of the vectors
BLOCK_BYTES = 2**23  # of the scores of a mix, which should stay near
MIXED = ("refined", "texts", "centroids")  # the vectors of a candidate
ENCODER = ("tokens.weight", "mixing")  # its parameters, the second where it is residual


def fit(name: str, data: Dataset, config: SiameseConfig, run: Run) -> Iterator[Step]:
    """All stages, then the mix."""
    assert run.build_index is not None
    n_documents = int(in_all((data.split("train").counts() > 0).sum(), run.comm))
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
    model = mixed(name, config, done, parts, run)
    yield last_step(config, model, done, divided=("candidates", *divided_of(done, MIXED)))


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
                yield moved(step, before, stage.epochs, config.members * epochs, where)
        done |= {f"{member}.{key}": value for key, value in exported(module).items()}
        first = (member + 1, 0)
    return done


def divided_of(done: Mapping[str, Tensor], names: tuple[str, ...]) -> list[str]:
    """Of what members left, the tables with these names."""
    return [key for key in done if key.split(".", 1)[1] in names]


def last_step(
    config: ModulesConfig,
    model: Model,
    done: Mapping[str, Tensor],
    divided: Collection[str] = (),
) -> Step:
    """The one after all epochs; who goes on from it has all members."""
    epochs = sum(stage.epochs for stage in stages_of(config))
    where = {"member": torch.tensor(config.members), "stage": torch.tensor(0), **done}
    number = config.members * epochs + 1
    return Step(number, 0.0, 0.0, model, lambda: where, final=True, divided=divided)


def prepare(data: Dataset, config: ModulesConfig, run: Run) -> Parts:
    """Weighed bags of both sides."""
    if data.query_texts is None or data.candidate_texts is None:
        side = "queries" if data.query_texts is None else "candidates"
        raise UserError(
            f"this data has no texts of {side}",
            hint="prepare it with --query-texts and --candidate-texts, or fit text-neighbours",
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
    return Parts(
        weigh(queries, idf).to(run.device),
        weigh(candidates, idf).to(run.device),
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
    encoder = Bags(start_tokens(parts, config, rng), residual=config.residual, rng=rng)
    return Siamese(encoder, len(parts.labels)).to(run.device)


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
    texts = encoded(module.encoder, parts.labels)
    rows = torch.arange(len(texts), device=texts.device)
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
    popularity_weight: float


UNCHOSEN = Mix(0.75, 0.0, 0.06)  # where there is no validation


def mixture(done: Mapping[str, Tensor], mix: Mix, members: int, counts: Tensor) -> Tensor:
    """Share classifier + (1 - share) text + weight centroid, member beside member; [N, D].

    Vectors of length 1 cannot say how often a candidate is chosen: with n its ``counts`` [N], one
    more column adds popularity_weight log(1 + n) to its scores. With a weight of 0 there is none.
    Candidates have twice that and queries a half: an index whose recall is measured with candidates
    as queries would otherwise see nothing of the column, and find too little.
    """
    share, weight, popularity = mix
    vectors = torch.cat(
        [
            share * done[f"{number}.refined"]
            + (1 - share) * done[f"{number}.texts"]
            + weight * done[f"{number}.centroids"]
            for number in range(members)
        ],
        dim=1,
    ).div_(members)
    return with_column(vectors, popularity, popularity / OF_QUERIES * counts.to(vectors).log1p())


def with_column(vectors: Tensor, popularity_weight: float, values: Tensor) -> Tensor:
    """The vectors, and ``values`` [n] or [1] as one more column if popularity counts."""
    if popularity_weight == 0:
        return vectors
    return torch.cat([vectors, values[:, None].expand(len(vectors), 1)], dim=1)


def mixed(
    name: str, config: SiameseConfig, done: Mapping[str, Tensor], parts: Parts, run: Run
) -> Model:
    """The model, with the mix that validation prefers."""
    mix, mixes = chosen_mix(done, config, parts, run)
    encoders = {key: tensor.half() for key, tensor in done.items() if key.endswith(ENCODER)}
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


def chosen_mix(
    done: Mapping[str, Tensor], config: SiameseConfig, parts: Parts, run: Run
) -> tuple[Mix, list[dict[str, float]]]:
    """The mix that validation prefers, and what was tried.

    Shares and weights are tried together, at a middling weight of popularity, then this weight
    alone: a fifth more of them than without it, where all together would be five times as many.
    What is given stays.
    """
    given = {name: getattr(config, name) for name in Mix._fields}
    mix = UNCHOSEN._replace(**{name: v for name, v in given.items() if v is not None})
    scores: dict[Mix, float] = {}
    if run.judge is not None and None in given.values():
        shares = CLASSIFIER_SHARES if config.classifier_share is None else mix[:1]
        weights = CENTROID_WEIGHTS if config.centroid_weight is None else mix[1:2]
        popularities = POPULARITY_WEIGHTS if config.popularity_weight is None else mix[2:]
        first = [Mix(*pair, mix.popularity_weight) for pair in product(shares, weights)]
        scores = score_mixes(first, done, config, parts, run)
        mix = max(scores, key=scores.__getitem__)
        then = [mix._replace(popularity_weight=weight) for weight in popularities]
        if more := [other for other in then if other not in scores]:
            scores |= score_mixes(more, done, config, parts, run)
        mix = max(scores, key=scores.__getitem__)
    return mix, [{**tried._asdict(), "score": score} for tried, score in scores.items()]


def score_mixes(
    choices: list[Mix], done: Mapping[str, Tensor], config: SiameseConfig, parts: Parts, run: Run
) -> dict[Mix, float]:
    """The mean of the metric over (the first of) the validation queries, for each mix.

    As a search of ``mixture`` would have it, but exact, and all mixes share three products: an
    index for each would take longer to build, and differ in what it misses.
    """
    assert run.judge is not None
    judge, comm, n = run.judge, parts.comm, parts.label_shard.size
    queries = first_of_all(judge.queries, CHOOSING, comm)
    bags = parts.documents.select(queries.to(parts.idf.device))
    vectors = encode(encoders_of(done, config), bags)
    popularity = torch.log1p(parts.own_counts.to(vectors))
    room = min(run.memory_budget // 4, PRODUCT_BYTES)  # three at a time, and mixes of them
    block = max(1, room // (4 * -(-n // comm.size)))
    values: list[list[Tensor]] = [[] for _ in choices]
    for asked in of_all_queries(vectors, judge.hidden(queries), block, parts):
        scores = part_scores(done, asked.vectors)
        found = best_of_mixes(choices, scores, popularity, judge.depth, asked.hidden)
        results = best_of_all(found, judge.depth, parts)
        for some, ids in zip(values, results, strict=True):
            some.append(judge.values(queries[asked.own], ids[asked.here].cpu()))
    every = [comm.gather(torch.cat(some)) for some in values]
    return dict(zip(choices, (float(one.double().mean()) for one in every), strict=True))


def best_of_mixes(
    choices: list[Mix], scores: list[Tensor], popularity: Tensor, k: int, hidden: Interactions
) -> list[TopK]:
    """The k best candidates by each mix of the scores of ``MIXED`` [B, N]; [B, k] each."""
    n_queries, n = scores[0].shape
    rows = max(1, BLOCK_BYTES // (4 * max(1, n)))
    found: list[list[TopK]] = [[] for _ in choices]
    for start in range(0, n_queries, rows):
        stop = min(start + rows, n_queries)
        refined, texts, middles = (part[start:stop] for part in scores)
        unwanted = hidden.part(start, stop)
        for (share, weight, popular), some in zip(choices, found, strict=True):
            mixed = torch.lerp(texts, refined, share).add_(middles, alpha=weight)
            some.append(best(mixed.add_(popularity, alpha=popular), k, unwanted))
    return [TopK(*map(torch.cat, zip(*some, strict=True))) for some in found]


def part_scores(done: Mapping[str, Tensor], vectors: Tensor) -> list[Tensor]:
    """Inner products with each of the candidates' vectors, averaged over members; [B, N] each."""
    each = vectors.split(done["0.texts"].shape[1], dim=1)
    return [
        sum(part @ done[f"{number}.{name}"].T for number, part in enumerate(each)) / len(each)
        for name in MIXED
    ]


def encode_texts(model: Model, texts: Texts, side: Side) -> Tensor:
    """Vectors of texts, as a model has them; a new candidate is what its text says.

    Nobody has chosen it yet: its popularity is log(1 + 0).
    """
    config = SiameseConfig(**model.config)
    idf, pairs = model.tensors["rarity"], model.tensors["pairs"]
    given = with_pairs(texts.to(idf.device), pairs, len(idf) - len(pairs))
    vectors = encode(encoders_of(model.tensors, config), weigh(given, idf))
    popularity = config.popularity_weight or 0.0  # a model may be older than this setting
    if side == "query":
        return with_column(vectors, popularity, vectors.new_full((1,), OF_QUERIES))
    assert config.centroid_weight is not None
    vectors = vectors * ((1 + config.centroid_weight) / config.members)
    return with_column(vectors, popularity, vectors.new_zeros(1))


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
    residual: bool = True
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
        selects_itself=True,
        divides=True,
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
