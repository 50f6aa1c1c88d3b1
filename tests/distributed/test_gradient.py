"""One, two and three processes take the same gradient steps: batch, pool and draws are the same."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ranks as processes
import torch
from planted import dense, groups
from torch import Tensor

import rankfold as rf
from rankfold.data import folder
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods import METHODS
from rankfold.methods.gradient.comparison import usable
from rankfold.samplers.in_batch import InBatch
from rankfold.training import loop
from rankfold.training.batches import PairBatches
from rankfold.training.early_stopping import History
from rankfold.training.gradient_sync import sum_gradients
from rankfold.types import Comm, Run, Step

STEPS = 12
COUNTED = 6  # steps, from the second on, whose bytes are counted
WIDTH, BATCH = 6, 32
SHARDED = {"candidate_memory": 1000}  # bytes
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "bpr": ("bpr", {"mask": "all", "similarity": "cosine", "temperature": 0.2}),
    "bpr rows": ("bpr", {"optimiser": "row-adam"}),
    "bpr sharded": ("bpr", {"optimiser": "row-adam", "similarity": "cosine", **SHARDED}),
    "bce": ("bce", SHARDED),
    "bce towers": ("bce", {"encoder": "towers"}),
    "sampled-softmax": ("sampled-softmax", {"negatives": 20}),
    "ssl": ("ssl", {"mask": "all"}),
    "ssl-pop": ("ssl-pop", {}),
    "ssl-pop sparse": ("ssl-pop", {"optimiser": "sparse-adam", "clip": 0.05}),
    "ssl-pop sharded": ("ssl-pop", {"clip": 0.05, "batch_size": 3, **SHARDED}),
    "mns": ("mns", {"weights": "grade"}),
    "g-tower": ("g-tower", {"optimiser": "sgd", "clip": 0.05}),
    "bir": ("bir", {}),
    "bir own": ("bir", {"mask": "own", "draw": "multinomial", "correction": "appendix"}),
    "xir": ("xir", {}),
    "xir sharded": ("xir", {"mask": "all", "correction": "sir", **SHARDED}),
    "warp": ("sampled", {"sampler": "popularity", "loss": "warp"}),
    "softmax": ("softmax", {"weights": "grade"}),
    "sparsemax": ("sparsemax", {"batch_size": 3}),  # a rank may have no row of a batch
    "full": ("full", {"loss": "rg2", "encoder": "towers"}),
    "uib": ("uib", SHARDED),
    "sml": ("sml", {}),
}
PICKING = ("bir", "xir")  # in float64: a pick that flips by rounding changes all later steps
RESUMED: dict[str, dict[str, Any]] = {
    "xir": {},
    "bpr": {"optimiser": "row-adam", **SHARDED},
    "uib": {"optimiser": "sparse-adam"},
    "softmax": {"batch_size": 8},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planted groups; the last queries have few pairs, so the shares are unequal."""
    path = tmp_path_factory.mktemp("data") / "data"
    table = groups(graded=True).filter((pl.col("query") < 80) | (pl.col("candidate") < 20))
    rf.prepare(table, out=path)
    return path


@pytest.fixture(scope="module")
def ranks(data: Path, out: Path) -> Iterator[processes.Ranks]:
    """Results of one, three and two processes; the two resume the fits of the others."""
    (out / "whole").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ranks.TIMEOUT", 200.0)
        patch.setattr(loop, "PAUSE_SECONDS", -1.0)
        patch.setattr(loop, "sum_gradients", sum_gradients)
        results = {
            1: [run_all(SINGLE_PROCESS, data, out)],
            3: processes.run_ranks(3, run_all, data, out),
        }
        shutil.copytree(out / "3", out / "copied")
        yield results | {2: processes.run_ranks(2, run_all, data, out)}


def run_all(comm: Comm, data: Path, out: Path) -> dict[str, Any]:
    """All that is compared, in one call, since processes start slowly."""
    loop.PAUSE_SECONDS = -1.0  # a step after every batch
    results: dict[str, Any] = {
        name: run_steps(comm, data, name) for name in processes.fits_of(FITS, comm.size)
    }
    results["batches"] = batches(comm, data)
    if comm.size == 2:
        return results | {"resumed": [resume_fits(comm, data, out / name) for name in ("3", "1")]}
    return results | {"interrupted": begin(comm, data, out / str(comm.size))}


def run_steps(comm: Comm, path: Path, name: str) -> dict[str, Any]:
    """The state of a fit after some steps, with the rows of all processes."""
    method, options = FITS[name]
    settings = {"batch_size": BATCH, "width": WIDTH, **options}
    memory = settings.pop("candidate_memory", 2**34)
    torch.set_default_dtype(torch.float64 if method in PICKING else torch.float32)
    rng, device = torch.Generator().manual_seed(0), torch.device("cpu")
    run = Run(rng, device, comm, candidate_memory=memory)
    config, gradients = METHODS[method].config(**settings), []
    loop.sum_gradients = lambda *given: (gradients.append(given[2]), sum_gradients(*given))
    fit = METHODS[method].fit(folder.load(path, comm), config, run)
    next(fit)
    sent = comm.sent
    list(islice(fit, COUNTED))
    sent = comm.sent - sent
    *_, step = islice(fit, STEPS - 1 - COUNTED)
    state = {key: value for key, value in step.state().items() if key != "sums"}
    for key in step.divided:
        state[key] = comm.gather(state[key])
    torch.set_default_dtype(torch.float32)
    rows = [0 if one is None else len(one) for one in gradients[1 : COUNTED + 1]]
    return {"loss": step.loss, "state": state, "sent": sent, "rows": rows}


@pytest.mark.parametrize(("name", "size"), processes.cases(FITS))
def test_parameters_equal_one_process(name: str, size: int, ranks: processes.Ranks) -> None:
    """So do caches, generators and optimiser states; shared state is bit-identical."""
    processes.check_equals_one_process(ranks, size, name)


def batches(comm: Comm, path: Path) -> list[dict[str, Tensor]]:
    """Some batches of this process, with all that is compared."""
    data = folder.load(path, comm)
    rows = data.split("train")
    all_batches, results = PairBatches(rows, BATCH, "none", comm), []
    order = all_batches.order(torch.Generator().manual_seed(0))
    for number in (0, 1, len(all_batches) - 1):
        batch = all_batches.take(order, number)
        rng = torch.Generator()
        pool = InBatch(torch.zeros(rows.n_candidates)).propose(batch, rng)
        masks = {mask: usable(mask, batch, pool, rows) for mask in ("own", "all")}
        places = torch.arange(len(batch.queries)) if batch.own is None else batch.own.places
        facts = {"places": places, "queries": batch.queries + data.first, **masks}
        results.append({**facts, "chosen": batch.chosen, "pool": pool.ids})
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_query_is_compared_with_all_negatives_of_the_batch(
    size: int, data: Path, ranks: processes.Ranks
) -> None:
    truth = dense(folder.load(data).split("train")) > 0
    for parts in zip(*(one["batches"] for one in ranks[size]), strict=True):
        pool = parts[0]["pool"]
        order = torch.cat([part["places"] for part in parts])
        assert order.sort().values.tolist() == list(range(len(pool)))  # each row on one rank
        for part in parts:
            queries, chosen = part["queries"], part["chosen"]
            assert torch.equal(part["pool"], pool)
            assert torch.equal(pool[part["places"]], chosen)
            assert bool(truth[queries, chosen].all())  # the labels are right
            assert torch.equal(part["all"], ~truth[queries][:, pool])
            assert torch.equal(part["own"], pool[None, :] != chosen[:, None])


def sums_of_step(name: str, rows: int, ranks: processes.Ranks) -> list[int]:
    """Bytes of each sum of a step with ``rows`` rows of gradients; docs/reference/processes.md."""
    state = ranks[1][0][name]["state"]
    sums = {"losses": 24, "ids": 4 * BATCH}
    if name == "softmax":
        return [24, 4 * state["module.encoder.candidates.weight"].numel()]
    if name == "bce towers":
        keys = [key for key in state if key.startswith("module.") and "own" not in key]
        others = sum(state[key].numel() for key in keys if "biases" not in key)
        return [*sums.values(), 4 * (rows * (WIDTH + 1) + others)]
    if name == "xir":
        return [*sums.values(), 8 * 2 * BATCH, 8 * rows * WIDTH]  # picks, and float64
    if name == "bce":
        return [*sums.values(), 4 * rows * WIDTH, 4 * rows * WIDTH, 4 * rows]
    if name == "ssl-pop sparse":
        return [*sums.values(), 4 * rows * WIDTH, 4]
    if name == "bpr sharded":
        return [*sums.values(), 4 * rows * WIDTH, 4 * rows * WIDTH]
    return [*sums.values(), 4 * rows * WIDTH]


@pytest.mark.parametrize(
    ("name", "size"),
    processes.cases(
        FITS,
        [
            *("bpr", "bpr sharded", "bce", "bce towers"),
            *("ssl-pop", "ssl-pop sparse", "xir", "softmax"),
        ],
    ),
)
def test_a_step_sends_the_documented_bytes(name: str, size: int, ranks: processes.Ranks) -> None:
    for one in ranks[size]:
        result = one[name]
        sums = [n for rows in result["rows"] for n in sums_of_step(name, rows, ranks)]
        assert result["sent"] == sum(2 * n * (size - 1) // size for n in sums)


def stop(_history: History, step: Step) -> None:
    """Send Ctrl-C in the second epoch, on the rank that reports."""
    if step.number == 2 and not step.whole:
        processes.send_interrupt()


def options(name: str) -> dict[str, Any]:
    return {"epochs": 3, "batch_size": 128, "width": WIDTH, **RESUMED[name]}


def begin(comm: Comm, data: Path, out: Path) -> list[str]:
    """Start fits; each is interrupted and leaves a checkpoint."""
    out.mkdir(exist_ok=True)

    def fit(name: str) -> None:
        torch.set_default_dtype(torch.float64 if name in PICKING else torch.float32)
        rf.fit(name, data, comm=comm, out=out / name, report=stop, **options(name))

    ended = processes.interrupted(RESUMED, fit)
    torch.set_default_dtype(torch.float32)
    return ended


def resume_fits(comm: Comm, data: Path, out: Path) -> dict[str, list[float]]:
    """The losses of every fit, resumed from its checkpoint if there is one."""
    losses = {}
    for name in RESUMED:
        torch.set_default_dtype(torch.float64 if name in PICKING else torch.float32)
        ranker = rf.fit(name, data, comm=comm, out=out / name, resume=True, **options(name))
        losses[name] = [entry["loss"] for entry in ranker.model.notes["history"]]
    torch.set_default_dtype(torch.float32)
    return losses


def test_another_number_of_ranks_resumes(data: Path, out: Path, ranks: processes.Ranks) -> None:
    """Three then two or one, one then two: all equal one uninterrupted process."""
    assert [one["interrupted"] for size in (1, 3) for one in ranks[size]] == [list(RESUMED)] * 4
    expected = resume_fits(SINGLE_PROCESS, data, out / "whole")
    losses = [each for one in ranks[2] for each in one["resumed"]]
    for resumed in (resume_fits(SINGLE_PROCESS, data, out / "copied"), *losses):
        for name in RESUMED:
            assert resumed[name] == pytest.approx(expected[name], rel=1e-5), name
    for name in RESUMED:
        whole = rf.load(out / "whole" / name).model.tensors
        for place in ("1", "3", "copied"):
            tensors = rf.load(out / place / name).model.tensors
            assert not (out / place / f"{name}.checkpoint").exists()
            for key in ("queries", "candidates"):
                torch.testing.assert_close(tensors[key], whole[key], rtol=1e-4, atol=1e-5)
