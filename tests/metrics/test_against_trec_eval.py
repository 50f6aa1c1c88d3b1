"""Values equal trec_eval's, for rankings with ties and for short lists."""

import pytest
import pytrec_eval
import torch
from torch import Tensor

from rankfold.metrics import METRICS
from rankfold.metrics.judged import judge
from rankfold.types import from_pairs

B, N = 60, 30
THEIRS = {
    "ndcg-graded": "ndcg_cut",
    "map": "map_cut",
    "recall": "recall",
    "precision": "P",
    "hit": "success",
}


@pytest.fixture(scope="module", params=range(3))
def ranking(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Scores [B, N] with many ties, -inf if not returned; grades [B, N] from 0 to 3.

    Some queries get fewer than ten candidates, one gets none, one has no positive.
    """
    rng = torch.Generator().manual_seed(request.param)
    scores = torch.randint(0, 6, (B, N), generator=rng).float()
    kept = torch.rand(B, 1, generator=rng)
    scores[torch.rand(B, N, generator=rng) > kept] = -torch.inf
    grades = torch.randint(1, 4, (B, N), generator=rng).float()
    grades[torch.rand(B, N, generator=rng) > 0.3] = 0
    scores[0], grades[1] = -torch.inf, 0
    return scores, grades


@pytest.mark.parametrize("k", [1, 5, 10, 50])
@pytest.mark.parametrize("name", THEIRS)
def test_same_values(name: str, k: int, ranking: tuple[Tensor, Tensor]) -> None:
    scores, grades = ranking
    measure = THEIRS[name]
    theirs = trec_eval(scores, grades, f"{measure}.{k}", f"{measure}_{k}")
    torch.testing.assert_close(ours(name, scores, grades, k), theirs)


@pytest.mark.parametrize("k", [1, 5, 10, 50])
def test_same_binary_ndcg_where_all_grades_are_one(k: int, ranking: tuple[Tensor, Tensor]) -> None:
    scores, grades = ranking
    theirs = trec_eval(scores, (grades > 0).float(), f"ndcg_cut.{k}", f"ndcg_cut_{k}")
    torch.testing.assert_close(ours("ndcg", scores, grades, k), theirs)


@pytest.mark.parametrize("k", [1, 2, 10, 50])
def test_same_reciprocal_rank(k: int, ranking: tuple[Tensor, Tensor]) -> None:
    scores, grades = ranking
    # trec_eval has no cut for it, so it is given only the first k.
    first = torch.full_like(scores, -torch.inf)
    order = best_first(scores)[:, :k]
    first.scatter_(1, order, scores.gather(1, order))
    theirs = trec_eval(first, grades, "recip_rank", "recip_rank")
    torch.testing.assert_close(ours("mrr", scores, grades, k), theirs)


def ours(name: str, scores: Tensor, grades: Tensor, k: int) -> Tensor:
    order = best_first(scores)[:, :k]
    ids = torch.where(scores.gather(1, order).isfinite(), order, -1)
    queries, candidates = grades.nonzero().unbind(1)
    truth = from_pairs(queries, candidates, grades[queries, candidates], (B, N))
    return METRICS[name].value(judge(ids, truth), k)


def best_first(scores: Tensor) -> Tensor:
    """Equal scores by ascending id."""
    return scores.argsort(dim=1, descending=True, stable=True)


def trec_eval(scores: Tensor, grades: Tensor, measure: str, key: str) -> Tensor:
    truth = {str(b): {document(y): int(grades[b, y]) for y in range(N)} for b in range(B)}
    run = {
        str(b): {document(y): s for y, s in enumerate(row) if s > -torch.inf}
        for b, row in enumerate(scores.tolist())
    }
    values = pytrec_eval.RelevanceEvaluator(truth, {measure}).evaluate(run)
    return torch.tensor([values[str(b)][key] for b in range(B)], dtype=torch.float32)


def document(candidate: int) -> str:
    """A name that makes trec_eval break ties as we do.

    Among equal scores it puts the alphabetically last name first; we put the lowest id
    first. So names descend, padded to one length, while ids ascend.
    """
    return f"{N - candidate:04d}"
