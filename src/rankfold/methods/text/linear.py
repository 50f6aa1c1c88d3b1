"""A linear classifier for each candidate, over words; it reranks what ``text-neighbours`` finds.

One-vs-all with sparse weights: a candidate has a weight for each word of the queries that chose it.
It learns to tell these from queries for which it is a near miss, and from random ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import log
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.errors import UserError
from rankfold.kernels.topk import top_k
from rankfold.methods.text import neighbours as nearby
from rankfold.methods.text.neighbours import Known
from rankfold.samplers.known_positives import hits
from rankfold.training.loop import TICK, seed_of
from rankfold.types import (
    Dataset,
    Interactions,
    Judge,
    Method,
    Model,
    Range,
    Run,
    Step,
    Texts,
    TopK,
)

ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
ALPHA = 0.5  # where there is no validation to choose by
TINY = 1e-10  # keeps a first step of AdaGrad finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The shortlist, what is learnt from it, and how."""

    neighbours: int = 20  # as in text-neighbours, which makes the shortlist
    label_weight: float | None = nearby.LABEL_WEIGHT  # likewise; none: chosen on validation
    bigrams: bool = True
    shortlist: int = 100  # candidates of a query that the classifiers score
    alpha: float | None = None  # their share in the score; none: chosen on validation, else .5
    negatives: int = 20  # near misses of a query to learn from, in each epoch
    random_negatives: int = 5  # likewise, drawn from all candidates
    reg: float = 1e-4  # times half the squares of the weights that a batch touches
    lr: float = 0.5
    epochs: int = 10  # at most; validation stops earlier
    batch_size: int = 256  # queries

    def __post_init__(self) -> None:
        nearby.check(self.neighbours, self.label_weight)
        for name in ("shortlist", "negatives", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is at least 1")
        if self.random_negatives < 0:
            raise UserError(f"random_negatives is {self.random_negatives}", hint="it is 0 or more")
        if self.alpha is not None and not 0 <= self.alpha < 1:
            raise UserError(f"alpha is {self.alpha}", hint="it is 0 or more, below 1")
        if not 0 <= self.reg < float("inf"):
            raise UserError(f"reg is {self.reg}", hint="it is 0 or more, usually below .01")
        if not 0 < self.lr < float("inf"):
            raise UserError(f"lr is {self.lr}", hint="it is more than 0, usually .1 to 1")


class Weights(NamedTuple):
    """Of N candidates, each on some of V words."""

    keys: Tensor  # [nnz] int64 ascending: candidate * V + word
    values: Tensor  # [nnz]
    bias: Tensor  # [N]
    n_words: int


class Entries(NamedTuple):
    """The words of pairs (query, candidate) on which the candidate has a weight."""

    pairs: Tensor  # [e], ascending
    places: Tensor  # [e], of the weights
    values: Tensor  # [e], of the words in the query's bag


class Shortlist(NamedTuple):
    """The first candidates of some queries by ``text-neighbours``, best first."""

    found: TopK  # [B, K]
    blank: Tensor  # [B], answered by popularity


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Make the shortlists of the training queries, then learn from them, epoch after epoch."""
    began = perf_counter()
    known = nearby.index(data, run.device, bigrams=config.bigrams)
    near = nearby.Config(neighbours=config.neighbours, label_weight=config.label_weight)
    weight = nearby.choose_label_weight(known, near, data, run)
    config = replace(config, label_weight=weight)
    learner = Learner(known, data.seen("validation").to(run.device), config, run)
    if run.resume is not None:
        learner.load(run.resume)
    for _ in learner.find_near_misses():
        yield learner.pause(perf_counter() - began)
    open_choice = config.alpha is None and run.judge is not None
    choice = Choice(known, config, data, run) if open_choice else None
    while learner.epoch < config.epochs:
        loss = learner.learn_epoch()
        alpha = choice.best(learner.weights) if choice is not None else config.alpha
        kept = replace(config, alpha=ALPHA if alpha is None else alpha)
        model = Model("text-linear", asdict(kept), learner.tensors())
        seconds, final = perf_counter() - began, learner.epoch == config.epochs
        yield Step(learner.epoch, loss, seconds, model, learner.state, final, learner.share)
        began = perf_counter()


def search_texts(model: Model, texts: Texts, k: int, exclude: Interactions | None) -> TopK:
    """The k candidates with the largest scores.

    With near(x, y) the score of ``text-neighbours``, w_y and b_y the weights of a candidate, x the
    tf-idf bag of the text, and L its shortlist: the first candidates with near > 0 that are not
    excluded::

        score(x, y) = (1 - alpha) near(x, y) + alpha [y in L] sigmoid(w_y . x + b_y)

    So no candidate outside of L comes before one inside. A text that shares no word with any other
    gets the most popular candidates, their counts as scores.
    """
    known, config = nearby.from_tensors(model.tensors), Config(**model.config)
    tensors = model.tensors
    weights = Weights(tensors["weight_keys"], tensors["weights"], tensors["bias"], len(known.idf))
    assert config.alpha is not None
    bags = nearby.bags_of(texts.to(known.idf.device), known)
    depth, found = max(k, config.shortlist), []
    for start, stop in nearby.query_blocks(len(bags), known):
        block = bags.select(torch.arange(start, stop, device=known.idf.device))
        hidden = None if exclude is None else exclude.part(start, stop)
        first = shortlisted(known, block, config, depth, hidden)
        chances = probabilities(weights, block, first.found, config.shortlist)
        found.append(mixed(first, chances, config.alpha, k))
    return nearby.stacked(found, min(k, known.chosen.n_candidates), known.idf.device)


METHOD = Method(
    summary="a linear classifier over words for each candidate, on a shortlist of text-neighbours",
    config=Config,
    data_kind="texts",
    fit=fit,
    search_texts=search_texts,
    space={
        **nearby.SPACE,
        "lr": Range(0.1, 1.5, log=True),
        "reg": Range(1e-6, 0.01, log=True),
    },
)


# ---------------------------------------------------------------------------------- scores


def shortlisted(
    known: Known, bags: Texts, config: Config, depth: int, exclude: Interactions | None
) -> Shortlist:
    """The first ``depth`` candidates of a block of queries."""
    near, alike = nearby.parts(known, bags, config.neighbours)
    scores = near.add_(alike, alpha=config.label_weight or 0.0)
    blank = nearby.or_popular(scores, known)
    return Shortlist(nearby.best(scores, depth, exclude), blank)


def probabilities(weights: Weights, bags: Texts, found: TopK, shortlist: int) -> Tensor:
    """sigmoid(w_y . x + b_y) for what is on the shortlists, 0 for the rest; like ``found``."""
    listed = (found.scores > 0) & (found.ids >= 0)
    listed[:, shortlist:] = False
    rows, candidates = listed.nonzero()[:, 0], found.ids[listed]
    scores = linear(weights, candidates, entries(weights, bags, rows, candidates))
    return torch.zeros_like(found.scores).masked_scatter_(listed, scores.sigmoid())


def mixed(first: Shortlist, chances: Tensor, alpha: float, k: int) -> TopK:
    """The k best by both scores; equal ones by ascending id."""
    found, blank = first
    scores = (1 - alpha) * found.scores + alpha * chances
    scores = torch.where(blank[:, None], found.scores, scores)
    scores = scores.masked_fill(found.ids < 0, -torch.inf)
    ids, order = found.ids.sort(dim=1, stable=True)
    best = top_k(scores.gather(1, order), k)
    return TopK(ids.gather(1, best.ids.clamp(min=0)).where(best.ids >= 0, -1), best.scores)


def linear(weights: Weights, candidates: Tensor, found: Entries) -> Tensor:
    """w_y . x + b_y for pairs of a bag and one of ``candidates`` [P]; [P]."""
    terms = found.values * weights.values[found.places]
    return weights.bias[candidates].index_add(0, found.pairs, terms)


def entries(weights: Weights, bags: Texts, rows: Tensor, candidates: Tensor) -> Entries:
    """Where the words of bags ``rows`` [P] have a weight of ``candidates`` [P]."""
    spread = bags.select(rows)
    assert spread.weights is not None
    pairs = torch.repeat_interleave(spread.counts())
    keys = candidates[pairs] * weights.n_words + spread.tokens
    if len(weights.keys) == 0:
        return Entries(pairs[:0], pairs[:0], spread.weights[:0])
    places = torch.searchsorted(weights.keys, keys).clamp_(max=len(weights.keys) - 1)
    here = (weights.keys[places] == keys).nonzero()[:, 0]
    return Entries(pairs[here], places[here], spread.weights[here])


class Choice:
    """The validation queries with their shortlists, to choose alpha by after each epoch."""

    def __init__(self, known: Known, config: Config, data: Dataset, run: Run) -> None:
        assert run.judge is not None
        self.judge: Judge = run.judge
        self.shortlist = config.shortlist
        texts = nearby.asked_texts(data, self.judge.queries, run.device)
        bags = nearby.bags_of(texts, known)
        depth = max(self.judge.depth, config.shortlist)
        self.blocks = []
        for start, stop in nearby.query_blocks(len(bags), known, run.memory_budget):
            queries = self.judge.queries[start:stop]
            block = bags.select(torch.arange(start, stop, device=run.device))
            first = shortlisted(known, block, config, depth, self.judge.hidden(queries))
            self.blocks.append((queries, block, first))

    def best(self, weights: Weights) -> float:
        """The alpha with the largest mean of the metric; of equal ones the smallest."""
        totals = torch.zeros(len(ALPHAS), dtype=torch.float64)
        for queries, bags, first in self.blocks:
            chances = probabilities(weights, bags, first.found, self.shortlist)
            for place, alpha in enumerate(ALPHAS):
                ids = mixed(first, chances, alpha, self.judge.depth).ids
                totals[place] += self.judge.values(queries, ids).double().sum()
        return ALPHAS[int(totals.argmax())]


# ---------------------------------------------------------------------------------- learning


class Learner:
    """Where training stands. All that is drawn in an epoch follows from its number."""

    def __init__(self, known: Known, hidden: Interactions, config: Config, run: Run) -> None:
        """``hidden`` are pairs that are no negatives: those of train, and what is excluded."""
        self.known, self.hidden, self.config, self.run = known, hidden, config, run
        rows = known.queries.transpose()
        self.bags = Texts(rows.offsets, rows.candidates, rows.grades)
        self.asking = known.chosen.counts().nonzero().flatten()
        n_words = len(known.idf)
        keys = _pattern(known.chosen, self.bags, n_words)
        bias = torch.full((known.chosen.n_candidates,), self.odds, device=run.device)
        self.weights = Weights(keys, torch.zeros_like(keys, dtype=bias.dtype), bias, n_words)
        self.squares = torch.zeros_like(self.weights.values), torch.zeros_like(bias)
        width = min(config.negatives, known.chosen.n_candidates)
        shape = known.chosen.n_queries, width
        self.near_misses = torch.full(shape, -1, dtype=torch.int32, device=run.device)
        self.done = 0  # queries of ``asking`` whose near misses are known
        self.epoch = 0  # epochs done

    @property
    def odds(self) -> float:
        """The log of how many positives there are for a negative: where every bias starts."""
        drawn = self.config.negatives + self.config.random_negatives
        return log(max(1, self.known.chosen.n_pairs) / (drawn * max(1, len(self.asking))))

    @property
    def share(self) -> float:
        """Of the work that is done; near misses count as an epoch."""
        return (self.done / max(1, len(self.asking)) + self.epoch) / (1 + self.config.epochs)

    def find_near_misses(self) -> Iterator[None]:
        """What ``text-neighbours`` ranks highest of possible negatives; a pause now and then."""
        began, first = perf_counter(), self.done
        left = len(self.asking) - first
        for start, stop in nearby.query_blocks(left, self.known, self.run.memory_budget):
            rows = self.asking[first + start : first + stop]
            depth, own = self.near_misses.shape[1], self.hidden.select(rows)
            found, blank = shortlisted(self.known, self.bags.select(rows), self.config, depth, own)
            useful = (found.scores > 0) & ~blank[:, None]
            self.near_misses[rows] = found.ids.where(useful, -1).int()
            self.done = first + stop
            if perf_counter() - began > TICK and stop < left:
                yield
                began = perf_counter()

    def learn_epoch(self) -> float:
        """Every training query once; the mean loss of its pairs."""
        seed = seed_of(self.run, f"epoch {self.epoch}")
        rng = torch.Generator(self.run.device).manual_seed(seed)
        order = self.asking[torch.randperm(len(self.asking), generator=rng, device=rng.device)]
        total, count = 0.0, 0
        for queries in order.split(self.config.batch_size):
            rows, candidates, targets = self.batch(queries, rng)
            total += self.learn(queries[rows], candidates, targets)
            count += len(rows)
        self.epoch += 1
        return total / max(1, count)

    def batch(self, queries: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of a batch: place of the query, candidate, and whether it was chosen."""
        own = self.known.chosen.select(queries)
        shape = len(queries), self.config.random_negatives
        drawn = torch.randint(own.n_candidates, shape, generator=rng, device=rng.device)
        drawn = drawn.masked_fill(hits(self.hidden, queries, drawn), -1)
        negatives = torch.cat([self.near_misses[queries].long(), drawn], dim=1)
        usable = negatives >= 0
        rows = torch.cat([own.query_of_pair().long(), usable.nonzero()[:, 0]])
        candidates = torch.cat([own.candidates.long(), negatives[usable]])
        targets = torch.zeros(len(rows), device=rng.device)
        targets[: own.n_pairs] = 1.0
        return rows, candidates, targets

    def learn(self, queries: Tensor, candidates: Tensor, targets: Tensor) -> float:
        """A step of AdaGrad on the loss of some pairs, which is returned.

        With s = w_y . x + b_y, t the target, and W the weights on words of these pairs::

            loss = sum_pairs ( log(1 + exp s) - t s ) + reg / 2 sum_{w in W} w^2
        """
        found = entries(self.weights, self.bags, queries, candidates)
        scores = linear(self.weights, candidates, found)
        errors = scores.sigmoid() - targets  # the gradient by s
        places, inverse = found.places.unique(return_inverse=True)
        values = self.weights.values
        gradient = self.config.reg * values[places]
        gradient.index_add_(0, inverse, errors[found.pairs] * found.values)
        self.step(values, self.squares[0], places, gradient)
        places, inverse = candidates.unique(return_inverse=True)
        gradient = errors.new_zeros(len(places)).index_add_(0, inverse, errors)
        self.step(self.weights.bias, self.squares[1], places, gradient)
        return float((softplus(scores) - targets * scores).sum())

    def step(self, values: Tensor, squares: Tensor, places: Tensor, gradient: Tensor) -> None:
        """AdaGrad at some places: w -= lr g / sqrt(sum of all g^2 so far)."""
        squares[places] += gradient.square()
        values[places] -= self.config.lr * gradient / (squares[places].sqrt() + TINY)

    def pause(self, seconds: float) -> Step:
        """A place to stop at before the first epoch is over."""
        return Step(1, 0.0, seconds, None, self.state, False, self.share, whole=False)

    def tensors(self) -> dict[str, Tensor]:
        """What a model keeps, as it is now."""
        learnt = {
            "weight_keys": self.weights.keys,
            "weights": self.weights.values.clone(),
            "bias": self.weights.bias.clone(),
        }
        return {**nearby.to_tensors(self.known), **learnt}

    def state(self) -> dict[str, Tensor]:
        """All that ``load`` needs to go on as if nothing had happened."""
        return {
            "done": torch.tensor(self.done),
            "epoch": torch.tensor(self.epoch),
            "near_misses": self.near_misses,
            "weights": self.weights.values,
            "bias": self.weights.bias,
            "weight_squares": self.squares[0],
            "bias_squares": self.squares[1],
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.done, self.epoch = int(state["done"]), int(state["epoch"])
        self.near_misses.copy_(state["near_misses"])
        self.weights.values.copy_(state["weights"])
        self.weights.bias.copy_(state["bias"])
        self.squares[0].copy_(state["weight_squares"])
        self.squares[1].copy_(state["bias_squares"])


def _pattern(chosen: Interactions, bags: Texts, n_words: int) -> Tensor:
    """The keys of the weights: the words of each candidate's queries, once each, ascending."""
    spread = bags.select(chosen.query_of_pair().long())
    candidates = torch.repeat_interleave(chosen.candidates.long(), spread.counts())
    keys: Tensor = (candidates * n_words + spread.tokens).unique()
    return keys
