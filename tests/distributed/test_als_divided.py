"""Alternating least squares and its initial vectors, with candidates divided by row."""

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from planted import groups
from ranks import Ranks, cases, fits_of, interrupted, run_ranks, send_interrupt
from torch import Tensor
from torch.overrides import TorchFunctionMode

import rankfold as rf
from rankfold import config
from rankfold.data import folder
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.objectives.quadratic import candidate_half, query_half, value
from rankfold.objectives.rg import rg2
from rankfold.solvers import pairs, shards
from rankfold.solvers.als import sweep
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.solvers.shards import Shards
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint
from rankfold.training.early_stopping import History
from rankfold.types import Comm, Model, Run, Step

M, N, WIDTH = 240, 125, 6  # unequal shares of candidates; shares of queries are below N
MEMORY = 2900  # bytes: less than a table of all candidates
AT_ONCE = MEMORY // (4 * WIDTH * shards.COPIES)  # candidates are gathered
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "ials": ("ials", {"sweeps": 2, "refit": True, "validation_queries": 30}),
    "grades": ("wrmf", {"sweeps": 2, "steps": 1, "alpha": 5.0, "weights": "grade"}),
    "weighted grades": ("rg2-weighted", {"sweeps": 2, "weights": "grade"}),
    "rgx": ("rgx", {"sweeps": 1}),
    "rgx matrix": ("rgx", {"sweeps": 1, "regulariser": "matrix"}),
    "rg2-plain": ("rg2-plain", {"sweeps": 2, "solver": "als"}),
    "spectral": ("rg2-plain", {"tolerance": 1e-4}),
    "puresvd": ("puresvd", {"tolerance": 1e-4, "weights": "grade"}),
}
SHORT = {"sweeps": 2, "width": 2}
STOPPED: dict[str, dict[str, Any]] = {
    "ials": {"sweeps": 3, "refit": True},
    "rg2-weighted": {"sweeps": 3},
    "puresvd": {"tolerance": 1e-6},
}
MEASURED: dict[str, dict[str, Any]] = {  # open settings would take a table of candidates
    "ials": {"start": "spectral", "reg": 0.01, "background": 0.1},
    "rgx": {"steps": 1, "start": "random", "reg": 0.1, "alpha": 0.06},
    "rgx-sampled": {},
}


def run_all(comm: Comm, home: Path) -> dict[str, Any]:
    """All that is compared, in one call, since processes start slowly."""
    shards.DRAW_BLOCK, shards.QUERY_BLOCK = 32, {"cpu": 60}  # several of each
    pairs.BLOCK_ENTRIES = {"cpu": 1}
    resume_or_begin = begin if comm.size == 2 else resume_fits
    return {
        "fits": {n: fitted(comm, home / "data", *FITS[n]) for n in fits_of(FITS, comm.size)},
        "few candidates": fitted(
            comm, home / "few candidates", "ials", {**SHORT, "candidate_memory": 15}
        ),
        "few queries": fitted(
            comm, home / "few queries", "wrmf", {**SHORT, "candidate_memory": 400}
        ),
        "weights": weighted_sweep(comm, home / "data"),
        "error": error_of_cholesky(comm, home / "data"),
        "measured": {n: measure(comm, home / "data", n) for n in fits_of(MEASURED, comm.size)},
        "undivided": measure(comm, home / "data", "ials", memory=2**34),
        "saved": save_and_load(comm, home / f"saved-{comm.size}"),
        "resumed": resume_or_begin(comm, home),
    }


def fitted(comm: Comm, data: Path, method: str, options: dict[str, Any]) -> dict[str, Any]:
    how = {"width": WIDTH, "candidate_memory": MEMORY, **options}
    ranker = rf.fit(method, data, comm=comm, **how)
    assert isinstance(ranker, Ranker)
    notes, tensors = ranker.model.notes, ranker.model.tensors
    return {
        "losses": [entry["loss"] for entry in notes["history"]],
        "validation": [entry.get("score", 0.0) for entry in notes["history"]],
        "points": tensors["queries"] @ tensors["candidates"].T,
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    table = groups(m=M, n=N, graded=True)
    rf.prepare(table, out=home / "data")
    two = table.with_columns(pl.col("candidate") % 2).unique(["query", "candidate"])
    for name, few in (("few candidates", two), ("few queries", table.filter(pl.col("query") < 2))):
        rf.prepare(few, out=home / name, split=(1.0, 0.0, 0.0))
    return home


@pytest.fixture(scope="module")
def ranks(home: Path) -> Ranks:
    """Results of 2 ranks, then of 3, which resume where 2 stopped."""
    return {size: run_ranks(size, run_all, home) for size in (2, 3)}


each_size = pytest.mark.parametrize("size", [2, 3])


@each_size
def test_every_method_equals_one_process(size: int, home: Path, ranks: Ranks) -> None:
    for name in fits_of(FITS, size):
        expected = fitted(SINGLE_PROCESS, home / "data", *FITS[name])
        check_same(name, [rank["fits"][name] for rank in ranks[size]], expected)


@each_size
def test_more_ranks_than_candidates_or_queries_equal_one_process(
    size: int, home: Path, ranks: Ranks
) -> None:
    for name, method in (("few candidates", "ials"), ("few queries", "wrmf")):
        path = home / name
        expected = fitted(SINGLE_PROCESS, path, method, SHORT)
        check_same(name, [rank[name] for rank in ranks[size]], expected)


def weighted_sweep(comm: Comm, data: Path) -> tuple[float, Tensor]:
    """The objective and scores of a sweep with weighted candidates."""
    rows = folder.load(data, comm).split("train")
    o = rg2(rows, 0.3, exponent=-0.375, candidate_exponent=0.35, comm=comm)
    divided, rng = None, torch.Generator().manual_seed(0)
    queries, candidates = (torch.randn(n, WIDTH, generator=rng) for n in (M, N))
    queries, columns = queries[slice(*comm.share(M))], rows.transpose()
    if comm.size > 1:
        divided = Shards(rows, comm, AT_ONCE)
        candidates, columns = candidates[divided.rows], rows
    halves = query_half(o), candidate_half(o, columns)
    p, q = sweep(halves, queries, candidates, by_conjugate_gradients(2), divided)
    whole = q if divided is None else comm.gather(q)
    return value(o, p, q, divided), comm.gather(p) @ whole.T


@each_size
def test_a_sweep_with_weighted_candidates_equals_one_process(
    size: int, home: Path, ranks: Ranks
) -> None:
    loss, points = weighted_sweep(SINGLE_PROCESS, home / "data")
    for rank in ranks[size]:
        assert rank["weights"][0] == pytest.approx(loss, rel=1e-5)
        scale = float(points.abs().max())
        torch.testing.assert_close(rank["weights"][1], points, rtol=0, atol=1e-4 * scale)


def check_same(name: str, results: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert results[0]["losses"] == pytest.approx(expected["losses"], rel=1e-5), name
    assert results[0]["validation"] == pytest.approx(expected["validation"], abs=2e-3), name
    points, size = expected["points"], len(results)
    how = {"rtol": 0, "atol": 1e-4 * float(points.abs().max()), "msg": name}
    torch.testing.assert_close(results[0]["points"], points, **how)
    for rank in range(1, size):
        assert results[rank]["losses"] == results[0]["losses"]
        own = slice(len(points) * rank // size, len(points) * (rank + 1) // size)
        torch.testing.assert_close(results[rank]["points"], points[own], **how)


def error_of_cholesky(comm: Comm, data: Path) -> str:
    try:
        fitted(comm, data, "ials", {"inner": "cholesky"})
    except UserError as error:
        return f"{error}; {error.hint}"
    return ""


@each_size
def test_cholesky_is_refused(size: int, ranks: Ranks) -> None:
    for rank in ranks[size]:
        assert "inner=cholesky needs all candidates" in rank["error"]
        assert "inner=cg" in rank["error"]


# ------------------------------------------------------------------------ memory and traffic


class Tables(TorchFunctionMode):
    """The largest number of rows of any table that an operation creates."""

    largest = 0

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, Tensor) and is_table(one):
                self.largest = max(self.largest, len(one))
        return result


def is_table(tensor: Tensor) -> bool:
    """Whether it holds vectors, not one number per row."""
    dense = tensor.layout == torch.strided and tensor.is_floating_point()
    return dense and tensor.dim() == 2 and tensor.shape[1] > 1


def measure(comm: Comm, data: Path, name: str, memory: int = MEMORY) -> dict[str, Any]:
    """The losses of a fit without validation, its largest table, the bytes of its second sweep."""
    own, method = folder.load(data, comm), METHODS[name]
    settings = config.build(method.config, {"width": WIDTH, "sweeps": 2, **MEASURED[name]})
    rng, device = torch.Generator().manual_seed(0), torch.device("cpu")
    run = Run(rng, device, comm, candidate_memory=memory)
    with Tables() as tables:
        steps = [(step.loss, comm.sent) for step in method.fit(own, settings, run)]
    losses, sent = zip(*steps, strict=True)
    return {"losses": losses, "largest": tables.largest, "sent": sent[1] - sent[0]}


@each_size
def test_no_rank_holds_all_candidates(size: int, home: Path, ranks: Ranks) -> None:
    alone = {name: measure(SINGLE_PROCESS, home / "data", name) for name in fits_of(MEASURED, size)}
    for rank in ranks[size]:
        assert rank["measured"].keys() == alone.keys()
        for name, result in rank["measured"].items():
            assert result["losses"] == pytest.approx(alone[name]["losses"], rel=1e-5), name
        largest = max(result["largest"] for result in rank["measured"].values())
        assert largest <= max(M // size, AT_ONCE) < N
        assert rank["undivided"]["largest"] >= N


@pytest.mark.parametrize(("name", "size"), cases(MEASURED))
def test_a_sweep_sends_the_documented_bytes(name: str, size: int, ranks: Ranks) -> None:
    steps = MEASURED[name].get("steps", 2)
    tables = {"rgx": steps + 21, "rgx-sampled": steps + 31}.get(name, 3 * steps + 4)
    scattered = 10 if name.startswith("rgx") else steps + 1
    longest, each = -(-N // size), AT_ONCE // size
    groups = -(-longest // each)
    rows = groups * each  # of a rank, including the padding of the last group
    sent = tables * 4 * rows * WIDTH * (size - 1)
    sent += (tables - scattered) * groups * 8 * (size - 1)  # a gather sends its length
    for number, rank in enumerate(ranks[size]):
        assert rank["measured"][name]["sent"] == sent + small_bytes(name, size, first=number == 0)


def small_bytes(name: str, size: int, *, first: bool) -> int:
    """Bytes of small sums, and of small matrices that rank 0 sends."""

    def s(numbers: int, each: int = 4) -> int:
        return 2 * numbers * each * (size - 1) // size

    k, gram, rotation = WIDTH, WIDTH**2, 0
    if first:
        rotation = 8 * (k + gram) * (size - 1)
    step = s(gram, 8) + rotation + 3 * s(k) + s(1)  # a Gram matrix, three vectors, a count
    value = s(gram, 8) + 2 * s(k, 8) + s(1, 8)
    if not name.startswith("rgx"):
        return 2 * step + value
    products = 9 * s(k) * (2 if name == "rgx-sampled" else 1)
    return 2 * step + s(k, 8) + value + products + 8 * s(k) + 16 * s(1, 8)


# ------------------------------------------------------------------------------ resume


def stop(_history: History, step: Step) -> None:
    """Send Ctrl-C, on the rank that reports."""
    if step.number == 2:
        send_interrupt()


def resumable(comm: Comm, home: Path, out: Path, name: str, **how: Any) -> list[float]:
    options = {"width": WIDTH, "candidate_memory": MEMORY, **STOPPED[name], **how}
    ranker = rf.fit(name, home / "data", comm=comm, out=out / name, **options)
    return [entry["loss"] for entry in ranker.model.notes["history"]]


def begin(comm: Comm, home: Path) -> None:
    """Every fit leaves a checkpoint, which rank 0 resumes alone."""
    out = make_folder(comm, home / "two")
    ended = interrupted(STOPPED, lambda name: resumable(comm, home, out, name, report=stop))
    assert ended == list(STOPPED)
    if comm.rank == 0:
        shutil.copytree(out, home / "one")
        shutil.copytree(out, home / "whole")
    comm.barrier()


def resume_fits(comm: Comm, home: Path) -> dict[str, list[list[float]]]:
    """Resume fits of 2 ranks; also with enough memory for the table of candidates."""
    losses = {name: [resumable(comm, home, home / "two", name, resume=True)] for name in STOPPED}
    how = {"resume": True, "candidate_memory": 2**34}
    losses["ials"].append(resumable(comm, home, home / "whole", "ials", **how))
    return losses


def make_folder(comm: Comm, path: Path) -> Path:
    if comm.rank == 0:
        path.mkdir(exist_ok=True)
    comm.barrier()
    return path


def test_any_number_of_ranks_resumes(home: Path, ranks: Ranks) -> None:
    for name in STOPPED:
        expected = resumable(
            SINGLE_PROCESS, home, make_folder(SINGLE_PROCESS, home / "expected"), name
        )
        alone = resumable(SINGLE_PROCESS, home, home / "one", name, resume=True)
        for losses in (alone, *(losses for rank in ranks[3] for losses in rank["resumed"][name])):
            assert losses == pytest.approx(expected, rel=1e-5), name
        points = [scores(home / path / name) for path in ("expected", "one", "two")]
        points += [scores(home / "whole" / name)] if name == "ials" else []
        for other in points[1:]:
            scale = float(points[0].abs().max())
            torch.testing.assert_close(other, points[0], rtol=0, atol=1e-4 * scale)
        assert not (home / "two" / f"{name}.checkpoint").exists()


def scores(path: Path) -> Tensor:
    tensors = rf.load(path).model.tensors
    return tensors["queries"] @ tensors["candidates"].T


def save_and_load(comm: Comm, path: Path) -> Tensor | None:
    """The candidates of an undivided model, after a checkpoint with divided candidates."""
    table = torch.arange(2.0 * N).reshape(N, 2)
    history = History(model=Model("ials", {}, {"queries": torch.ones(1, 2), "candidates": table}))
    state = {"candidates": table[slice(*comm.share(N))]}
    checkpoint.save(path, Checkpoint({}, history, state, ("candidates",)), comm)
    comm.barrier()
    model = checkpoint.load(path).history.model
    assert model is not None
    assert torch.equal(checkpoint.load(path).state["candidates"], table)
    return model.tensors["candidates"]


@each_size
def test_a_checkpoint_of_divided_candidates_keeps_a_whole_model(size: int, ranks: Ranks) -> None:
    for rank in ranks[size]:
        assert torch.equal(rank["saved"], torch.arange(2.0 * N).reshape(N, 2))
