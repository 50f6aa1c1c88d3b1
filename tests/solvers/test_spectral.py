"""The decomposition equals the dense one and gives the minimum of the objective."""

import pytest
import torch
from dense import REG, SEPARABLE, Case, dense_puresvd, random_rows
from torch import Tensor

from rankfold.methods.closed_form.spectral import factors, fold
from rankfold.objectives.implicit import puresvd
from rankfold.objectives.quadratic import Objective, value
from rankfold.objectives.rg import rg2, rg2_weighted, rgx
from rankfold.solvers.als import candidate_step, query_step
from rankfold.solvers.least_squares import by_cholesky
from rankfold.solvers.spectral import Decomposition, Target, decompose, orthonormal
from rankfold.types import Interactions

LARGE = 2**30
CASES = [
    *SEPARABLE,
    Case("puresvd", puresvd, dense_puresvd),
    Case("puresvd-graded", puresvd, dense_puresvd, graded=True),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
EXPONENTS = {"rg2": (-0.5, 0.0), "rg2-exponents": (-0.25, 0.3), "rg2-graded": (-0.5, 0.0)}


def dense_target(case: Case, r: Tensor) -> Tensor:
    """T' = |I_x|^e (N r - |I_x|) sqrt(b_y), and R itself for PureSVD."""
    if case.name not in EXPONENTS:
        return r
    e, beta = EXPONENTS[case.name]
    sizes = r.sum(dim=1, keepdim=True)
    power = torch.where(sizes > 0, sizes.clamp(min=1) ** e, 0.0)
    return power * (r.shape[1] * r - sizes) * r.sum(dim=0).clamp(min=1) ** -beta


def planted(seed: int, *, graded: bool, m: int = 150, n: int = 120) -> tuple[Interactions, Tensor]:
    """Groups of different density, so that the first singular values are separated."""
    rng = torch.Generator().manual_seed(seed)
    group = torch.arange(m)[:, None] % 5 == torch.arange(n) % 5
    share = torch.where(group, 0.3 + 0.12 * (torch.arange(n) % 5), 0.03)
    chosen = torch.rand(m, n, generator=rng) < share
    dense = chosen.double()
    if graded:
        dense *= torch.randint(1, 5, dense.shape, generator=rng)
    return interactions(dense, graded=graded), dense


def interactions(dense: Tensor, *, graded: bool = False) -> Interactions:
    offsets = torch.cat([torch.zeros(1).long(), (dense > 0).sum(dim=1).cumsum(0)])
    grades = dense[dense > 0].float() if graded else None
    return Interactions(offsets, dense.nonzero()[:, 1].int(), grades, dense.shape[1])


def passes(
    objective: Objective, width: int, tolerance: float = 1e-4, budget: int = LARGE
) -> list[Decomposition]:
    rng = torch.Generator().manual_seed(5)
    return list(decompose(Target(objective, budget), width, rng, tolerance=tolerance))


def solved(objective: Objective, width: int, **how: float) -> tuple[Tensor, Tensor]:
    """Sigma and V of the last pass, in float64."""
    result = passes(objective, width, **how)[-1]
    assert result.vectors is not None
    return result.values.double(), result.vectors.double()


def solution(objective: Objective, width: int, tau: float) -> tuple[Tensor, Tensor]:
    """P and Q of the minimiser, in float64."""
    result = passes(objective, width)[-1]
    assert result.vectors is not None
    side = factors(objective, result.values, result.vectors, tau)
    a = objective.query_weight
    over = torch.where(a > 0, 1 / a, 0.0)
    queries = fold(side, objective.rows, objective.pull * over, objective.background * over)
    return queries.double(), side.candidates.double()


def threshold(case: Case, objective: Objective) -> float:
    """Reg sqrt(A B); PureSVD has no regulariser."""
    if case.name not in EXPONENTS:
        return 0.0
    return REG * float(objective.query_weight.sum() * objective.candidate_weight.sum()) ** 0.5


# ---------------------------------------------------------------------------- the decomposition


@each_case
@pytest.mark.parametrize("seed", range(3))
def test_small_matrix_is_decomposed_completely(case: Case, seed: int) -> None:
    rows, r = random_rows(seed, graded=case.graded)
    expected = torch.linalg.svdvals(dense_target(case, r))
    values, vectors = solved(case.build(rows), 7)
    expected = expected[expected > 1e-4 * expected[0]]  # float32 does not resolve smaller ones
    torch.testing.assert_close(values[: len(expected)], expected, rtol=1e-4, atol=0)
    assert float(values[len(expected) :].sum()) < 1e-3 * float(expected[0])
    inner = vectors.T @ vectors
    torch.testing.assert_close(inner, torch.eye(len(inner)).double(), atol=1e-5, rtol=0)


@each_case
@pytest.mark.parametrize("seed", range(3))
def test_first_values_and_their_space_are_those_of_the_dense_svd(case: Case, seed: int) -> None:
    rows, r = planted(seed, graded=case.graded)
    _, sigma, v = torch.linalg.svd(dense_target(case, r), full_matrices=False)
    width = 4
    assert sigma[width - 1] > 1.2 * sigma[width]  # the space is determined
    values, vectors = solved(case.build(rows), width)
    torch.testing.assert_close(values, sigma[:width], rtol=1e-5, atol=0)
    outside = vectors - v[:width].T @ (v[:width] @ vectors)
    assert float(outside.norm()) < 1e-3
    inner = vectors.T @ vectors
    torch.testing.assert_close(inner, torch.eye(width).double(), atol=1e-5, rtol=0)


@each_case
def test_residual_is_the_one_measured_densely(case: Case) -> None:
    rows, r = planted(7, graded=case.graded)
    matrix = dense_target(case, r)
    residuals = []
    for tolerance in (0.3, 0.03, 1e-3, 1e-4):
        actual = passes(case.build(rows), 4, tolerance)[-1]
        assert actual.vectors is not None
        values, vectors = actual.values.double(), actual.vectors.double()
        rest = matrix.T @ (matrix @ vectors) - vectors * values**2
        expected = float(rest.norm() / (values**2).norm())
        assert actual.residual == pytest.approx(expected, rel=0.02, abs=3e-6)
        assert actual.residual <= tolerance
        residuals.append(actual.residual)
    assert residuals == sorted(residuals, reverse=True)
    assert residuals[-1] < 0.1 * residuals[0]


def test_residual_falls_from_pass_to_pass_and_is_1_before_it_is_measured() -> None:
    rows, _ = planted(7, graded=False)
    result = passes(rg2(rows, 0.0), 12, 1e-9)
    measured = [one.residual for one in result if one.columns >= 24]
    assert [one.residual for one in result if one.columns < 24] == [1.0]
    assert measured == sorted(measured, reverse=True)
    assert [one.vectors is None for one in result] == [True] * (len(result) - 1) + [False]
    assert [one.columns for one in result] == sorted({one.columns for one in result})


def test_unconverged_iteration_ends_at_the_largest_space() -> None:
    rows, _ = random_rows(3, m=400, n=300)
    result = passes(rg2(rows, 0.0), 20, 1e-12)[-1]
    assert result.columns == 112  # whole blocks, about 6 times the width
    assert result.residual > 1e-12
    assert result.vectors is not None
    assert result.vectors.shape == (300, 20)


@pytest.mark.parametrize("width", [16, 20, 30])
def test_residual_includes_the_part_cut_off_at_a_full_space(width: int) -> None:
    """If the last block does not fit, its cut-off part is outside the space too."""
    rows, r = random_rows(3, m=400, n=300)
    result = passes(puresvd(rows), width, 1e-12)[-1]
    assert result.vectors is not None
    assert 5 * width < result.columns <= 6 * width
    values, vectors = result.values.double(), result.vectors.double()
    rest = r.T @ (r @ vectors) - vectors * values**2
    assert result.residual == pytest.approx(float(rest.norm() / (values**2).norm()), rel=0.02)


@pytest.mark.parametrize("width", [4, 12])
@each_case
def test_resumed_after_any_pass_gives_the_same_bits(case: Case, width: int) -> None:
    rows, _ = planted(2, graded=case.graded)
    objective, tolerance = case.build(rows), 1e-4
    target = Target(objective, LARGE)
    rng = torch.Generator().manual_seed(5)
    states, last = [], None
    for last in decompose(target, width, rng, tolerance=tolerance):
        states.append({name: tensor.clone() for name, tensor in last.state.items()})
    assert last is not None
    assert last.vectors is not None
    assert len(states) > 2
    for number, state in enumerate(states[:-1], 1):
        other = torch.Generator().manual_seed(99)
        resumed = list(decompose(target, width, other, tolerance=tolerance, resume=state))
        assert len(resumed) == len(states) - number
        assert torch.equal(resumed[-1].values, last.values)
        assert resumed[-1].vectors is not None
        assert torch.equal(resumed[-1].vectors, last.vectors)
        assert resumed[-1].residual == last.residual


@each_case
def test_memory_budget_changes_nothing_but_rounding(case: Case) -> None:
    rows, _ = planted(1, graded=case.graded)
    objective = case.build(rows)
    small = Target(objective, 20_000)
    assert len(list(small.pairs)) > 5
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(120, 3, generator=rng)
    expected = Target(objective, LARGE).normal(vectors)
    scale = float(expected.abs().max())
    torch.testing.assert_close(small.normal(vectors), expected, rtol=1e-5, atol=1e-5 * scale)
    values, space = solved(objective, 4)
    others, other_space = solved(objective, 4, budget=20_000)
    torch.testing.assert_close(others, values, rtol=1e-5, atol=0)
    torch.testing.assert_close(other_space @ other_space.T, space @ space.T, rtol=0, atol=1e-4)


# ---------------------------------------------------------------------------- degenerate matrices


@pytest.mark.parametrize(("m", "n", "width"), [(9, 7, 50), (5, 12, 8), (12, 5, 8)])
def test_width_beyond_the_matrix_gives_its_rank(m: int, n: int, width: int) -> None:
    rows, r = random_rows(4, m=m, n=n)
    values, vectors = solved(puresvd(rows), width)
    expected = torch.linalg.svdvals(r)
    rank = int((expected > 1e-6).sum())
    torch.testing.assert_close(values[:rank], expected[:rank], rtol=1e-4, atol=1e-4)
    assert len(values) == vectors.shape[1] <= min(m, n)


def test_rank_one_gives_one_value() -> None:
    r = torch.outer(torch.arange(1, 31), torch.arange(1, 21)).double()
    values, vectors = solved(puresvd(interactions(r, graded=True)), 6)
    expected = r.norm()
    assert float(values[0]) == pytest.approx(float(expected), rel=1e-5)
    assert float(values[1:].sum()) < 1e-3 * float(expected)
    along = torch.arange(1, 21).double()
    assert abs(float(vectors[:, 0] @ along / along.norm())) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("m", "n"), [(5, 4), (40, 30), (200, 150), (300, 1000)])
@pytest.mark.parametrize(("e", "beta"), [(-0.5, 0.0), (-0.375, 0.35)])
def test_decomposition_is_empty_if_every_pair_is_chosen(
    m: int, n: int, e: float, beta: float
) -> None:
    """T' is exactly zero, not the rounding error of its two parts."""
    objective = rg2(interactions(torch.ones(m, n)), 0.0, exponent=e, candidate_exponent=beta)
    result = passes(objective, 5)[-1]
    assert result.values.sum() == 0
    assert result.vectors is not None
    assert result.vectors.shape[0] == n
    assert not factors(objective, result.values, result.vectors, 0.0).candidates.any()


def test_decomposition_is_empty_without_pairs() -> None:
    result = passes(rg2(interactions(torch.zeros(6, 5)), 0.0), 3)[-1]
    assert result.values.sum() == 0


def test_one_query() -> None:
    """T' has one row: its length is the singular value, itself the vector."""
    r = torch.tensor([[1.0, 0, 1, 0, 0]]).double()
    values, vectors = solved(rg2(interactions(r), 0.0), 3)
    row = 2**-0.5 * (5 * r[0] - 2)
    assert values.tolist() == pytest.approx([float(row.norm())], rel=1e-5)
    torch.testing.assert_close(vectors[:, 0].abs(), (row / row.norm()).abs(), atol=1e-5, rtol=0)


def test_one_candidate() -> None:
    """PureSVD of a column is its length; for RG2 there is nothing to rank."""
    r = torch.tensor([[1.0], [0], [1]]).double()
    values, vectors = solved(puresvd(interactions(r)), 3)
    assert values.tolist() == pytest.approx([2**0.5], rel=1e-5)
    assert vectors.abs().flatten().tolist() == pytest.approx([1.0])
    assert solved(rg2(interactions(r), 0.0), 3)[0].sum() == 0


@pytest.mark.parametrize(
    "change",
    [lambda o: rgx(o), lambda o: rg2_weighted(o.rows, 0.1, 0.5)],
    ids=["centre", "extra"],
)
def test_objective_that_is_not_separable_is_refused(change: object) -> None:
    rows, _ = random_rows(0)
    with pytest.raises(ValueError, match="separable"):
        Target(change(rg2(rows, 0.1)), LARGE)  # type: ignore[operator]


def test_orthonormal_columns_span_the_part_outside() -> None:
    rng = torch.Generator().manual_seed(2)
    space = torch.linalg.qr(torch.randn(50, 6, generator=rng)).Q
    inside = space @ torch.randn(6, 2, generator=rng)
    fresh = torch.randn(50, 3, generator=rng)
    nearly = fresh[:, :1] + 1e-6 * torch.randn(50, 1, generator=rng)  # a dependent column
    result = orthonormal(torch.cat([fresh, inside, nearly], dim=1), space, 1e-4)
    assert result.shape == (50, 3)
    torch.testing.assert_close(result.T @ result, torch.eye(3), atol=1e-5, rtol=0)
    assert float((space.T @ result).abs().max()) < 1e-6
    outside = fresh - space @ (space.T @ fresh)
    torch.testing.assert_close(result @ (result.T @ outside), outside, atol=1e-4, rtol=0)


# ---------------------------------------------------------------------------- the minimum


@each_case
@pytest.mark.parametrize("rank", [1, 3, 7])
def test_minimum_matches_the_formula(case: Case, rank: int) -> None:
    rows, r = random_rows(rank, graded=case.graded)
    objective = case.build(rows)
    tau = threshold(case, objective)
    matrix = dense_target(case, r)
    sigma = torch.linalg.svdvals(matrix)[:rank]
    expected = (matrix**2).sum() - ((sigma - tau).clamp(min=0) ** 2).sum()
    p, q = solution(objective, rank, tau)
    tight = {"rel": 1e-5, "abs": 1e-5 * float((matrix**2).sum())}
    assert float(case.dense(r, p, q)) == pytest.approx(float(expected), **tight)


@each_case
@pytest.mark.parametrize("rank", [1, 3])
def test_gradient_vanishes_at_the_minimum(case: Case, rank: int) -> None:
    rows, r = random_rows(rank + 5, graded=case.graded)
    objective = case.build(rows)
    p, q = solution(objective, rank, threshold(case, objective))

    def gradients(scale: float) -> list[Tensor]:
        both = [(p * scale).requires_grad_(), (q * scale).requires_grad_()]
        return list(torch.autograd.grad(case.dense(r, *both), both))

    for here, beside in zip(gradients(1.0), gradients(1.1), strict=True):
        assert float(here.norm()) < 1e-3 * float(beside.norm())


@each_case
def test_no_alternating_run_is_better_and_the_best_comes_close(case: Case) -> None:
    rows, r = random_rows(11, graded=case.graded)
    objective, columns = case.build(rows), rows.transpose()
    p, q = solution(objective, 2, threshold(case, objective))
    least = float(case.dense(r, p, q))
    rng = torch.Generator().manual_seed(8)
    ends = []
    for _ in range(20):
        q = torch.randn(7, p.shape[1], generator=rng, dtype=torch.float64)
        for _ in range(60):
            p = query_step(objective, q, by_cholesky, None)
            q = candidate_step(objective, columns, p, by_cholesky, None)
        ends.append(float(case.dense(r, p, q)))
    assert all(least <= end * (1 + 1e-6) for end in ends)
    assert min(ends) <= least * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_rgx_has_the_optimum_of_rg2(seed: int) -> None:
    """With the weighted regulariser and no extra weight, on the scale 1/2N."""
    rows, _ = random_rows(seed, m=14, n=10)
    plain = rg2(rows, REG)
    tau = REG * float(plain.query_weight.sum() * 10) ** 0.5
    p, q = solution(plain, 3, tau)
    least, scores = value(plain, p, q), p @ q.T
    centred, columns = rgx(rg2_weighted(rows, REG, 0.0)), rows.transpose()
    rng = torch.Generator().manual_seed(seed)
    ends = []
    for _ in range(6):
        y = torch.randn(10, 3, generator=rng, dtype=torch.float64)
        x = query_step(centred, y, by_cholesky, None)
        for _ in range(300):
            y = candidate_step(centred, columns, x, by_cholesky, None)
            x = query_step(centred, y, by_cholesky, None)
        ends.append((value(centred, x, y), x, y))
    best, x, y = min(ends, key=lambda end: end[0])
    assert 20 * best == pytest.approx(least, rel=1e-5)
    assert value(plain, x, y) == pytest.approx(least, rel=1e-5)
    torch.testing.assert_close(x @ y.T, scores, atol=1e-3 * float(scores.abs().max()), rtol=0)
