"""The recommended batch size from planted values, and a small run."""

import polars as pl
import pytest
import torch
from scored_models import model_of_scores

import rankfold as rf
from rankfold.errors import UserError
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.batch_size import enough


def values(**means: float) -> dict[int, torch.Tensor]:
    """Values of 400 queries: the same noise for all batch sizes, and a little of their own."""
    rng = torch.Generator().manual_seed(0)
    shared = torch.rand(400, generator=rng).double()
    result = {}
    for name, mean in means.items():
        own = 0.05 * torch.randn(400, generator=rng).double()
        result[int(name[1:])] = shared + mean + own - own.mean()
    return result


def test_the_smallest_batch_that_is_as_good_is_taken() -> None:
    assert enough(values(b256=0.0, b1024=0.1, b4096=0.1)) == 1024
    assert enough(values(b256=0.0, b1024=0.05, b4096=0.1)) == 4096
    assert enough(values(b256=0.1, b1024=0.1, b4096=0.0)) == 256


def test_a_run_has_every_method_and_batch() -> None:
    rows = [(f"q{q}", f"c{(7 * q + 3 * i) % 23}") for q in range(60) for i in range(8)]
    table = pl.DataFrame(rows, schema=["query", "candidate"], orient="row")
    data = rf.prepare(table, seed=0)
    result = diagnose("batch-size", data, {"batches": "32,64", "epochs": 1, "width": 4})
    assert set(result.details["values"]) == {"ssl-pop", "bir"}
    assert all(len(one) == 2 for one in result.details["values"].values())
    assert set(result.details["recommended"].values()) <= {32, 64}
    # one fit by hand
    model = rf.fit("ssl-pop", data, width=4, epochs=1, batch_size=64, lr=0.01, seed=0)
    expected = rf.evaluate(model, data, split="validation", metrics="ndcg@10")["ndcg@10"]
    assert result.details["values"]["ssl-pop"][1] == pytest.approx(expected, rel=1e-4)


def test_without_validation_a_hint_is_given() -> None:
    data, _ = model_of_scores(1.0)
    with pytest.raises(UserError, match="batch-size needs validation pairs"):
        diagnose("batch-size", data)
