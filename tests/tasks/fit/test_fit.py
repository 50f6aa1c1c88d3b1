"""``fit`` keeps the best step, stops early, and checks its options first."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse
import torch
from linear_grades import COLUMNS, NAMES, random_rows
from planted import groups, split_groups

import rankfold as rf
from rankfold.cli.fit import describe_step
from rankfold.errors import UserError
from rankfold.tasks.fit import run as fit_run
from rankfold.tasks.fit.plan import MIN_VALIDATION_ROWS, make_plan
from rankfold.training.early_stopping import History, validation_score
from rankfold.types import Dataset, Graded, Model, Step, Vocabulary


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


def test_the_best_step_on_validation_is_kept(data: Dataset) -> None:
    ranker = rf.fit("ials", data, width=8, reg=0.01, sweeps=15, patience=3, inner="cholesky")
    history = ranker.model.notes["history"]
    scores = [entry["score"] for entry in history]
    assert ranker.model.notes["chosen"] == scores.index(max(scores)) + 1
    assert len(history) == 15 or len(history) == ranker.model.notes["chosen"] + 3
    sweeps = ranker.model.notes["chosen"]
    until_then = rf.fit("ials", data, width=8, reg=0.01, sweeps=sweeps, inner="cholesky")
    assert until_then.model.notes["chosen"] == sweeps
    for name in ("queries", "candidates"):
        torch.testing.assert_close(ranker.model.tensors[name], until_then.model.tensors[name])


@pytest.mark.parametrize("home", ["/sys", "file"])
def test_a_folder_that_is_not_writable_is_refused_before_the_fit(
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
    """The history of steps with these scores, and the number of steps until its end."""
    history = History()
    for number, score in enumerate(scores, 1):
        step = Step(number, 0.0, None, dict, final=number == len(scores))
        history.note(step, score)
        if history.is_over(step, patience):
            return history, number
    raise AssertionError


def test_stops_after_patience_steps_without_a_better_score() -> None:
    history, steps = history_of([0.1, 0.3, 0.2, 0.3, 0.1, 0.9], patience=3)
    assert (history.number, history.score, steps) == (2, 0.3, 5)
    history, steps = history_of([0.1, 0.3, 0.2, 0.3, 0.1, 0.9], patience=4)
    assert (history.number, history.score, steps) == (6, 0.9, 6)


def test_the_last_step_is_kept_if_scores_do_not_choose() -> None:
    history = History(is_chosen=False)
    for number, score in enumerate([0.1, 0.9, 0.3], 1):
        step = Step(number, 0.0, None, dict, final=number == 3)
        history.note(step, score)
        assert history.is_over(step, patience=1) == step.final  # a worse score does not end it
    assert (history.number, history.score) == (3, 0.3)
    notes = {"history": history.entries, "is_chosen": False}
    assert validation_score(notes) == 0.3
    assert (
        validation_score({**notes, "is_chosen": True})
        == validation_score({"history": history.entries})
        == 0.9
    )
    assert validation_score({"history": [], "is_chosen": False, "score": 0.7}) == 0.7


def test_a_refit_in_passes_has_the_score_of_its_fit(data: Dataset) -> None:
    notes = rf.fit("puresvd", data, refit=True, width=16).model.notes
    scores = [entry["score"] for entry in notes["history"] if "score" in entry]
    assert len(scores) == 1
    assert validation_score(notes) == scores[0]
    assert f"{scores[0]:.4f}" in describe_step(notes, "ndcg@10")


@pytest.mark.parametrize("kind", ["columns", "images"])
@pytest.mark.parametrize("rows", [MIN_VALIDATION_ROWS - 1, MIN_VALIDATION_ROWS])
def test_few_validation_rows_or_columns_do_not_choose_an_epoch(
    rows: int, kind: str, tmp_path: Path
) -> None:
    held_out = random_rows(1, rows + 20)
    held_out.grades[:20] = -1  # without a grade: not counted
    keys, names = Vocabulary.numbered(300 + len(held_out)), Vocabulary.numbered(3, NAMES)
    train = random_rows(0, 300)  # random grades: no epoch is truly better
    pictures = kind == "images"
    if pictures:
        train, held_out = with_pictures(train), with_pictures(held_out)
    data = Dataset("graded", train, held_out, None, keys, names, columns=COLUMNS)
    options: dict[str, Any] = {"epochs": 8, "width": 4, "lr": 0.05, "metric": "auc"}
    options["calibration_share"] = 0
    for more in ({}, {"patience": 8}):
        notes = rf.fit("ce", data, out=tmp_path / "model", **options, **more).model.notes
        scores = {entry["step"]: entry["score"] for entry in notes["history"]}
        best = max(scores, key=lambda step: scores[step])
        assert best < 8  # or the test is void
        chosen = (pictures and rows == MIN_VALIDATION_ROWS) or bool(more)
        assert (notes["chosen"], notes["is_chosen"]) == (best if chosen else 8, chosen)
        assert validation_score(notes) == scores[notes["chosen"]]
        text = describe_step(notes, "auc")
        assert text.startswith(f"step {notes['chosen']}, ")
        assert f"{validation_score(notes):.4f}" in text
        assert (", the last" in text) == (not chosen)
    if rows < MIN_VALIDATION_ROWS or not pictures:
        with pytest.raises(UserError, match="was finished with another patience"):
            rf.fit("ce", data, out=tmp_path / "model", resume=True, **options)


def with_pictures(rows: Graded) -> Graded:
    rng = torch.Generator().manual_seed(6 + len(rows))
    pixels = torch.randint(0, 255, (len(rows), 2, 2, 1), generator=rng)
    return replace(rows, images=pixels.to(torch.uint8))


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


def test_tables_and_matrices_can_be_fitted() -> None:
    frame = groups()
    rows, columns = frame["query"].to_numpy(), frame["candidate"].to_numpy()
    matrix = scipy.sparse.csr_matrix(([1.0] * len(rows), (rows, columns)), shape=(121, 60))
    from_matrix = rf.fit("rg2-plain", matrix, solver="als", sweeps=2)
    assert len(from_matrix.queries) == 121  # including the row without entries
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
        ("ials", {"device": "tpu"}, "`device` must be one of auto, cpu, cuda, got 'tpu'"),
        ("ials", {"patience": 0}, "`patience` must be at least 1, got 0"),
        (
            "ials",
            {"checkpoint_seconds": float("nan")},
            "`checkpoint_seconds` must be at least 0, got nan",
        ),
        ("ials", {"metric": "coverage@10"}, "cannot validate by coverage@10"),
        ("ials", {"resume": True}, "resume needs the folder"),
        ("ials", {"seed": -1}, "`seed` must be at least 0, got -1"),
        ("ials", {"seed": 2**70}, "`seed` must be a whole number"),
        ("ials", {"seed": "x"}, "`seed` must be a whole number, got 'x'"),
        ("ials", {"validation_queries": 0}, "`validation_queries` must be at least 1, got 0"),
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
    with pytest.raises(UserError, match="takes interactions, but the data is graded rows"):
        rf.fit("popularity", rf.prepare(source="retinamnist"))


@pytest.mark.parametrize(
    ("method", "given", "negatives", "metric"),
    [
        ("cba", {}, 1000, "pauc@fpr=0.02"),
        ("cba", {}, 400, "pauc@fpr=0.05"),  # ten negatives of the half that selects
        ("cba", {}, 20, "pauc@fpr=0.1"),
        ("cba", {"fpr": 0.2}, 1000, "pauc@fpr=0.4"),
        ("cba", {"fpr": 0.6}, 1000, "auc"),
        ("eban", {"fpr": 0.05}, 1000, "pauc@fpr=0.1"),
        ("ce", {}, 1000, "pauc@fpr=0.1"),
        ("cba", {"metric": "tpr@fpr=.3"}, 1000, "tpr@fpr=.3"),
    ],
)
def test_the_default_metric_follows_the_target_rate(
    method: str, given: dict[str, Any], negatives: int, metric: str
) -> None:
    train = random_rows(0)
    counts = torch.tensor([50, negatives, 30])  # ungraded rows, and no row of the lowest grade
    grades = torch.tensor([-1, 1, 2]).repeat_interleave(counts)
    rows = random_rows(1, len(grades))
    held_out = Graded(rows.numbers, rows.categories, None, grades)
    keys = Vocabulary.numbered(len(train) + len(held_out))
    data = Dataset(
        "graded", train, held_out, None, keys, Vocabulary.numbered(3, NAMES), columns=COLUMNS
    )
    assert make_plan(method, data, given).metric == metric
    short = rf.fit(method, data, epochs=1, width=4, **given)
    assert short.model.notes["metric"] == metric


class Elsewhere:
    """A table on a missing device."""

    device = torch.device("cuda")

    def __len__(self) -> int:
        return 1

    def cpu(self) -> torch.Tensor:
        return torch.zeros(1, 2)


def test_queries_move_to_the_device_of_a_candidate_file(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of all candidates that is too large for memory is a file on the CPU."""
    file = torch.ones(len(data.candidates), 2)
    monkeypatch.setattr(fit_run, "_all_rows", lambda *_, **__: file)
    tensors: Any = {"queries": Elsewhere(), "candidates": Elsewhere()}
    plan = make_plan("ials", data, {})
    full = fit_run.with_all_candidates(Model("ials", {}, tensors), plan).tensors
    assert full["candidates"].data_ptr() == file.data_ptr()
    assert full["queries"].device == file.device
