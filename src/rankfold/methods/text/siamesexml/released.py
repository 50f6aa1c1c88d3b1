"""SiameseXML as its authors released it, which is not as the paper [siamesexml] has it.

Texts have vectors f = gelu(E x), normalised only in cosines. The modules are

    I    the encoder: candidates, and candidates with one of their documents, against documents
    II   shortlists: by centroids, by candidates' texts that a random walk has smoothed, by
         the candidates of near training documents
    III  a vector w for each candidate, and a residual of the documents
    IV   all of it

A score is no inner product, so the method searches by itself: shortlists, then a mix on them.

Departs from the release: search compares with everything; rows of the walk's matrix are divided by
their sums (there also columns, both by roots); one schedule for all modules; a document's loss is
the mean over its positives, as in ``likelihood_loss``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import exp, log
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from rankfold.encoders.bags import Bags, unit, weigh, with_pairs
from rankfold.kernels.sparse import row_sums
from rankfold.kernels.topk import merge_top_k, top_k
from rankfold.losses.likelihood import likelihood_loss
from rankfold.methods.text.neighbours import best
from rankfold.methods.text.siamesexml.config import ModulesConfig
from rankfold.methods.text.siamesexml.fit import (
    by_stages,
    last_step,
    notes_of,
    prepare,
    start_tokens,
)
from rankfold.methods.text.siamesexml.mining import centroids
from rankfold.methods.text.siamesexml.modules import (
    Stage,
    against_shortlists,
    batch_size,
    encoder_loss,
    hardest_of,
    one_of,
    stage_task,
    training,
)
from rankfold.methods.text.siamesexml.training_data import Parts, encoded
from rankfold.samplers.known_positives import hits
from rankfold.samplers.resampling import draw
from rankfold.training.batches import QueryBatches, Rows
from rankfold.training.loop import Task, Training, seed_of
from rankfold.types import (
    Dataset,
    Index,
    Interactions,
    Method,
    Model,
    Run,
    Step,
    Texts,
    TopK,
    from_pairs,
)

FREQUENCY = 0.45  # the power of a candidate's frequency that it is drawn by
LABEL_LOSS = 0.7  # the share of candidates in the loss of module I; with a document, the rest
STEPS, RESTART, KEPT = 400, 0.8, 10  # of a random walk, and what is kept of it
NEIGHBOUR_WEIGHT = 0.025
LEARNT = {"c": 0.75, "d": 3.0}  # the likelihood of module III
LEAST = 0.05  # a smaller loss of a negative counts as 0
DROPPED = 0.5  # of the residual
SHARPNESS = 5.0  # of a classifier's score
BETAS = (0.75, 0.9, 0.95)
BETA = 0.9  # where there is no validation
WALKS = 2**13  # at a time
KNOWN = 2**16  # training documents that are compared at a time
QUERIES = 256  # likewise, at most
BLOCK_BYTES = 2**26  # of their scores, likewise
PAIRS = 2**16  # of vectors that are multiplied at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ModulesConfig):
    """As in the release; what it leaves open is marked."""

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
    neighbours: int = 300  # training documents whose candidates join a shortlist
    beta: float | None = None  # the share of the classifiers in the mix; None: on validation


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """All stages, then the choice of beta."""
    assert run.build_index is not None
    parts, build_index = prepare(data, config, run), run.build_index
    rng = torch.Generator(run.device).manual_seed(seed_of(run, "walk"))
    walk = walked(parts.rows, STEPS, KEPT, rng)
    done = yield from by_stages(
        config,
        run,
        start=lambda member: start(parts, config, run, member),
        task=lambda module, stage: task_of(module, stage, parts, walk, config, build_index),
        training=released_training,
        exported=lambda module: exported(module, parts, walk),
    )
    began = perf_counter()
    model = chosen_model(config, done, parts, run)
    yield last_step(config, model, done, perf_counter() - began)


def start(parts: Parts, config: Config, run: Run, member: int) -> Released:
    rng = torch.Generator().manual_seed(seed_of(run, f"vectors of member {member}"))
    encoder = Bags(start_tokens(parts, config, rng), residual=False, rng=rng)
    return Released(encoder, parts.rows.n_candidates, rng).to(run.device)


def released_training(stage: Stage, config: Config) -> Training:
    return replace(training(stage, config), optimiser="sparse-adam", schedule="milestones")


def task_of(
    module: Released,
    stage: Stage,
    parts: Parts,
    walk: Interactions,
    config: Config,
    build_index: Callable[[Tensor], Index],
) -> Task:
    """What a stage trains, on what."""
    if stage.name == "encoder":
        return both_ways(module, parts, config)
    if stage.name == "classifiers" or config.classifier_epochs == 0:
        with torch.no_grad():
            module.classifiers.weight.copy_(smoothed(module, parts, walk))

    def mine() -> Tensor:
        return shortlists(space_of(module, parts, walk), parts, config, build_index)

    def scores(batch: Rows, known: Tensor, rng: torch.Generator) -> Tensor:
        with torch.set_grad_enabled(stage.name == "joint"):
            vectors = module.features(parts.documents.select(batch.queries))
        return module.documents(vectors, rng) @ unit(module.classifiers(known)).T

    batches = QueryBatches(parts.rows, batch_size(stage, config))
    return against_shortlists(module, batches, parts, config, mine, scores, classifier_loss)


class Released(nn.Module):
    """What is trained: the encoder of both sides, the candidates' vectors, the residual."""

    direction: Tensor

    def __init__(self, encoder: Bags, n_candidates: int, rng: torch.Generator) -> None:
        super().__init__()
        width = encoder.tokens.embedding_dim
        self.encoder = encoder
        zeros = torch.zeros(n_candidates, width)
        self.classifiers = nn.Embedding(n_candidates, width, sparse=True, _weight=zeros)
        self.mixing = nn.Parameter(torch.eye(width))
        self.radius = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("direction", unit(torch.randn(width, generator=rng)))

    def features(self, bags: Texts) -> Tensor:
        """The vectors gelu(E x), of any length; [n, D]."""
        return gelu(self.encoder.sums(bags))

    def documents(self, features: Tensor, rng: torch.Generator) -> Tensor:
        """normalise(f + dropout(relu(radius SN(W) f + b))), in training; [n, D]."""
        with torch.no_grad():  # a step of the power method
            self.direction.copy_(unit(self.mixing @ (self.mixing.T @ self.direction)))
        kept = torch.rand(features.shape, generator=rng, device=rng.device) >= DROPPED
        return residual(features, self.scaled(), self.bias, kept / (1 - DROPPED))

    def scaled(self) -> Tensor:
        """Radius SN(W): W divided by its largest singular value, |W^T u| with u its direction."""
        scaled: Tensor = self.radius * self.mixing / (self.mixing.T @ self.direction).norm()
        return scaled


def residual(features: Tensor, mixing: Tensor, bias: Tensor, kept: Tensor | None = None) -> Tensor:
    """normalise(f + kept relu(W f + b)); [n, D]."""
    more = (features @ mixing.T + bias).relu()
    return unit(features + (more if kept is None else kept * more))


# ---------------------------------------------------------------------------------- module I


def both_ways(module: Released, parts: Parts, config: Config) -> Task:
    """Candidates against documents of the batch, and documents against candidates with one more.

    With f_l, f_d, f_e vectors of a candidate and two of its documents, L the likelihood loss with
    the hardest negatives of the batch::

        loss = .7 L(f_l, f_d) + .3 L(f_d, f_l + f_e)
    """
    of_labels = parts.rows.transpose()

    def losses(batch: Rows, rng: torch.Generator) -> Tensor:
        own, other = (one_of(of_labels, batch.queries, rng) for _ in range(2))
        labels = module.features(parts.labels.select(batch.queries))
        documents, others = (module.features(parts.documents.select(d)) for d in (own, other))
        positive = hits(of_labels, batch.queries, own)
        valid = torch.ones_like(positive)
        if parts.excluded is not None:
            valid = ~hits(parts.excluded, own, batch.queries).T
        first = (unit(labels) @ unit(documents).T).float()
        second = (unit(documents) @ unit(labels + others).T).float()
        return LABEL_LOSS * hardest_loss(first, positive, valid, config.hardest) + (
            1 - LABEL_LOSS
        ) * hardest_loss(second, positive.T, valid.T, config.hardest)

    return stage_task(module, ByFrequency(of_labels, config.batch_size), losses)


def hardest_loss(scores: Tensor, positive: Tensor, valid: Tensor, count: int) -> Tensor:
    """The likelihood loss of the positives and the ``count`` negatives of the largest scores."""
    rivals = scores.detach().masked_fill(positive | ~valid, -torch.inf)
    return encoder_loss(scores, positive, (positive & valid) | hardest_of(rivals, count))


class ByFrequency:
    """As many rows in an epoch as are not empty, drawn by their sizes to the power of .45."""

    def __init__(self, rows: Interactions, batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.weights = rows.counts().double().pow(FREQUENCY)  # 0 for those that are empty
        self.count = int((self.weights > 0).sum())

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        return draw(self.weights, self.count, rng)

    def take(self, order: Tensor, number: int) -> Rows:
        queries = order[number * self.batch_size : (number + 1) * self.batch_size]
        return Rows(queries, self.rows.select(queries))


# ---------------------------------------------------------------------------------- module II


def walked(rows: Interactions, steps: int, kept: int, rng: torch.Generator) -> Interactions:
    """The candidates that a random walk from each one meets most often; [N, N], rows sum to 1.

    A step goes back to the first candidate, with probability .8, then to one of the documents of
    where it is, then to one of the candidates of that. A candidate without documents stays alone.
    """
    of_labels, n = rows.transpose(), rows.n_candidates
    busy = of_labels.counts() > 0
    found = [most_met(alone[:, None], alone, n, 1) for alone in [(~busy).nonzero().flatten()]]
    for first in busy.nonzero().flatten().split(WALKS):
        places, met = first, []
        for _ in range(steps):
            back = torch.rand(len(first), generator=rng, device=rng.device) < RESTART
            places = torch.where(back, first, places)
            places = one_of(rows, one_of(of_labels, places, rng), rng)
            met.append(places)
        found.append(most_met(torch.stack(met, dim=1), first, n, kept))
    keys, counts = (torch.cat(column) for column in zip(*found, strict=True))
    order = keys.argsort()
    keys, weights = keys[order], counts[order].float()
    sums = weights.new_zeros(n).index_add_(0, keys // n, weights)
    return from_pairs(keys // n, keys % n, weights / sums[keys // n], (n, n))


def most_met(met: Tensor, first: Tensor, n: int, kept: int) -> tuple[Tensor, Tensor]:
    """The ``kept`` most frequent of each row of ``met`` [B, steps], of equal ones the lower.

    As keys, first n + candidate, and how often each was met.
    """
    keys, counts = (first[:, None] * n + met).unique(return_counts=True)
    owners = keys // n
    order = ((owners + 1) * (met.shape[1] + 1) - counts).argsort(stable=True)
    place = torch.arange(len(keys), device=keys.device) - torch.searchsorted(owners, owners)
    best = order[place < kept]
    return keys[best], counts[best]


@torch.no_grad()
def smoothed(module: Released, parts: Parts, walk: Interactions) -> Tensor:
    """The candidates' vectors, each a mean over what its walk met; [N, D]."""
    return row_sums(walk, encoded(module.features, parts.labels), walk.grades)


class Space(NamedTuple):
    """What the vector of a document is compared with for its shortlist."""

    near: Tensor  # [N, D], the sum of a candidate's centroid and its smoothed vector, each 1 long
    known: Tensor  # [n, D], the training documents that have candidates, of length 1


@torch.no_grad()
def space_of(module: Released, parts: Parts, walk: Interactions) -> Space:
    texts = unit(smoothed(module, parts, walk))
    near = texts + centroids(module.features, parts, texts)
    return Space(near, unit(encoded(module.features, parts.documents.select(asking(parts)))))


def asking(parts: Parts) -> Tensor:
    """The training documents that have candidates."""
    return (parts.rows.counts() > 0).nonzero().flatten()


def near_scores(vectors: Tensor, space: Space, chosen: Interactions, neighbours: int) -> Tensor:
    """.975 (cosine with centroid + with text) + .025 sum of cosines with neighbours; [B, N].

    A candidate's neighbours are those of the ``neighbours`` nearest training documents that have
    it. Row i of ``chosen`` belongs to ``space.known[i]``, ``vectors`` [B, D] have length 1.
    """
    scores = (1 - NEIGHBOUR_WEIGHT) * (vectors @ space.near.T)
    nearest = nearest_of(vectors, space.known, neighbours)
    rows, n = chosen.select(nearest.ids.flatten()), scores.shape[1]
    block = torch.arange(len(vectors), device=vectors.device)[:, None].expand_as(nearest.ids)
    places = torch.repeat_interleave(block.flatten() * n, rows.counts()) + rows.candidates
    shares = torch.repeat_interleave(nearest.scores.flatten(), rows.counts())
    return scores.view(-1).index_add_(0, places, shares, alpha=NEIGHBOUR_WEIGHT).view(-1, n)


def nearest_of(vectors: Tensor, known: Tensor, count: int) -> TopK:
    """The ``count`` rows of ``known`` with the largest inner products, in blocks of them."""
    found = TopK(torch.zeros(len(vectors), 0, dtype=torch.int64), torch.zeros(len(vectors), 0))
    found = TopK(*(part.to(vectors.device) for part in found))
    for start in range(0, len(known), KNOWN):
        block = known[start : start + KNOWN].to(vectors.dtype)
        best = top_k(vectors @ block.T, count)
        found = merge_top_k(found, TopK(best.ids + start, best.scores), count)
    return found


@torch.no_grad()
def shortlists(
    space: Space, parts: Parts, config: Config, build_index: Callable[[Tensor], Index]
) -> Tensor:
    """The best by ``near_scores`` for training documents that have candidates, without these.

    From indices, of candidates and of documents: those with the best scores are among the nearest
    candidates and the candidates of the nearest documents. [docs, size], -1 where there are fewer.
    """
    queries = asking(parts)
    chosen, found = parts.rows.select(queries), []
    near, known = build_index(space.near), build_index(space.known)
    size = min(config.shortlist, len(space.near))
    for start, stop in blocks(len(queries), 32 * (size + config.neighbours)):
        vectors, own = space.known[start:stop], chosen.part(start, stop)
        listed = near.search(vectors, size, own)
        nearest = known.search(vectors, config.neighbours)
        found.append(best_of_both(vectors, listed, nearest, space.near, chosen, own).int())
    return torch.cat(found)


def best_of_both(
    vectors: Tensor,
    listed: TopK,
    nearest: TopK,
    near: Tensor,
    chosen: Interactions,
    own: Interactions,
) -> Tensor:
    """The best by ``near_scores`` among both, but a document's own; [B, size].

    Args:
        vectors: of documents, [B, D].
        listed: the nearest candidates, [B, size].
        nearest: the nearest documents, rows of ``chosen``.
        near: vectors of all candidates, [N, D].
        chosen: candidates of the known documents.
        own: those of the B documents.
    """
    n, rows = len(near), torch.arange(len(vectors), device=vectors.device)[:, None]
    theirs = chosen.select(nearest.ids.clamp(min=0).flatten())
    asked = torch.repeat_interleave(rows.expand_as(nearest.ids).flatten(), theirs.counts())
    shares = nearest.scores.where(nearest.ids >= 0, 0.0).flatten()
    shares = torch.repeat_interleave(shares, theirs.counts())
    there = listed.ids >= 0
    first = (rows * n + listed.ids)[there]
    keys, places = torch.cat([first, asked * n + theirs.candidates]).unique(return_inverse=True)
    products = vectors.new_full(keys.shape, torch.nan)
    products[places[: len(first)]] = listed.scores[there].to(products)
    others = products.isnan().nonzero().flatten()
    for some in others.split(PAIRS):
        a, b = vectors[keys[some] // n], near[keys[some] % n]
        products[some] = torch.einsum("pd,pd->p", a, b)
    scores = (1 - NEIGHBOUR_WEIGHT) * products
    scores.index_add_(0, places[len(first) :], shares.to(scores), alpha=NEIGHBOUR_WEIGHT)
    taken = torch.isin(keys, own.query_of_pair().long() * n + own.candidates)
    keys, scores = keys[~taken], scores[~taken]
    order = scores.argsort(descending=True, stable=True)
    order = order[(keys[order] // n).argsort(stable=True)]
    keys = keys[order]
    owners = keys // n
    place = torch.arange(len(keys), device=keys.device) - torch.searchsorted(owners, owners)
    found = torch.full_like(listed.ids, -1)
    kept = place < found.shape[1]
    found[owners[kept], place[kept]] = keys[kept] % n
    return found


def blocks(n_queries: int, numbers: int) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks of queries that take no more than the budget, or of one.

    ``numbers`` are how many a query takes: scores, and the vectors of its shortlist.
    """
    step = max(1, min(QUERIES, BLOCK_BYTES // (4 * numbers)))
    return ((start, min(start + step, n_queries)) for start in range(0, n_queries, step))


# ---------------------------------------------------------------------------------- module III


def classifier_loss(scores: Tensor, positive: Tensor, valid: Tensor) -> Tensor:
    """The likelihood loss over d, without negatives whose loss would be less than .05.

    These are the ones of a cosine v with -log(1 - c e^{d(v-1)}) / d < .05.
    """
    c, d = LEARNT["c"], LEARNT["d"]
    close = scores >= 1 + log((1 - exp(-d * LEAST)) / c) / d
    return likelihood_loss(scores, positive, valid & (positive | close), c=c, d=d) / d


# ---------------------------------------------------------------------------------- search


class Member(NamedTuple):
    """A member as it answers."""

    encoder: Bags
    mixing: Tensor  # radius SN(W)
    bias: Tensor
    space: Space
    classifiers: Tensor  # [N, D], of length 1


@torch.no_grad()
def exported(module: Released, parts: Parts, walk: Interactions) -> dict[str, Tensor]:
    """All that a member leaves."""
    near, known = space_of(module, parts, walk)
    return {
        "tokens": module.encoder.tokens.weight.half(),
        "mixing": module.scaled(),
        "bias": module.bias.clone(),
        "near": near,
        "known": known.half(),
        "classifiers": unit(module.classifiers.weight),
    }


def members_of(tensors: Mapping[str, Tensor], config: Config) -> list[Member]:
    """The members again."""
    found = []
    for number in range(config.members):
        names = ("tokens", "mixing", "bias", "near", "known", "classifiers")
        tokens, mixing, bias, near, known, classifiers = (tensors[f"{number}.{n}"] for n in names)
        encoder = Bags(tokens, residual=False, rng=torch.Generator())
        found.append(Member(encoder, mixing, bias, Space(near, known), classifiers))
    return found


class Shortlist(NamedTuple):
    """Candidates of some documents, ascending, -1 where there are fewer; all [B, S]."""

    ids: Tensor
    near: Tensor  # module II's score
    learnt: Tensor  # e^{5 (v - 1)}, v the cosine with the classifier


@torch.no_grad()
def shortlist(
    members: list[Member],
    bags: Texts,
    chosen: Interactions,
    config: Config,
    k: int,
    exclude: Interactions | None,
) -> Shortlist:
    """The shortlists of weighed bags, no shorter than k; scores are means over the members."""
    features = [gelu(member.encoder.sums(bags)) for member in members]
    near = torch.stack(
        [
            near_scores(unit(vectors), member.space, chosen, config.neighbours)
            for member, vectors in zip(members, features, strict=True)
        ]
    ).mean(dim=0)
    found = best(near, max(k, config.shortlist), exclude)
    ids, order = found.ids.sort(dim=1)
    learnt = torch.zeros_like(found.scores)
    for member, vectors in zip(members, features, strict=True):
        documents = residual(vectors, member.mixing, member.bias)
        cosines = torch.einsum("bd,bsd->bs", documents, member.classifiers[ids.clamp(min=0)])
        learnt += (SHARPNESS * (cosines - 1)).exp() / len(members)
    return Shortlist(ids, found.scores.gather(1, order), learnt)


def mixed(found: Shortlist, beta: float, k: int) -> TopK:
    """The k best by beta e^{5 (v - 1)} + (1 - beta) sigmoid(near)."""
    scores = beta * found.learnt + (1 - beta) * found.near.sigmoid()
    places, scores = top_k(scores.masked_fill(found.ids < 0, -torch.inf), k)
    return TopK(found.ids.gather(1, places.clamp(min=0)).where(places >= 0, -1), scores)


def search_texts(model: Model, texts: Texts, k: int, exclude: Interactions | None) -> TopK:
    """The k candidates with the largest scores."""
    config, tensors = Config(**model.config), model.tensors
    assert config.beta is not None
    idf, pairs = tensors["rarity"], tensors["pairs"]
    bags = weigh(with_pairs(texts.to(idf.device), pairs, len(idf) - len(pairs)), idf)
    members, n = members_of(tensors, config), tensors["0.near"].shape[0]
    chosen = Interactions(tensors["known_offsets"], tensors["known_candidates"], None, n)
    none = torch.empty(0, min(k, n), device=idf.device)
    found = [TopK(none.long(), none)]
    for first, stop in blocks(len(bags), n + max(k, config.shortlist) * config.width):
        block = bags.select(torch.arange(first, stop, device=idf.device))
        hidden = None if exclude is None else exclude.part(first, stop)
        listed = shortlist(members, block, chosen, config, k, hidden)
        found.append(mixed(listed, config.beta, k))
    ids, scores = zip(*found, strict=True)
    return TopK(torch.cat(ids), torch.cat(scores))


def chosen_model(config: Config, done: Mapping[str, Tensor], parts: Parts, run: Run) -> Model:
    """The model, with the beta that validation prefers."""
    chosen = parts.rows.select(asking(parts))
    scores: list[float] = []
    beta = BETA if config.beta is None else config.beta
    if config.beta is None and run.judge is not None:
        scores = score_betas(members_of(done, config), chosen, config, parts, run)
        beta = BETAS[max(range(len(BETAS)), key=scores.__getitem__)]
    tensors = {
        **done,
        "pairs": parts.pairs,
        "rarity": parts.idf,
        "known_offsets": chosen.offsets,
        "known_candidates": chosen.candidates,
    }
    mixes = [{"beta": b, "score": score} for b, score in zip(BETAS, scores, strict=False)]
    notes = notes_of(parts, mixes)
    return Model("siamesexml-released", asdict(replace(config, beta=beta)), tensors, notes)


def score_betas(
    members: list[Member], chosen: Interactions, config: Config, parts: Parts, run: Run
) -> list[float]:
    """The mean of the metric over the validation queries, for each beta."""
    judge = run.judge
    assert judge is not None
    totals = torch.zeros(len(BETAS), dtype=torch.float64)
    numbers = chosen.n_candidates + max(judge.depth, config.shortlist) * config.width
    for start, stop in blocks(len(judge.queries), numbers):
        queries = judge.queries[start:stop]
        bags = parts.documents.select(queries.to(parts.idf.device))
        hidden = judge.hidden(queries)
        found = shortlist(members, bags, chosen, config, judge.depth, hidden)
        for place, beta in enumerate(BETAS):
            ids = mixed(found, beta, judge.depth).ids.cpu()
            totals[place] += judge.values(queries, ids).double().sum()
    return (totals / max(1, len(judge.queries))).tolist()


METHOD = Method(
    "the same as its authors released it: shortlists, then a mix on them",
    Config,
    "texts",
    fit,
    search_texts=search_texts,
    paper="siamesexml",
    self_tuning=True,
)
