"""How well a model ranks a held-out split: every candidate is ranked, seen pairs are hidden."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.build.align import arrange, merge, renumber, rows_of, same_keys
from rankfold.data.build.retokenise import has_words
from rankfold.data.build.tokens import same_tokens
from rankfold.data.folder import check_content
from rankfold.distributed.collectives import count_over_ranks
from rankfold.distributed.connection import connect
from rankfold.errors import UserError
from rankfold.metrics import SET_METRICS, MetricSpec, parse
from rankfold.metrics.propensity import (
    Propensity,
    check_propensity,
    inverse_propensity,
    parse_propensity,
)
from rankfold.models.ranker import Ranker
from rankfold.models.reranking import Rules, choose, pool_size
from rankfold.models.search import Searcher, find_index, ranks_by_text
from rankfold.models.thresholds import F1, are_learnt
from rankfold.notebook import silent
from rankfold.tasks.metric_totals import (
    GroupTally,
    SetTally,
    Stratum,
    Tally,
    groups_of,
    lists,
    means_of,
    popularity_ranks,
    reads,
    train_taste,
)
from rankfold.tasks.options import DEFAULT_METRICS, SET_DEFAULTS, ListOptions
from rankfold.types import Comm, Dataset, Interactions, Progress, SplitName, Tabular

_USUAL = ListOptions()


@dataclass(frozen=True, slots=True)
class Evaluation(Tabular):
    """Means over queries, and the values of each query.

    The psp of a query is its psp-raw over the mean best psp-raw of all queries. The mean of these
    values is the reported ratio of sums; a single value may exceed 1. The same holds for psn.
    """

    split: str
    queries: int  # that were scored
    without_positive: int  # queries left out: no pair in the split
    unknown: int  # queries left out: the model does not know them
    trained_on: int  # pairs of the split that the model was fitted on: values are too high
    metrics: Mapping[str, float]
    per_query: Mapping[str, NDArray[np.float32]] = field(repr=False)  # in the order of ``rows``
    rows: NDArray[np.int64] = field(repr=False)  # the scored queries' rows in the data
    propensity: Propensity | None = None  # None: no metric is propensity-scored
    strata: Sequence[Stratum] = ()  # empty by default
    by_score: Mapping[str, float] | None = None  # without rules, where the lists follow some
    thresholds: str | None = None  # the goal of the metrics of sets; None: there are none

    def __getitem__(self, metric: str) -> float:
        return self.metrics[metric]

    def to_polars(self) -> pl.DataFrame:
        """A row per metric: metric, value, and by_score where the lists follow rules."""
        columns = {"metric": [*self.metrics], "value": [*self.metrics.values()]}
        if self.by_score is not None:
            columns["by_score"] = [*self.by_score.values()]
        return pl.DataFrame(columns)

    def to_json(self) -> dict[str, Any]:
        names = ("split", "queries", "without_positive", "unknown", "trained_on", "metrics")
        document = {name: getattr(self, name) for name in names}
        if self.propensity is not None:
            document["propensity"] = self.propensity._asdict()
        if self.thresholds is not None:
            document["thresholds"] = self.thresholds
        if self.by_score is not None:
            document["by_score"] = self.by_score
        if self.strata:
            document["strata"] = [asdict(stratum) for stratum in self.strata]
        return document


def evaluate_ranking(
    ranker: Ranker,
    data: Dataset,
    *,
    split: SplitName,
    metrics: Sequence[str] | str | None,
    options: ListOptions = _USUAL,
    progress: Progress = silent,
) -> Evaluation:
    """Rank all candidates for every query with a pair in ``split``; see ``evaluate``.

    Each process ranks for its own queries; the values of all are then gathered.
    """
    comm = connect()
    rules = Rules(diversity=options.diversity, at_most=options.at_most or {})
    specs = _parsed(_defaults(ranker, rules) if metrics is None else metrics, comm, rules)
    chosen, strata, goal = _propensity(options), options.strata, options.thresholds or F1
    check_content(data)
    by_text = ranks_by_text(ranker.model)
    data = _checked_texts(ranker, _in_tokens_of(ranker, data)) if by_text else data
    build = find_index(options.index, ranker.model)
    matched = _match(ranker, data, split)
    given, places = (None, None) if by_text else (matched.given, matched.places)
    has_positive = matched.truth.counts() > 0
    known = (matched.places >= 0) | (by_text or given is not None)
    rows = _rows_to_rank(has_positive & known, split, comm)
    train = data.split("train")
    weighted = any(reads(spec) == "propensity" for spec in specs)
    counts = comm.sum(train.candidate_counts()) if weighted or strata else torch.empty(0)
    weights = _weights(counts, train, chosen, matched, comm) if weighted else None
    searcher = Searcher(ranker.model, matched.train, options.memory_budget, data.query_texts, build)
    _share_popularity(searcher, matched.train, comm)
    if given is None and searcher.opened.known is not None:  # its queries are what they chose
        matched = _with_histories(matched, ranker, data, split)
    ranks, taste = popularity_ranks(specs, searcher), train_taste(specs, matched.train)
    new_tally = partial(Tally, specs, matched.seen.n_candidates, ranks, weights, comm, taste)
    tally, plain, k = new_tally(), new_tally(), max(spec.k for spec in specs)
    sets = SetTally(specs, searcher, goal, matched.truth.n_candidates)
    depth = pool_size(k) if rules else k
    groups = groups_of(counts) if strata else {}
    parts = {name: GroupTally(matched.spread(one), specs, tally) for name, one in groups.items()}
    now = matched.histories
    for block, top in lists(searcher, matched.seen, rows, depth, places, progress, given, now):
        truth, ids = matched.truth.select(block), top.ids.cpu()
        if rules:
            plain.add(ids[:, :k], truth, block)
            ids = choose(ranker, top, k, rules).ids.cpu()
        tally.add(ids, truth, block)
        sets.add(top, truth, block)
        for part in parts.values():
            part.add(ids, truth)
    per_query = tally.per_query()
    values = {**means_of(per_query), **tally.of_all(), **sets.values(comm)}
    return Evaluation(
        split=split,
        queries=count_over_ranks(len(rows), comm),
        without_positive=count_over_ranks((~has_positive).sum(), comm),
        unknown=count_over_ranks((has_positive & ~known).sum(), comm),
        trained_on=count_over_ranks(_trained_on(ranker, data, matched), comm),
        metrics={str(spec): values[str(spec)] for spec in specs},
        per_query=per_query,
        rows=comm.gather(rows + data.first).numpy(),
        propensity=None if weights is None else chosen,
        strata=[part.stratum(name, counts[groups[name]]) for name, part in parts.items()],
        by_score=plain.means() if rules else None,
        thresholds=goal if sets.specs else None,
    )


def _share_popularity(searcher: Searcher, train: Interactions, comm: Comm) -> None:
    """Count the training pairs of all processes."""
    if comm.size > 1:
        searcher.popularity = comm.sum(train.candidate_counts())


def _rows_to_rank(known: Tensor, split: SplitName, comm: Comm) -> Tensor:
    """The rows of the queries to rank; a UserError if no process has one."""
    if count_over_ranks(known.sum(), comm) == 0:
        raise UserError(
            f"no query of the {split} split is known to the model",
            hint="check that the model was fitted on this data",
        )
    return torch.nonzero(known).flatten()


def _defaults(ranker: Ranker, rules: Rules) -> Sequence[str]:
    """The default metrics of a model and of lists by these rules."""
    in_sets = are_learnt(ranker.model) and not rules
    return (*DEFAULT_METRICS, *SET_DEFAULTS) if in_sets else DEFAULT_METRICS


def _propensity(options: ListOptions) -> Propensity:
    """A and B, given as text or as numbers."""
    given = options.propensity
    if isinstance(given, str):
        return parse_propensity(given)
    return check_propensity(Propensity() if given is None else given)


def _parsed(metrics: Sequence[str] | str, comm: Comm, rules: Rules) -> list[MetricSpec]:
    """The metrics, which this number of processes can measure on lists by these rules."""
    specs = [parse(name) for name in ([metrics] if isinstance(metrics, str) else metrics)]
    if not specs:
        raise UserError("`metrics` is empty", hint=f"default: {','.join(DEFAULT_METRICS)}")
    wrong = next((spec for spec in specs if reads(spec) == "taste"), None)
    if wrong is not None and comm.size > 1:
        raise UserError(f"{wrong} needs all training pairs", hint="evaluate in one process")
    by_threshold = next((spec for spec in specs if spec.name in SET_METRICS), None)
    if by_threshold is not None and rules:
        raise UserError(
            f"{by_threshold} reads scores, which rules change", hint="leave one of them out"
        )
    return specs


def test_pairs(ranker: Ranker, pairs: Dataset) -> Dataset:
    """Data whose test split has these pairs, and whose training pairs the model has seen."""
    queries = merge(ranker.queries, pairs.queries.keys)
    candidates = merge(ranker.candidates, pairs.candidates.keys)

    def placed(rows: Interactions, own: Ranker | Dataset) -> Interactions:
        columns = candidates.find(own.candidates.keys)
        return arrange(renumber(rows, columns, len(candidates)), own.queries.find(queries.keys))

    return Dataset(
        kind="interactions",
        train=placed(ranker.seen, ranker),
        validation=None,
        test=placed(pairs.split("train"), pairs),
        queries=queries,
        candidates=candidates,
    )


class _Matched(NamedTuple):
    """A split of the data in the columns of the model; unknown columns come last."""

    truth: Interactions
    seen: Interactions  # the model's columns only
    train: Interactions  # the model's columns only
    given: Interactions | None  # the model's columns only
    places: Tensor  # the model's row of each query of the data, -1: unknown
    columns: Tensor  # the truth's column of each candidate of the data
    histories: Interactions | None = None  # what each query chose before; None: the model knows

    def spread(self, values: Tensor) -> Tensor:
        """Values of the data's candidates, by the truth's columns; 0 for the others."""
        out = values.new_zeros(self.truth.n_candidates)
        out[self.columns] = values
        return out


def _weights(
    counts: Tensor, train: Interactions, constants: Propensity, matched: _Matched, comm: Comm
) -> Tensor:
    """The inverse propensities of the truth's columns, by the counts of all training pairs."""
    n_train = count_over_ranks((train.counts() > 0).sum(), comm)
    return matched.spread(inverse_propensity(counts, n_train, constants))


def _match(ranker: Ranker, data: Dataset, split: SplitName) -> _Matched:
    truth, seen, train = data.split(split), data.seen(split), data.split("train")
    n, given = truth.n_queries, data.given
    places, columns = torch.arange(n) + data.first, torch.arange(len(data.candidates))
    if not same_keys(ranker.queries, data.queries):
        places = ranker.queries.find(data.queries.keys.slice(data.first, n))
    if not same_keys(ranker.candidates, data.candidates):
        columns = rows_of(ranker.candidates, data.candidates)
        n = len(ranker.candidates)
        truth = renumber(truth, columns, n + len(columns))
        seen, train = renumber(seen, columns, n), renumber(train, columns, n)
        given = None if given is None else renumber(given, columns, n)
    return _Matched(truth, seen, train, given, places, columns)


def _with_histories(matched: _Matched, ranker: Ranker, data: Dataset, split: SplitName) -> _Matched:
    """With all that the queries chose before the split, validation too when test is scored.

    Data without times cannot give them to a model that reads them in order: it has its own.
    """
    chosen = replace(data, excluded=None).seen(split)
    if not ranker.model.notes.get("by_time"):
        chosen = replace(chosen, times=None)
    elif chosen.times is None:
        return matched
    n = len(ranker.candidates)
    return matched._replace(histories=renumber(chosen, matched.columns, n))


def _in_tokens_of(ranker: Ranker, data: Dataset) -> Dataset:
    """The data with the texts of queries in the model's tokens, if they are there as written."""
    if "given_vectors" in ranker.model.notes and ranker.texts is not None:
        keys = data.queries.keys.slice(data.first, data.split("train").n_queries)
        texts = arrange(ranker.texts, ranker.queries.find(keys))
        return replace(data, query_texts=texts, tokenizer=None, n_tokens=ranker.n_tokens)
    if data.query_texts is None or ranker.tokenizer is None or not has_words(data):
        return data
    if same_tokens(ranker.tokenizer, data.tokenizer):
        return data
    words = data.queries.texts
    assert words is not None
    texts = ranker.tokens(words.slice(data.first, len(data.query_texts)))
    return replace(data, query_texts=texts, tokenizer=ranker.tokenizer, n_tokens=ranker.n_tokens)


def _checked_texts(ranker: Ranker, data: Dataset) -> Dataset:
    """The data; a UserError if it and the model have different tokens."""
    if data.query_texts is None:
        raise UserError(
            f"{ranker.model.method} ranks by the texts of queries, but the data has none",
            hint="prepare it with --format texts, --query-texts, or a --source that has texts",
        )
    n_tokens, both = (ranker.n_tokens, data.n_tokens), (ranker.texts, data.query_texts)
    bags = {texts is not None and texts.weights is not None for texts in both}
    if len({*n_tokens}) > 1 or len(bags) > 1 or not same_tokens(ranker.tokenizer, data.tokenizer):
        raise UserError(
            f"the data and the model have different tokens: {data.n_tokens:,} and "
            f"{ranker.n_tokens:,}",
            hint="`prepare` learns the words: prepare the data to fit and to evaluate together, "
            "with --train F --test F; `predict` takes any texts",
        )
    return data


def _same_queries(ranker: Ranker, data: Dataset, matched: _Matched) -> Tensor:
    """The model's row of each query with a positive, -1 if the model does not know it.

    Documents are often renumbered: two with the same key are the same if their texts are.
    """
    if ranker.texts is None or data.query_texts is None:
        return matched.places
    rows = ((matched.places >= 0) & (matched.truth.counts() > 0)).nonzero().flatten()
    ours, theirs = ranker.texts.counts()[matched.places[rows]], data.query_texts.counts()[rows]
    rows = rows[ours == theirs]
    left, right = ranker.texts.select(matched.places[rows]), data.query_texts.select(rows)
    owners = torch.repeat_interleave(rows, left.counts())
    places = torch.full_like(matched.places, -1)
    places[rows] = matched.places[rows]
    places[owners[left.tokens != right.tokens]] = -1
    return places


def _trained_on(ranker: Ranker, data: Dataset, matched: _Matched) -> int:
    """How many pairs of the truth the model was fitted on; there should be none.

    A fit without a refit learns only the training pairs of its data. A query that was folded in
    later has learnt all that it has seen.
    """
    notes, n, truth = ranker.model.notes, len(ranker.candidates), matched.truth
    folded_in = ranker.model.tensors.get("folded_in")
    own = bool(data.fingerprint) and notes.get("data") == data.fingerprint
    if own and not notes.get("refit") and folded_in is None:
        return 0
    queries = _same_queries(ranker, data, matched)[truth.query_of_pair().long()]
    known = (queries >= 0) & (truth.candidates < n)
    if own and not notes.get("refit") and folded_in is not None:
        known &= folded_in[queries]
    pairs = queries[known] * n + truth.candidates[known]
    seen = ranker.seen.query_of_pair().long() * n + ranker.seen.candidates
    return int(torch.isin(pairs, seen).sum())
