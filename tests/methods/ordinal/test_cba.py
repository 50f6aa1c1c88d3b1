from dataclasses import replace
from typing import Any

import pytest
import torch
from linear_grades import balanced_rows

import rankfold as rf
from rankfold.encoders.row_inputs import RowShape
from rankfold.losses.low_fpr import surrogate_risk
from rankfold.methods.ordinal import cba
from rankfold.methods.ordinal.module import GradingModule, ShardedRows
from rankfold.methods.ordinal.training import FitContext, GradedBatch
from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.types import Columns, Dataset, Graded, Vocabulary


def tailed(n: int, seed: int) -> Graded:
    """Two numbers: the first separates better overall, the second better at the top.

    Negatives are widely spread along the first: the highest of them are above all positives.
    """
    rng = torch.Generator().manual_seed(seed)
    grades = torch.randint(0, 2, (n,), generator=rng)
    noise = torch.randn(n, 2, generator=rng)
    positives = torch.stack([3 + noise[:, 0], 0.6 + 0.9 * noise[:, 1]], dim=1)
    negatives = torch.stack([3 * noise[:, 0], 0.5 * noise[:, 1]], dim=1)
    numbers = torch.where(grades[:, None] > 0, positives, negatives)
    return Graded(numbers, torch.empty(n, 0, dtype=torch.int32), None, grades)


@pytest.fixture(scope="module")
def planted() -> Dataset:
    train, test = tailed(4000, 0), tailed(20_000, 2)
    columns = Columns(("wide", "narrow"), {})
    rows, names = Vocabulary.numbered(24_000), Vocabulary.numbered(2, ["no", "yes"])
    return Dataset("graded", train, None, test, rows, names, columns=columns)


def figures(name: str, data: Dataset, **settings: object) -> dict[str, float]:
    """A linear scorer, which cannot win both ends of the curve."""
    result = rf.fit(name, data, encoder="linear", epochs=10, **settings)
    rows = data.graded("test")
    scores = result.score(rows)
    names = ("tpr@fpr=.01", "auc")
    return {n: graded_mean(scores, rows.grades, 2, parse_graded(n)) for n in names}


@pytest.fixture(scope="module")
def ours(planted: Dataset) -> dict[str, float]:
    return figures("cba", planted, plain=0.0)


@pytest.mark.parametrize("other", ["ce", "fh-auc", "focal"])
def test_cba_wins_the_low_end_of_the_curve_and_others_the_auc(
    planted: Dataset, ours: dict[str, float], other: str
) -> None:
    theirs = figures(other, planted)
    assert theirs["auc"] > ours["auc"] + 0.02
    assert theirs["tpr@fpr=.01"] < 0.1
    assert ours["tpr@fpr=.01"] > 0.2


def test_validation_leaves_out_the_plain_network_where_the_risk_wins(planted: Dataset) -> None:
    chosen = rf.fit(
        "cba", replace(planted, validation=tailed(4000, 3)), encoder="linear", epochs=10
    )
    assert chosen.model.config["plain"] == 0
    assert rf.fit("cba", planted, encoder="linear", epochs=1).model.config["plain"] is None


def test_the_shares_are_those_of_the_log_odds() -> None:
    """Four grades: the score, three biases, and four outputs of the other half of the vectors."""
    head = cba.TwoHeads(6, 8, torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.bias.copy_(torch.tensor([9.0, 1.0, 0.0, -1.0]))
    vectors = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    score = vectors[:, 3:] @ head.score.weight[0] + head.score.bias
    p = (vectors[:, :3] @ head.plain.weight.T + head.plain.bias).softmax(dim=1)
    plain = torch.stack([p[:, k:].sum(1) / p[:, :k].sum(1) for k in (1, 2, 3)], dim=1).log()
    config = {"plain": 0.25, "classes": 1.0, "likelihood": "odds"}
    odds = 0.25 * plain + 0.75 * (score[:, None] + torch.tensor([1.0, 0.0, -1.0]))
    found = cba.recipe_of(config).score(head(vectors), 4)
    torch.testing.assert_close(found, odds.sigmoid().sum(dim=1).double())


@pytest.mark.parametrize("settings", [{}, {"plain": 0.5, "classes": 0.0}])
def test_one_network_of_earlier_versions_and_without_odds(settings: dict[str, float]) -> None:
    assert cba.recipe_of({"classes": 1.0, "likelihood": "odds", **settings}) is cba.ALONE


@pytest.mark.parametrize("ranks", ["direct", "likeness"])
def test_the_pairwise_loss_alone_wins_the_low_end_too(planted: Dataset, ranks: str) -> None:
    """Without the cross-entropy; the paper's wide Gaussian wins less, but more than others."""
    paper: dict[str, Any] = {"classes": 0.0, "ranks": ranks, "cache_weights": "equal"}
    assert figures("cba", planted, **paper)["tpr@fpr=.01"] > 0.2
    assert figures("cba", planted, **paper, sigma=0.354)["tpr@fpr=.01"] > 0.1


def context_of(rows: Graded, n_grades: int, config: cba.CbaConfig) -> FitContext:
    rng, shape = torch.Generator().manual_seed(0), RowShape.from_rows(rows, None)
    head = torch.nn.Linear(config.width, cba.outputs(n_grades))
    module = GradingModule(shape, "linear", head, rng, width=config.width, dropout=config.dropout)
    return FitContext(module, ShardedRows(rows), n_grades, config, rng)


def in_sixteenths(tensor: torch.Tensor) -> torch.Tensor:
    """Values whose products and sums are exact.

    Otherwise an older copy of a row, encoded in another batch, may differ in the last bit. If its
    score is higher, it counts as one more negative above the row.
    """
    return (tensor * 16).round() / 16


def exact_context(counts: list[int], config: cba.CbaConfig) -> FitContext:
    rng = torch.Generator().manual_seed(1)
    grades = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    grades = grades[torch.randperm(len(grades), generator=rng)]
    numbers = in_sixteenths(torch.randn(len(grades), 5, generator=rng) + 0.3 * grades[:, None])
    rows = Graded(numbers, torch.empty(len(grades), 0, dtype=torch.int32), None, grades)
    context = context_of(rows, len(counts), config)
    with torch.no_grad():
        for parameter in context.module.parameters():
            parameter.copy_(in_sixteenths(0.4 * torch.randn(parameter.shape, generator=rng)))
    return context


def seen_and_exact(context: FitContext) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of a batch of all rows, and the exact risk that it estimates."""
    rows, grades = context.rows.own, context.rows.grades
    vectors = context.module.vectors(rows)
    outputs = context.module.head(vectors)
    batch = GradedBatch(torch.arange(len(rows)), grades, vectors, outputs)
    expected = surrogate_risk(outputs[:, 0], grades, context.n_grades, 0.1, 0.1)
    return cba.rank_weighted_loss(context).losses(batch).mean(), expected


@pytest.mark.parametrize(
    ("counts", "cache"),
    [([30, 30, 30, 30], 30), ([60, 30, 20], 60), ([20, 30, 60], 60), ([37, 11, 5], 512)],
)
def test_with_all_rows_in_the_cache_it_is_the_exact_surrogate(
    counts: list[int], cache: int
) -> None:
    """The encoder is fixed; every row is in the batch, and once in the cache."""
    config = cba.CbaConfig(fpr=0.1, sigma=0.1, cache=cache, classes=0.0, width=6)
    context = exact_context(counts, config)
    result, expected = seen_and_exact(context)
    torch.testing.assert_close(result, expected)
    parameters = list(context.module.parameters())
    ours, theirs = (
        torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        for loss in (result, expected)
    )
    for mine, reference in zip(ours, theirs, strict=True):
        if reference is not None:
            torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("likelihood", ["odds", "classes"])
@pytest.mark.parametrize("ranks", ["direct", "likeness"])
def test_the_loss_of_a_batch_matches_the_formula(ranks: Any, likelihood: Any) -> None:
    """Four grades, with ranks from the cache, plus the likelihood of the score or of the others."""
    how: dict[str, Any] = {"fpr": 0.1, "sigma": 0.1, "ranks": ranks, "classes": 0.5, "width": 6}
    how["likelihood"] = likelihood
    context = exact_context([40, 30, 20, 10], cba.CbaConfig(cache=12, **how))
    some = torch.arange(0, 100, 3)
    grades, loss = context.rows.grades[some], cba.rank_weighted_loss(context)
    vectors = context.module.vectors(context.rows.own.select(some))
    outputs = context.module.head(vectors)
    result = loss.losses(GradedBatch(some, grades, vectors, outputs))
    assert isinstance(loss.memory, CrossBatchCache)
    ranks_of = loss.memory.ranks(
        vectors.detach(), cba.score_weights(context), by_likeness=ranks == "likeness"
    )
    log_p = outputs[:, 1:].log_softmax(dim=1)
    beside = -sum(log_p[row, grade] for row, grade in enumerate(grades.tolist())) / len(some)
    if likelihood == "odds":
        shares = torch.tensor([0.6, 0.3, 0.1])  # of the training rows, above each threshold
        odds = (outputs[:, :1] + (shares / (1 - shares)).log()).sigmoid()
        hits = grades[:, None] > torch.arange(3)
        beside = -torch.where(hits, odds, 1 - odds).log().sum() / len(some)
    for k in range(3):
        up, down = outputs[grades > k, 0], outputs[grades <= k, 0]
        p = (-((ranks_of[k][grades <= k] - 0.1) ** 2) / (2 * 0.1**2)).exp()
        costs = torch.nn.functional.softplus(down[None] - up[:, None])
        torch.testing.assert_close(result[k], (costs @ (p / p.sum())).mean() + 0.5 * beside)


@pytest.mark.parametrize("counts", [[60, 30, 20], [20, 30, 60]])
def test_equal_cache_weights_differ_for_unequal_grades(counts: list[int]) -> None:
    config = cba.CbaConfig(
        fpr=0.1, sigma=0.1, cache=60, classes=0.0, width=6, cache_weights="equal"
    )
    result, expected = seen_and_exact(exact_context(counts, config))
    assert abs(result.item() / expected.item() - 1) > 1e-4  # with shares: 1e-6


def test_the_first_cache_has_each_row_of_a_small_grade_once() -> None:
    rows = balanced_rows(3, 10).select(torch.tensor([0, 1, 2, 3, 4, 6, 7, 9]))  # 4, 3 and 1 of each
    context = context_of(rows, 3, cba.CbaConfig(cache=3, width=6))
    cache = cba.fill_cache(context)
    assert cache.counts.tolist() == cache.sizes.tolist() == [3, 3, 1]
    assert cache.taken.all()
    own, kept = (  # rounded: rows of other batches are summed in another order
        {tuple(v) for v in (vectors * 1e4).round().tolist()}
        for vectors in (context.module.vectors(rows), cache.vectors[:7])
    )
    assert len(kept) == 7
    assert kept < own
    torch.testing.assert_close(cache.shares, torch.tensor([4.0, 3.0, 1.0]) / 8)


def test_the_first_rows_of_a_large_grade_are_drawn_by_the_seed() -> None:
    """Data is often sorted: its first rows would not be a sample."""

    def drawn(seed: int) -> list[int]:
        context = context_of(balanced_rows(2, 200), 2, cba.CbaConfig(cache=20, width=6))
        return torch.cat(
            cba.first_rows(context._replace(rng=context.rng.manual_seed(seed)))
        ).tolist()

    assert drawn(0) == drawn(0) != drawn(1)
    assert max(drawn(0)[:20]) > 100


def test_a_row_of_a_small_grade_is_cached_once_with_its_latest_vector() -> None:
    """Not copies from earlier epochs."""
    rows = balanced_rows(3, 40)
    context = context_of(rows, 3, cba.CbaConfig(cache=512, width=6))
    loss = cba.rank_weighted_loss(context)
    latest = context.module.vectors(rows).detach()
    for epoch in range(2):
        for some in torch.randperm(len(rows)).split(11):
            latest[some] = shown = torch.randn(len(some), 6)
            loss.losses(GradedBatch(some, rows.grades[some], shown, context.module.head(shown)))
            kept = loss.memory.state()["vectors"][: len(rows)]
            result, expected = ((t * 1e4).round() for t in (kept, latest))
            assert sorted(result.tolist()) == sorted(expected.tolist()), epoch


def test_ranks_come_from_the_batch_and_the_cache_by_the_current_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every step the batch is in the cache before it is ranked, and the oldest rows are gone."""
    rows = balanced_rows(3, 40)
    context = context_of(rows, 3, cba.CbaConfig(cache=4, classes=0.0, width=6))
    calls: list[tuple[torch.Tensor, torch.Tensor]] = []
    ranks_of = CrossBatchCache.ranks

    def ranks(self: CrossBatchCache, vectors: torch.Tensor, head: torch.Tensor, **how: Any) -> Any:
        calls.append((self.vectors.clone(), head.clone()))
        return ranks_of(self, vectors, head, **how)

    monkeypatch.setattr(CrossBatchCache, "ranks", ranks)
    losses = cba.rank_weighted_loss(context).losses
    for start in (0, 12, 24):  # four of each grade
        some = torch.arange(start, start + 12)
        vectors = context.module.vectors(rows.select(some))
        losses(GradedBatch(some, rows.grades[some], vectors, context.module.head(vectors)))
        cached, head = calls[-1]
        by_grade = vectors.detach().view(4, 3, -1).transpose(0, 1)
        cached = cached[:12].view(3, 4, -1)
        assert torch.equal(cached.sort(dim=1).values, by_grade.sort(dim=1).values)
        assert torch.equal(head, context.module.head.weight[0])
        with torch.no_grad():
            context.module.head.weight.add_(1)
    assert len(calls) == 3


def test_a_threshold_with_an_empty_side_in_the_batch_costs_nothing() -> None:
    rows = balanced_rows(4, 8)
    context = context_of(rows, 4, cba.CbaConfig(cache=8, classes=0.0, width=6))
    some = (rows.grades >= 2).nonzero().flatten()
    vectors = context.module.vectors(rows.select(some))
    batch = GradedBatch(some, rows.grades[some], vectors, context.module.head(vectors))
    values = cba.rank_weighted_loss(context).losses(batch)
    assert values[:2].tolist() == [0.0, 0.0]
    assert values[2] > 0


def test_copies_fill_the_queues_of_small_grades() -> None:
    """The first rows of a grade with fewer rows than places repeat, each about as often."""
    grades = torch.tensor([0] * 5 + [1] * 40)
    rows = Graded(torch.zeros(45, 1), torch.empty(45, 0, dtype=torch.int32), None, grades)
    for entries, small in (("rows", 5), ("copies", 12)):
        config = cba.CbaConfig(cache=12, cache_entries=entries)
        context = FitContext(None, ShardedRows(rows), 2, config, torch.Generator())  # type: ignore[arg-type]
        first, second = cba.first_rows(context)
        assert (len(first), len(second)) == (small, 12)
        assert sorted(first.bincount().unique().tolist()) == ([1] if small == 5 else [2, 3])
