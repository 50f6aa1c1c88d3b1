"""Nearest texts: what queries with similar words chose, and candidates with similar words.

A strong baseline without training. It keeps the texts as inverted lists (the texts of each word),
so that a query reads only texts that share a word with it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.config import Settings, setting
from rankfold.encoders.bags import (
    beside,
    common_pairs,
    inverse_document_frequency,
    weigh,
    with_grams,
    with_pairs,
)
from rankfold.errors import UserError
from rankfold.kernels.topk import top_k
from rankfold.types import (
    Choices,
    Dataset,
    Exclude,
    Interactions,
    Method,
    Model,
    Opened,
    Range,
    Run,
    Space,
    Step,
    Texts,
    TopK,
)

_LABEL_WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
_DEFAULT_LABEL_WEIGHT = 0.5
MAX_BLOCK_QUERIES = 256  # scored at a time
BLOCK_BYTES = 2**26  # of the scores of a block
_LIST_PARTS = ("offsets", "texts", "weights")  # tensors of inverted lists in a model


class Config(Settings):
    """How many texts are near, and the weight of the candidates' own texts."""

    neighbours: int = setting(
        20, at_least=0, help="nearest training queries, usually 10 to 50; 0: only candidates' texts"
    )
    label_weight: float | None = setting(
        _DEFAULT_LABEL_WEIGHT,
        at_least=0,
        help="weight of the candidates' texts, usually .1 to 2; none: chosen on validation",
    )
    bigrams: bool = setting(True, help="pairs of adjacent words count as words too")


class TextIndex(NamedTuple):
    """Inverted lists of V words: T tokens, P pairs of them and G n-grams of their characters."""

    idf: Tensor  # [V], 0 for a word in no text
    word_pairs: Tensor  # [P] ascending: a * T + b for adjacent words a, b
    queries: Interactions  # [V, M], the texts of a word and its tf-idf in each
    candidates: Interactions  # [V, N], the same for candidates
    chosen: Interactions  # [M, N], the training pairs
    grams: Interactions | None = None  # [T, G], the n-grams of each token

    @property
    def numbers(self) -> int:
        """Values that the scores of a query take: cosines, and four per candidate."""
        return self.queries.n_candidates + 4 * self.candidates.n_candidates


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Build the inverted lists; choose a label weight if none is given."""
    index = build_index(data, run.device, bigrams=config.bigrams)
    config = replace(config, label_weight=choose_label_weight(index, config, data, run))
    model = Model("text-neighbours", asdict(config), to_tensors(index))
    yield Step(1, 0.0, model, dict, final=True)


def search(
    index: TextIndex, config: Config, texts: Texts, k: int, exclude: Interactions | None
) -> TopK:
    """The k candidates with the largest scores.

    With tf-idf vectors of words and pairs of adjacent words, and D the ``neighbours`` training
    queries d with the largest cosines above 0::

        score(x, y) = sum_{d in D, d chose y} cos(x, d) / sum_{d in D} cos(x, d)
                      + label_weight cos(x, text of y)

    A text that shares no word with any other (all its scores are 0) gets the most popular
    candidates, with their counts as scores.
    """
    assert config.label_weight is not None

    def best_of(bags: Texts, hidden: Exclude) -> TopK:
        near, similarity = score_parts(index, bags, config.neighbours)
        scores = near.add_(similarity, alpha=config.label_weight or 0.0)
        fill_with_popular(scores, index)
        return best(scores, k, hidden)

    width = min(k, index.chosen.n_candidates)
    return search_blocks(bags_of(texts, index), exclude, index.numbers, width, best_of)


SPACE: Space = {
    "neighbours": Range(5, 100, log=True, whole=True),
    "label_weight": Range(0.05, 2.0, log=True),
    "bigrams": Choices((True, False)),
}
METHOD = Method(
    "what queries with similar words chose, and candidates with similar words",
    Config,
    "texts",
    fit,
    lambda m: Opened(search_texts=partial(search, from_tensors(m.tensors), Config(**m.config))),
    ("texts",),
    own_search=True,
    space=SPACE,
)


# ---------------------------------------------------------------------------------- scores


def score_parts(index: TextIndex, bags: Texts, neighbours: int) -> tuple[Tensor, Tensor]:
    """Both parts of scores: by the choices of the nearest queries, by candidates' texts; [B, N]."""
    similarity = cosines(bags, index.candidates)
    if neighbours == 0:
        return torch.zeros_like(similarity), similarity
    return votes(index, bags, neighbours), similarity


def votes(index: TextIndex, bags: Texts, neighbours: int) -> Tensor:
    """The share of the nearest queries, weighted by their cosines, that chose a candidate."""
    nearest = top_k(cosines(bags, index.queries), min(neighbours, index.queries.n_candidates))
    weights = nearest.scores.clamp(min=0)
    weights /= weights.sum(dim=1, keepdim=True).clamp(min=1e-30)
    zeros = weights.new_zeros(len(bags), index.chosen.n_candidates)
    return add_choices(zeros, TopK(nearest.ids, weights), index.chosen)


def cosines(bags: Texts, lists: Interactions) -> Tensor:
    """Inner products of bags with all texts of ``lists``, list by list; [B, n].

    A list is contiguous and has each text once: adding it in place takes a sixth of the time of
    gathering the lists of all words first.
    """
    assert bags.weights is not None
    assert lists.grades is not None
    scores = lists.grades.new_zeros(len(bags), lists.n_candidates)
    words = bags.tokens.long()
    columns = torch.repeat_interleave(bags.counts()), lists.offsets[words], lists.offsets[words + 1]
    entries = zip(*(column.tolist() for column in (*columns, bags.weights)), strict=True)
    for row, start, stop, weight in entries:
        texts, weights = lists.candidates[start:stop], lists.grades[start:stop]
        scores[row].index_add_(0, texts, weights, alpha=weight)
    return scores


def add_choices(scores: Tensor, nearest: TopK, chosen: Interactions, weight: float = 1.0) -> Tensor:
    """Add ``weight`` times the score of each nearest query to the candidates it chose; [B, N]."""
    rows, n = chosen.select(nearest.ids.clamp(min=0).flatten()), scores.shape[1]
    first = torch.arange(0, scores.numel(), n, device=scores.device)[:, None].expand_as(nearest.ids)
    places = torch.repeat_interleave(first.flatten(), rows.counts()) + rows.candidates
    shares = torch.repeat_interleave(nearest.scores.flatten(), rows.counts())
    return scores.view(-1).index_add_(0, places, shares, alpha=weight).view(-1, n)


def fill_with_popular(scores: Tensor, index: TextIndex) -> Tensor:
    """Replace rows without a score above 0 by the candidates' counts; returns which rows, [B]."""
    blank = ~(scores > 0).any(dim=1)
    if bool(blank.any()):
        scores[blank] = index.chosen.candidate_counts().to(scores.dtype)
    return blank


def best(scores: Tensor, k: int, exclude: Interactions | None) -> TopK:
    """The k best of each row without excluded ones, whose scores are overwritten."""
    if exclude is not None:
        exclude = exclude.to(scores.device)
        scores[exclude.query_of_pair().long(), exclude.candidates.long()] = -torch.inf
    return top_k(scores, k)


def query_blocks(
    n_queries: int, numbers: int, memory_budget: int = 2**62
) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks of queries within the budget, at least one query each.

    ``numbers`` is how many values a query takes, such as its scores.
    """
    step = min(memory_budget, BLOCK_BYTES) // (4 * max(1, numbers))
    step = max(1, min(step, MAX_BLOCK_QUERIES))
    return ((start, min(start + step, n_queries)) for start in range(0, n_queries, step))


def search_blocks(
    bags: Texts, exclude: Exclude, numbers: int, width: int, best_of: Callable[..., TopK]
) -> TopK:
    """``best_of(bags, exclude)`` [B, width], block by block; ``numbers`` as in ``query_blocks``."""
    none = torch.empty(0, width, device=bags.offsets.device)
    results = [TopK(none.long(), none)]
    for start, stop in query_blocks(len(bags), numbers):
        hidden = None if exclude is None else exclude.part(start, stop)
        results.append(best_of(bags.part(start, stop), hidden))
    ids, scores = (torch.cat(column) for column in zip(*results, strict=True))
    return TopK(ids, scores)


def choose_label_weight(index: TextIndex, config: Config, data: Dataset, run: Run) -> float:
    """The given weight, else the best on validation, else a default."""
    if config.label_weight is not None:
        return config.label_weight
    judge = run.judge
    if judge is None:
        return _DEFAULT_LABEL_WEIGHT
    bags = bags_of(query_texts(data, judge.queries, run.device), index)
    totals = torch.zeros(len(_LABEL_WEIGHTS), dtype=torch.float64)
    for start, stop in query_blocks(len(bags), index.numbers, run.memory_budget):
        queries = judge.queries[start:stop]
        near, similarity = score_parts(index, bags.part(start, stop), config.neighbours)
        for place, weight in enumerate(_LABEL_WEIGHTS):
            scores = near.add(similarity, alpha=weight)
            ids = best(scores, judge.depth, judge.hidden(queries)).ids
            totals[place] += judge.values(queries, ids).double().sum()
    return _LABEL_WEIGHTS[int(totals.argmax())]


# ---------------------------------------------------------------------------------- texts


def build_index(
    data: Dataset, device: torch.device, *, bigrams: bool, grams: Interactions | None = None
) -> TextIndex:
    """Inverted lists of training queries and candidates; idf comes from these texts."""
    chosen = data.split("train").to(device)
    queries = only(query_texts(data, None, device), chosen.counts() > 0)
    offsets = torch.zeros(chosen.n_candidates + 1, dtype=torch.int64, device=device)
    candidates = Texts(offsets, torch.empty(0, dtype=torch.int32, device=device))
    if data.candidate_texts is not None:
        candidates = data.candidate_texts.to(device)
    word_pairs = torch.empty(0, dtype=torch.int64, device=device)
    if bigrams:
        word_pairs = common_pairs([queries, candidates], data.n_tokens, min_count=1)
    labelled = chosen.counts().nonzero().flatten()

    def rarity(read: Callable[[Texts], Texts], n: int) -> Tensor:
        """The idf of the n features that ``read`` finds in a text; 0 for those in none."""
        counted = [read(queries).select(labelled), read(candidates)]
        used = torch.bincount(torch.cat([side.tokens for side in counted]), minlength=n) > 0
        return torch.where(used, inverse_document_frequency(counted, n).to(device), 0.0)

    n = data.n_tokens
    idf = rarity(lambda texts: with_pairs(texts, word_pairs, n), n + len(word_pairs))
    if grams is not None:
        grams = grams.to(device)
        of_grams = rarity(partial(with_grams, grams=grams), grams.n_candidates)
        idf = torch.cat([idf, of_grams])
    none = Interactions(offsets[:1], candidates.tokens[:0], None, 0)
    index = TextIndex(idf, word_pairs, none, none, chosen, grams)
    bags = [bags_of(side, index) for side in (queries, candidates)]
    of_texts = [Interactions(one.offsets, one.tokens, one.weights, len(idf)) for one in bags]
    of_queries, of_candidates = (words.transpose() for words in of_texts)
    return index._replace(queries=of_queries, candidates=of_candidates)


def bags_of(texts: Texts, index: TextIndex) -> Texts:
    """tf-idf bags of length 1, of the words, pairs of words and n-grams in the index."""
    texts, grams = texts.to(index.idf.device), index.grams
    n_words = len(index.idf) - (0 if grams is None else grams.n_candidates)
    n_tokens = n_words - len(index.word_pairs)
    words = weigh(with_pairs(texts, index.word_pairs, n_tokens), index.idf[:n_words])
    if grams is None:
        return words
    of_grams = weigh(with_grams(texts, grams), index.idf[n_words:])
    return beside(words, replace(of_grams, tokens=of_grams.tokens + n_words))


def query_texts(data: Dataset, queries: Tensor | None, device: torch.device) -> Texts:
    """The texts of some queries, or of all; a UserError if the data has none."""
    if data.query_texts is None:
        raise UserError(
            "this data has no texts of queries",
            hint="prepare it with --format texts or --query-texts; rg2 needs no texts",
        )
    texts = data.query_texts if queries is None else data.query_texts.select(queries)
    return texts.to(device)


def only(texts: Texts, kept: Tensor) -> Texts:
    """The texts where ``kept`` [n], and empty texts elsewhere."""
    of_word = torch.repeat_interleave(kept, texts.counts())
    offsets = pad((texts.counts() * kept).cumsum(0), (1, 0))
    weights = None if texts.weights is None else texts.weights[of_word]
    return Texts(offsets, texts.tokens[of_word], weights)


# ---------------------------------------------------------------------------------- the model


def to_tensors(index: TextIndex) -> dict[str, Tensor]:
    """The tensors of a model."""
    tensors = {
        "idf": index.idf,
        "word_pairs": index.word_pairs,
        "offsets": index.chosen.offsets,
        "candidates_of_queries": index.chosen.candidates,
        "sizes": torch.tensor([index.chosen.n_queries, index.chosen.n_candidates]),
    }
    for name, lists in (("query", index.queries), ("candidate", index.candidates)):
        assert lists.grades is not None
        parts = zip(_LIST_PARTS, (lists.offsets, lists.candidates, lists.grades), strict=True)
        tensors |= {f"{name}_list_{part}": tensor for part, tensor in parts}
    return tensors


def from_tensors(tensors: Mapping[str, Tensor]) -> TextIndex:
    """The inverse of ``to_tensors``."""
    n_queries, n_candidates = tensors["sizes"].tolist()
    lists = []
    for side, n_texts in (("query", n_queries), ("candidate", n_candidates)):
        offsets, texts, weights = (tensors[f"{side}_list_{part}"] for part in _LIST_PARTS)
        lists.append(Interactions(offsets, texts, weights, n_texts))
    chosen = Interactions(tensors["offsets"], tensors["candidates_of_queries"], None, n_candidates)
    return TextIndex(tensors["idf"], tensors["word_pairs"], lists[0], lists[1], chosen)
