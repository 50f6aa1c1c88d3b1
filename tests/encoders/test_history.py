"""Pools of histories: plain loops, causality, padding, and the order of choices."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from rankfold.encoders.history import History, PoolSpec, encode_histories, make_pool
from rankfold.encoders.sequences import in_order, latest, padded, shuffled
from rankfold.errors import UserError
from rankfold.types import Batch, Interactions, Sequences, from_pairs

WIDTH = 8
SPEC = PoolSpec(
    pooling="mean",
    width=WIDTH,
    history_length=6,
    half_life=2.0,
    layers=2,
    heads=2,
    dropout=0.3,
    by_time=True,
)
POOLINGS = ["mean", "recent", "attention"]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chosen(*, times: bool = True) -> Interactions:
    """Four queries with 5, 0, 9 and 1 of 20 candidates."""
    counts = [5, 0, 9, 1]
    rows = torch.repeat_interleave(torch.tensor(counts))
    ids = [torch.randperm(20, generator=rng(q))[:n].sort().values for q, n in enumerate(counts)]
    drawn = torch.randperm(15, generator=rng(9)).double()
    return from_pairs(rows, torch.cat(ids), None, (4, 20), drawn if times else None)


def by_time(rows: Interactions, query: int) -> list[int]:
    """The candidates of a query, the earliest first."""
    part = rows.part(query, query + 1)
    if part.times is None:
        return part.candidates.tolist()
    return [y for _, y in sorted(zip(part.times.tolist(), part.candidates.tolist(), strict=True))]


def vectors() -> Tensor:
    return torch.randn(20, WIDTH, generator=rng(3))


def test_sequences_are_in_order_of_time_and_end_with_the_latest() -> None:
    rows = chosen()
    for longest in (None, 6):
        sequences = in_order(rows, longest)
        for query in range(4):
            start, stop = sequences.offsets[query : query + 2].tolist()
            expected = by_time(rows, query)[-(longest or 99) :]
            assert sequences.candidates[start:stop].tolist() == expected


def test_a_shuffle_keeps_the_choices_of_each_query() -> None:
    sequences = in_order(chosen(times=False))
    mixed = shuffled(sequences, rng())
    assert mixed.candidates.tolist() != sequences.candidates.tolist()
    for start, stop in sequences.offsets.unfold(0, 2, 1).tolist():
        assert sorted(mixed.candidates[start:stop].tolist()) == sorted(
            sequences.candidates[start:stop].tolist()
        )


@pytest.mark.parametrize("times", [True, False])
def test_a_mean_equals_a_loop(times: bool) -> None:  # noqa: FBT001
    """With times, of the choices before each place; without, of all others. The last 6 are read."""
    rows, table = chosen(times=times), vectors()
    pool = make_pool(replace(SPEC, by_time=times), rng())
    sequences = latest(in_order(rows), 7)
    ids, holds = padded(sequences)
    states = pool(table[ids] * holds[..., None], sequences.counts(), 0.0)
    for query in range(4):
        own = ids[query][holds[query]].tolist()
        for place in range(1, len(own)):
            others = own[:place] if times else own[:place] + own[place + 1 :]
            expected = sum(table[y] for y in others) / len(others)
            torch.testing.assert_close(states[query, place], expected)
    whole = encode_histories(pool, lambda ids: table[ids], rows)
    for query in (0, 2, 3):
        own = by_time(rows, query)
        own = own[-6:] if times else own
        torch.testing.assert_close(whole[query], sum(table[y] for y in own) / len(own))
    assert torch.equal(whole[1], torch.zeros(WIDTH))


def test_recent_choices_count_more() -> None:
    rows, table = chosen(), vectors()
    pool = make_pool(replace(SPEC, pooling="recent"), rng())
    whole = encode_histories(pool, lambda ids: table[ids], rows)
    own = by_time(rows, 2)[-6:]
    weights = [0.5 ** ((len(own) - 1 - place) / 2.0) for place in range(len(own))]
    expected = sum(w * table[y] for w, y in zip(weights, own, strict=True)) / sum(weights)
    torch.testing.assert_close(whole[2], expected)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_later_choice_does_not_change_an_earlier_state(pooling: str) -> None:
    pool = make_pool(replace(SPEC, pooling=pooling), rng())
    given, counts = torch.randn(2, 7, WIDTH, generator=rng(1)), torch.tensor([7, 7])
    before = pool(given, counts, 0.0)
    for place in range(7):
        changed = given.clone()
        changed[:, place] += torch.randn(WIDTH, generator=rng(place))
        after = pool(changed, counts, 0.0)
        torch.testing.assert_close(after[:, : place + 1], before[:, : place + 1])
        if place < 6:
            assert not torch.allclose(after[:, place + 1], before[:, place + 1])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("times", [True, False])
def test_padding_changes_nothing(pooling: str, times: bool) -> None:  # noqa: FBT001
    if pooling == "recent" and not times:
        pytest.skip("needs times")
    spec = replace(SPEC, pooling=pooling, by_time=times)  # type: ignore[arg-type]
    rows, table, pool = chosen(times=times), vectors(), make_pool(spec, rng())
    together = encode_histories(pool, lambda ids: table[ids], rows)
    for query in range(4):
        alone = encode_histories(pool, lambda ids: table[ids], rows.part(query, query + 1))
        torch.testing.assert_close(together[query], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_training_and_search_read_the_same_history(pooling: str) -> None:
    """The query before its last choice, in a batch, is the query by the choices before it."""
    rows = chosen()
    candidates = nn.Embedding(20, WIDTH, _weight=vectors())
    spec = replace(SPEC, pooling=pooling, dropout=0.0)  # type: ignore[arg-type]
    encoder = History(rows, candidates, spec, rng())
    sequences = in_order(rows.select(torch.tensor([0])), 7)
    batch = Batch(torch.zeros(4, dtype=torch.int64), sequences.candidates[1:], sequences=sequences)
    states = encoder.encode_batch(batch)
    assert states.shape == (4, WIDTH)
    order = rows.part(0, 1).times
    assert order is not None
    earlier = rows.part(0, 1).keep(order < order.max())
    expected = encode_histories(encoder.pool, lambda ids: candidates.weight[ids], earlier)
    torch.testing.assert_close(states[-1], expected[0])


def test_attention_equals_the_transformer_of_torch() -> None:
    """One layer with the same parameters, under a causal mask."""
    spec = replace(SPEC, pooling="attention", layers=1)
    pool = make_pool(spec, rng())
    (layer,) = pool.layers  # type: ignore[union-attr]
    twin = nn.TransformerEncoderLayer(
        WIDTH, 2, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
    )
    pairs = {
        "self_attn.in_proj_weight": layer.reads.weight,
        "self_attn.in_proj_bias": layer.reads.bias,
        "self_attn.out_proj.weight": layer.writes.weight,
        "self_attn.out_proj.bias": layer.writes.bias,
        "linear1.weight": layer.opens.weight,
        "linear1.bias": layer.opens.bias,
        "linear2.weight": layer.closes.weight,
        "linear2.bias": layer.closes.bias,
    }
    twin.load_state_dict(pairs, strict=False)
    given = torch.randn(3, 5, WIDTH, generator=rng(4))
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(layer(given, 0.0), twin(given, mask), atol=1e-5, rtol=1e-5)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(UserError, match="needs the times of pairs"):
        make_pool(replace(SPEC, pooling="recent", by_time=False), rng())
    with pytest.raises(UserError, match="must be a multiple of `heads`, got 8 and 3"):
        make_pool(replace(SPEC, pooling="attention", heads=3), rng())


def test_a_sequence_has_a_row_for_each_entry() -> None:
    sequences = Sequences(torch.tensor([0, 2, 2, 3]), torch.tensor([4, 5, 6]))
    assert sequences.row_of_entry().tolist() == [0, 0, 2]
