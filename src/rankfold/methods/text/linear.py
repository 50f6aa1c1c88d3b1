"""A linear classifier over words for each candidate that many texts chose.

One against all: a candidate has a weight for each word and learns to separate the texts that chose
it from all others. Its score is mixed with that of ``text-neighbours``, which also serves the
candidates with few texts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import product
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.config import setting
from rankfold.kernels.sparse import row_sums
from rankfold.methods.text import neighbours as nearby
from rankfold.methods.text.linear_on_shortlists import open_older
from rankfold.methods.text.neighbours import TextIndex
from rankfold.solvers.hinge import SparseRows, sparse_rows, squared_hinge
from rankfold.training.loop import PAUSE_SECONDS, seed_of
from rankfold.types import (
    Dataset,
    Exclude,
    Interactions,
    Model,
    Opened,
    Range,
    Run,
    Step,
    Texts,
    TopK,
    from_pairs,
)

_ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
_RARE_WEIGHTS = (0.0, 0.25, 0.5, 1.0)
_DEFAULT_ALPHA, _DEFAULT_RARE_WEIGHT = 0.5, 0.5  # without validation
_MOST_QUERIES = 3000  # of validation, that the mix is chosen on
_MOST_LABELS = 64  # in a block: its matrices stay in the cache
_BLOCK_NUMBERS = 2**25  # of the largest matrix of a block
_FREQUENT = 10  # texts; candidates with fewer are rare
NO_CLASSIFIER = -30.0  # bias: a chance of 0
_DRAWN = 2**9  # texts drawn for a block
_HARDEST = 10  # texts per candidate that join after the first search


class Config(nearby.Config):
    """The settings of text-neighbours, and of the classifiers."""

    label_weight: float | None = setting(
        None, at_least=0, help="weight of the candidates' texts; none: chosen on validation"
    )
    alpha: float | None = setting(
        None,
        at_least=0,
        below=1,
        help="weight of the classifiers; none: chosen on validation, else .5",
    )
    rare_weight: float | None = setting(
        None,
        at_least=0,
        help="weight of near texts for rare candidates; none: chosen on validation, else .5",
    )
    cost: float = setting(1.0, above=0, help="weight of the loss against the penalty; .3 to 10")
    least: int = setting(4, at_least=1, help="texts that a candidate with a classifier has")
    threshold: float = setting(
        0.05, at_least=0, below=1, help="smaller weights of words are left out"
    )


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Learn the classifiers, block by block; then choose their weight."""
    index = nearby.build_index(data, run.device, bigrams=config.bigrams)
    weight = nearby.choose_label_weight(index, config, data, run)
    learner = Learner(index, data.seen("validation").to(run.device), config, run)
    if run.resume is not None:
        learner.load(run.resume)
    for _ in learner.learn():
        yield Step(1, 0.0, None, learner.state, False, learner.share, whole=False)
    classifiers = learner.classifiers()
    config = replace(config, label_weight=weight)
    config = choose_mix(index, classifiers, config, data, run)
    model = Model("text-linear", asdict(config), to_tensors(index, classifiers))
    yield Step(1, 0.0, model, learner.state, final=True)


class Classifiers:
    """The weights and biases of N candidates."""

    def __init__(self, weights: Interactions, bias: Tensor, counts: Tensor) -> None:
        """``weights`` [V, N] are by word; ``bias`` and ``counts`` of texts are [N]."""
        self.weights, self.bias = weights, bias
        self.rare = (counts < _FREQUENT).to(bias.dtype)  # [N]

    def chances(self, bags: Texts) -> Tensor:
        """exp(-[1 - s]_+^3) of the margins s = w_y . x + b_y; [B, N].

        It is 1 from a margin of 1 on, and .37, .0003 at 0 and -1. The loss that classifiers
        minimise is blind beyond a margin of 1, and so is this.
        """
        margins = nearby.cosines(bags, self.weights).add_(self.bias)
        return margins.neg_().add_(1).clamp_(min=0).pow_(3).neg_().exp_()


def search(
    index: TextIndex,
    classifiers: Classifiers,
    config: Config,
    texts: Texts,
    k: int,
    exclude: Interactions | None,
) -> TopK:
    """The k candidates with the largest scores.

    With near(x, y) the score of ``text-neighbours``, w_y and b_y the weights of a candidate, and x
    the tf-idf bag of the text::

        score(x, y) = (1 - alpha) near(x, y) + alpha chance(x, y)
        chance(x, y) = exp(-[1 - w_y . x - b_y]_+^3) + [n_y < 10] rare_weight near(x, y)

    where n_y texts chose y. A candidate without a classifier lacks the first term. A text that
    shares no word with any other gets the most popular candidates, with their counts as scores.
    """
    alpha, rare_weight = config.alpha, config.rare_weight
    assert alpha is not None
    assert rare_weight is not None

    def best_of(bags: Texts, hidden: Exclude) -> TopK:
        near, blank = _near(index, bags, config)
        chances = classifiers.chances(bags).addcmul_(near, rare_weight * classifiers.rare)
        return nearby.best(_mixed(near, chances, alpha, blank), k, hidden)

    bags, width = nearby.bags_of(texts, index), min(k, index.chosen.n_candidates)
    return nearby.search_blocks(bags, exclude, _numbers(index), width, best_of)


def _near(index: TextIndex, bags: Texts, config: Config) -> tuple[Tensor, Tensor]:
    """The scores of text-neighbours [B, N], and which rows are answered by popularity [B]."""
    near, similarity = nearby.score_parts(index, bags, config.neighbours)
    scores = near.add_(similarity, alpha=config.label_weight or 0.0)
    return scores, nearby.fill_with_popular(scores, index)


def _mixed(near: Tensor, chances: Tensor, alpha: float, blank: Tensor) -> Tensor:
    return torch.where(blank[:, None], near, torch.lerp(near, chances, alpha))


def _numbers(index: TextIndex) -> int:
    """Values that the scores of a query take."""
    return index.numbers + 2 * index.chosen.n_candidates


def choose_mix(
    index: TextIndex, classifiers: Classifiers, config: Config, data: Dataset, run: Run
) -> Config:
    """The settings with both weights: the given ones, else the best on validation, else defaults.

    Of equal ones the smallest are chosen.
    """
    judge = run.judge
    default = judge is None
    alphas = (_DEFAULT_ALPHA,) if default else _ALPHAS
    weights = (_DEFAULT_RARE_WEIGHT,) if default else _RARE_WEIGHTS
    alphas = alphas if config.alpha is None else (config.alpha,)
    weights = weights if config.rare_weight is None else (config.rare_weight,)
    mixes = list(product(alphas, weights if bool(classifiers.rare.any()) else weights[:1]))
    totals = torch.zeros(len(mixes), dtype=torch.float64)
    if judge is not None and len(mixes) > 1:
        every = judge.queries[:_MOST_QUERIES]
        bags = nearby.bags_of(nearby.query_texts(data, every, run.device), index)
        for start, stop in nearby.query_blocks(len(bags), _numbers(index), run.memory_budget):
            queries, block = every[start:stop], bags.part(start, stop)
            near, blank = _near(index, block, config)
            chances = classifiers.chances(block)
            for place, (alpha, weight) in enumerate(mixes):
                others = chances.addcmul(near, weight * classifiers.rare)
                mixed = _mixed(near, others, alpha, blank)
                ids = nearby.best(mixed, judge.depth, judge.hidden(queries)).ids
                totals[place] += judge.values(queries, ids).double().sum()
    alpha, weight = mixes[int(totals.argmax())]
    return replace(config, alpha=alpha, rare_weight=weight)


# ---------------------------------------------------------------------------------- learning


class Learner:
    """The classifiers of all candidates with enough texts, the most frequent ones first."""

    def __init__(self, index: TextIndex, hidden: Interactions, config: Config, run: Run) -> None:
        """``hidden`` pairs are ignored unless they were chosen: they are excluded."""
        self.config, self.run, self.n_words = config, run, len(index.idf)
        labelled = index.chosen.counts().nonzero().flatten()
        texts = index.queries.transpose()
        self.rows = texts.select(labelled)
        self.texts_of = index.chosen.select(labelled).transpose()
        self.hidden_of = hidden.select(labelled).transpose()
        counts = self.texts_of.counts()
        order = counts.argsort(descending=True, stable=True)
        self.order = order[counts[order] >= config.least]
        self.block = min(_MOST_LABELS, max(1, _BLOCK_NUMBERS // max(1, self.rows.n_queries)))
        none = torch.zeros(0, dtype=torch.int64, device=run.device)
        self.codes, self.values = [none], [none.float()]  # word * N + candidate
        self.bias = torch.full((len(counts),), NO_CLASSIFIER, device=run.device)
        self.done = 0  # of the order

    @property
    def share(self) -> float:
        """The share of the candidates that are done."""
        return self.done / max(1, len(self.order))

    def learn(self) -> Iterator[None]:
        """All classifiers; yields every second or so."""
        began = perf_counter()
        while self.done < len(self.order):
            candidates = self.order[self.done : self.done + self.block]
            self.keep(candidates, *self.solved(candidates))
            self.done += len(candidates)
            if perf_counter() - began > PAUSE_SECONDS and self.done < len(self.order):
                yield
                began = perf_counter()

    @cached_property
    def whole(self) -> SparseRows:
        """All texts."""
        return sparse_rows(self.rows)

    def solved(self, candidates: Tensor) -> tuple[SparseRows, Tensor]:
        """The texts of a block's problem and the solution.

        These are the texts of its candidates and drawn ones, then the hardest by the first
        solution: those of other candidates inside the margin. All texts are used if these are more
        than half of them.
        """
        cost, every = self.config.cost, self.signs(candidates)
        rng = torch.Generator().manual_seed(seed_of(self.run, f"texts {self.done}"))
        drawn = torch.randperm(len(every), generator=rng)[:_DRAWN].to(every.device)
        own = self.texts_of.select(candidates).candidates.long()
        texts = torch.cat([own, drawn]).unique()
        if 2 * len(texts) > len(every):
            return self.whole, squared_hinge(self.whole, every, cost)
        rows = sparse_rows(self.rows.select(texts))
        a = squared_hinge(rows, every[texts], cost)
        more = torch.cat([texts, self.hardest(rows, a, every)]).unique()
        start = a.new_zeros(len(more), a.shape[1])
        start[torch.searchsorted(more, texts)] = a
        rows = sparse_rows(self.rows.select(more))
        return rows, squared_hinge(rows, every[more], cost, start)

    def signs(self, candidates: Tensor) -> Tensor:
        """1 for texts that chose a candidate, 0 for ignored pairs, -1 for others; [M, B]."""
        signs = torch.full((self.rows.n_queries, len(candidates)), -1.0, device=self.bias.device)
        for pairs, sign in ((self.hidden_of, 0.0), (self.texts_of, 1.0)):
            own = pairs.select(candidates)
            signs[own.candidates.long(), own.query_of_pair().long()] = sign
        return signs

    def hardest(self, rows: SparseRows, a: Tensor, signs: Tensor) -> Tensor:
        """The texts of other candidates with the largest margins above -1."""
        weights = pad(rows.weights(a), (0, 0, 0, 1))  # zeros for other words
        places = torch.full((self.n_words,), len(rows.names), device=a.device)
        places[rows.names] = torch.arange(len(rows.names), device=a.device)
        words = replace(
            self.rows,
            candidates=places[self.rows.candidates.long()],
            n_candidates=len(weights),
        )
        margins = row_sums(words, weights, words.grades).add_(a.sum(dim=0))
        best = margins.masked_fill_(signs >= 0, -torch.inf).topk(
            min(_HARDEST, len(margins)), dim=0, sorted=False
        )
        return best.indices[best.values > -1]

    def keep(self, candidates: Tensor, rows: SparseRows, a: Tensor) -> None:
        """Store the large weights of a block."""
        weights = rows.weights(a)
        words, columns = (weights.abs() >= max(self.config.threshold, 1e-30)).nonzero().T
        self.codes.append(rows.names[words] * len(self.bias) + candidates[columns])
        self.values.append(weights[words, columns])
        self.bias[candidates] = a.sum(dim=0)

    def classifiers(self) -> Classifiers:
        codes, order = torch.cat(self.codes).sort()
        n = len(self.bias)
        values = torch.cat(self.values)[order]
        weights = from_pairs(codes // n, codes % n, values, (self.n_words, n))
        return Classifiers(weights, self.bias, self.texts_of.counts())

    def state(self) -> dict[str, Tensor]:
        """The state from which ``load`` resumes the same run."""
        self.codes, self.values = [torch.cat(self.codes)], [torch.cat(self.values)]
        parts = {"codes": self.codes[0], "values": self.values[0], "bias": self.bias}
        return {**parts, "done": torch.tensor(self.done)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        device = self.bias.device
        self.codes, self.values = [state["codes"].to(device)], [state["values"].to(device)]
        self.bias.copy_(state["bias"])
        self.done = int(state["done"])


# ---------------------------------------------------------------------------------- the model


def to_tensors(index: TextIndex, classifiers: Classifiers) -> dict[str, Tensor]:
    """The tensors of a model."""
    weights = classifiers.weights
    assert weights.grades is not None
    return {
        **nearby.to_tensors(index),
        "weight_offsets": weights.offsets,
        "weight_candidates": weights.candidates,
        "weights": weights.grades,
        "bias": classifiers.bias,
    }


def _open_model(model: Model) -> Opened:
    if "weight_keys" in model.tensors:
        return open_older(model)
    index, tensors = nearby.from_tensors(model.tensors), model.tensors
    lists = tensors["weight_offsets"], tensors["weight_candidates"], tensors["weights"]
    weights = Interactions(*lists, len(tensors["bias"]))
    classifiers = Classifiers(weights, tensors["bias"], index.chosen.candidate_counts())
    return Opened(search_texts=partial(search, index, classifiers, Config(**model.config)))


METHOD = replace(
    nearby.METHOD,
    summary="a linear classifier over words for each candidate, mixed with text-neighbours",
    config=Config,
    fit=fit,
    open=_open_model,
    space={
        **{name: nearby.SPACE[name] for name in ("neighbours", "bigrams")},
        "cost": Range(0.1, 10.0, log=True),
        "least": Range(3, 50, log=True, whole=True),
    },
)
