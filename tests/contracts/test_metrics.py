"""The contract of every registered metric."""

import pytest
import torch
from torch import Tensor

from rankfold.metrics import CATALOG_METRICS, METRICS
from rankfold.metrics.beyond_accuracy import taste_of
from rankfold.metrics.graded import GRADED_METRICS, GradedSpec, example, graded_values
from rankfold.metrics.judged import Judged, Taste, judge
from rankfold.types import Interactions, from_pairs

B, N, K = 40, 12, 8
RANK = torch.arange(1.0, N + 1)
WEIGHTS = 1 + torch.arange(1.0, N + 1).sqrt()
PER_QUERY = {name: metric.value for name, metric in METRICS.items()}
OF_TRUTH = [name for name, metric in METRICS.items() if metric.reads == "truth"]
OF_PROPENSITY = [name for name, metric in METRICS.items() if metric.reads == "propensity"]
WITH_BEST = [name for name, metric in METRICS.items() if metric.best is not None]


@pytest.fixture(params=range(3))
def rng(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(request.param)


def random_grades(rng: torch.Generator) -> Tensor:
    """[B, N]: 0 to N positives of grade 1 to 3 per query."""
    positive = torch.rand(B, N, generator=rng) < torch.rand(B, 1, generator=rng)
    return torch.randint(1, 4, (B, N), generator=rng) * positive.float()


def random_ids(rng: torch.Generator, n: int = N) -> Tensor:
    """[B, n]: every candidate once, in random order."""
    return torch.rand(B, n, generator=rng).argsort(dim=1)


def interactions(grades: Tensor) -> Interactions:
    queries, candidates = grades.nonzero().unbind(1)
    shape = (grades.shape[0], grades.shape[1])
    return from_pairs(queries, candidates, grades[queries, candidates], shape)


def taste(rows: int) -> Taste:
    """Training pairs that all of some queries share."""
    rng = torch.Generator().manual_seed(7)
    chosen = torch.rand(30, N, generator=rng) < torch.linspace(0.9, 0.1, N)
    return taste_of(interactions(chosen.float())).of(torch.zeros(rows, dtype=torch.int64))


def judge_dense(ids: Tensor, grades: Tensor) -> Judged:
    return judge(ids, interactions(grades), RANK, WEIGHTS, taste(len(ids)))


@pytest.mark.parametrize("name", PER_QUERY)
class TestMetric:
    def test_one_value_per_query_independent_of_the_others(
        self, name: str, rng: torch.Generator
    ) -> None:
        ids, grades = random_ids(rng)[:, :K], random_grades(rng)
        together = PER_QUERY[name](judge_dense(ids, grades), 5)
        assert together.shape == (B,)
        assert together.dtype == torch.float32
        for b in range(B):
            alone = PER_QUERY[name](judge_dense(ids[b : b + 1], grades[b : b + 1]), 5)
            torch.testing.assert_close(alone, together[b : b + 1])

    def test_results_after_rank_k_are_never_read(self, name: str, rng: torch.Generator) -> None:
        ids, grades = random_ids(rng), random_grades(rng)
        other = torch.cat([ids[:, :5], ids[:, 5:].flip(1)], dim=1)
        value = PER_QUERY[name](judge_dense(ids, grades), 5)
        assert torch.equal(PER_QUERY[name](judge_dense(other, grades), 5), value)
        torch.testing.assert_close(PER_QUERY[name](judge_dense(ids[:, :5], grades), 5), value)
        assert not torch.equal(PER_QUERY[name](judge_dense(ids.flip(1), grades), 5), value)

    def test_order_matters_only_if_declared(self, name: str, rng: torch.Generator) -> None:
        ids, grades = random_ids(rng), random_grades(rng)
        shuffled = torch.cat([ids[:, :5].flip(1), ids[:, 5:]], dim=1)
        value, other = (PER_QUERY[name](judge_dense(i, grades), 5) for i in (ids, shuffled))
        assert torch.allclose(value, other) != METRICS[name].ordered

    def test_only_padding_scores_zero(self, name: str, rng: torch.Generator) -> None:
        grades = random_grades(rng)
        grades[:, -1] = 1  # the candidate that -1 would index
        nothing = torch.full((B, K), -1)
        assert torch.equal(PER_QUERY[name](judge_dense(nothing, grades), 5), torch.zeros(B))

    def test_fewer_candidates_than_k_equal_padding(self, name: str, rng: torch.Generator) -> None:
        ids, grades = random_ids(rng), random_grades(rng)
        padded = torch.cat([ids, torch.full((B, 20 - N), -1)], dim=1)
        torch.testing.assert_close(
            PER_QUERY[name](judge_dense(ids, grades), 20),
            PER_QUERY[name](judge_dense(padded, grades), 20),
        )

    def test_truth_without_grades_equals_grades_of_one(
        self, name: str, rng: torch.Generator
    ) -> None:
        ids, truth = random_ids(rng)[:, :K], interactions(random_grades(rng))
        plain = Interactions(truth.offsets, truth.candidates, None, N)
        ones = Interactions(truth.offsets, truth.candidates, torch.ones(truth.n_pairs), N)
        values = PER_QUERY[name](judge(ids, plain, RANK, WEIGHTS, taste(B)), 5)
        assert torch.equal(values, PER_QUERY[name](judge(ids, ones, RANK, WEIGHTS, taste(B)), 5))
        assert values.any()

    def test_no_queries_give_no_values(self, name: str) -> None:
        none = judge_dense(torch.empty(0, K, dtype=torch.int64), torch.empty(0, N))
        assert PER_QUERY[name](none, 5).shape == (0,)

    def test_inputs_are_not_changed(self, name: str, rng: torch.Generator) -> None:
        judged = judge_dense(random_ids(rng)[:, :K], random_grades(rng))
        before = [field.clone() for field in judged if isinstance(field, Tensor)]
        PER_QUERY[name](judged, 5)
        after = [field for field in judged if isinstance(field, Tensor)]
        assert len(after) == 7
        assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("name", OF_TRUTH)
class TestMetricOfTruth:
    def test_value_is_between_zero_and_one(self, name: str, rng: torch.Generator) -> None:
        values = PER_QUERY[name](judge_dense(random_ids(rng)[:, :K], random_grades(rng)), 5)
        assert values.min() >= 0
        assert values.max() <= 1

    def test_best_first_is_the_maximum(self, name: str, rng: torch.Generator) -> None:
        grades = random_grades(rng)
        best = PER_QUERY[name](judge_dense(grades.argsort(dim=1, descending=True), grades), 5)
        some = PER_QUERY[name](judge_dense(random_ids(rng), grades), 5)
        worst = PER_QUERY[name](judge_dense(grades.argsort(dim=1), grades), 5)
        assert (best >= some).all()
        assert (some >= worst).all()
        assert (best > worst).any()

    def test_a_list_of_positives_scores_one(self, name: str, rng: torch.Generator) -> None:
        grades = torch.zeros(B, N).scatter(1, random_ids(rng)[:, :5], 1.0)
        best = PER_QUERY[name](judge_dense(grades.argsort(dim=1, descending=True), grades), 5)
        torch.testing.assert_close(best, torch.ones(B))


@pytest.mark.parametrize("name", OF_TRUTH + OF_PROPENSITY)
class TestMetricOfPositives:
    def test_padding_counts_as_negatives(self, name: str, rng: torch.Generator) -> None:
        grades = random_grades(rng)
        grades[:, -1], grades[:, 8:11] = 1, 0
        head = random_ids(rng, 8)[:, :3]
        negatives = torch.cat([head, torch.tensor([8, 9, 10]).expand(B, 3)], dim=1)
        padded = torch.cat([head, torch.full((B, 3), -1)], dim=1)
        values = PER_QUERY[name](judge_dense(padded, grades), 6)
        assert torch.equal(values, PER_QUERY[name](judge_dense(negatives, grades), 6))
        assert values.any()

    def test_query_without_a_positive_scores_zero(self, name: str, rng: torch.Generator) -> None:
        judged = judge_dense(random_ids(rng)[:, :K], torch.zeros(B, N))
        assert torch.equal(PER_QUERY[name](judged, 5), torch.zeros(B))


@pytest.mark.parametrize("name", OF_PROPENSITY)
class TestPropensityMetric:
    def test_grades_do_not_matter(self, name: str, rng: torch.Generator) -> None:
        ids, grades = random_ids(rng)[:, :K], random_grades(rng)
        values = PER_QUERY[name](judge_dense(ids, grades), 5)
        ones = (grades > 0).float()
        assert torch.equal(PER_QUERY[name](judge_dense(ids, ones), 5), values)


@pytest.mark.parametrize("name", WITH_BEST)
class TestBest:
    def test_no_list_is_better(self, name: str, rng: torch.Generator) -> None:
        value, best = METRICS[name].value, METRICS[name].best
        assert best is not None
        judged = judge_dense(random_ids(rng)[:, :K], random_grades(rng))
        assert (value(judged, 5) <= best(judged, 5) * (1 + 1e-6)).all()
        assert (value(judged, 5) < best(judged, 5)).any()

    def test_sorting_by_weight_reaches_the_maximum(self, name: str, rng: torch.Generator) -> None:
        value, best = METRICS[name].value, METRICS[name].best
        assert best is not None
        grades = random_grades(rng)
        ids = ((grades > 0) * WEIGHTS).argsort(dim=1, descending=True)
        judged = judge_dense(ids, grades)
        torch.testing.assert_close(value(judged, 5), best(judged, 5))
        assert best(judged, 5).any()

    def test_does_not_depend_on_the_list(self, name: str, rng: torch.Generator) -> None:
        best = METRICS[name].best
        assert best is not None
        grades = random_grades(rng)
        one, other = (judge_dense(random_ids(rng)[:, :K], grades) for _ in range(2))
        assert torch.equal(best(one, 5), best(other, 5))

    def test_query_without_a_positive_scores_zero(self, name: str, rng: torch.Generator) -> None:
        best = METRICS[name].best
        assert best is not None
        judged = judge_dense(random_ids(rng)[:, :K], torch.zeros(B, N))
        assert torch.equal(best(judged, 5), torch.zeros(B))


@pytest.mark.parametrize("name", [n for n, m in CATALOG_METRICS.items() if m.more_is_better])
class TestCatalogMetric:
    def test_is_a_share_that_grows_with_the_returned_candidates(self, name: str) -> None:
        nothing, some, all_ = (torch.arange(N) < n for n in (0, N // 2, N))
        values = [
            CATALOG_METRICS[name].value(returned.long()) for returned in (nothing, some, all_)
        ]
        assert all(value.shape == () for value in values)
        assert values[0] == 0 < values[1] < values[2] == 1


def random_rows(rng: torch.Generator, n: int = 60) -> tuple[Tensor, Tensor]:
    """Scores that correlate with the grades 0 to 3, with many ties; every grade occurs."""
    grades = torch.cat([torch.arange(4), torch.randint(0, 4, (n - 4,), generator=rng)])
    scores = (grades + 2 * torch.randn(n, generator=rng)).round()
    return scores, grades


@pytest.mark.parametrize("fpr", [0.05, 0.3])
@pytest.mark.parametrize("name", GRADED_METRICS)
class TestGradedMetric:
    def spec(self, name: str, fpr: float) -> GradedSpec:
        return GradedSpec(name, fpr if "@" in example(name) else None)

    def test_values_are_between_zero_and_one(
        self, name: str, fpr: float, rng: torch.Generator
    ) -> None:
        values = graded_values(*random_rows(rng), 4, self.spec(name, fpr))
        assert values.shape == ((1,) if name == "order" else (3,))
        assert values.dtype == torch.float64
        assert values.min() >= 0
        assert values.max() <= 1

    def test_only_the_order_of_scores_matters(
        self, name: str, fpr: float, rng: torch.Generator
    ) -> None:
        (scores, grades), spec = random_rows(rng), self.spec(name, fpr)
        values = graded_values(scores, grades, 4, spec)
        levels, level = scores.double().unique(return_inverse=True)  # equal scores stay equal
        for changed in (levels.exp(), levels * 3 - 7, levels.atan(), levels**3):
            assert torch.equal(graded_values(changed[level], grades, 4, spec), values)
        assert not torch.equal(graded_values(-scores, grades, 4, spec), values)

    def test_the_order_of_rows_does_not_matter(
        self, name: str, fpr: float, rng: torch.Generator
    ) -> None:
        (scores, grades), spec = random_rows(rng), self.spec(name, fpr)
        other = torch.randperm(len(grades), generator=rng)
        values = graded_values(scores[other], grades[other], 4, spec)
        torch.testing.assert_close(values, graded_values(scores, grades, 4, spec))

    def test_duplicating_all_rows_changes_nothing(
        self, name: str, fpr: float, rng: torch.Generator
    ) -> None:
        """A rate that is a whole number of rows remains one with twice as many."""
        (scores, grades), spec = random_rows(rng), self.spec(name, fpr)
        once, twice = ((scores.repeat(n), grades.repeat(n)) for n in (20, 40))
        torch.testing.assert_close(graded_values(*twice, 4, spec), graded_values(*once, 4, spec))

    def test_grades_as_scores_are_perfect(
        self, name: str, fpr: float, rng: torch.Generator
    ) -> None:
        (scores, grades), spec = random_rows(rng), self.spec(name, fpr)
        best = graded_values(grades.double(), grades, 4, spec)
        if name == "tpr-closest":  # its cuts are scores of rows, so a cut may be one too high
            best = graded_values(grades - torch.rand(60, generator=rng) / 2, grades, 4, spec)
            assert (best >= graded_values(-scores, grades, 4, spec)).all()
        else:
            torch.testing.assert_close(best, torch.ones_like(best))

    def test_negated_scores_are_worse(self, name: str, fpr: float, rng: torch.Generator) -> None:
        (scores, grades), spec = random_rows(rng), self.spec(name, fpr)
        values = [graded_values(s, grades, 4, spec).mean() for s in (scores, -scores)]
        assert values[0] > values[1]
        if name in ("auc", "order"):  # symmetric in positives and negatives
            assert values[0] + values[1] == pytest.approx(1)
            turned = graded_values(-scores, 3 - grades, 4, spec)
            torch.testing.assert_close(turned.flip(0), graded_values(scores, grades, 4, spec))

    def test_inputs_are_not_changed(self, name: str, fpr: float, rng: torch.Generator) -> None:
        scores, grades = random_rows(rng)
        before = scores.clone(), grades.clone()
        graded_values(scores, grades, 4, self.spec(name, fpr))
        assert torch.equal(scores, before[0])
        assert torch.equal(grades, before[1])
