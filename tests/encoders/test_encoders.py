"""Tables, towers, scaled and biased encoders."""

import pytest
import torch

from rankfold.encoders.tables import Biased, Scaled, Tables
from rankfold.encoders.towers import NETWORKS, NetworkSpec, Residual, Towers
from rankfold.types import Columns, Features

NAN = float("nan")
SEEN = torch.ones(3).bool(), torch.tensor([True, True, True, False])


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def features() -> Features:
    numbers = torch.tensor([[1.0, 5.0], [3.0, NAN], [NAN, 5.0], [5.0, 5.0]])
    categories = torch.tensor([[0, 1], [1, 0], [0, -1], [2, 2]]).int()
    levels = {"colour": ("blue", "green", "red"), "size": ("large", "medium", "small")}
    return Features(numbers, categories, Columns(("price", "weight"), levels))


def towers() -> Towers:
    return Towers(SEEN, 6, rng(), (None, features()))


def test_tables_give_their_rows_and_all_of_them() -> None:
    made = Tables((3, 4), 6, rng())
    assert torch.equal(made.encode_queries(torch.tensor([2, 0])), made.queries.weight[[2, 0]])
    assert torch.equal(made.encode_candidates(None), made.candidates.weight)
    assert made.encode_candidates(torch.tensor([[1, 2], [3, 0]])).shape == (2, 2, 6)


def test_sparse_gradients_are_of_the_rows_used() -> None:
    made = Tables((3, 4), 6, rng(), sparse=True)
    made.encode_candidates(torch.tensor([3, 3, 1])).sum().backward()
    gradient = made.candidates.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert gradient.coalesce().indices().tolist() == [[1, 3]]
    assert gradient.to_dense()[3].tolist() == [2.0] * 6


def test_a_tower_matches_its_formula() -> None:
    made = towers().candidates
    known = made.known
    assert known is not None
    scaled = torch.tensor([[(3 - 3) / (8 / 3) ** 0.5, 0.0], [0.0, 0.0]])  # of rows 1 and 2
    levels = known.levels.weight
    own = made.own.weight[[1, 2]]
    summed = (
        own + scaled @ known.slopes + torch.stack([levels[1] + levels[3], levels[0] + levels[6]])
    )
    first, _, second = made.layers
    expected = summed + torch.relu(summed @ first.weight.T + first.bias) @ second.weight.T
    expected = expected + second.bias
    torch.testing.assert_close(made(torch.tensor([1, 2])), expected)
    torch.testing.assert_close(made(None)[[1, 2]], expected)


def test_rows_at_once_bound_the_network_and_change_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    class Counted(Residual):
        def forward(self, sums: torch.Tensor) -> torch.Tensor:
            sizes.append(len(sums))
            return super().forward(sums)

    monkeypatch.setitem(NETWORKS, "counted", Counted)
    rows, gradients = torch.tensor([[1, 2], [3, 0], [1, 1]]), []
    for at_once in (None, 4):
        spec = NetworkSpec("counted", at_once)
        made = Towers(SEEN, 6, rng(), (None, features()), network=spec)
        vectors = made.encode_candidates(rows)
        assert vectors.shape == (3, 2, 6)
        vectors.square().sum().backward()
        gradients.append([one.grad for one in made.candidates.parameters()])
    assert sizes == [6, 4, 2, 2, 4]  # the backward pass runs the network again
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(parts, whole)


def test_a_new_row_has_no_free_vector() -> None:
    made = towers().candidates
    known = features()
    same = Features(known.numbers[3:], known.categories[3:], known.columns)
    torch.testing.assert_close(made.encode_new(same), made(torch.tensor([3])))
    made(None).sum().backward()
    assert made.own.weight.grad is not None
    assert torch.equal(made.own.weight.grad[3], torch.zeros(6))


@pytest.mark.parametrize("columns", ["numbers", "categories"])
def test_features_may_be_of_one_kind(columns: str) -> None:
    known = features()
    if columns == "numbers":
        known = Features(known.numbers, known.categories[:, :0], Columns(("a", "b"), {}))
    else:
        known = Features(known.numbers[:, :0], known.categories, Columns((), known.columns.levels))
    result = Towers(SEEN, 6, rng(), (None, known)).encode_candidates(None)
    assert result.shape == (4, 6)
    assert result.isfinite().all()


def test_constant_and_empty_columns_are_harmless() -> None:
    numbers = torch.tensor([[7.0, NAN], [7.0, NAN]])
    known = Features(numbers, torch.zeros(2, 0).int(), Columns(("a", "b"), {}))
    seen = torch.ones(1).bool(), torch.ones(2).bool()
    assert Towers(seen, 3, rng(), (None, known)).encode_candidates(None).isfinite().all()


def test_cosine_over_temperature() -> None:
    plain = Tables((3, 4), 6, rng())
    made = Scaled(plain, "cosine", 0.1)
    scores = made.encode_queries(None) @ made.encode_candidates(None).T
    expected = torch.cosine_similarity(
        plain.queries.weight[:, None], plain.candidates.weight[None], dim=2
    )
    torch.testing.assert_close(scores, expected / 0.1)
    dot = Scaled(plain, "dot", 2.0)
    torch.testing.assert_close(
        dot.encode_queries(None) @ dot.encode_candidates(None).T,
        plain.queries.weight @ plain.candidates.weight.T / 2,
    )


def test_a_bias_is_added_to_every_score() -> None:
    plain, biases = Tables((3, 4), 6, rng()), torch.tensor([1.0, -2.0, 0.5, 0.0])
    made = Biased(plain, biases)
    torch.testing.assert_close(
        made.encode_queries(None) @ made.encode_candidates(None).T,
        plain.queries.weight @ plain.candidates.weight.T + biases,
    )
    assert made.encode_candidates(torch.tensor([[1], [3]]))[:, 0, -1].tolist() == [-2.0, 0.0]
