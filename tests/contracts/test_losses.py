"""The contract of every registered loss."""

import pytest
import torch

from rankfold.losses import LOSSES


@pytest.mark.parametrize("name", LOSSES)
class TestLoss:
    def test_one_value_per_query(self, name: str) -> None:
        ones = torch.ones(5, 9)
        assert LOSSES[name](torch.randn(5, 9), ones, ones.bool()).shape == (5,)

    def test_invalid_candidates_are_never_read(self, name: str) -> None:
        scores, grades = torch.randn(5, 9), torch.randint(0, 2, (5, 9))
        valid = torch.ones(5, 9).bool()
        valid[:, 4:] = False
        poisoned = scores.clone()
        poisoned[:, 4:] = torch.nan
        clean, dirty = scores.requires_grad_(), poisoned.requires_grad_()
        expected, result = (LOSSES[name](s, grades, valid) for s in (clean, dirty))
        torch.testing.assert_close(result, expected)
        expected.sum().backward()
        result.sum().backward()
        torch.testing.assert_close(dirty.grad, clean.grad)

    def test_candidate_order_does_not_matter(self, name: str) -> None:
        scores, grades = torch.randn(5, 9), torch.randint(0, 2, (5, 9))
        valid, weights, order = torch.rand(5, 9) > 0.3, torch.rand(5, 9), torch.randperm(9)
        torch.testing.assert_close(
            LOSSES[name](scores, grades, valid, weights),
            LOSSES[name](*(t[:, order] for t in (scores, grades, valid, weights))),
        )

    def test_queries_are_independent(self, name: str) -> None:
        scores, grades = torch.randn(5, 9), torch.randint(0, 2, (5, 9))
        valid = torch.rand(5, 9) > 0.3
        alone = [LOSSES[name](*(t[b : b + 1] for t in (scores, grades, valid))) for b in range(5)]
        torch.testing.assert_close(LOSSES[name](scores, grades, valid), torch.cat(alone))

    def test_equal_weights_change_nothing(self, name: str) -> None:
        scores, grades = torch.randn(5, 9), torch.randint(0, 2, (5, 9))
        valid = torch.rand(5, 9) > 0.3
        torch.testing.assert_close(
            LOSSES[name](scores, grades, valid, torch.ones(5, 9)),
            LOSSES[name](scores, grades, valid),
        )

    def test_inputs_are_not_modified(self, name: str) -> None:
        scores = torch.randn(5, 9)
        before = scores.clone()
        LOSSES[name](scores, torch.ones(5, 9), torch.ones(5, 9).bool())
        assert torch.equal(scores, before)

    def test_query_with_nothing_valid_costs_nothing(self, name: str) -> None:
        scores = torch.randn(5, 9, requires_grad=True)
        loss = LOSSES[name](scores, torch.ones(5, 9), torch.zeros(5, 9).bool())
        loss.sum().backward()
        assert torch.equal(loss, torch.zeros(5))
        assert scores.grad is not None
        assert scores.grad.isfinite().all()

    @pytest.mark.parametrize("missing", ["grade", "weight"])
    def test_query_without_a_positive_that_counts_costs_nothing(
        self, name: str, missing: str
    ) -> None:
        scores = torch.randn(5, 9, requires_grad=True)
        grades, weights = torch.zeros(5, 9), torch.zeros(5, 9)
        (weights if missing == "grade" else grades)[:, :4] = 1
        loss = LOSSES[name](scores, grades, torch.ones(5, 9).bool(), weights)
        loss.sum().backward()
        assert torch.equal(loss, torch.zeros(5))
        assert scores.grad is not None
        assert torch.equal(scores.grad, torch.zeros(5, 9))

    def test_gradient_is_that_of_the_value(self, name: str) -> None:
        rng = torch.Generator().manual_seed(3)
        scores = torch.randn(5, 9, generator=rng, dtype=torch.float64, requires_grad=True)
        grades, valid = torch.randint(0, 2, (5, 9), generator=rng), torch.ones(5, 9).bool()
        valid[:4] = torch.rand(4, 9, generator=rng) > 0.3
        weights = torch.rand(5, 9, generator=rng, dtype=torch.float64)
        assert torch.autograd.gradcheck(LOSSES[name], (scores, grades, valid, weights))
        assert torch.autograd.gradcheck(LOSSES[name], (scores, grades, valid))

    def test_scaling_the_weights_changes_nothing(self, name: str) -> None:
        scores, grades = torch.randn(5, 9), torch.randint(0, 2, (5, 9))
        valid, weights = torch.rand(5, 9) > 0.3, torch.rand(5, 9)
        factors = torch.tensor([[0.125], [0.5], [1.0], [3.0], [64.0]])
        torch.testing.assert_close(
            LOSSES[name](scores, grades, valid, factors * weights),
            LOSSES[name](scores, grades, valid, weights),
        )

    def test_the_dtype_is_that_of_the_scores(self, name: str) -> None:
        grades, valid = torch.randint(0, 2, (5, 9)), torch.rand(5, 9) > 0.3
        for dtype in (torch.float32, torch.float64):
            scores, weights = torch.randn(5, 9, dtype=dtype), torch.rand(5, 9, dtype=dtype)
            assert LOSSES[name](scores, grades, valid).dtype == dtype
            assert LOSSES[name](scores, grades, valid, weights).dtype == dtype
