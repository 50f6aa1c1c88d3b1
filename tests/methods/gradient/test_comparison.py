"""The losses of the methods with sampled negatives, by hand."""

import math
from dataclasses import replace

import pytest
import torch
from planted import split_groups

import rankfold as rf
from rankfold.encoders.tables import Tables
from rankfold.kernels.single_positive import SINGLE_POSITIVE
from rankfold.losses import LOSSES
from rankfold.methods import METHODS
from rankfold.methods.gradient.comparison import Combination, Comparison, odds
from rankfold.methods.gradient.sampled import CachedConfig, InBatchConfig
from rankfold.samplers import SAMPLERS, SamplerContext
from rankfold.types import Batch, Columns, Features, Interactions

PAIRS = Interactions(torch.tensor([0, 2, 3, 5]), torch.tensor([0, 1, 1, 0, 2]).int(), None, 4)
BATCH = Batch(torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 1]))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def setting(**changes: object) -> SamplerContext:
    values = {"negatives": 3, "popularity": "count", "cache_share": 0.2, **changes}
    return SamplerContext(counts=PAIRS.candidate_counts(), batch_size=4, **values)  # type: ignore[arg-type]


def comparison(parts: Combination, config: object) -> tuple[Comparison, torch.Tensor]:
    encoder = Tables((3, 4), 5, rng(7))
    with torch.no_grad():
        for table in (encoder.queries, encoder.candidates):
            table.weight.mul_(10)
    sampler = SAMPLERS[parts.sampler](setting())
    scores = encoder.queries.weight @ encoder.candidates.weight.T
    return Comparison(encoder, sampler, parts, config), scores.detach()


def rows_of_batch() -> list[tuple[int, int, int]]:
    """Row, query, candidate."""
    pairs = zip(BATCH.queries.tolist(), BATCH.candidates.tolist(), strict=True)
    return [(row, *pair) for row, pair in enumerate(pairs)]


def in_batch_loss(
    scores: torch.Tensor, left_out: list[list[int]], log_q: list[float]
) -> list[float]:
    """-log softmax of each pair's candidate among the other columns of the batch."""
    result = []
    for row, x, y in rows_of_batch():
        columns = [c for c in BATCH.candidates.tolist() if c not in left_out[row]]
        logit = {c: float(scores[x, c]) - log_q[c] for c in range(4)}
        total = math.exp(logit[y]) + sum(math.exp(logit[c]) for c in columns)
        result.append(math.log(total) - logit[y])
    return result


POP = [
    math.log(share) for share in (2 / 6, 2 / 6, 1 / 6, 1 / 6)
]  # the last was never chosen: counts as one
OWN = [[0], [1], [2], [1]]
CHOSEN = [[0, 1], [1], [0, 2], [0, 1]]


@pytest.mark.parametrize(
    ("proposed", "mask", "log_q", "left_out"),
    [
        ("none", "own", [0.0] * 4, OWN),
        ("all", "own", POP, OWN),
        ("all", "all", POP, CHOSEN),
        ("all", "none", POP, [[]] * 4),
    ],
)
def test_in_batch_softmax_by_hand(
    proposed: str, mask: str, log_q: list[float], left_out: list[list[int]]
) -> None:
    parts = Combination("in-batch", "softmax", proposed)
    made, scores = comparison(parts, InBatchConfig(mask=mask))  # type: ignore[arg-type]
    result = made.losses(BATCH, rng(), PAIRS)
    assert result.tolist() == pytest.approx(in_batch_loss(scores, left_out, log_q), abs=1e-5)


@pytest.mark.parametrize("correction", ["released", "appendix", "sir"])
def test_resampled_halves_have_their_shares(correction: str) -> None:
    """XIR's loss sums the losses on the sampler's picks, weighted by their shares."""
    config = CachedConfig(correction=correction)
    made, scores = comparison(Combination("xir", "softmax"), config)
    kept = []
    sampler = made.sampler
    made.sampler = type(
        "Spy",
        (),
        {
            "propose": lambda _self, batch, draws: sampler.propose(batch, draws),
            "resample": lambda _self, *given: (
                kept.append((given, sampler.resample(*given))) or kept[-1][1]
            ),
            "observe": lambda _self, *_given: None,
        },
    )()
    actual = made.losses(BATCH, rng(), PAIRS)
    (_, pool, _, _), drawn = kept[0]
    assert drawn is not None
    expected = []
    for row, x, y in rows_of_batch():
        total, start = 0.0, 0
        for group in drawn.groups:
            times, end = group.times[row].long().tolist(), start + group.times.shape[1]
            columns = [c for c, n in zip(range(start, end), times, strict=True) for _ in range(n)]
            weights = [2 * float(group.weights[row, c - start]) for c in columns]
            start = end
            picks = [float(scores[x, pool.ids[c]]) for c in columns]
            assert len(picks) == 2
            if correction == "appendix":
                picks = [s - math.log(w) for s, w in zip(picks, weights, strict=True)]
            everyone = math.exp(scores[x, y]) + sum(math.exp(s) for s in picks)
            total += group.share * (math.log(everyone) - float(scores[x, y]))
        expected.append(total)
    assert [group.share for group in drawn.groups] == [0.8, 0.2]
    assert actual.tolist() == pytest.approx(expected, abs=1e-4)


def test_classic_resampling_follows_the_mean_of_the_picks() -> None:
    """The value is that of softmax; the gradient is the mean of the picks minus the positive."""
    config = CachedConfig(correction="sir")
    made, _ = comparison(Combination("xir", "softmax"), config)
    kept = []
    resample = made.sampler.resample

    def spy(scores: torch.Tensor, *rest: object) -> object:
        kept.append((rest[0], resample(scores, *rest)))  # type: ignore[arg-type]
        return kept[-1][1]

    made.sampler.resample = spy  # type: ignore[method-assign, assignment]
    made.losses(BATCH, rng(), PAIRS).sum().backward()
    result = made.encoder.candidates.weight.grad.clone()  # type: ignore[attr-defined]
    made.encoder.zero_grad()  # type: ignore[attr-defined]
    pool, drawn = kept[0]
    scores = made.encoder.encode_queries(BATCH.queries) @ made.encoder.encode_candidates(pool.ids).T
    own = made.encoder.encode_queries(BATCH.queries) * made.encoder.encode_candidates(
        BATCH.candidates
    )
    parts = scores.split([group.times.shape[1] for group in drawn.groups], dim=1)
    means = [
        group.share * (group.times * part).sum() / drawn.draws
        for group, part in zip(drawn.groups, parts, strict=True)
    ]
    (sum(means) - own.sum()).backward()  # type: ignore[union-attr]
    torch.testing.assert_close(result, made.encoder.candidates.weight.grad)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SINGLE_POSITIVE)
def test_single_positive_loss_equals_its_namesake(name: str) -> None:
    """Value and gradient, for a pool with repeats written out."""
    draw = rng(3)
    positive = torch.randn(6, generator=draw, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(6, 8, generator=draw, dtype=torch.float64)
    times = torch.randint(0, 4, (6, 8), generator=draw).double()
    times[4] = 0
    scores[times == 0] = 50.0
    scores[3] -= 200 * (times[3] > 0)  # valid scores are far below invalid ones
    scores.requires_grad_()
    actual = SINGLE_POSITIVE[name](positive, scores, times)
    actual.sum().backward()
    mine, theirs = positive.grad, scores.grad
    expected, gradients = [], []
    for row in range(6):
        columns = torch.repeat_interleave(torch.arange(8), times[row].long())
        leaf, other = (
            positive.detach()[row : row + 1].requires_grad_(),
            scores.detach()[row].clone(),
        )
        other.requires_grad_()
        pool = torch.cat([leaf, other[columns]])[None]
        grades = torch.zeros_like(pool)
        grades[0, 0] = 1
        value = LOSSES[name](pool, grades, torch.ones_like(pool).bool())
        value.sum().backward()
        expected.append(value.detach())
        assert other.grad is not None
        gradients.append((leaf.grad, other.grad))
    torch.testing.assert_close(actual.detach(), torch.cat(expected))
    torch.testing.assert_close(mine, torch.cat([g for g, _ in gradients]))  # type: ignore[list-item]
    torch.testing.assert_close(theirs, torch.stack([g for _, g in gradients]))


@pytest.mark.parametrize("name", SINGLE_POSITIVE)
def test_single_positive_loss_accepts_a_mask(name: str) -> None:
    positive, scores, there = torch.randn(5), torch.randn(5, 9), torch.rand(5, 9) > 0.4
    loss = SINGLE_POSITIVE[name]
    torch.testing.assert_close(loss(positive, scores, there), loss(positive, scores, there.float()))


def test_odds_follow_from_popularity() -> None:
    result = odds(PAIRS, 10)
    assert result.tolist() == pytest.approx(
        [math.log(c / 5 / (10 / 4)) for c in (2, 2, 1, 0.5)], abs=1e-6
    )


def test_towers_rank_an_unchosen_candidate_by_its_features() -> None:
    """Only a feature shows its group."""
    data = split_groups()
    rows = data.split("train")
    n = rows.n_candidates
    group = torch.tensor([int(key) % 6 for key in data.candidates.keys.to_list()])
    columns = Columns((), {"group": tuple("abcdef")})
    features = Features(torch.zeros(n, 0), group[:, None].int(), columns)
    kept = rows.candidates != 0  # all but the first candidate
    offsets = torch.cat([torch.zeros(1).long(), kept.cumsum(0)])[rows.offsets]
    train = Interactions(offsets, rows.candidates[kept], None, n)
    data = replace(data, train=train, validation=None, candidate_features=features)
    model = rf.fit("softmax", data, encoder="towers", width=8, epochs=200).model
    scores = model.tensors["queries"] @ model.tensors["candidates"].T
    mine = torch.tensor([int(key) % 6 == int(group[0]) for key in data.queries.keys.to_list()])
    assert scores[mine, 0].mean() > scores[~mine, 0].mean() + 1
    encode = METHODS["softmax"].open(model).features
    assert encode is not None
    new = Features(torch.zeros(1, 0), group[:1, None].int(), columns)
    result = encode(new, "candidate")
    torch.testing.assert_close(result[0], model.tensors["candidates"][0])
