"""Nearest texts: a query gets what queries with like words chose, and candidates with like words.

A strong baseline that learns nothing: it keeps the texts as inverted lists (a word, the texts that
hold it), so that a query reads no texts but those that share a word with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.encoders.bags import (
    common_pairs,
    inverse_document_frequency,
    weigh,
    with_pairs,
)
from rankfold.errors import UserError
from rankfold.kernels.topk import top_k
from rankfold.types import (
    Choices,
    Dataset,
    Interactions,
    Method,
    Model,
    Range,
    Run,
    Space,
    Step,
    Texts,
    TopK,
)

LABEL_WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
LABEL_WEIGHT = 0.5  # where there is no validation to choose by
QUERIES = 256  # scored at a time, at most
BLOCK_BYTES = 2**26  # of their scores, likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How many texts are near, and what the candidates' own texts count beside them."""

    neighbours: int = 20  # 0: by the text of candidates alone
    label_weight: float | None = LABEL_WEIGHT  # none: chosen on validation
    bigrams: bool = True  # pairs of adjacent words count as words too

    def __post_init__(self) -> None:
        check(self.neighbours, self.label_weight)


def check(neighbours: int, label_weight: float | None) -> None:
    """A UserError for settings that mean nothing."""
    if neighbours < 0:
        raise UserError(f"neighbours is {neighbours}", hint="it is 0 or more, usually 10 to 50")
    if label_weight is not None and not 0 <= label_weight < float("inf"):
        raise UserError(f"label_weight is {label_weight}", hint="it is 0 or more, usually .1 to 2")


class Known(NamedTuple):
    """What is kept of the texts: V words, pairs of words among them, by number."""

    idf: Tensor  # [V], 0 for a word that no text holds
    word_pairs: Tensor  # [P] ascending: a * T + b for a, b side by side; the last P words
    queries: Interactions  # [V, M], the texts of a word and its tf-idf in each
    candidates: Interactions  # [V, N], likewise
    chosen: Interactions  # [M, N], the pairs fitted on


class Parts(NamedTuple):
    """Of a score."""

    near: Tensor  # [B, N], by what the nearest queries chose
    alike: Tensor  # [B, N], cosine with the candidate's text


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Weigh the words of all texts, turn them into lists, choose a weight if none is given."""
    began = perf_counter()
    known = index(data, run.device, bigrams=config.bigrams)
    config = replace(config, label_weight=choose_label_weight(known, config, data, run))
    model = Model("text-neighbours", asdict(config), to_tensors(known))
    yield Step(1, 0.0, perf_counter() - began, model, dict, final=True)


def search_texts(model: Model, texts: Texts, k: int, exclude: Interactions | None) -> TopK:
    """The k candidates with the largest scores.

    With tf-idf vectors of words and pairs of adjacent words, and D the ``neighbours`` training
    queries d with the largest cosines above 0::

        score(x, y) = sum_{d in D, d chose y} cos(x, d) / sum_{d in D} cos(x, d)
                      + label_weight cos(x, text of y)

    A text that shares no word with any other (all its scores are 0) gets the most popular
    candidates, their counts as scores.
    """
    known = from_tensors(model.tensors)
    bags = bags_of(texts.to(known.idf.device), known)
    neighbours, weight = model.config["neighbours"], model.config["label_weight"]
    found = []
    for start, stop in query_blocks(len(bags), known):
        block = bags.select(torch.arange(start, stop, device=known.idf.device))
        near, alike = parts(known, block, neighbours)
        scores = near.add_(alike, alpha=weight)
        or_popular(scores, known)
        found.append(best(scores, k, None if exclude is None else exclude.part(start, stop)))
    return stacked(found, min(k, known.chosen.n_candidates), known.idf.device)


SPACE: Space = {
    "neighbours": Range(5, 100, log=True, whole=True),
    "label_weight": Range(0.05, 2.0, log=True),
    "bigrams": Choices((True, False)),
}
METHOD = Method(
    summary="what queries with like words chose, and candidates with like words",
    config=Config,
    data_kind="texts",
    fit=fit,
    search_texts=search_texts,
    space=SPACE,
)


# ---------------------------------------------------------------------------------- scores


def parts(known: Known, bags: Texts, neighbours: int) -> Parts:
    """Both parts of the scores of a block of queries."""
    alike = cosines(bags, known.candidates)
    if neighbours == 0:
        return Parts(torch.zeros_like(alike), alike)
    nearest = top_k(cosines(bags, known.queries), neighbours)
    return Parts(_chosen_by(nearest, known.chosen), alike)


def cosines(bags: Texts, lists: Interactions) -> Tensor:
    """Inner products of bags with all texts of ``lists``, list by list; [B, n].

    A list is one run in memory and has each text once: adding it up in place takes a sixth of the
    time of gathering the lists of all words first.
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


def _chosen_by(nearest: TopK, chosen: Interactions) -> Tensor:
    """Shares of the candidates that the nearest queries chose, weighed by their cosines; [B, N]."""
    weights = nearest.scores.clamp(min=0)
    weights /= weights.sum(dim=1, keepdim=True).clamp(min=1e-30)
    rows = chosen.select(nearest.ids.clamp(min=0).flatten())
    counts, n = rows.counts(), chosen.n_candidates
    block = torch.arange(len(weights), device=weights.device)[:, None].expand_as(weights)
    places = torch.repeat_interleave(block.flatten() * n, counts) + rows.candidates
    shares = torch.repeat_interleave(weights.flatten(), counts)
    return weights.new_zeros(len(weights) * n).index_add_(0, places, shares).view(-1, n)


def or_popular(scores: Tensor, known: Known) -> Tensor:
    """Fill rows without a score above 0 with the counts of candidates; which ones, [B]."""
    blank = ~(scores > 0).any(dim=1)
    if bool(blank.any()):
        scores[blank] = known.chosen.candidate_counts().to(scores.dtype)
    return blank


def best(scores: Tensor, k: int, exclude: Interactions | None) -> TopK:
    """The k best of each row but what is excluded; the scores of that are overwritten."""
    if exclude is not None:
        exclude = exclude.to(scores.device)
        scores[exclude.query_of_pair().long(), exclude.candidates.long()] = -torch.inf
    return top_k(scores, k)


def query_blocks(
    n_queries: int, known: Known, memory_budget: int = BLOCK_BYTES
) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks whose scores take no more than the budget, or one query."""
    n_texts = known.queries.n_candidates + 4 * known.candidates.n_candidates
    step = min(memory_budget, BLOCK_BYTES) // (4 * max(1, n_texts))
    step = max(1, min(step, QUERIES))
    return ((start, min(start + step, n_queries)) for start in range(0, n_queries, step))


def stacked(found: list[TopK], width: int, device: torch.device) -> TopK:
    """The results of blocks as one."""
    none = torch.empty(0, width, device=device)
    ids, scores = zip(*(found or [TopK(none.long(), none)]), strict=True)
    return TopK(torch.cat(ids), torch.cat(scores))


def choose_label_weight(known: Known, config: Config, data: Dataset, run: Run) -> float:
    """The given weight, else the best on validation, else a default."""
    if config.label_weight is not None:
        return config.label_weight
    judge = run.judge
    if judge is None:
        return LABEL_WEIGHT
    bags = bags_of(asked_texts(data, judge.queries, run.device), known)
    totals = torch.zeros(len(LABEL_WEIGHTS), dtype=torch.float64)
    for start, stop in query_blocks(len(bags), known, run.memory_budget):
        queries = judge.queries[start:stop]
        block = bags.select(torch.arange(start, stop, device=run.device))
        near, alike = parts(known, block, config.neighbours)
        for place, weight in enumerate(LABEL_WEIGHTS):
            found = best(near.add(alike, alpha=weight), judge.depth, judge.hidden(queries))
            totals[place] += judge.values(queries, found.ids).double().sum()
    return LABEL_WEIGHTS[int(totals.argmax())]


# ---------------------------------------------------------------------------------- texts


def index(data: Dataset, device: torch.device, *, bigrams: bool) -> Known:
    """The words of training queries and candidates, weighed by those texts alone."""
    chosen = data.split("train").to(device)
    queries = only(asked_texts(data, None, device), chosen.counts() > 0)
    candidates = _candidate_texts(data, device)
    word_pairs = torch.empty(0, dtype=torch.int64, device=device)
    if bigrams:
        word_pairs = common_pairs([queries, candidates], data.n_tokens, min_count=1)
    sides = [with_pairs(texts, word_pairs, data.n_tokens) for texts in (queries, candidates)]
    n_words = data.n_tokens + len(word_pairs)
    asking = chosen.counts().nonzero().flatten()
    weighed = [sides[0].select(asking), sides[1]]
    held = torch.bincount(torch.cat([side.tokens for side in weighed]), minlength=n_words) > 0
    idf = torch.where(held, inverse_document_frequency(weighed, n_words).to(device), 0.0)
    lists = [_lists(weigh(side, idf), n_words) for side in sides]
    return Known(idf, word_pairs, lists[0], lists[1], chosen)


def bags_of(texts: Texts, known: Known) -> Texts:
    """tf-idf bags of length 1 of what is known of the texts' words and pairs of words."""
    n_tokens = len(known.idf) - len(known.word_pairs)
    return weigh(with_pairs(texts, known.word_pairs, n_tokens), known.idf)


def asked_texts(data: Dataset, queries: Tensor | None, device: torch.device) -> Texts:
    """The texts of some queries, or of all; a UserError where there are none."""
    if data.query_texts is None:
        raise UserError(
            "this data has no texts of queries",
            hint="prepare it with --format texts or --query-texts; rg2 does without texts",
        )
    texts = data.query_texts if queries is None else data.query_texts.select(queries)
    return texts.to(device)


def only(texts: Texts, kept: Tensor) -> Texts:
    """The texts where ``kept`` [n], and no words elsewhere: rows stay where they are."""
    of_word = torch.repeat_interleave(kept, texts.counts())
    counts = texts.counts() * kept
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    weights = None if texts.weights is None else texts.weights[of_word]
    return Texts(offsets, texts.tokens[of_word], weights)


def _candidate_texts(data: Dataset, device: torch.device) -> Texts:
    """The candidates' texts, without words where there are none."""
    if data.candidate_texts is not None:
        return data.candidate_texts.to(device)
    offsets = torch.zeros(data.split("train").n_candidates + 1, dtype=torch.int64, device=device)
    return Texts(offsets, torch.empty(0, dtype=torch.int32, device=device))


def _lists(bags: Texts, n_words: int) -> Interactions:
    """The texts of each word."""
    return Interactions(bags.offsets, bags.tokens, bags.weights, n_words).transpose()


# ---------------------------------------------------------------------------------- the model


def to_tensors(known: Known) -> dict[str, Tensor]:
    """What a model keeps."""
    tensors = {
        "idf": known.idf,
        "word_pairs": known.word_pairs,
        "offsets": known.chosen.offsets,
        "candidates_of_queries": known.chosen.candidates,
        "sizes": torch.tensor([known.chosen.n_queries, known.chosen.n_candidates]),
    }
    for name, lists in (("query", known.queries), ("candidate", known.candidates)):
        assert lists.grades is not None
        tensors |= {
            f"{name}_list_offsets": lists.offsets,
            f"{name}_list_texts": lists.candidates,
            f"{name}_list_weights": lists.grades,
        }
    return tensors


def from_tensors(tensors: Mapping[str, Tensor]) -> Known:
    """The other way round."""
    n_queries, n_candidates = tensors["sizes"].tolist()
    queries = _kept_lists(tensors, "query", n_queries)
    candidates = _kept_lists(tensors, "candidate", n_candidates)
    chosen = Interactions(tensors["offsets"], tensors["candidates_of_queries"], None, n_candidates)
    return Known(tensors["idf"], tensors["word_pairs"], queries, candidates, chosen)


def _kept_lists(tensors: Mapping[str, Tensor], name: str, n_texts: int) -> Interactions:
    offsets, texts = tensors[f"{name}_list_offsets"], tensors[f"{name}_list_texts"]
    return Interactions(offsets, texts, tensors[f"{name}_list_weights"], n_texts)
