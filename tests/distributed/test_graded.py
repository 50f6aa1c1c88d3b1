"""One, two and three processes fit the same graders; each encodes its own rows."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import ranks as processes
import torch
from ranks import numbers
from torch import Tensor, nn

import rankfold as rf
from rankfold.data import folder
from rankfold.data.build.graded import dataset
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.encoders.row_inputs import Inputs, dropout, random_flips
from rankfold.encoders.rows import ROW_ENCODERS, Linear
from rankfold.methods import METHODS
from rankfold.training import loop
from rankfold.training.early_stopping import History
from rankfold.types import Columns, Comm, Dataset, Graded, OwnRows, Run, Step

STEPS = 12
COUNTED = 6  # steps, from the second on, whose bytes are counted
WIDTH, BATCH = 6, 24
NAMES = ["none", "mild", "grave"]
SPLITS = ("train", "validation", "test")
PLAIN = {"optimiser": "sgd", "lr": 0.02}
"""For images: some of the many weights have gradients of rounding error only, and Adam makes full
steps of them (one of 147,456 of a larger encoder differed by 1.6e-5)."""
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "cba": ("cba", {"dropout": 0.3, "cache": 16}),
    "cba likeness": ("cba", {"dropout": 0.3, "cache": 16, "ranks": "likeness", "classes": 0.0}),
    "cba alone": ("cba", {"batch_size": 2, "clip": 0.05}),  # a rank may have no row of a batch
    "ce": ("ce", {"optimiser": "sgd", "encoder": "linear"}),
    "focal": ("focal", {}),
    "soft-label": ("soft-label", {}),
    "nnrank": ("nnrank", {}),
    "fh": ("fh", {}),
    "fh-auc": ("fh-auc", {}),
    "ddag": ("ddag", {}),
    "eban": ("eban", {"dual_lr": 0.5}),
    "pauc": ("pauc", {}),
    "images": ("cba", {"flips": "both", "cache": 8, "batch_size": 5, **PLAIN}),
    "images and columns": ("ce", {"flips": "one", "dropout": 0.5, "batch_size": 5, **PLAIN}),
}
IDLE = {"cba": 1, "fh-auc": len(NAMES) - 1, "pauc": 1}
"""Biases that shift all scores equally: their gradients are rounding error, which Adam turns into
steps. They are left out here, and from scores and cuts."""
BINS = (".low", ".steep", ".middle")  # measured, not learnt
WHOLE: dict[str, dict[str, Any]] = {  # complete fits
    "cba": {"cache": 16},
    "pauc": {"refit": True},
    "images and columns": PLAIN,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders of graded rows; few images are held out, so a rank may have none."""
    path = tmp_path_factory.mktemp("data")
    sizes = {"table": (216, 50, 70), "images": (64, 2, 2), "images and columns": (64, 10, 2)}
    for name, counts in sizes.items():
        folder.save(graded(name, counts), path / name)
    return path


def graded(name: str, counts: tuple[int, int, int]) -> Dataset:
    parts = [rows(name, n, seed) for seed, n in enumerate(counts)]
    columns = None if name == "images" else Columns(("a", "b"), {"c": ("x", "y", "z")})
    return dataset(dict(zip(SPLITS, parts, strict=True)), NAMES, columns)


def rows(name: str, n: int, seed: int) -> Graded:
    """A grade depends on a number, a category and the brightness of an image, if present."""
    rng = torch.Generator().manual_seed(seed)
    grades = torch.arange(n) % 3 if n < 20 else torch.randint(0, 3, (n,), generator=rng)
    numbers = torch.randn(n, 2, generator=rng) + grades[:, None] * torch.tensor([1.0, 0.0])
    numbers = numbers.masked_fill(torch.rand(n, 2, generator=rng) < 0.05, torch.nan)
    categories = (grades[:, None] + torch.randint(-1, 2, (n, 1), generator=rng)).clamp(0, 2).int()
    images = torch.randint(0, 100, (n, 6, 5, 1), generator=rng) + 50 * grades.view(-1, 1, 1, 1)
    if name == "images":
        numbers, categories = numbers[:, :0], categories[:, :0]
    return Graded(numbers, categories, None if name == "table" else images.byte(), grades)


def folder_of(name: str, data: Path) -> Path:
    return data / (name if name.startswith("images") else "table")


@pytest.fixture(scope="module")
def ranks(data: Path, out: Path) -> Iterator[processes.Ranks]:
    """Results of one, two and three processes; one and three resume where two stopped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PAUSE_SECONDS", -1.0)
        results = {2: processes.run_ranks(2, run_all, data, out)}
        shutil.copytree(out / "2", out / "copied")
        results[1] = [run_all(SINGLE_PROCESS, data, out)]
        yield results | {3: processes.run_ranks(3, run_all, data, out)}


def run_all(comm: Comm, data: Path, out: Path) -> dict[str, Any]:
    """All that is compared, in one call, since processes start slowly."""
    loop.PAUSE_SECONDS = -1.0  # a step after every batch
    results: dict[str, Any] = {
        name: run_steps(comm, data, name) for name in processes.fits_of(FITS, comm.size)
    }
    results["errors"] = errors_of_wrong_fits(comm, data)
    results["shares"] = {name: load_share(comm, data / name) for name in ("table", "images")}
    if comm.size == 2:
        return results | {"interrupted": begin(comm, data, out / "2")}
    checkpoints = out / ("2" if comm.size == 3 else "copied")
    results["resumed"] = fitted(comm, data, checkpoints, resume=True)
    return results | {"fitted": fitted(comm, data, out / f"whole {comm.size}")}


def run_steps(comm: Comm, data: Path, name: str) -> dict[str, Any]:
    """The state of a fit after some steps."""
    method, options = FITS[name]
    config = METHODS[method].config(**{"batch_size": BATCH, "width": WIDTH, **options})
    run = Run(torch.Generator().manual_seed(0), torch.device("cpu"), comm)
    fit = METHODS[method].fit(folder.load(folder_of(name, data), comm), config, run)
    next(fit)
    sent = comm.sent
    list(islice(fit, COUNTED))
    sent = comm.sent - sent
    *_, step = islice(fit, STEPS - 1 - COUNTED)
    assert not step.divided
    state = step.state()
    state["sums"] = state["sums"][:2]  # without the seconds
    if method in IDLE:
        state["module.head.bias"] = state["module.head.bias"][IDLE[method] :]
    return {"loss": step.loss, "state": state, "sent": sent, "batch": config.batch_size}


@pytest.mark.parametrize(("name", "size"), processes.cases(FITS))
def test_parameters_equal_one_process(name: str, size: int, ranks: processes.Ranks) -> None:
    """So do caches, duals, estimates, generators and optimisers; ranks are bit-identical."""
    processes.check_equals_one_process(ranks, size, name)


@pytest.mark.parametrize(("name", "size"), processes.cases(FITS, ["cba", "ce", "pauc", "images"]))
def test_a_step_sends_the_documented_bytes(name: str, size: int, ranks: processes.Ranks) -> None:
    """See docs/reference/processes.md."""
    for one in ranks[size]:
        result = one[name]
        state = result["state"].items()
        learnt = ("module.encoder", "module.head")
        parameters = [t for key, t in state if key.startswith(learnt) and not key.endswith(BINS)]
        vectors = 4 * result["batch"] * WIDTH
        count = sum(t.numel() for t in parameters) + IDLE.get(method(name), 0)
        sums = [vectors, 24, vectors, 4 * count]
        assert result["sent"] == COUNTED * sum(2 * n * (size - 1) // size for n in sums)


# ---------------------------------------------------------------------------------- data, draws


def load_share(comm: Comm, path: Path) -> dict[str, Any]:
    """The tensors of each split that this process holds."""
    data = folder.load(path, comm)
    assert torch.equal(folder.part(folder.load(path), comm).train.grades, data.train.grades)
    parts = {name: folder.to_tensors(data.graded(name)) for name in SPLITS}
    return {name: {key: t.clone() for key, t in part.items()} for name, part in parts.items()}


@pytest.mark.parametrize("name", ["table", "images"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_process_holds_its_own_rows_of_each_split(
    size: int, name: str, data: Path, ranks: processes.Ranks
) -> None:
    whole = folder.load(data / name)
    for split in SPLITS:
        parts = [one["shares"][name][split] for one in ranks[size]]
        lengths = [len(part["grades"]) for part in parts]
        assert max(lengths) - min(lengths) <= 1
        for key, tensor in folder.to_tensors(whole.graded(split)).items():
            both = torch.cat([part[key] for part in parts])
            torch.testing.assert_close(both, tensor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("places", [[0, 3, 4], [], [2]])
def test_random_draws_are_made_for_the_whole_batch(places: list[int]) -> None:
    rng = torch.Generator().manual_seed(0)
    values, images = torch.randn(5, 7, generator=rng), torch.randn(5, 1, 4, 4, generator=rng)
    own = OwnRows(torch.tensor(places, dtype=torch.int64), 5)
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    whole = dropout(values, 0.4, one), random_flips(images, (2, 3), one)
    mine = (
        dropout(values[own.places], 0.4, other, own),
        random_flips(images[own.places], (2, 3), other, own),
    )
    for all_, some in zip(whole, mine, strict=True):
        assert torch.equal(all_[own.places], some)
    assert torch.equal(one.get_state(), other.get_state())


# ---------------------------------------------------------------------------------- whole fits


def options(name: str) -> dict[str, Any]:
    batch = {"cba": 48, "pauc": 48, "images and columns": 20}[name]
    shared = {"epochs": 3, "width": WIDTH, "batch_size": batch, "lr": 0.01, "metric": "auc"}
    return {**shared, **WHOLE[name]}


def stop(_history: History, step: Step) -> None:
    """Send Ctrl-C in the second epoch, on the rank that reports."""
    if step.number == 2 and not step.whole:
        processes.send_interrupt()


def begin(comm: Comm, data: Path, out: Path) -> list[str]:
    """Start fits; each is interrupted and leaves a checkpoint."""
    out.mkdir(exist_ok=True)

    def fit(name: str) -> None:
        how = {"comm": comm, "out": out / name, "report": stop, **options(name)}
        rf.fit(method(name), folder_of(name, data), **how)

    return processes.interrupted(WHOLE, fit)


def method(name: str) -> str:
    return FITS[name][0]


def fitted(comm: Comm, data: Path, out: Path, *, resume: bool = False) -> dict[str, Any]:
    """Complete fits: the model, and its results on the test rows."""
    if comm.rank == 0:
        out.mkdir(exist_ok=True)
    comm.barrier()
    results = {}
    for name in WHOLE:
        path, place = folder_of(name, data), out / name
        grader = rf.fit(method(name), path, comm=comm, out=place, resume=resume, **options(name))
        written = rf.load(place)
        for key, tensor in grader.model.tensors.items():
            assert torch.equal(written.model.tensors[key], tensor)  # complete, on all ranks
        history, idle = grader.model.notes["history"], IDLE.get(method(name), 0)
        tensors, bias = dict(grader.model.tensors), grader.model.tensors["head.bias"]
        shift = bias[:idle].double().sum()
        tensors |= {
            "head.bias": bias[idle:],
            "operating_scores": tensors["operating_scores"] - shift,
        }
        results[name] = {
            "losses": [entry["loss"] for entry in history],
            "scores": [entry["score"] for entry in history if "score" in entry],
            "tensors": tensors,
            "cuts": grader.cuts(0.1) - shift,
            "test": rf.evaluate(grader, path, bootstrap=20, calibration=0 if idle else 2).to_json(),
        }
    return results


def check_same(result: dict[str, Any], expected: dict[str, Any]) -> None:
    """Losses, validation scores, parameters, cuts, and the evaluation."""
    assert result["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert result["scores"] == pytest.approx(expected["scores"], rel=1e-6)
    assert len(result["scores"]) == 3
    torch.testing.assert_close(result["tensors"], expected["tensors"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result["cuts"], expected["cuts"], rtol=1e-5, atol=1e-5)
    actual, wanted = (list(numbers(one["test"])) for one in (result, expected))
    assert actual == pytest.approx(wanted, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", WHOLE)
def test_models_cuts_and_metrics_equal_one_process(name: str, ranks: processes.Ranks) -> None:
    expected = ranks[1][0]["fitted"][name]
    assert len(expected["test"]["metrics"]) > 3
    for one in ranks[3]:
        check_same(one["fitted"][name], expected)


@pytest.mark.parametrize("name", WHOLE)
def test_one_and_three_resume_where_two_stopped(
    name: str, out: Path, ranks: processes.Ranks
) -> None:
    assert [one["interrupted"] for one in ranks[2]] == [list(WHOLE)] * 2
    expected = ranks[1][0]["fitted"][name]
    for one in (*ranks[1], *ranks[3]):
        check_same(one["resumed"][name], expected)
    assert not (out / "2" / f"{name}.checkpoint").exists()


# ---------------------------------------------------------------------------------- wrong use


class Normalised(nn.Module):
    """An encoder that reads the other rows of a batch."""

    def __init__(self, *how: Any) -> None:
        super().__init__()
        self.linear, self.norm = Linear(*how), nn.BatchNorm1d(how[1])

    def forward(self, inputs: Inputs, rng: torch.Generator | None) -> Tensor:
        self.norm.train(rng is not None)
        vectors: Tensor = self.norm(self.linear(inputs, rng))
        return vectors


def errors_of_wrong_fits(comm: Comm, data: Path) -> list[str]:
    """The errors of impossible fits."""
    ROW_ENCODERS["normalised"] = Normalised
    errors = []
    for name, options in (("ce", {"encoder": "normalised", "epochs": 1}), ("rg2", {})):
        try:
            rf.fit(name, data / "table", comm=comm, **options)
        except rf.UserError as error:
            errors.append(f"{error}; {error.hint}")
    del ROW_ENCODERS["normalised"]
    return errors


def test_encoders_that_read_the_whole_batch_are_refused(
    ranks: processes.Ranks,
) -> None:
    """Only with several processes."""
    assert [error.split(",")[0] for error in ranks[1][0]["errors"]] == ["rg2 takes interactions"]
    for one in (*ranks[2], *ranks[3]):
        norm, other = one["errors"]
        assert norm.startswith("encoder=normalised has a batch norm")
        assert "BatchNorm1d" in norm
        assert "without torchrun" in norm
        assert other.startswith("rg2 takes interactions")
