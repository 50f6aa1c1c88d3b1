"""The bounds of SiameseXML: norms and losses by loops, theorems in plain numbers, Lemma 1."""

import math

import pytest
import torch
from siamese_samples import SHORT, SMALL, topics

import rankfold as rf
from rankfold.encoders.bag_encoder import BagEncoder, unit
from rankfold.errors import UserError
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.bounds import (
    BoundsConfig,
    Norms,
    lemma_1,
    norms_of,
    risks,
    theorem_4,
    theorem_5,
    with_constants,
)

SOME = Norms(width=8, tokens=50, words=4, table=3.0, residual=2.0, spectral=1.5, classifiers=0.5)


def test_norms_equal_loops() -> None:
    rng = torch.Generator().manual_seed(0)
    encoder = BagEncoder(torch.randn(9, 3, generator=rng), residual=True, rng=rng)
    labels, classifiers = (unit(torch.randn(5, 3, generator=rng)) for _ in range(2))
    norms = norms_of(encoder, labels, classifiers, 4)
    table = encoder.tokens.weight.T.tolist()  # E is [D, V]
    mixing = encoder.mixing.tolist()
    etas = (classifiers - labels).tolist()

    def all_of(a: list[list[float]]) -> float:
        return sum(abs(v) for row in a for v in row)

    def rows_of(a: list[list[float]]) -> float:
        return sum(max(abs(v) for v in row) for row in a)

    assert norms.table == pytest.approx(math.sqrt(rows_of(table) * all_of(table)), rel=1e-5)
    assert norms.residual == pytest.approx(math.sqrt(rows_of(mixing) * all_of(mixing)), rel=1e-5)
    largest = max(sum(map(abs, row)) for row in etas)
    assert norms.classifiers == pytest.approx(math.sqrt(largest * all_of(etas)), rel=1e-5)
    power = (encoder.mixing.T @ encoder.mixing).detach().double()
    assert norms.spectral == pytest.approx(
        math.sqrt(float(torch.linalg.eigvalsh(power)[-1])), rel=1e-5
    )


def test_theorems_in_plain_numbers() -> None:
    config = BoundsConfig(margin=0.2, nu=0.5)
    p = 2 * (math.sqrt(8 * math.log(8)) * 2 + 2 * math.sqrt(4) * math.log(400) * (1.5 + 1) * 3)
    gap = 5 * p * math.log(100) / 10
    assert theorem_4(SOME, 100, config) == pytest.approx(gap)
    q = 2 * (math.log(8 * 70) * 0.5 + p)
    assert theorem_5(SOME, 100, 70, config) == pytest.approx(5 * q * math.log(100) / 10)
    a = 64 * 4 * math.log(3 * math.e**2 * 50) * math.log(800) * 9 * (8 * 2.5 / 0.25) ** 2
    a += 128 * 9 * math.log(2 * 81) * 4 * (4 / 0.5) ** 2
    proof = 2 * 4 / 0.2 * (2 / 10 + math.sqrt(a) / 10 * math.log(20))
    assert with_constants(SOME, 100, config) == pytest.approx(proof)


@pytest.mark.parametrize("k", [1, 3])
def test_losses_equal_loops_and_claims_hold(k: int) -> None:
    rng = torch.Generator().manual_seed(0)
    scores = (torch.rand(20, 7, generator=rng) * 2 - 1).double()
    positive = torch.rand(20, 7, generator=rng) < 0.5
    positive[:, 0], positive[:, 1], positive[:, 2:4] = True, False, True
    measured = risks(scores, positive, 0.3, k)
    for row in range(20):
        s, y = scores[row].tolist(), positive[row].tolist()
        best = max(v for v, one in zip(s, y, strict=True) if not one)
        own = sorted((v for v, one in zip(s, y, strict=True) if one), reverse=True)[:k]
        ramp = 1 - sum(min(max((v - best) / 0.3, 0), 1) for v in own) / k
        ranked = sorted(range(7), key=lambda j: -s[j])[:k]
        assert measured["ramp"][row].item() == pytest.approx(ramp)
        precision = 1 - sum(y[j] for j in ranked) / k
        assert measured["precision"][row].item() == pytest.approx(precision)
        up = sum(-math.log(0.75) + 3 * (1 - v) for v, one in zip(s, y, strict=True) if one)
        down = -sum(
            math.log(1 - 0.75 * math.exp(3 * (v - 1)))
            for v, one in zip(s, y, strict=True)
            if not one
        )
        assert measured["likelihood"][row].item() == pytest.approx(up + down, rel=1e-5)
    assert bool((measured["ramp"] >= measured["precision"] - 1e-12).all())
    assert bool((measured["likelihood"] >= measured["precision"] - 1e-12).all())


def test_lemma_1_bounds_the_change_of_every_score() -> None:
    rng = torch.Generator().manual_seed(0)
    documents, labels = (unit(torch.randn(n, 4, generator=rng)) for n in (200, 30))
    near = unit(labels + 0.1 * torch.randn(30, 4, generator=rng))
    sides = lemma_1(documents, labels, near)
    changes = (documents @ near.T - documents @ labels.T).abs().amax(dim=0)
    assert sides["change"].tolist() == pytest.approx(changes.tolist(), abs=1e-6)
    assert bool((sides["change"] <= sides["distance"] + 1e-5).all())
    assert bool((sides["distance"] <= sides["bound"] + 1e-5).all())
    assert sides["distance"].tolist() == pytest.approx(
        (near - labels).norm(dim=1).tolist(), abs=1e-4
    )


@pytest.mark.parametrize("encoder", ["plain", "residual"])
def test_a_fitted_model_is_measured(encoder: str) -> None:
    model = rf.fit("siamesexml", topics(), encoder=encoder, **SMALL, **SHORT)
    result = diagnose("bounds", topics(), model=model)
    assert result.summary["share of documents where Claim 17 holds"] == 1
    assert result.summary["share where Claim 18 holds"] == 1
    assert result.details["lemma_1_holds"] == 1
    assert result.details["norms"]["tokens"] == len(model.model.tensors["rarity"])
    assert result.summary["gap of Theorem 4 at C = 1 (says something below 1)"] > 1
    assert "says nothing" in result.follows
    by_labels = result.charts["bounds-labels"].lines
    assert len({y for _, y in by_labels[0].points}) == 1  # Theorem 4: no labels in it
    assert by_labels[1].points[0][1] < by_labels[1].points[-1][1]


def test_other_models_are_refused() -> None:
    model = rf.fit("siamesexml", topics(), members=2, **SMALL, **SHORT)
    with pytest.raises(UserError, match="one built-in text encoder"):
        diagnose("bounds", topics(), model=model)
