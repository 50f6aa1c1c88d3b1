"""How well a model does on what it has not seen.

Here one that ranks: every candidate is ranked, seen pairs are left out. ``grading.py`` has those of
graded rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold import config
from rankfold.data.build.align import renumber, rows_of, same_keys
from rankfold.data.build.tokens import same_tokens
from rankfold.data.folder import load as load_data
from rankfold.data.folder import part
from rankfold.data.integrity import check_content
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.distributed.connection import connect
from rankfold.errors import UserError
from rankfold.index.exact import block_rows
from rankfold.metrics import (
    CATALOG_METRICS,
    METRICS,
    MetricSpec,
    Propensity,
    check_propensity,
    count_returned,
    frequency_groups,
    inverse_propensity,
    judge,
    parse,
    popularity_rank,
    within,
)
from rankfold.metrics.strata import GROUPS
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.models.searcher import Searcher, find_index, ranks_by_text
from rankfold.tasks.evaluate_graded import (
    GRADED_DEFAULTS,
    Certainty,
    GradedEvaluation,
    evaluate_graded,
)
from rankfold.types import Comm, Dataset, Interactions, Model, Progress, SplitName, Texts, silent

OPTIONS = {"samples": "--bootstrap", "calibration": "--calibration", "seed": "--seed"}
DEFAULT_METRICS = ("ndcg@10", "mrr@10", "recall@20", "hit@10", "coverage@10")


@dataclass(frozen=True, slots=True)
class Stratum:
    """The same lists, held against the positives of one group of candidates alone."""

    name: str  # head, torso, tail; unseen: not in train
    candidates: int  # of the data in this group
    train_pairs: int
    queries: int  # scored ones with a positive in the group; the others are left out
    metrics: Mapping[str, float]  # those that look at the truth; empty where there are no queries


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over queries, and the values they are the means of.

    A query's psp is its psp-raw over the mean best psp-raw of all queries: their mean is the ratio
    of sums that is reported, and one of them may be above 1. Likewise psn.
    """

    split: str
    queries: int  # that were scored
    without_positive: int  # queries left out because the split has no pair of theirs
    unknown: int  # queries left out because the model does not know them
    trained_on: int  # pairs of the split that the model was fitted on: the values are too high
    metrics: Mapping[str, float]
    per_query: Mapping[str, NDArray[np.float32]]  # in the order of ``rows``
    rows: NDArray[np.int64]  # the scored queries' rows in the data
    propensity: Propensity | None = None  # None: no metric is propensity-scored
    strata: Sequence[Stratum] = ()  # if they were asked for

    def __getitem__(self, metric: str) -> float:
        return self.metrics[metric]

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "split": self.split,
            "queries": self.queries,
            "without_positive": self.without_positive,
            "unknown": self.unknown,
            "trained_on": self.trained_on,
            "metrics": dict(self.metrics),
        }
        if self.propensity is not None:
            document["propensity"] = self.propensity._asdict()
        if self.strata:
            document["strata"] = [asdict(stratum) for stratum in self.strata]
        return document


def evaluate(
    ranker: Ranker | Grader | str | Path,
    data: Dataset | str | Path,
    *,
    split: SplitName = "test",
    metrics: Sequence[str] | str | None = None,
    propensity: tuple[float, float] | None = None,
    strata: bool = False,
    index: str = "exact",
    memory_budget: int = 2**30,
    progress: Progress = silent,
    **graded: Any,
) -> Evaluation | GradedEvaluation:
    """Rank all candidates for every query with a pair in ``split``, or grade its rows.

    Training pairs may not be returned when validation is scored, nor training and validation pairs
    when test is. Data other than the model's own is matched by key: a query that the model does not
    know is left out and counted; a candidate that it does not know is a positive it cannot find.
    A model that ranks by text knows every query, by the text that the data has of it. Graded rows
    are held against the metrics of ``metrics/graded.py``, with intervals. Under torchrun each
    process ranks for its own queries, or scores its own rows; all get the values of all.

    Args:
        ranker: a model or its folder.
        data: prepared data or its folder.
        split: validation or test.
        metrics: names with a cut-off, or with a false-positive rate; None: the usual ones.
        propensity: A and B of psp and psn, by counts of the data's training pairs; None: the usual.
        strata: also measure by how frequent the positives are in the data's training pairs.
        index: what searches vectors: exact or approximate.
        memory_budget: bytes for blocks.
        progress: told after each block.
        graded: of graded rows, the fields of ``Certainty``: samples, seed, confidence, calibration.
    """
    comm = connect()
    data = part(data, comm) if isinstance(data, Dataset) else load_data(data, comm)
    ranker = ranker if isinstance(ranker, Ranker | Grader) else load(ranker)
    if split not in ("validation", "test"):
        raise UserError(f"cannot evaluate on {split!r}", hint="use --split validation or test")
    if isinstance(ranker, Grader):
        _refuse_for_rows(strata=strata, index=index != "exact", propensity=propensity is not None)
        names, how = (
            GRADED_DEFAULTS if metrics is None else metrics,
            config.build(Certainty, graded),
        )
        return evaluate_graded(
            ranker, data, split=split, metrics=names, how=how, progress=progress, comm=comm
        )
    config.check_names(Certainty, graded)
    if graded:
        option = next(iter(graded))
        raise UserError(
            f"{option} is for graded rows, and {ranker.model.method} ranks candidates",
            hint=f"leave {OPTIONS.get(option, option)} out",
        )
    return evaluate_ranking(
        ranker,
        data,
        split=split,
        metrics=DEFAULT_METRICS if metrics is None else metrics,
        propensity=Propensity() if propensity is None else propensity,
        strata=strata,
        index=index,
        memory_budget=memory_budget,
        progress=progress,
    )


def _refuse_for_rows(**options: bool) -> None:
    """A UserError for the first option that was given: a model that grades rows has none of it."""
    for option, given in options.items():
        if given:
            raise UserError(
                f"{option} is for models that rank candidates, and this one grades rows",
                hint=f"leave --{option} out",
            )


def evaluate_ranking(
    ranker: Ranker,
    data: Dataset,
    *,
    split: SplitName,
    metrics: Sequence[str] | str,
    propensity: tuple[float, float],
    strata: bool,
    index: str,
    memory_budget: int,
    progress: Progress,
) -> Evaluation:
    """Rank all candidates for every query with a pair in ``split``; see ``evaluate``.

    Of several processes each ranks for its own queries; the values of all are then gathered.
    """
    comm = connect()
    specs = [parse(name) for name in ([metrics] if isinstance(metrics, str) else metrics)]
    if not specs:
        raise UserError("no metric was asked for", hint=f"say {', '.join(DEFAULT_METRICS)}")
    given = check_propensity(propensity)
    check_content(data)
    by_text = ranks_by_text(ranker.model)
    if by_text:
        _check_texts(ranker, data)
    build = find_index(index, ranker.model)
    matched = _match(ranker, data, split)
    has_positive, known = matched.truth.counts() > 0, (matched.places >= 0) | by_text
    rows = torch.nonzero(has_positive & known).flatten()
    if _sum_over_ranks(len(rows), comm) == 0:
        raise UserError(
            f"no query of the {split} split is known to the model",
            hint="was the model fitted on other data?",
        )
    counts = _Counts(data, comm)
    weights = _weights(specs, counts, matched, given)
    searcher = Searcher(ranker.model, matched.train, memory_budget, data.query_texts, build)
    if comm.size > 1:
        searcher.popularity = comm.sum(matched.train.candidate_counts())
    places = None if by_text else matched.places
    whole = _Tally(specs, matched.seen.n_candidates, _ranks(specs, searcher), weights, comm)
    groups = _groups(counts) if strata else []
    parts = [_Part(specs, matched.spread(group.members), weights, comm) for group in groups]
    tallies: list[_Tally | _Part] = [whole, *parts]
    for block, ids in _lists(searcher, matched.seen, rows, specs, places, progress):
        truth = matched.truth.select(block)
        for tally in tallies:
            tally.add(ids, truth)
    per_query = whole.per_query()
    values = {**_means(per_query), **whole.of_all()}
    return Evaluation(
        split=split,
        queries=_sum_over_ranks(len(rows), comm),
        without_positive=_sum_over_ranks(int((~has_positive).sum()), comm),
        unknown=_sum_over_ranks(int((has_positive & ~known).sum()), comm),
        trained_on=_sum_over_ranks(_trained_on(ranker, data, matched), comm),
        metrics={str(spec): values[str(spec)] for spec in specs},
        per_query=per_query,
        rows=comm.gather(rows + data.first).numpy(),
        propensity=None if weights is None else given,
        strata=[_stratum(*both) for both in zip(groups, parts, strict=True)],
    )


def _sum_over_ranks(number: int, comm: Comm) -> int:
    return int(comm.sum(torch.tensor(number)))


class Among(NamedTuple):
    """The processes among which queries are divided, and what the queries of all have chosen."""

    comm: Comm = SINGLE_PROCESS
    popularity: Tensor | None = None  # how many chose each candidate, [N]; None: one has them all


ONE = Among()


def score(
    model: Model,
    truth: Interactions,
    seen: Interactions,
    rows: Tensor,
    specs: Sequence[MetricSpec],
    *,
    train: Interactions | None = None,
    texts: Texts | None = None,
    memory_budget: int = 2**30,
    among: Among = ONE,
) -> tuple[dict[str, NDArray[np.float32]], dict[str, float]]:
    """The metrics' values for each of ``rows`` of all processes, and those that have one for all.

    Args:
        model: its candidates are the first of the truth's.
        truth: the positives, a row per query of the data.
        seen: what may not be returned, likewise.
        rows: the queries to score, as rows of ``truth``.
        specs: the metrics; not those that are propensity-scored.
        train: the pairs that popularity is counted in; None: ``seen``.
        texts: of the queries, for a model that ranks by these.
        memory_budget: bytes for blocks.
        among: the processes among which the queries are divided.
    """
    comm, popularity = among
    searcher = Searcher(model, seen if train is None else train, memory_budget, texts)
    if popularity is not None:
        searcher.popularity = popularity
    tally = _Tally(specs, seen.n_candidates, _ranks(specs, searcher), comm=comm)
    for block, ids in _lists(searcher, seen, rows, specs, None, silent):
        tally.add(ids, truth.select(block))
    return tally.per_query(), tally.of_all()


def _lists(
    searcher: Searcher,
    seen: Interactions,
    rows: Tensor,
    specs: Sequence[MetricSpec],
    places: Tensor | None,
    progress: Progress,
) -> Iterator[tuple[Tensor, Tensor]]:
    """A block of the rows after the other, and what they get; [B], [B, K]."""
    depth = min(max(spec.k for spec in specs), seen.n_candidates)
    step = block_rows(depth, searcher.memory_budget)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        own = block if places is None else places[block]
        yield block, searcher.of_queries(own, depth, seen.select(block)).ids.cpu()
        progress("evaluating", min(1.0, (start + step) / len(rows)))


class _Tally:
    """What the metrics make of one block of queries after the other."""

    def __init__(
        self,
        specs: Sequence[MetricSpec],
        n_candidates: int,
        ranks: Tensor | None = None,
        weights: Tensor | None = None,
        comm: Comm = SINGLE_PROCESS,
    ) -> None:
        each = [spec for spec in specs if spec.name not in CATALOG_METRICS]
        all_ = [spec for spec in specs if spec.name in CATALOG_METRICS]
        self.ranks, self.weights, self.comm = ranks, weights, comm
        self.values: dict[MetricSpec, list[Tensor]] = {spec: [] for spec in each}
        self.best: dict[MetricSpec, list[Tensor]] = {spec: [] for spec in each}
        self.shown = {spec: torch.zeros(n_candidates, dtype=torch.int64) for spec in all_}

    def add(self, ids: Tensor, truth: Interactions) -> None:
        judged = judge(ids, truth, self.ranks, self.weights)
        for spec, parts in self.values.items():
            metric = METRICS[spec.name]
            parts.append(metric.value(judged, spec.k))
            if metric.best is not None:
                self.best[spec].append(metric.best(judged, spec.k))
        for spec, counts in self.shown.items():
            counts += count_returned(ids, spec.k, len(counts))

    def per_query(self) -> dict[str, NDArray[np.float32]]:
        """One value per query of all processes, of which the mean is the metric."""
        found = {}
        for spec, parts in self.values.items():
            scaled = METRICS[spec.name].best is not None
            scale = float(self._gather(self.best[spec]).double().mean()) if scaled else 1.0
            found[str(spec)] = (self._gather(parts) / scale).numpy()
        return found

    def of_all(self) -> dict[str, float]:
        """One value for all queries."""
        shown = {spec: self.comm.sum(counts) for spec, counts in self.shown.items()}
        return {str(spec): float(CATALOG_METRICS[spec.name].value(n)) for spec, n in shown.items()}

    def _gather(self, parts: Sequence[Tensor]) -> Tensor:
        return self.comm.gather(torch.cat([*parts]) if parts else torch.zeros(0))


class _Part:
    """A tally of the queries with a positive among some of the candidates, of these alone."""

    def __init__(
        self, specs: Sequence[MetricSpec], members: Tensor, weights: Tensor | None, comm: Comm
    ) -> None:
        own = [spec for spec in specs if _reads(spec) in ("truth", "propensity")]
        self.tally = _Tally(own, 0, weights=weights, comm=comm)
        self.members = members
        self._queries = 0

    def add(self, ids: Tensor, truth: Interactions) -> None:
        truth = within(truth, self.members)
        rows = torch.nonzero(truth.counts() > 0).flatten()
        self.tally.add(ids[rows], truth.select(rows))
        self._queries += len(rows)

    def means(self) -> tuple[int, dict[str, float]]:
        """How many queries, and their mean values, if there are any."""
        queries = _sum_over_ranks(self._queries, self.tally.comm)
        return queries, _means(self.tally.per_query()) if queries > 0 else {}


def _reads(spec: MetricSpec) -> str:
    return METRICS[spec.name].reads if spec.name in METRICS else "catalog"


def _means(per_query: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    return {name: float(values.mean(dtype=np.float64)) for name, values in per_query.items()}


class _Matched(NamedTuple):
    """A split of the data in the columns of the model, those that it does not know at the end."""

    truth: Interactions
    seen: Interactions  # of the model's columns alone
    train: Interactions  # likewise
    places: Tensor  # the model's row of each query of the data, -1: unknown
    columns: Tensor  # the truth's column of each candidate of the data

    def spread(self, values: Tensor) -> Tensor:
        """What is known of the data's candidates, by the truth's columns; 0 for the others."""
        out = values.new_zeros(self.truth.n_candidates)
        out[self.columns] = values
        return out


def _match(ranker: Ranker, data: Dataset, split: SplitName) -> _Matched:
    truth, seen, train = data.split(split), data.seen(split), data.split("train")
    n = truth.n_queries
    places, columns = torch.arange(n) + data.first, torch.arange(len(data.candidates))
    if not same_keys(ranker.queries, data.queries):
        places = ranker.queries.find(data.queries.keys.slice(data.first, n))
    if not same_keys(ranker.candidates, data.candidates):
        columns = rows_of(ranker.candidates, data.candidates)
        n = len(ranker.candidates)
        truth = renumber(truth, columns, n + len(columns))
        seen, train = renumber(seen, columns, n), renumber(train, columns, n)
    return _Matched(truth, seen, train, places, columns)


def _check_texts(ranker: Ranker, data: Dataset) -> None:
    """A UserError where the texts of the data are not in the tokens of the model."""
    if data.query_texts is None:
        raise UserError(
            f"{ranker.model.method} ranks by the texts of queries, and the data has none",
            hint="prepare it with --format texts, --query-texts, or a --source that has texts",
        )
    ours = (ranker.n_tokens, _are_bags(ranker.texts))
    theirs = (data.n_tokens, _are_bags(data.query_texts))
    if ours != theirs or not same_tokens(ranker.tokenizer, data.tokenizer):
        raise UserError(
            f"the data has other tokens ({data.n_tokens:,}) than the model ({ranker.n_tokens:,})",
            hint="words are learnt when data is prepared: prepare what is to be fitted and what is "
            "to be evaluated as one, with --train F --test F; `predict` takes any texts",
        )


def _are_bags(texts: Texts | None) -> bool:
    return texts is not None and texts.weights is not None


def _same_queries(ranker: Ranker, data: Dataset, matched: _Matched) -> Tensor:
    """The model's row of each query with a positive, -1 where the model does not know it.

    Documents are often numbered anew: with one key, they are the same if the text is.
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


def _ranks(specs: Sequence[MetricSpec], searcher: Searcher) -> Tensor | None:
    """Popularity ranks, if a metric asks for them."""
    asked = any(_reads(spec) == "popularity" for spec in specs)
    return popularity_rank(searcher.popularity) if asked else None


@dataclass(frozen=True, slots=True)
class _Counts:
    """What is counted in the training pairs of all processes."""

    data: Dataset
    comm: Comm

    def candidates(self) -> Tensor:
        return self.comm.sum(self.data.split("train").candidate_counts())

    def queries(self) -> int:
        return _sum_over_ranks(int((self.data.split("train").counts() > 0).sum()), self.comm)


def _weights(
    specs: Sequence[MetricSpec], train: _Counts, matched: _Matched, propensity: Propensity
) -> Tensor | None:
    """1/p by the truth's columns, if a metric asks for it; counted in all of the data's train."""
    if not any(_reads(spec) == "propensity" for spec in specs):
        return None
    return matched.spread(inverse_propensity(train.candidates(), train.queries(), propensity))


class _Group(NamedTuple):
    name: str
    members: Tensor  # [N] bool, of the data's candidates
    train_pairs: int


def _groups(train: _Counts) -> list[_Group]:
    """Head, torso and tail, and the unseen if there are any."""
    counts = train.candidates()
    group = frequency_groups(counts)
    found = [(name, group == number) for number, name in enumerate(GROUPS)]
    return [
        _Group(name, members, int(counts[members].sum()))
        for name, members in found
        if name != "unseen" or bool(members.any())
    ]


def _stratum(group: _Group, part: _Part) -> Stratum:
    candidates = int(group.members.sum())
    return Stratum(group.name, candidates, group.train_pairs, *part.means())


def _trained_on(ranker: Ranker, data: Dataset, matched: _Matched) -> int:
    """How many pairs of the truth the model has learnt; there should be none.

    A fit without a refit learns the training pairs of its data alone, whatever else it has seen; a
    query that was folded in since has learnt all that it has seen.
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
