"""Fitting keeps the best step, stops in time, and goes on after a kill as if nothing happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import scipy.sparse
import torch
from linear_grades import COLUMNS, NAMES, random_rows

import rankfold as rf
from rankfold.cli.fit import describe_step
from rankfold.errors import UserError
from rankfold.interrupts import interrupt
from rankfold.tasks import fit
from rankfold.tasks.fit import TELLING
from rankfold.training import checkpoint
from rankfold.training.history import History, validated
from rankfold.types import Dataset, Graded, Model, Step, Vocabulary


def blocks(seed: int = 0, m: int = 120, n: int = 60) -> pl.DataFrame:
    """Queries and candidates in six groups; most choices stay within the group."""
    rng = torch.Generator().manual_seed(seed)
    same = (torch.arange(m)[:, None] % 6) == (torch.arange(n)[None, :] % 6)
    chosen = torch.rand(m, n, generator=rng) < torch.where(same, 0.6, 0.05)
    pairs = chosen.nonzero()
    return pl.DataFrame({"query": pairs[:, 0].numpy(), "candidate": pairs[:, 1].numpy()})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return rf.prepare(blocks())


def test_the_best_step_on_validation_is_kept(data: Dataset) -> None:
    ranker = rf.fit("ials", data, width=8, reg=0.01, sweeps=15, patience=3, inner="cholesky")
    history = ranker.model.notes["history"]
    scores = [entry["score"] for entry in history]
    assert ranker.model.notes["chosen"] == scores.index(max(scores)) + 1
    assert len(history) == 15 or len(history) == ranker.model.notes["chosen"] + 3
    kept = rf.evaluate(ranker, data, split="validation", metrics=["ndcg@10"])
    assert kept["ndcg@10"] == pytest.approx(max(scores), abs=1e-6)


@pytest.mark.parametrize("home", ["/sys", "file"])
def test_a_place_that_cannot_be_written_to_is_told_before_the_fit(
    home: str, data: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    steps: list[Step] = []
    with pytest.raises(UserError, match=home):
        rf.fit("ials", data, out=tmp_path / home / "m", report=lambda _, step: steps.append(step))
    assert not steps


def test_fits_better_than_popularity(data: Dataset) -> None:
    scores = {
        name: rf.evaluate(rf.fit(name, data), data, metrics=["ndcg@10"])["ndcg@10"]
        for name in ("popularity", "ials")
    }
    assert scores["ials"] > 1.5 * scores["popularity"]


def history_of(scores: list[float], patience: int) -> tuple[History, int]:
    """The history after steps of these scores, and the number of steps it took."""
    history = History()
    for number, score in enumerate(scores, 1):
        step = Step(number, 0.0, 0.0, None, dict, final=number == len(scores))
        history.note(step, score)
        if history.is_over(step, patience):
            return history, number
    raise AssertionError


def test_stops_after_patience_steps_without_a_better_score() -> None:
    history, steps = history_of([0.1, 0.3, 0.2, 0.3, 0.1, 0.9], patience=3)
    assert (history.number, history.score, steps) == (2, 0.3, 5)
    history, steps = history_of([0.1, 0.3, 0.2, 0.3, 0.1, 0.9], patience=4)
    assert (history.number, history.score, steps) == (6, 0.9, 6)


def test_the_last_is_kept_where_scores_do_not_choose() -> None:
    history = History(is_chosen=False)
    for number, score in enumerate([0.1, 0.9, 0.3], 1):
        step = Step(number, 0.0, 0.0, None, dict, final=number == 3)
        history.note(step, score)
        assert history.is_over(step, patience=1) == step.final  # a worse one does not end it
    assert (history.number, history.score) == (3, 0.3)
    notes = {"history": history.entries, "is_chosen": False}
    assert validated(notes) == 0.3
    assert validated({**notes, "is_chosen": True}) == validated({"history": history.entries}) == 0.9
    assert validated({"history": [], "is_chosen": False, "score": 0.7}) == 0.7


def test_a_refit_in_passes_has_the_score_of_its_fit(data: Dataset) -> None:
    notes = rf.fit("puresvd", data, refit=True, width=16).model.notes
    scores = [entry["score"] for entry in notes["history"] if "score" in entry]
    assert len(scores) == 1
    assert validated(notes) == scores[0]
    assert f"{scores[0]:.4f}" in describe_step(notes, "ndcg@10")


@pytest.mark.parametrize("rows", [TELLING - 1, TELLING])
def test_few_rows_of_validation_do_not_choose_an_epoch(rows: int, tmp_path: Path) -> None:
    held_out = random_rows(1, rows + 20)
    held_out.grades[:20] = -1  # of no grade: they say nothing
    keys, names = Vocabulary.numbered(300 + len(held_out)), Vocabulary.numbered(3, NAMES)
    train = random_rows(0, 300)  # grades by chance: no epoch is better than another
    data = Dataset("graded", train, held_out, None, keys, names, columns=COLUMNS)
    options: dict[str, Any] = {"epochs": 8, "width": 4, "lr": 0.05, "metric": "auc"}
    for more in ({}, {"patience": 8}):
        notes = rf.fit("ce", data, out=tmp_path / "model", **options, **more).model.notes
        scores = {entry["step"]: entry["score"] for entry in notes["history"]}
        best = max(scores, key=lambda step: scores[step])
        assert best < 8  # or this test says nothing
        chosen = rows == TELLING or bool(more)
        assert (notes["chosen"], notes["is_chosen"]) == (best if chosen else 8, chosen)
        assert validated(notes) == scores[notes["chosen"]]
        said = describe_step(notes, "auc")
        assert said.startswith(f"step {notes['chosen']}, ")
        assert f"{validated(notes):.4f}" in said
        assert ("few rows to choose by" in said) == (not chosen)
    if rows < TELLING:
        with pytest.raises(UserError, match="was finished with another patience"):
            rf.fit("ce", data, out=tmp_path / "model", resume=True, **options)


def test_refit_runs_the_chosen_steps_on_train_and_validation(data: Dataset) -> None:
    options = {"width": 8, "reg": 0.01, "sweeps": 15}
    ranker = rf.fit("ials", data, refit=True, **options)
    history = ranker.model.notes["history"]
    refit = [entry for entry in history if entry["phase"] == "refit"]
    scores = [entry["score"] for entry in history if entry["phase"] == "fit"]
    assert len(refit) == scores.index(max(scores)) + 1
    whole = data.split("train").union(data.split("validation"))
    alone = Dataset("interactions", whole, None, None, data.queries, data.candidates)
    expected = rf.fit("ials", alone, **{**options, "sweeps": len(refit)})
    assert torch.equal(ranker.model.tensors["queries"], expected.model.tensors["queries"])


def test_validation_sample_is_drawn_by_the_seed(data: Dataset) -> None:
    options = {"width": 4, "sweeps": 2, "validation_queries": 20}
    first, again, other = (
        rf.fit("ials", data, seed=seed, **options).model.notes["history"][0]["score"]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_tables_and_matrices_are_fitted_as_they_are() -> None:
    frame = blocks()
    rows, columns = frame["query"].to_numpy(), frame["candidate"].to_numpy()
    matrix = scipy.sparse.csr_matrix(([1.0] * len(rows), (rows, columns)), shape=(121, 60))
    from_matrix = rf.fit("rg2-plain", matrix, solver="als", sweeps=2)
    assert len(from_matrix.queries) == 121  # also the row without entries
    for table in (frame, frame.to_arrow(), frame.to_pandas(), (rows, columns)):
        ranker = rf.fit("rg2-plain", table, solver="als", sweeps=2)
        assert len(ranker.queries) == 120
        torch.testing.assert_close(
            ranker.model.tensors["queries"], from_matrix.model.tensors["queries"][:120]
        )


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("rg3", {}, "there is no method 'rg3'"),
        ("ials", {"device": "tpu"}, "there is no device 'tpu'"),
        ("ials", {"patience": 0}, "patience is 0"),
        ("ials", {"checkpoint_seconds": float("nan")}, "checkpoint_seconds is nan"),
        ("ials", {"metric": "coverage@10"}, "cannot validate by coverage@10"),
        ("ials", {"resume": True}, "nothing to resume"),
        ("ials", {"seed": -1}, "seed is -1"),
        ("ials", {"seed": 2**70}, "`seed` must be a whole number"),
        ("ials", {"seed": "x"}, "`seed` must be a whole number, got 'x'"),
        ("ials", {"validation_queries": 0}, "validation_queries is 0"),
        ("ials", {"metric": "popularity@10"}, "cannot validate by popularity@10"),
        ("ials", {"metric": "psp@5"}, "cannot validate by psp@5"),
        ("rg2", {"metric": "psn-raw@5"}, "cannot validate by psn-raw@5"),
        ("ials", {"width": 10**12}, "not enough memory"),
        ("ials", {"width": 10**18}, "not enough memory"),  # too much to be counted in bytes
    ],
)
def test_bad_requests_are_refused(
    data: Dataset, method: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        rf.fit(method, data, **options)


def test_graded_data_is_refused() -> None:
    with pytest.raises(UserError, match="takes interactions, but the data is graded"):
        rf.fit("popularity", rf.prepare(source="retinamnist"))


# ---------------------------------------------------------------------------------- checkpoints

OPTIONS = {"width": 8, "reg": 0.01, "sweeps": 12, "patience": 12}


class Stop(Exception):
    """Stands for a kill."""


def stop_after(n: int) -> object:
    def report(_course: History, step: Step) -> None:
        if step.number > n:
            raise Stop

    return report


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("n", [1, 4, 11])
def test_resumed_fit_is_bit_identical(data: Dataset, tmp_path: Path, n: int, refit: bool) -> None:  # noqa: FBT001
    whole = rf.fit("ials", data, refit=refit, **OPTIONS)
    out = tmp_path / "model"
    with pytest.raises(Stop):
        rf.fit(
            "ials",
            data,
            out=out,
            refit=refit,
            checkpoint_seconds=0,
            report=stop_after(n),
            **OPTIONS,
        )
    assert not out.exists()
    assert checkpoint.path_of(out).exists()
    resumed = rf.fit("ials", data, out=out, refit=refit, resume=True, **OPTIONS)
    assert [e["step"] for e in resumed.model.notes["history"]] == [
        e["step"] for e in whole.model.notes["history"]
    ]
    assert resumed.model.notes["chosen"] == whole.model.notes["chosen"]
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)
    assert not checkpoint.path_of(out).exists()


def test_resume_in_the_refit_goes_on_with_the_refit(data: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "patience": 2, "refit": True}
    whole = rf.fit("ials", data, **options)
    out = tmp_path / "model"

    def report(history: History, step: Step) -> None:
        if history.phase == "refit" and step.number == 2:
            raise Stop

    with pytest.raises(Stop):
        rf.fit("ials", data, out=out, checkpoint_seconds=0, report=report, **options)
    phases = []
    resumed = rf.fit(
        "ials",
        data,
        out=out,
        resume=True,
        report=lambda c, _: phases.append(c.phase),
        **options,
    )
    assert set(phases) == {"refit"}
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)


def test_a_checkpoint_of_another_fit_is_refused(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(Stop):
        rf.fit("ials", data, out=out, checkpoint_seconds=0, report=stop_after(2), **OPTIONS)
    for change, message in (({"width": 9}, "width = 8, not 9"), ({"seed": 5}, "seed = 0, not 5")):
        with pytest.raises(UserError, match=message):
            rf.fit("ials", data, out=out, resume=True, **{**OPTIONS, **change})
    with pytest.raises(UserError, match="other data"):
        rf.fit("ials", rf.prepare(blocks(1)), out=out, resume=True, **OPTIONS)


def test_killed_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    """A real SIGKILL of a real process, once a checkpoint is on disk."""
    rf.prepare(blocks(), out=tmp_path / "data")
    out = tmp_path / "model"
    code = (
        "import sys, time, rankfold as rf\n"
        "data, out = sys.argv[1:]\n"
        f"rf.fit('ials', data, out=out, checkpoint_seconds=0, "
        f"report=lambda *_: time.sleep(.2), **{OPTIONS!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "data"), str(out)])
    kept = checkpoint.path_of(out)
    while not kept.exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not out.exists()
    resumed = rf.fit("ials", tmp_path / "data", out=out, resume=True, **OPTIONS)
    whole = rf.fit("ials", tmp_path / "data", **OPTIONS)
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("xir", {"schedule": "cosine", "warmup": 1.0, "clip": 1.0}),
        ("bpr", {"optimiser": "sparse-adam"}),
        ("g-tower", {"encoder": "towers", "optimiser": "adamw"}),
    ],
)
def test_killed_inside_an_epoch_and_resumed_gives_the_same_bits(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Killed at any batch, whatever the optimiser, the sampler and the schedule keep."""
    rf.prepare(blocks(), out=tmp_path / "data")
    out, options = tmp_path / "model", {"epochs": 6, "batch_size": 64, "width": 8, **settings}
    code = (
        "import sys, time, rankfold as rf\n"
        "from rankfold.training import loop\n"
        "loop.TICK = -1.0\n"
        "data, out = sys.argv[1:]\n"
        f"rf.fit({method!r}, data, out=out, checkpoint_seconds=0, "
        f"report=lambda *_: time.sleep(.01), **{options!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "data"), str(out)])
    kept = checkpoint.path_of(out)
    while not kept.exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(random.Random(method).uniform(0, 0.3))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not out.exists()
    resumed = rf.fit(method, tmp_path / "data", out=out, resume=True, **options)
    whole = rf.fit(method, tmp_path / "data", **options)
    assert resumed.model.notes["chosen"] == whole.model.notes["chosen"]
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(resumed.model.tensors[name], tensor)


def test_interrupt_waits_for_the_step_and_keeps_it(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "model"

    def interrupt(_course: History, step: Step) -> None:
        if step.number == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        rf.fit("ials", data, out=out, report=interrupt, **OPTIONS)
    kept = checkpoint.load(checkpoint.path_of(out))
    assert int(kept.state["number"]) == 3
    whole = rf.fit("ials", data, **OPTIONS)
    resumed = rf.fit("ials", data, out=out, resume=True, **OPTIONS)
    assert torch.equal(resumed.model.tensors["queries"], whole.model.tensors["queries"])


@pytest.mark.parametrize("handler", [signal.default_int_handler, interrupt])
def test_an_interrupt_of_the_last_step_comes_too_late(data: Dataset, handler: Any) -> None:
    def report(_course: History, step: Step) -> None:
        if step.final:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, handler)
    try:
        assert rf.fit("rg2-plain", data, width=4, report=report).model.notes["history"]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("method", ["ials", "rg2", "rg2-plain", "puresvd"])
def test_after_an_interrupt_of_the_last_step_the_refit_follows(
    data: Dataset, tmp_path: Path, method: str
) -> None:
    """Those that decompose leave nothing to go on from in their last step."""
    out, phases = tmp_path / "model", []

    def interrupt(_course: History, step: Step) -> None:
        if step.final:
            signal.raise_signal(signal.SIGINT)

    how: dict[str, Any] = {"width": 8, "refit": True}
    with pytest.raises(KeyboardInterrupt):
        rf.fit(method, data, out=out, report=interrupt, patience=99, **how)
    watching = {"report": lambda history, _: phases.append(history.phase)}
    resumed = rf.fit(method, data, out=out, resume=True, patience=99, **how, **watching)
    assert set(phases) == {"refit"}
    whole = rf.fit(method, data, patience=99, **how)
    assert torch.equal(resumed.model.tensors["candidates"], whole.model.tensors["candidates"])


class Elsewhere:
    """A table on a device that is not here."""

    device = torch.device("cuda")

    def __len__(self) -> int:
        return 1

    def cpu(self) -> torch.Tensor:
        return torch.zeros(1, 2)


def test_queries_go_where_the_file_of_candidates_is(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of all candidates that is too large for memory is a file, which no device has."""
    file = torch.ones(len(data.candidates), 2)
    monkeypatch.setattr(fit, "_all_rows", lambda *_, **__: file)
    tensors: Any = {"queries": Elsewhere(), "candidates": Elsewhere()}
    job = fit.plan("ials", data, {})
    whole = fit._with_candidates(Model("ials", {}, tensors), job).tensors
    assert whole["candidates"].data_ptr() == file.data_ptr()
    assert whole["queries"].device == file.device


def test_a_finished_model_is_not_fitted_again(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "model"
    options: dict[str, Any] = {"epochs": 2, "batch_size": 64, "width": 4}
    made = rf.fit("bpr", data, out=out, **options)
    before = (out / "manifest.json").read_bytes()
    steps: list[int] = []
    again = rf.fit(
        "bpr", data, out=out, resume=True, report=lambda _, s: steps.append(s.number), **options
    )
    assert steps == []
    assert torch.equal(again.model.tensors["queries"], made.model.tensors["queries"])
    for method, change, message in (
        ("softmax", {}, "method = bpr"),
        ("bpr", {"epochs": 3}, "epochs = 2"),
        ("bpr", {"seed": 4}, "seed = 0"),
        ("bpr", {"refit": True}, "refit = False"),
    ):
        with pytest.raises(UserError, match=f"was finished with {message}"):
            rf.fit(method, data, out=out, resume=True, **{**options, **change})
    with pytest.raises(UserError, match="was finished on other data"):
        rf.fit("bpr", rf.prepare(blocks(1)), out=out, resume=True, **options)
    assert (out / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("method", "given", "negatives", "metric"),
    [
        ("cba", {}, 1000, "pauc@fpr=0.02"),
        ("cba", {}, 200, "pauc@fpr=0.05"),  # ten of them
        ("cba", {}, 20, "pauc@fpr=0.1"),
        ("cba", {"fpr": 0.2}, 1000, "pauc@fpr=0.4"),
        ("cba", {"fpr": 0.6}, 1000, "auc"),
        ("eban", {"fpr": 0.05}, 1000, "pauc@fpr=0.1"),
        ("ce", {}, 1000, "pauc@fpr=0.1"),
        ("cba", {"metric": "tpr@fpr=.3"}, 1000, "tpr@fpr=.3"),
    ],
)
def test_the_usual_metric_is_around_the_rate_that_a_method_aims_at(
    method: str, given: dict[str, Any], negatives: int, metric: str
) -> None:
    train = random_rows(0)
    counts = torch.tensor([50, negatives, 30])  # of no grade, and none of the lowest there is
    grades = torch.tensor([-1, 1, 2]).repeat_interleave(counts)
    rows = random_rows(1, len(grades))
    held_out = Graded(rows.numbers, rows.categories, None, grades)
    keys = Vocabulary.numbered(len(train) + len(held_out))
    data = Dataset(
        "graded", train, held_out, None, keys, Vocabulary.numbered(3, NAMES), columns=COLUMNS
    )
    assert fit.plan(method, data, dict(given)).metric == metric
    short = rf.fit(method, data, epochs=1, width=4, **given)
    assert short.model.notes["metric"] == metric
