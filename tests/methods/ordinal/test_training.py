"""Training that all ordinal methods share."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from linear_grades import COLUMNS, NAMES, random_rows

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods.ordinal.module import GradingModule
from rankfold.methods.ordinal.training import GradedConfig, batches_of, epochs_of
from rankfold.types import Dataset, Vocabulary


@pytest.mark.parametrize(
    ("n_rows", "size"),
    [
        (1, 32),
        (500, 32),
        (1023, 32),
        (1024, 64),
        (1080, 64),
        (2047, 64),
        (2048, 128),
        (4095, 128),
        (4096, 256),
        (79_807, 256),
        (10**9, 256),
    ],
)
def test_the_default_batch_makes_at_least_sixteen_steps(n_rows: int, size: int) -> None:
    result = batches_of(n_rows, GradedConfig())
    assert result.batch_size == size
    assert len(result) >= 16 or size == 32
    assert batches_of(n_rows, GradedConfig(batch_size=7)).batch_size == 7


@pytest.mark.parametrize(("n_rows", "epochs"), [(200, 60), (2241, 56), (30_000, 10), (10**6, 10)])
def test_few_rows_are_seen_for_a_thousand_steps(n_rows: int, epochs: int) -> None:
    assert epochs_of(GradedConfig(), n_rows, images=False) == epochs
    assert epochs_of(GradedConfig(), n_rows, images=True) == 30
    assert epochs_of(GradedConfig(epochs=3), n_rows, images=False) == 3


def test_a_model_has_its_batch_size_and_the_requested_one(tmp_path: Path) -> None:
    rows, names = random_rows(0, 1100), Vocabulary.numbered(3, NAMES)
    keys = Vocabulary.numbered(len(rows))
    data = Dataset("graded", rows, None, None, keys, names, columns=COLUMNS)
    usual = rf.fit("ce", data, epochs=1, width=4).model
    assert (usual.config["batch_size"], usual.notes["asked"]["batch_size"]) == (64, None)
    out = tmp_path / "model"
    requested = rf.fit("ce", data, epochs=1, width=4, batch_size=64, out=out).model
    assert (requested.config["batch_size"], requested.notes["asked"]["batch_size"]) == (64, 64)
    with pytest.raises(UserError, match="was finished with batch_size = 64"):
        rf.fit("ce", data, epochs=1, width=4, out=out, resume=True)
    assert all((requested.tensors[name] == usual.tensors[name]).all() for name in usual.tensors)


@pytest.mark.parametrize(
    ("name", "encoder"), [("cba", "mlp"), ("ce", "mlp"), ("eban", "mlp"), ("cba", "linear")]
)
def test_scores_are_those_of_the_modules_for_one_row_or_many(
    name: str, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, names = Vocabulary.numbered(200), Vocabulary.numbered(3, NAMES)
    data = Dataset("graded", random_rows(0), None, None, keys, names, columns=COLUMNS)
    model = rf.fit(name, data, epochs=2, width=8, encoder=encoder)
    assert isinstance(model, rf.Grader)
    rows = random_rows(1, 50)
    rows.numbers[::3, 0] = torch.nan
    scores = model.score(rows)
    alone = torch.cat([model.score(rows.part(row, row + 1)) for row in range(50)])

    def by_modules(module: GradingModule) -> object:
        return lambda rows: module.head(module.vectors(rows))

    monkeypatch.setattr(GradingModule, "fuse", by_modules)
    expected = replace(model).score(rows)  # opened anew
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(alone, expected, rtol=1e-6, atol=1e-6)
    assert expected.std() > 0.001
