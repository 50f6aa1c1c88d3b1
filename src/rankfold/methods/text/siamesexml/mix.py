"""The final vector of a candidate: a mix of three vectors, and its popularity.

The three are its classifier, its text, and the mean of its documents. Words add extra scores.
Validation chooses all weights.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.encoders.bag_encoder import weighted
from rankfold.encoders.bags import with_pairs
from rankfold.kernels.topk import merge_top_k
from rankfold.methods.text import linear
from rankfold.methods.text.neighbours import best as best_of
from rankfold.methods.text.siamesexml import on_disk
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import Corpus
from rankfold.methods.text.siamesexml.distributed import best_of_all, first_of_all, query_blocks
from rankfold.methods.text.siamesexml.members import MIXED, encode, encoders_of
from rankfold.methods.text.siamesexml.words import (
    Documents,
    Extra,
    Scores,
    Words,
    bands_of,
    scores_of,
)
from rankfold.metrics.propensity import Propensity, inverse_propensity
from rankfold.types import Interactions, Model, Opened, Run, Side, Texts, TopK

_MAX_QUERIES, _FEW_QUERIES = 3000, 500  # of validation, that the mix is chosen on:
_MOST_SCORES = 2**28  # fewer with many candidates
CLASSIFIER_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
_CENTROID_WEIGHTS = (0.0, 0.1, 0.3, 0.6, 1.0)
_POPULARITY_WEIGHTS = (0.0, 0.03, 0.06, 0.09, 0.12)
_LINEAR_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)
_NEIGHBOUR_WEIGHTS = (0.0, 0.2, 0.5, 1.0)
_RARE_FACTORS, _MIDDLE_FACTORS = (1.0, 0.5, 2.0, 4.0), (1.0, 0.5, 2.0)
_CLOSE = 0.003  # of the best: mixes that count as equal
_QUERY_POPULARITY = 0.5  # queries' value in the popularity column; candidates' is divided by it
_PRODUCT_BYTES = 2**26  # of the scores by one of the vectors, on a CPU
BLOCK_BYTES = 2**23  # of the scores of a mix, to stay in the cache of a CPU
TILE = 2**17  # candidates at a time
_MIXED_ROWS = 2**13  # of these, in the final table


class Mix(NamedTuple):
    """The weights of a candidate's vectors, and of words; its text has 1 - classifier_share."""

    classifier_share: float
    centroid_weight: float
    popularity_weight: float
    linear_weight: float = 0.0
    linear_rare: float = 1.0
    linear_middle: float = 1.0
    neighbour_weight: float = 0.0

    def factors(self, bands: Tensor, bias: Tensor) -> Tensor:
        """The weights of the candidates' linear classifiers, 0 where there is none; [N]."""
        each = bias.new_tensor([self.linear_rare, self.linear_middle, 1.0])[bands]
        return each.mul_(self.linear_weight).mul_(bias > linear.NO_CLASSIFIER)


_ROUNDS: tuple[dict[str, tuple[float, ...]], ...] = (
    {"classifier_share": CLASSIFIER_SHARES, "centroid_weight": _CENTROID_WEIGHTS},
    {"popularity_weight": _POPULARITY_WEIGHTS, "linear_weight": _LINEAR_WEIGHTS},
    {"neighbour_weight": _NEIGHBOUR_WEIGHTS},
    {"linear_rare": _RARE_FACTORS, "linear_middle": _MIDDLE_FACTORS},
)
_OF_WORDS = Mix._fields[3:]
_DEFAULT_MIX = Mix(0.75, 0.0, 0.06)  # without validation
_DEFAULT_WITH_WORDS = Mix(0.75, 0.3, 0.0, 1.0, 1.0, 1.0, 0.2)


def mixture(
    tiles: Iterable[Mapping[str, Tensor]],
    mix: Mix,
    members: int,
    counts: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Share classifier + (1 - share) text + weight centroid, member beside member; [N, D].

    ``tiles`` have these vectors of some candidates each, in order.
    Vectors of length 1 cannot express how often a candidate is chosen: with n its ``counts`` [N],
    one more column adds popularity_weight log(1 + n) to its scores. A weight of 0 adds no column.
    Candidates hold twice that and queries a half: an index whose recall is measured with candidates
    as queries would otherwise ignore the column, and find too little.
    """
    table, start = counts.new_empty(0, dtype=dtype), 0
    for done in tiles:
        n, width = done["0.texts"].shape
        if start == 0:
            table = table.new_empty(len(counts), members * width + (mix.popularity_weight != 0))
        for first in range(0, n, _MIXED_ROWS):
            rows = slice(first, min(first + _MIXED_ROWS, n))
            own = slice(start + rows.start, start + rows.stop)
            for number in range(members):
                columns = slice(number * width, (number + 1) * width)
                parts = [done[f"{number}.{name}"][rows] for name in MIXED]
                table[own, columns] = _mixed(parts, mix) / members
        start += n
    if mix.popularity_weight:
        table[:, -1] = popularity_values(counts, mix.popularity_weight)
    return table


def released(done: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The tables of ``MIXED`` tile by tile. They leave ``done``, and a tile is freed once used.

    The final table fills while they go: three tables of halves and one of floats never coexist.
    """
    tiles = {}
    for key in [key for key in done if key.split(".", 1)[1] in MIXED]:
        tiles[key] = [tile.clone() for tile in done.pop(key).split(TILE)][::-1]
    while any(tiles.values()):
        yield {key: own.pop() for key, own in tiles.items()}


def popularity_values(counts: Tensor, weight: float) -> Tensor:
    """The last column of candidates, by their numbers of documents."""
    return weight / _QUERY_POPULARITY * counts.float().log1p()


def _mixed(vectors: list[Tensor], mix: Mix) -> Tensor:
    """The mix of some candidates' ``MIXED`` vectors of a member, in float32; [n, D]."""
    refined, texts, centroids = vectors
    mixed = refined.to(torch.float32, copy=True).mul_(mix.classifier_share)
    mixed.add_(texts.to(torch.float32, copy=True).mul_(1 - mix.classifier_share))
    return mixed.add_(centroids.float(), alpha=mix.centroid_weight)


def with_column(vectors: Tensor, popularity_weight: float, values: Tensor) -> Tensor:
    """The vectors, with ``values`` [n] or [1] as one more column unless the weight is 0."""
    if popularity_weight == 0:
        return vectors
    return torch.cat([vectors, values[:, None].expand(len(vectors), 1)], dim=1)


def choose_mix(
    done: Mapping[str, Tensor],
    config: SiameseConfig,
    corpus: Corpus,
    run: Run,
    words: tuple[Words, Documents] | None = None,
) -> tuple[Mix, list[dict[str, float]]]:
    """The best mix on validation, and the scores of all mixes that were tried.

    Weights are tried in rounds, those of a round together, the others as chosen so far: about 70
    mixes instead of thousands. Given weights are kept.
    """
    given = {name: getattr(config, name) for name in Mix._fields}
    rounds = _ROUNDS
    mix = _DEFAULT_WITH_WORDS
    if words is None:
        mix, rounds = _DEFAULT_MIX, (_ROUNDS[0], {"popularity_weight": _POPULARITY_WEIGHTS})
        given |= dict(zip(_OF_WORDS, _DEFAULT_MIX[3:], strict=True))
    mix = mix._replace(**{name: value for name, value in given.items() if value is not None})
    tried: dict[Mix, Tried] = {}
    if run.judge is None or None not in given.values():
        return mix, []
    extra = None if words is None else _extra(*words, done, config, corpus, run)
    for options in rounds:
        names = [name for name in options if given[name] is None]
        values = product(*(options[name] for name in names))
        choices = [mix._replace(**dict(zip(names, one, strict=True))) for one in values]
        if more := [other for other in choices if other not in tried]:
            tried |= score_mixes(more, done, config, corpus, run, extra)
        mix = _best_of(tried)
    return mix, [{**one._asdict(), **result._asdict()} for one, result in tried.items()]


class Tried(NamedTuple):
    """The figures of a mix on validation."""

    score: float  # the metric
    rare: float  # the metric of the first result alone, weighted by its inverse propensity


def _best_of(tried: Mapping[Mix, Tried]) -> Mix:
    """Of the mixes that are close to the best score, the one that serves rare candidates best."""
    least = max(one.score for one in tried.values()) * (1 - _CLOSE)
    close = {mix: one for mix, one in tried.items() if one.score >= least}
    return max(close, key=lambda mix: close[mix].rare)


class ExtraScores(NamedTuple):
    """What words add to the scores of the validation queries, without weights."""

    scores: Scores
    bands: Tensor  # [N]
    bias: Tensor  # [N]

    def of(self, start: int, stop: int) -> "ExtraScores":
        """Of some queries."""
        parts = [one.part(start, stop) for one in self.scores]
        return self._replace(scores=Scores(*parts))

    def add(self, mixed: Tensor, mix: Mix) -> None:
        """Add them to the scores of a mix [B, N]."""
        factors = mix.factors(self.bands, self.bias)
        for part, each in zip(self.scores, (factors, None), strict=True):
            columns = part.candidates.long()
            weights = mix.neighbour_weight if each is None else each[columns]
            assert part.grades is not None
            places = part.query_of_pair().long() * mixed.shape[1] + columns
            mixed.view(-1).index_add_(0, places, part.grades * weights)


def _judged(corpus: Corpus, run: Run) -> Tensor:
    """The own queries among those of validation that mixes are chosen on."""
    assert run.judge is not None
    most = max(_FEW_QUERIES, _MOST_SCORES // corpus.rows.n_candidates)
    return first_of_all(run.judge.queries, min(_MAX_QUERIES, most), corpus.comm)


def _extra(
    words: Words,
    documents: Documents,
    done: Mapping[str, Tensor],
    config: SiameseConfig,
    corpus: Corpus,
    run: Run,
) -> ExtraScores:
    queries = _judged(corpus, run).to(words.texts.offsets.device)
    vectors = vectors_of(done, config, corpus, queries)
    scores = scores_of(words, documents, words.texts.select(queries), vectors)
    return ExtraScores(scores, bands_of(corpus.own_counts), words.classifiers.bias)


def vectors_of(
    done: Mapping[str, Tensor], config: SiameseConfig, corpus: Corpus, rows: Tensor
) -> Tensor:
    """The vectors of some documents, of length 1; [n, members D]."""
    encoders = encoders_of(done, config, len(corpus.idf), corpus.source)
    vectors = encode(encoders, corpus.documents.select(rows.to(corpus.idf.device)))
    return vectors.mul_(config.members**-0.5)


def documents_of(done: Mapping[str, Tensor], config: SiameseConfig, corpus: Corpus) -> Documents:
    """All documents, those of training with their candidates."""
    every = torch.arange(corpus.rows.n_queries)
    return Documents(vectors_of(done, config, corpus, every).half(), corpus.rows)


def score_mixes(
    choices: list[Mix],
    done: Mapping[str, Tensor],
    config: SiameseConfig,
    corpus: Corpus,
    run: Run,
    extra: ExtraScores | None = None,
) -> dict[Mix, Tried]:
    """The figures of each mix over the first validation queries.

    Scores are those of ``mixture``, searched exactly; all mixes share three products. An index for
    each mix would take longer to build, and each would miss different candidates.
    """
    assert run.judge is not None
    judge, comm = run.judge, corpus.comm
    queries = _judged(corpus, run)
    bags = corpus.documents.select(queries.to(corpus.idf.device))
    vectors = encode(encoders_of(done, config, len(corpus.idf), corpus.source), bags)
    popularity = torch.log1p(corpus.own_counts.to(vectors))
    tile = min(TILE, -(-corpus.label_shard.size // comm.size))
    tile = tile if extra is None else max(1, len(popularity))
    room = run.memory_budget // 4  # three products at a time, and mixes of them
    room = room if vectors.is_cuda else min(room, _PRODUCT_BYTES)
    size = min(max(1, room // (4 * tile)), _MAX_QUERIES)
    values: list[list[Tensor]] = [[] for _ in choices]
    n_documents = int(comm.sum(torch.tensor(len(corpus.labelled))))
    weights = inverse_propensity(corpus.counts.cpu(), n_documents, Propensity())
    for block in query_blocks(vectors, judge.hidden(queries), size, corpus):
        results: list[TopK] = []
        for start in range(0, len(popularity), tile):
            stop = min(start + tile, len(popularity))
            products = _products(block.vectors, choices, done, config.members, slice(start, stop))
            hidden = _columns(block.hidden, start, stop)
            added = None if extra is None else extra.of(block.own.start, block.own.stop)
            best = _best_of_mixes(
                choices, products, popularity[start:stop], judge.depth, hidden, added
            )
            best = [TopK(ids + start, scores) for ids, scores in best]
            both = zip(results, best, strict=True)
            results = [merge_top_k(*pair, judge.depth) for pair in both] if results else best
        for mix_values, ids in zip(values, best_of_all(results, judge.depth, corpus), strict=True):
            own, ids = queries[block.own], ids[block.here].cpu()
            first = torch.where(torch.arange(ids.shape[1]) == 0, ids, -1)
            rare = judge.values(own, first) * weights[ids[:, 0].clamp(min=0)]
            mix_values.append(torch.stack([judge.values(own, ids), rare], dim=1))
    every = [comm.gather(torch.cat(mix_values)).double().mean(dim=0) for mix_values in values]
    return {mix: Tried(*means.tolist()) for mix, means in zip(choices, every, strict=True)}


def _products(
    vectors: Tensor, choices: list[Mix], done: Mapping[str, Tensor], members: int, rows: slice
) -> list[Tensor]:
    """Inner products with the vectors of some candidates, averaged over members; [B, n] each.

    They are those of ``MIXED``, or of the mix if only the popularity weight varies.
    """
    each = (vectors / members).chunk(members, dim=1)
    tables = [[done[f"{number}.{name}"][rows] for name in MIXED] for number in range(members)]
    if all(mix[:2] == choices[0][:2] for mix in choices):
        tables = [[_mixed(parts, choices[0])] for parts in tables]
    products = [each[0] @ part.float().T for part in tables[0]]
    for own, parts in zip(each[1:], tables[1:], strict=True):
        for own_product, part in zip(products, parts, strict=True):
            own_product.addmm_(own, part.float().T)
    return products


def _columns(pairs: Interactions, start: int, stop: int) -> Interactions:
    """The pairs with the candidates from ``start`` to ``stop``, counted from there."""
    kept = pairs.keep((pairs.candidates >= start) & (pairs.candidates < stop))
    return replace(kept, candidates=kept.candidates - start, n_candidates=stop - start)


def _best_of_mixes(
    choices: list[Mix],
    scores: list[Tensor],
    popularity: Tensor,
    k: int,
    hidden: Interactions,
    extra: ExtraScores | None = None,
) -> list[TopK]:
    """The k best candidates by each mix of the scores [B, N] of ``_tables_of``; [B, k] each."""
    n_queries, n = scores[0].shape
    rows = n_queries if scores[0].is_cuda else max(1, BLOCK_BYTES // (4 * max(1, n)))
    results: list[list[TopK]] = [[] for _ in choices]
    for start in range(0, n_queries, max(1, rows)):
        block = [part[start : start + rows] for part in scores]
        stop = min(start + rows, n_queries)
        unwanted, added = hidden.part(start, stop), None if extra is None else extra.of(start, stop)
        for mix, lists in zip(choices, results, strict=True):
            mixed = block[0]
            if len(block) == 3:
                refined, texts, centroids = block
                mixed = torch.lerp(texts, refined, mix.classifier_share)
                mixed.add_(centroids, alpha=mix.centroid_weight)
            mixed = torch.add(mixed, popularity, alpha=mix.popularity_weight)
            if added is not None:
                added.add(mixed, mix)
            lists.append(best_of(mixed, k, unwanted))
    return [TopK(*map(torch.cat, zip(*lists, strict=True))) for lists in results]


def open_model(model: Model) -> Opened:
    """Builds the encoders."""
    given, idf, pairs = dict(model.config), model.tensors["rarity"], model.tensors["pairs"]
    if given.pop("residual", False):  # an older model has it in place of ``encoder``
        given["encoder"] = "residual"
    config = SiameseConfig(**given)
    encoders = encoders_of(model.tensors, config, len(idf), on_disk.source_in(model))
    popularity = config.popularity_weight or 0.0  # a model may be older than this setting

    def encode_texts(texts: Texts, side: Side) -> Tensor:
        """Vectors of texts. A new candidate has its text alone, and no popularity."""
        bags = with_pairs(texts.to(idf.device), pairs, len(idf) - len(pairs))
        vectors = encode(encoders, weighted(config.encoder, bags, idf))
        if side == "query":
            return with_column(vectors, popularity, vectors.new_full((1,), _QUERY_POPULARITY))
        assert config.centroid_weight is not None
        vectors = vectors * ((1 + config.centroid_weight) / config.members)
        return with_column(vectors, popularity, vectors.new_zeros(1))

    extra = Extra(model) if "linear.bias" in model.tensors else None
    return Opened(texts=encode_texts, extra_texts=extra)
