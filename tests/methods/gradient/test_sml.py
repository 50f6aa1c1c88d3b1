"""The loss of sml by hand, and the vectors that it exports."""

from dataclasses import replace

import pytest
import torch
from planted import split_groups

import rankfold as rf
from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.gradient.sml import SmlConfig, UnitBall, as_products, within
from rankfold.types import Batch, Columns, Features, Pool, Run

BATCH = Batch(torch.tensor([0, 3, 3]), torch.tensor([1, 1, 5]))
POOL = Pool(torch.tensor([[2, 4], [7, 1], [0, 6]]), torch.zeros(3, 2), torch.zeros(3))
VALID = torch.tensor([[True, True], [True, False], [True, True]])


def run() -> Run:
    rng = torch.Generator().manual_seed(0)
    return Run(rng=rng, device=torch.device("cpu"), comm=SingleProcess())


def unit_ball() -> UnitBall:
    data = split_groups()
    made = UnitBall(data, data.split("train"), SmlConfig(width=3), run())
    with torch.no_grad():
        for parameter in made.parameters():
            draws = torch.Generator().manual_seed(parameter.numel())
            parameter.copy_(torch.randn(parameter.shape, generator=draws))
    return made


def test_sml_matches_its_formula() -> None:
    made = unit_ball()
    config = SmlConfig(width=3, candidate_weight=0.3, margin_weight=0.2)
    tables = made.encoder.encoder
    p, q = (within(t.weight).detach() for t in (tables.queries, tables.candidates))
    m, n = (t.weight.detach().sigmoid()[:, 0] for t in (made.query_margins, made.candidate_margins))
    assert float(p.norm(dim=1).max()) <= 1 + 1e-6  # in the ball, though not all tables are
    assert float(tables.queries.weight.detach().norm(dim=1).max()) > 1

    def d(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(((a - b) ** 2).sum())

    expected = []
    for row, (x, y) in enumerate(zip(*(t.tolist() for t in BATCH[:2]), strict=True)):
        others = [int(j) for j, good in zip(POOL.ids[row], VALID[row], strict=True) if good]
        near = d(p[x], q[y])
        first = [max(0.0, near - d(p[x], q[j]) + float(m[x])) for j in others]
        second = [max(0.0, near - d(q[y], q[j]) + float(n[y])) for j in others]
        bonus = 0.2 * (float(m[x]) + float(n[y]))
        expected.append(sum(first) / len(others) + 0.3 * sum(second) / len(others) - bonus)
    actual = made.losses(BATCH, POOL, VALID, config)
    assert actual.tolist() == pytest.approx(expected, abs=1e-5)


def test_products_order_candidates_as_distances_do() -> None:
    queries, candidates = torch.randn(5, 3), torch.randn(9, 3)
    actual = as_products(queries, candidates)
    scores = actual["queries"] @ actual["candidates"].T
    distances = torch.cdist(queries, candidates) ** 2
    expected = (queries**2).sum(dim=1, keepdim=True) - distances
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


def test_sml_ranks_new_candidates_by_their_features() -> None:
    data = split_groups()
    group = torch.tensor([int(key) % 6 for key in data.candidates.keys.to_list()])
    columns = Columns((), {"group": tuple("abcdef")})
    features = Features(torch.zeros(len(group), 0), group[:, None].int(), columns)
    data = replace(data, candidate_features=features)
    model = rf.fit("sml", data, encoder="towers", width=8, epochs=2).model
    encode = METHODS["sml"].open(model).features
    assert encode is not None
    result = encode(features, "candidate")
    assert result.shape == model.tensors["candidates"].shape
    torch.testing.assert_close(result[:, -1], -(result[:, :-1] ** 2).sum(dim=1))
    assert float(result[:, :-1].norm(dim=1).max()) <= 1 + 1e-6


@pytest.mark.parametrize("settings", [{"similarity": "cosine"}, {"temperature": 0.5}])
def test_cosines_and_temperatures_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UserError, match="sml ranks by distance"):
        rf.fit("sml", ([1, 2], [3, 4]), **settings)
