"""Row encoders: what they read, and that they learn."""

from dataclasses import replace

import pytest
import torch
from rows_to_encode import pictures, pictures_and_columns, prepared, table
from torch import nn

import rankfold as rf
from rankfold.encoders.row_inputs import (
    Inputs,
    RareLevels,
    RowShape,
    Scaling,
    dropout,
    random_flips,
)
from rankfold.encoders.rows import ROW_ENCODERS, Convolution, Perceptron, find_encoder
from rankfold.errors import UserError
from rankfold.types import Columns, Graded


def test_numbers_are_scaled_and_missing_ones_are_marked() -> None:
    rows = table()
    scaling = Scaling(RowShape.from_rows(rows, None))
    scaling.fit(rows)
    result = scaling(rows).numbers
    there = ~rows.numbers.isnan()
    for column in range(3):
        mine = result[there[:, column], column]
        assert float(mine.mean()) == pytest.approx(0, abs=1e-5)
        assert float(mine.std(unbiased=False)) == pytest.approx(1, abs=1e-4)
    assert torch.equal(result[:, 3:] == 1, ~there)
    assert torch.equal(result[:, :3][~there], torch.zeros(int((~there).sum())))


def test_images_are_scaled_by_channel() -> None:
    rows = pictures()
    scaling = Scaling(RowShape.from_rows(rows, None))
    scaling.fit(rows)
    images = scaling(rows).images
    assert images.shape == (40, 3, 12, 10)
    torch.testing.assert_close(images.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(images.var(dim=(0, 2, 3)), torch.ones(3), atol=1e-2, rtol=0)


@pytest.mark.parametrize(("name", "rows"), [("linear", table()), ("mlp", table())])
def test_unknown_levels_have_their_own_vector(name: str, rows: Graded) -> None:
    shape = RowShape.from_rows(rows, Columns(("a", "b", "c"), {"d": ("p",) * 4, "e": ("q",) * 4}))
    module = ROW_ENCODERS[name](shape, 6, 0.0, torch.Generator().manual_seed(0))
    first, second = (
        module(Inputs(torch.zeros(1, 6), torch.full((1, 2), place), None), None) for place in (0, 1)
    )
    assert first.shape == (1, 6)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_inputs_unseen_in_training_add_nothing(name: str) -> None:
    """The numbers are noise, and complete in training. A row without them scores as their mean.

    A new level of a category does not raise or lower the score either, if none is hidden.
    """
    rng = torch.Generator().manual_seed(1)
    numbers = torch.randn(300, 4, generator=rng)
    categories = torch.randint(0, 3, (300, 1), generator=rng, dtype=torch.int32)
    grades = (numbers[:, 0] > 0).long() + (numbers[:, 0] > 1)
    data = prepared(Graded(numbers, categories, None, grades))
    model = rf.fit("ce", data, encoder=name, rare=0)
    mean = numbers.mean(dim=0).repeat(2, 1)
    mean[1, 1:] = torch.nan
    rows = Graded(mean, categories[:2].clone(), None, torch.zeros(2, dtype=torch.int64))
    rows.categories[:] = -1
    complete, lacking = model.score(rows).tolist()
    assert lacking == pytest.approx(complete, abs=1e-6)
    encoder = model.model.tensors
    unknown = [t[0] for key, t in encoder.items() if key.startswith("encoder.levels")]
    assert unknown
    assert all(not vector.any() for vector in unknown)


def test_levels_are_hidden_by_their_rows() -> None:
    """A level of r rows in m of m + r steps; the ids that stay are unchanged."""
    categories = torch.tensor([[0, 1]] * 90 + [[1, -1]] * 10, dtype=torch.int32)
    rows = Graded(torch.zeros(100, 0), categories, None, torch.zeros(100))
    hiding = RareLevels(RowShape(0, (2, 3), None), 30.0)
    hiding.fit(rows)
    rng = torch.Generator().manual_seed(0)
    given = Inputs(torch.zeros(8000, 0), torch.tensor([[1, 2]] * 4000 + [[2, 3]] * 4000), None)
    shown = hiding(given, rng).categories
    assert ((shown == 0) | (shown == given.categories)).all()
    hidden = (shown == 0).double().unflatten(0, (2, 4000)).mean(dim=1)
    expected = torch.tensor([[30 / 120, 30 / 120], [30 / 40, 1.0]]).double()
    torch.testing.assert_close(hidden, expected, atol=0.03, rtol=0)
    none = RareLevels(RowShape(0, (2, 3), None), 0.0)
    none.fit(rows)
    assert torch.equal(none(given, rng).categories, given.categories)


def test_bins_are_shares_of_the_training_rows() -> None:
    """Four bins of 0 to 8; the second number is 0 or 1, and missing in a row: an average one."""
    numbers = torch.tensor([[0.0, 0], [2, 0], [4, 0], [6, 1], [8, torch.nan]])
    rows = Graded(numbers, torch.zeros(5, 0, dtype=torch.int32), None, torch.zeros(5))
    shape, scaling = RowShape(2, (), None), Scaling(RowShape(2, (), None))
    scaling.fit(rows)
    encoder = Perceptron(shape, 4, 0.0, torch.Generator(), bins=4)
    inputs = scaling(rows).numbers
    encoder.measure(inputs)
    values, scaled, missing = encoder.of_numbers(*inputs.chunk(2, dim=1))
    assert torch.equal(scaled, inputs[:, :2])
    first, second = values.reshape(5, 2, 4).unbind(dim=1)
    steps = (torch.arange(5)[:, None] > torch.arange(4)).float()
    torch.testing.assert_close(first, steps - steps.mean(dim=0), atol=1e-5, rtol=0)
    expected = torch.tensor([-0.25, -0.25, -0.25, 0.75, 0])
    torch.testing.assert_close(second[:, -1], expected, atol=1e-5, rtol=0)
    assert missing.sum() == 1
    later = Graded(torch.tensor([[3.0, 0.5]]), rows.categories[:1], None, torch.zeros(1))
    between = encoder.of_numbers(*scaling(later).numbers.chunk(2, dim=1))[0][0, :4]
    expected = torch.tensor([1, 0.5, 0, 0]) - steps.mean(dim=0)
    torch.testing.assert_close(between, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("bins", "scaled"), [(0, True), (5, True), (5, False)])
@pytest.mark.parametrize(
    ("numbers", "levels"), [(5, (3, 40, 1, 7)), (5, ()), (0, (4, 2)), (1, (1,))]
)
def test_the_fused_perceptron_equals_its_modules(
    numbers: int, levels: tuple[int, ...], bins: int, *, scaled: bool
) -> None:
    """With missing and extreme numbers, unknown levels and large means; one row or many."""
    rng, n = torch.Generator().manual_seed(numbers), 40
    shape = RowShape(numbers, levels, None)
    encoder = Perceptron(shape, 8, 0.3, rng, bins=bins, scaled=scaled).eval()
    for weight in encoder.parameters():  # those that start at 0 too
        weight.data.normal_(generator=rng)
    values = 1e6 + 20 * torch.randn(n, numbers, generator=rng)
    values[torch.rand(values.shape, generator=rng) < 0.2] = torch.nan
    values[:3] *= -1e9
    places = torch.stack([torch.randint(-1, size, (n,), generator=rng) for size in (9, *levels)])
    rows = Graded(values, places[1:].T.int(), None, torch.zeros(n, dtype=torch.int64))
    scaling = Scaling(RowShape.from_rows(rows, None))
    scaling.fit(rows.part(3, n))
    encoder.measure(scaling(rows.part(3, n)).numbers)
    with torch.no_grad():
        expected = encoder(scaling(rows), None)
        fused = encoder.fuse(scaling)
        close = {"rtol": 1e-6, "atol": 1e-6 * float(expected.max())}
        torch.testing.assert_close(fused(rows), expected, **close)
        alone = torch.cat([fused(rows.part(row, row + 1)) for row in range(n)])
    torch.testing.assert_close(alone, expected, **close)
    assert (expected.std(dim=0) > 0).sum() > 4


def test_a_category_beyond_its_levels_is_refused() -> None:
    """It must not be read as a level of the next category."""
    shape = RowShape(1, (3, 5), None)
    fused = Perceptron(shape, 4, 0.0, torch.Generator()).fuse(Scaling(shape))
    rows = Graded(torch.zeros(1, 1), torch.tensor([[2, 4]]), None, torch.zeros(1))
    assert fused(rows).shape == (1, 4)
    for place in (0, 1):
        wrong = replace(rows, categories=rows.categories.clone())
        wrong.categories[0, place] += 1
        with pytest.raises(UserError, match="a category that the model does not know"):
            fused(wrong)


def test_dropout_follows_the_generator_and_keeps_the_mean() -> None:
    ones = torch.ones(200, 200)
    first, second = (dropout(ones, 0.3, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert float(first.mean()) == pytest.approx(1, abs=0.01)
    assert float((first == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert torch.equal(dropout(ones, 0.3, None), ones)


def test_images_are_mirrored_one_by_one() -> None:
    images = torch.arange(64.0 * 6).view(64, 1, 2, 3)
    result = random_flips(images, (2, 3), torch.Generator().manual_seed(0))
    ways = [images, images.flip(2), images.flip(3), images.flip(2, 3)]
    same = torch.stack([(result == way).flatten(1).all(dim=1) for way in ways])
    assert (same.sum(dim=0) == 1).all()
    assert (same.sum(dim=1) > 5).all()
    assert random_flips(images, (), torch.Generator()) is images


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_learned(channels: int) -> None:
    data = prepared(pictures(channels=channels))
    result = rf.fit("ce", data, epochs=15, batch_size=8, flips="one")
    assert rf.evaluate(result, data, metrics=["order"], bootstrap=10)["order"] > 0.95


def test_a_convolution_is_three_products_of_patches_each_halved() -> None:
    rows, rng = pictures(5), torch.Generator().manual_seed(1)
    module = Convolution(RowShape.from_rows(rows, None), 6, 0.3, rng)
    images = torch.randn(5, 3, 12, 10, generator=rng)
    result = images
    for layer in module.layers:
        assert isinstance(layer, nn.Conv2d)
        assert layer.bias is not None
        with torch.no_grad():
            layer.bias.uniform_(-1, 1, generator=rng)
        height, width = result.shape[2:]
        weight = layer.weight.detach().flatten(1)
        patches = nn.functional.unfold(result, 3, padding=1)  # [n, channels x 9, pixels]
        sums = (weight @ patches + layer.bias.detach()[:, None]).clamp(min=0)
        rounded_up = nn.functional.pad(
            sums.unflatten(2, (height, width)), (0, width % 2, 0, height % 2)
        )
        squares = rounded_up.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
        result = squares.amax(dim=(3, 5))
        assert result.shape[2:] == (-(-height // 2), -(-width // 2))
    expected = module.last(result.mean(dim=(2, 3))).relu()
    inputs = Inputs(torch.empty(5, 0), torch.empty(5, 0, dtype=torch.int64), images)
    torch.testing.assert_close(module(inputs, None), expected)
    assert float(expected.detach().abs().max()) > 0
    alone = inputs._replace(images=images[2:3])  # independent of other rows
    torch.testing.assert_close(module(alone, None), expected[2:3])


def test_the_contrast_of_an_image_is_not_lost() -> None:
    rows, rng = pictures(8), torch.Generator().manual_seed(1)
    module = Convolution(RowShape.from_rows(rows, None), 6, 0.0, rng)
    images = torch.randn(8, 3, 12, 10, generator=rng)
    inputs = Inputs(torch.empty(8, 0), torch.empty(8, 0, dtype=torch.int64), images)
    pale = inputs._replace(images=images / 4)
    result, of_pale = (module(some, None).detach().norm(dim=1) for some in (inputs, pale))
    torch.testing.assert_close(of_pale, result / 4)  # biases begin at 0


def test_a_model_of_another_encoder_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = pictures()
    result = rf.fit("ce", prepared(rows), epochs=1, batch_size=8)
    assert isinstance(result, rf.Grader)
    monkeypatch.setattr("rankfold.encoders.rows.CHANNELS", (4, 8, 16))
    with pytest.raises(rf.UserError, match="do not fit the encoder named convolution"):
        result.score(rows)
    del result.model.tensors["encoder.layers.0.bias"]  # type: ignore[attr-defined]
    monkeypatch.undo()
    with pytest.raises(rf.UserError, match="do not fit the encoder named convolution"):
        result.score(rows)


def test_auto_reads_both_images_and_columns(tmp_path: object) -> None:
    data = replace(prepared(pictures_and_columns()), test=pictures_and_columns(seed=1))
    result = rf.fit("ce", data, epochs=15, batch_size=8)
    assert result.model.config["encoder"] == "convolution+mlp"
    assert rf.evaluate(result, data, metrics=["order"], bootstrap=0)["order"] > 0.95
    result.save(f"{tmp_path}/model")
    rows = data.graded("test")
    assert torch.equal(rf.load(f"{tmp_path}/model").score(rows), result.score(rows))
    images = rf.fit("ce", data, epochs=15, batch_size=8, encoder="convolution")
    assert rf.evaluate(images, data, metrics=["order"], bootstrap=0)["order"] < 0.93


def test_each_part_of_a_joined_encoder_must_be_known_and_suit_the_rows() -> None:
    for name in ("convolution+no", "auto+mlp", "mlp+", ""):
        with pytest.raises(rf.UserError, match=r"`encoder` must be one of"):
            rf.fit("ce", prepared(pictures_and_columns()), encoder=name)
    with pytest.raises(rf.UserError) as caught:
        find_encoder("vectors:photos.npy", RowShape.from_rows(table(), None))
    assert "a column of lists" in str(caught.value.hint)
    with pytest.raises(rf.UserError, match="mlp needs columns"):
        find_encoder("convolution+mlp", RowShape.from_rows(pictures(), None))


@pytest.mark.parametrize(
    ("name", "rows"), [("convolution", table()), ("timm:x", table()), ("mlp", pictures())]
)
def test_an_encoder_that_does_not_suit_the_rows_is_refused(name: str, rows: Graded) -> None:
    with pytest.raises(rf.UserError, match="the data has none"):
        find_encoder(name, RowShape.from_rows(rows, None))


def test_rows_of_another_shape_are_refused() -> None:
    result = rf.fit("ce", prepared(table()), epochs=1)
    with pytest.raises(
        rf.UserError, match="fitted on rows with 3 numbers, 2 categories and no images"
    ):
        result.score(pictures())
