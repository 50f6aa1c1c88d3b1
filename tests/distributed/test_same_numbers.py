"""One, two and three processes fit the same model, whatever the number of data files."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from planted import groups
from ranks import fits_of, numbers, run_ranks
from torch import Tensor

import rankfold as rf
from rankfold.data import folder
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.types import Comm, kept_histories

METRICS = ["ndcg@10", "recall@5", "coverage@5", "psp@5", "popularity@5"]
SHARDED = {"candidate_memory": 1100}  # bytes: about 12 or 24 candidates at a time
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "popularity": ("popularity", {}),
    "rg2": ("rg2", {"width": 8, "path_queries": 20, "tolerance": 1e-4}),
    "sharded": ("rg2", {"width": 8, "path_queries": 20, "tolerance": 1e-6, **SHARDED}),
    "sharded grades": ("rg2", {"width": 5, "tolerance": 1e-6, "weights": "grade", **SHARDED}),
    "sharded parts": (
        "rg2",
        {"width": 5, "tolerance": 1e-6, "tail_weight": 1.0, "popularity": 0.5, **SHARDED},
    ),
    "rg2-plain": ("rg2-plain", {"width": 6, "tolerance": 1e-4}),
    "graded": ("rg2-plain", {"width": 6, "tolerance": 1e-4, "weights": "grade"}),
    "puresvd": ("puresvd", {"width": 6, "tolerance": 1e-4}),
    "refit": ("ials", {"width": 6, "sweeps": 3, "refit": True}),
    "ials": ("ials", {"width": 6, "sweeps": 4, "validation_queries": 30}),
    "cholesky": ("wrmf", {"width": 6, "sweeps": 3, "inner": "cholesky"}),
    "rg2-weighted": ("rg2-weighted", {"width": 6, "sweeps": 3}),
    "rgx": ("rgx", {"width": 6, "sweeps": 3}),
    "rg2-sampled": ("rg2-sampled", {"width": 6, "sweeps": 3}),
    "rgx-sampled": ("rgx-sampled", {"width": 6, "sweeps": 3}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planted groups; the last queries have few pairs, so the shares are unequal."""
    path = tmp_path_factory.mktemp("data") / "data"
    table = groups(graded=True).filter((pl.col("query") < 80) | (pl.col("candidate") < 20))
    rf.prepare(table, out=path, shards=4)
    return path


def run_all(comm: Comm, path: Path, model: Path) -> dict[str, Any]:
    """The losses, scores, settings and products of every fit, and an evaluation by all ranks."""
    results = {"evaluation": evaluated(model, path)}
    for name in fits_of(FITS, comm.size):
        method, options = FITS[name]
        ranker = rf.fit(method, path, comm=comm, **options)
        assert isinstance(ranker, Ranker)
        notes = ranker.model.notes
        results[name] = {
            "losses": [entry["loss"] for entry in notes["history"]],
            "validation": [entry.get("score", 0.0) for entry in notes["history"]],
            "path": [entry["score"] for entry in notes.get("path", [])],
            "config": dict(ranker.model.config),
            "points": points_of(ranker),
            "keys": ranker.queries.keys.to_list(),
        }
        if comm.rank == 0:
            results[name]["test"] = evaluated_by_one_process(ranker, path)
    return results


def points_of(ranker: Ranker) -> Tensor:
    """The products of all queries of this process and all candidates, with their tail."""
    tensors = ranker.model.tensors
    points = tensors["queries"] @ tensors["candidates"].T
    extra = METHODS[ranker.model.method].open(ranker.model).extra
    rows = kept_histories(ranker.model, points.shape[1])
    if extra is None or rows is None:
        return points
    more = extra(rows)
    return points.view(-1).index_add_(0, more.codes(), more.all_grades()).view_as(points)


def evaluated_by_one_process(ranker: Ranker, path: Path) -> dict[str, float]:
    """The metrics on all queries, by this process alone."""
    from rankfold.tasks import evaluate, evaluate_ranking

    with pytest.MonkeyPatch.context() as patch:
        for module in (evaluate, evaluate_ranking):
            patch.setattr(module, "connect", lambda: SINGLE_PROCESS)
        return dict(rf.evaluate(ranker, folder.load(path), metrics=METRICS).metrics)


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    path = data.with_name("model")
    rf.fit("ials", data, width=4, sweeps=2, out=path)
    return path


@pytest.fixture(scope="module")
def one_process(data: Path, model: Path) -> dict[str, Any]:
    return run_all(SINGLE_PROCESS, data, model)


@pytest.mark.parametrize("size", [2, 3])
def test_every_method_equals_one_process(
    size: int, data: Path, model: Path, one_process: dict[str, Any]
) -> None:
    ranks = run_ranks(size, run_all, data, model)
    for one in ranks:
        check_same_evaluation(one["evaluation"], one_process["evaluation"])
    for name in fits_of(FITS, size):
        result, expected = ranks[0][name], one_process[name]
        assert result["losses"] == pytest.approx(expected["losses"], rel=1e-5, abs=1e-6), name
        assert result["validation"] == pytest.approx(expected["validation"], abs=1e-4), name
        assert result["path"] == pytest.approx(expected["path"], abs=1e-4), name
        assert result["test"] == pytest.approx(expected["test"], abs=1e-4), name
        assert result["config"] == expected["config"]
        scale = float(expected["points"].abs().max())
        torch.testing.assert_close(
            result["points"], expected["points"], rtol=0, atol=1e-4 * scale, msg=name
        )
        assert result["keys"] == expected["keys"]
        check_other_ranks(ranks, name, expected["points"])


def check_same_evaluation(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    assert actual["rows"] == expected["rows"]
    for key, document in expected.items():
        assert list(numbers(actual[key])) == pytest.approx(list(numbers(document)), rel=1e-6), key


def check_other_ranks(ranks: list[dict[str, Any]], name: str, points: Tensor) -> None:
    """The other ranks hold the rows of their own queries and the chosen settings."""
    for rank in range(1, len(ranks)):
        result, n = ranks[rank][name], len(points)
        start, stop = n * rank // len(ranks), n * (rank + 1) // len(ranks)
        scale = float(points.abs().max())
        torch.testing.assert_close(result["points"], points[start:stop], rtol=0, atol=1e-4 * scale)
        assert result["keys"] == ranks[0][name]["keys"][start:stop]
        assert result["config"] == ranks[0][name]["config"]
        assert result["losses"] == ranks[0][name]["losses"]


def evaluated(model: Path, path: Path) -> dict[str, Any]:
    test = rf.evaluate(model, path, metrics=METRICS, strata=True)
    validation = rf.evaluate(model, path, split="validation", metrics=METRICS)
    return {
        "test": test.to_json(),
        "validation": validation.to_json(),
        "rows": test.rows.tolist(),  # type: ignore[union-attr]
        "values": test.per_query["ndcg@10"].tolist(),  # type: ignore[union-attr]
    }


class Share:
    """Rank ``rank`` of ``size``, as far as data is concerned."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def share(self, n: int) -> tuple[int, int]:
        return n * self.rank // self.size, n * (self.rank + 1) // self.size


@pytest.mark.parametrize("shards", [1, 4, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 200])
def test_any_number_of_ranks_reads_any_number_of_files(
    shards: int, size: int, tmp_path: Path
) -> None:
    whole = rf.prepare(groups(graded=True), out=tmp_path / "data", shards=shards)
    assert whole.fingerprint == rf.prepare(groups(graded=True)).fingerprint
    shares = [folder.load(tmp_path / "data", Share(rank, size)) for rank in range(size)]  # type: ignore[arg-type]
    for name in ("train", "validation", "test"):
        every = whole.split(name)  # type: ignore[arg-type]
        first, *others = [one.split(name) for one in shares]  # type: ignore[arg-type]
        ours, theirs = folder.to_tensors(first.join(*others)), folder.to_tensors(every)
        assert all(torch.equal(ours[key], theirs[key]) for key in ours.keys() | theirs.keys())
        firsts = [one.first for one in shares]
        assert firsts == [Share(rank, size).share(every.n_queries)[0] for rank in range(size)]


def fit_rg2(comm: Comm, path: Path, options: dict[str, Any]) -> list[Any]:
    ranker = rf.fit("rg2", path, comm=comm, **options)
    return [dict(ranker.model.config), [entry["score"] for entry in ranker.model.notes["path"]]]


def test_all_ranks_use_blocks_of_the_same_size(tmp_path: Path) -> None:
    """Even if one rank has one more candidate, and so longer rows, and memory is short."""
    some = torch.rand(80, 257, generator=torch.Generator().manual_seed(0)) < 0.1
    some[0] = True
    queries, candidates = some.nonzero().unbind(1)
    table = pl.DataFrame({"query": queries.numpy(), "candidate": candidates.numpy()})
    rf.prepare(table, out=tmp_path / "data", shards=2)
    options = {"width": 8, "tolerance": 1e-6, "memory_budget": 40960, "candidate_memory": 400}
    options |= {"neighbours": 256}  # all: a cut among equal entries would depend on rounding
    first, second = run_ranks(2, fit_rg2, tmp_path / "data", options)
    config, scores = fit_rg2(SINGLE_PROCESS, tmp_path / "data", options)
    assert first == second
    assert first[0] == config
    assert first[1] == pytest.approx(scores, abs=1e-6)
