"""A linear classifier over words for each candidate; it reranks shortlists of ``text-neighbours``.

One-vs-all with sparse weights: a candidate has a weight for each word of the queries that chose it.
It learns to separate these queries from near misses and from random ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import log
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.config import setting
from rankfold.kernels.topk import top_k_of
from rankfold.methods.text import neighbours as nearby
from rankfold.methods.text.neighbours import TextIndex
from rankfold.samplers.known_positives import hits
from rankfold.training.loop import PAUSE_SECONDS, seed_of
from rankfold.types import (
    Dataset,
    Exclude,
    Interactions,
    Judge,
    Model,
    Opened,
    Range,
    Run,
    Step,
    Texts,
    TopK,
)

_ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
_DEFAULT_ALPHA = 0.5  # without validation
_ADAGRAD_EPSILON = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(nearby.Config):
    """The settings of the shortlist, as in text-neighbours, and of the classifiers."""

    shortlist: int = setting(100, at_least=1, help="candidates per query that classifiers score")
    alpha: float | None = setting(
        None,
        at_least=0,
        below=1,
        help="weight of the classifiers; none: chosen on validation, else .5",
    )
    negatives: int = setting(20, at_least=1, help="near misses per query and epoch to learn from")
    random_negatives: int = setting(5, at_least=0, help="random candidates per query and epoch")
    reg: float = setting(1e-4, at_least=0, help="penalty on squared weights; usually below .01")
    lr: float = setting(0.5, above=0, help="learning rate of AdaGrad, usually .1 to 1")
    epochs: int = setting(10, at_least=1, help="passes over the training queries, at most")
    batch_size: int = setting(256, at_least=1, help="queries per batch")


class SparseWeights(NamedTuple):
    """The weights of N candidates, each on some of V words."""

    keys: Tensor  # [nnz] int64 ascending: candidate * V + word
    values: Tensor  # [nnz]
    bias: Tensor  # [N]
    n_words: int


class SharedWords(NamedTuple):
    """The words of pairs (query, candidate) on which the candidate has a weight."""

    pairs: Tensor  # [e], ascending
    places: Tensor  # [e], of the weights
    values: Tensor  # [e], of the words in the query's bag


class Shortlist(NamedTuple):
    """The first candidates of some queries by ``text-neighbours``, best first."""

    best: TopK  # [B, K]
    blank: Tensor  # [B], answered by popularity


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Make the shortlists of the training queries, then learn from them, epoch after epoch."""
    index = nearby.build_index(data, run.device, bigrams=config.bigrams)
    weight = nearby.choose_label_weight(index, config, data, run)
    config = replace(config, label_weight=weight)
    learner = Learner(index, data.seen("validation").to(run.device), config, run)
    if run.resume is not None:
        learner.load(run.resume)
    for _ in learner.find_near_misses():
        yield learner.pause()
    open_choice = config.alpha is None and run.judge is not None
    choice = AlphaChoice(index, config, data, run) if open_choice else None
    while learner.epoch < config.epochs:
        loss = learner.learn_epoch()
        alpha = choice.best(learner.weights) if choice is not None else config.alpha
        settings = replace(config, alpha=_DEFAULT_ALPHA if alpha is None else alpha)
        model = Model("text-linear", asdict(settings), learner.tensors())
        final = learner.epoch == config.epochs
        yield Step(learner.epoch, loss, model, learner.state, final, learner.share)


def _open_model(model: Model) -> Opened:
    index = nearby.from_tensors(model.tensors)
    keys, values, bias = (model.tensors[name] for name in ("weight_keys", "weights", "bias"))
    weights = SparseWeights(keys, values, bias, len(index.idf))
    return Opened(search_texts=partial(search, index, weights, Config(**model.config)))


def search(
    index: TextIndex,
    weights: SparseWeights,
    config: Config,
    texts: Texts,
    k: int,
    exclude: Interactions | None,
) -> TopK:
    """The k candidates with the largest scores.

    With near(x, y) the score of ``text-neighbours``, w_y and b_y the weights of a candidate, x the
    tf-idf bag of the text, and L its shortlist: the first candidates with near > 0 that are not
    excluded::

        score(x, y) = (1 - alpha) near(x, y) + alpha [y in L] sigmoid(w_y . x + b_y)

    So no candidate outside of L comes before one inside. A text that shares no word with any other
    gets the most popular candidates, with their counts as scores.
    """
    alpha = config.alpha
    assert alpha is not None

    def best_of(bags: Texts, hidden: Exclude) -> TopK:
        first = _shortlisted(index, bags, config, max(k, config.shortlist), hidden)
        return mixed(first, probabilities(weights, bags, first.best, config.shortlist), alpha, k)

    bags, width = nearby.bags_of(texts, index), min(k, index.chosen.n_candidates)
    return nearby.search_blocks(bags, exclude, index.numbers, width, best_of)


METHOD = replace(
    nearby.METHOD,
    summary="a linear classifier over words for each candidate, on a shortlist of text-neighbours",
    config=Config,
    fit=fit,
    open=_open_model,
    space={**nearby.SPACE, "lr": Range(0.1, 1.5, log=True), "reg": Range(1e-6, 0.01, log=True)},
)


# ---------------------------------------------------------------------------------- scores


def _shortlisted(
    index: TextIndex, bags: Texts, config: Config, depth: int, exclude: Interactions | None
) -> Shortlist:
    """The first ``depth`` candidates of a block of queries."""
    near, similarity = nearby.score_parts(index, bags, config.neighbours)
    scores = near.add_(similarity, alpha=config.label_weight or 0.0)
    blank = nearby.fill_with_popular(scores, index)
    return Shortlist(nearby.best(scores, depth, exclude), blank)


def probabilities(weights: SparseWeights, bags: Texts, first: TopK, shortlist: int) -> Tensor:
    """sigmoid(w_y . x + b_y) for the candidates on the shortlists, 0 for the others; [B, K]."""
    listed = (first.scores > 0) & (first.ids >= 0)
    listed[:, shortlist:] = False
    rows, candidates = listed.nonzero()[:, 0], first.ids[listed]
    scores = linear(weights, candidates, _shared_words(weights, bags, rows, candidates))
    return torch.zeros_like(first.scores).masked_scatter_(listed, scores.sigmoid())


def mixed(shortlist: Shortlist, chances: Tensor, alpha: float, k: int) -> TopK:
    """The k best by both scores; ties by ascending id."""
    first, blank = shortlist
    scores = (1 - alpha) * first.scores + alpha * chances
    scores = torch.where(blank[:, None], first.scores, scores)
    return top_k_of(first.ids, scores.masked_fill(first.ids < 0, -torch.inf), k)


def linear(weights: SparseWeights, candidates: Tensor, shared: SharedWords) -> Tensor:
    """w_y . x + b_y for pairs of a bag and one of ``candidates`` [P]; [P]."""
    terms = shared.values * weights.values[shared.places]
    return weights.bias[candidates].index_add(0, shared.pairs, terms)


def _shared_words(
    weights: SparseWeights, bags: Texts, rows: Tensor, candidates: Tensor
) -> SharedWords:
    """The words of bags ``rows`` [P] that have a weight of ``candidates`` [P]."""
    spread = bags.select(rows)
    assert spread.weights is not None
    pairs = torch.repeat_interleave(spread.counts())
    keys = candidates[pairs] * weights.n_words + spread.tokens
    if len(weights.keys) == 0:
        return SharedWords(pairs[:0], pairs[:0], spread.weights[:0])
    places = torch.searchsorted(weights.keys, keys).clamp_(max=len(weights.keys) - 1)
    here = (weights.keys[places] == keys).nonzero()[:, 0]
    return SharedWords(pairs[here], places[here], spread.weights[here])


class AlphaChoice:
    """The validation queries with their shortlists, to choose alpha after each epoch."""

    def __init__(self, index: TextIndex, config: Config, data: Dataset, run: Run) -> None:
        assert run.judge is not None
        self.judge: Judge = run.judge
        self.shortlist = config.shortlist
        texts = nearby.query_texts(data, self.judge.queries, run.device)
        bags = nearby.bags_of(texts, index)
        depth = max(self.judge.depth, config.shortlist)
        self.blocks = []
        for start, stop in nearby.query_blocks(len(bags), index.numbers, run.memory_budget):
            queries, block = self.judge.queries[start:stop], bags.part(start, stop)
            first = _shortlisted(index, block, config, depth, self.judge.hidden(queries))
            self.blocks.append((queries, block, first))

    def best(self, weights: SparseWeights) -> float:
        """The alpha with the largest mean metric; ties: the smallest."""
        totals = torch.zeros(len(_ALPHAS), dtype=torch.float64)
        for queries, bags, first in self.blocks:
            chances = probabilities(weights, bags, first.best, self.shortlist)
            for place, alpha in enumerate(_ALPHAS):
                ids = mixed(first, chances, alpha, self.judge.depth).ids
                totals[place] += self.judge.values(queries, ids).double().sum()
        return _ALPHAS[int(totals.argmax())]


# ---------------------------------------------------------------------------------- learning


class Learner:
    """The state of training. The draws of an epoch follow from its number."""

    def __init__(self, index: TextIndex, hidden: Interactions, config: Config, run: Run) -> None:
        """``hidden`` pairs are never negatives: those of train, and excluded ones."""
        self.index, self.hidden, self.config, self.run = index, hidden, config, run
        rows = index.queries.transpose()
        self.bags = Texts(rows.offsets, rows.candidates, rows.grades)
        self.queries = index.chosen.counts().nonzero().flatten()  # those with pairs
        n_words = len(index.idf)
        spread = self.bags.select(index.chosen.query_of_pair().long())
        owners = torch.repeat_interleave(index.chosen.candidates.long(), spread.counts())
        keys = (owners * n_words + spread.tokens).unique()  # words of each candidate's queries
        bias = torch.full((index.chosen.n_candidates,), self.log_odds, device=run.device)
        self.weights = SparseWeights(keys, torch.zeros_like(keys, dtype=bias.dtype), bias, n_words)
        self.squares = torch.zeros_like(self.weights.values), torch.zeros_like(bias)
        shape = index.chosen.n_queries, min(config.negatives, index.chosen.n_candidates)
        self.near_misses = torch.full(shape, -1, dtype=torch.int32, device=run.device)
        self.done = 0  # queries whose near misses are known
        self.epoch = 0  # epochs done

    @property
    def log_odds(self) -> float:
        """log(positives / negatives), the initial value of every bias."""
        drawn = self.config.negatives + self.config.random_negatives
        return log(max(1, self.index.chosen.n_pairs) / (drawn * max(1, len(self.queries))))

    @property
    def share(self) -> float:
        """The share of the work that is done; near misses count as an epoch."""
        return (self.done / max(1, len(self.queries)) + self.epoch) / (1 + self.config.epochs)

    def find_near_misses(self) -> Iterator[None]:
        """The highest negatives by ``text-neighbours``; yields every second or so."""
        began, first = perf_counter(), self.done
        left = len(self.queries) - first
        for start, stop in nearby.query_blocks(left, self.index.numbers, self.run.memory_budget):
            rows = self.queries[first + start : first + stop]
            depth, own = self.near_misses.shape[1], self.hidden.select(rows)
            near, blank = _shortlisted(self.index, self.bags.select(rows), self.config, depth, own)
            useful = (near.scores > 0) & ~blank[:, None]
            self.near_misses[rows] = near.ids.where(useful, -1).int()
            self.done = first + stop
            if perf_counter() - began > PAUSE_SECONDS and stop < left:
                yield
                began = perf_counter()

    def learn_epoch(self) -> float:
        """Every training query once; the mean loss of its pairs."""
        seed = seed_of(self.run, f"epoch {self.epoch}")
        rng = torch.Generator(self.run.device).manual_seed(seed)
        order = self.queries[torch.randperm(len(self.queries), generator=rng, device=rng.device)]
        total, count = 0.0, 0
        for queries in order.split(self.config.batch_size):
            rows, candidates, targets = self.batch(queries, rng)
            total += self.learn(queries[rows], candidates, targets)
            count += len(rows)
        self.epoch += 1
        return total / max(1, count)

    def batch(self, queries: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of a batch: place of the query, candidate, and whether it was chosen."""
        own = self.index.chosen.select(queries)
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
        """A step of AdaGrad on some pairs; returns their loss.

        With s = w_y . x + b_y, t the target, and W the weights on words of these pairs::

            loss = sum_pairs ( log(1 + exp s) - t s ) + reg / 2 sum_{w in W} w^2
        """
        shared = _shared_words(self.weights, self.bags, queries, candidates)
        scores = linear(self.weights, candidates, shared)
        errors = scores.sigmoid() - targets  # the gradient by s
        places, inverse = shared.places.unique(return_inverse=True)
        values = self.weights.values
        gradient = self.config.reg * values[places]
        gradient.index_add_(0, inverse, errors[shared.pairs] * shared.values)
        self.step(values, self.squares[0], places, gradient)
        places, inverse = candidates.unique(return_inverse=True)
        gradient = errors.new_zeros(len(places)).index_add_(0, inverse, errors)
        self.step(self.weights.bias, self.squares[1], places, gradient)
        return float((softplus(scores) - targets * scores).sum())

    def step(self, values: Tensor, squares: Tensor, places: Tensor, gradient: Tensor) -> None:
        """AdaGrad at some places: w -= lr g / sqrt(sum of all g^2 so far)."""
        squares[places] += gradient.square()
        values[places] -= self.config.lr * gradient / (squares[places].sqrt() + _ADAGRAD_EPSILON)

    def pause(self) -> Step:
        """A step before the end of the first epoch, from which a run can be resumed."""
        return Step(1, 0.0, None, self.state, False, self.share, whole=False)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a model at this point."""
        return {
            **nearby.to_tensors(self.index),
            "weight_keys": self.weights.keys,
            "weights": self.weights.values.clone(),
            "bias": self.weights.bias.clone(),
        }

    def state(self) -> dict[str, Tensor]:
        """The state from which ``load`` resumes the same run."""
        numbers = {"done": torch.tensor(self.done), "epoch": torch.tensor(self.epoch)}
        return numbers | {
            "near_misses": self.near_misses,
            "weights": self.weights.values,
            "bias": self.weights.bias,
            "weight_squares": self.squares[0],
            "bias_squares": self.squares[1],
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])  # the numbers are copies
        self.done, self.epoch = int(state["done"]), int(state["epoch"])
