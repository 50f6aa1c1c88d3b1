"""SiameseXML learns planted topics, and resumes after any step."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import siamese_samples as samples
import torch
from killed import kill_fit
from torch import Tensor

import rankfold as rf
from rankfold.data import folder
from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import fit as recipe
from rankfold.methods.text.siamesexml import modules
from rankfold.training import checkpoint, loop
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Interactions, Step, Texts, from_pairs


@pytest.mark.parametrize("name", samples.NAMES)
def test_planted_topics_are_learned(name: str) -> None:
    data = samples.topics()
    assert data.query_texts is not None
    many = {"encoder_epochs": 40, "classifier_epochs": 10, "joint_epochs": 10, "lr": 0.02}
    model = samples.model_of(samples.steps(name, data, samples.run(), **many))
    rows = torch.arange(samples.DOCUMENTS - 20, samples.DOCUMENTS)
    ids = samples.best_candidates(
        model, data.query_texts.select(rows), samples.LABELS // samples.TOPICS
    )
    assert float((ids % samples.TOPICS == (rows % samples.TOPICS)[:, None]).double().mean()) > 0.95


@pytest.mark.parametrize("name", samples.NAMES)
def test_the_seed_determines_the_model(name: str) -> None:
    first, second, other = (
        samples.model_of(
            samples.steps(name, samples.topics(), samples.run(seed), **samples.SHORT)
        ).tensors
        for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", samples.NAMES)
def test_resuming_after_any_step_ends_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every module, at the end of an epoch and inside one, to the bit."""
    monkeypatch.setattr(loop, "PAUSE_SECONDS", -1.0)  # a step after every batch
    states: list[dict[str, Tensor]] = []
    final = None
    for step in METHODS[name].fit(
        samples.topics(), samples.config_of(name, **samples.SHORT), samples.run(1)
    ):
        if not step.final:
            states.append({key: value.clone() for key, value in step.state().items()})
        final = step.model
    assert final is not None
    assert len({int(state["stage"]) for state in states}) == 3
    for state in states[:: max(1, len(states) // 12)]:
        again = samples.model_of(
            samples.steps(name, samples.topics(), samples.run(1, state), **samples.SHORT)
        )
        assert all(torch.equal(again.tensors[key], final.tensors[key]) for key in final.tensors)


@pytest.mark.parametrize("name", samples.NAMES)
def test_step_numbers_continue_and_the_last_has_the_model(name: str) -> None:
    result = [
        step
        for step in samples.steps(name, samples.topics(), samples.run(), **samples.SHORT)
        if step.whole
    ]
    members = METHODS[name].config().members
    assert [step.number for step in result] == list(range(1, 6 * members + 2))
    assert [step.final for step in result] == [False] * (6 * members) + [True]
    assert all(step.model is None for step in result[:-1])
    stages = [str(step.stage) for step in result[:6:2]]
    assert [stage.split()[-1] for stage in stages] == ["encoder", "classifiers", "joint"]
    assert all(stage.startswith("member 1 of 3, ") for stage in stages) == (members == 3)
    assert result[-1].stage == "the mix"
    assert ("shortlists" in str(result[1].stage)) == (
        name in ("siamesexml-paper", "siamesexml-released")
    )
    shares = [step.share for step in result[:-1]]
    assert shares == sorted(shares)  # type: ignore[type-var]
    assert shares[-1] == pytest.approx(1.0)


def test_a_new_candidate_has_the_vector_of_its_text() -> None:
    data = samples.topics()
    settings = {"classifier_share": 0.5, "centroid_weight": 0.3, "popularity_weight": 0.1}
    model = samples.model_of(
        samples.steps("siamesexml", data, samples.run(), **samples.SHORT, **settings)
    )
    assert data.candidate_texts is not None
    new = samples.encode_texts(model, data.candidate_texts, "candidate")
    vectors = samples.encode_texts(model, data.candidate_texts, "query")
    torch.testing.assert_close(new[:, :-1], vectors[:, :-1] * 1.3)
    assert set(vectors[:, -1].tolist()) == {0.5}
    assert set(new[:, -1].tolist()) == {0.0}  # it was never chosen


def test_an_old_model_without_encoder_names_still_answers() -> None:
    data = samples.topics()
    assert data.query_texts is not None
    for encoder in ("plain", "residual"):
        model = samples.model_of(
            samples.steps("siamesexml", data, samples.run(), **samples.SHORT, encoder=encoder)
        )
        config = {key: value for key, value in model.config.items() if key != "encoder"}
        older = replace(model, config={**config, "residual": encoder == "residual"})
        result = samples.encode_texts(older, data.query_texts, "query")
        assert torch.equal(result, samples.encode_texts(model, data.query_texts, "query"))


@pytest.mark.parametrize("stage", ["encoder", "classifiers", "joint"])
def test_a_stage_trains_only_its_part(stage: modules.StageName) -> None:
    """The matrix R of the paper's encoder is also trained in module III."""
    config = samples.config_of("siamesexml-paper", classifier_batch_size=16)
    corpus = samples.corpus_of(samples.topics())
    module = recipe.start_module(corpus, config, samples.run(), 0)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    task = modules.task_of(module, modules.Stage(stage, 1), corpus, config, Exact)
    list(loop.train(task, modules.training(modules.Stage(stage, 1), config), samples.run()))
    moved = {
        key for key, value in module.state_dict().items() if not torch.equal(value, before[key])
    }
    expected = {
        "encoder": {"encoder.tokens.weight", "encoder.mixing"},
        "classifiers": {"refinements.weight", "encoder.mixing"},
        "joint": {"refinements.weight", "encoder.tokens.weight", "encoder.mixing"},
    }
    assert moved == expected[stage]


def test_classifiers_and_their_optimiser_state_take_at_most_three_times_float16() -> None:
    """Weights and their optimiser state, after real steps."""
    corpus, width = samples.corpus_of(samples.topics()), 128
    config = samples.config_of("siamesexml", width=width)
    module = recipe.start_module(corpus, config, samples.run(), 0)
    stage = modules.Stage("classifiers", 1)
    task = modules.task_of(module, stage, corpus, config, Exact)
    *_, last = loop.train(task, modules.training(stage, config), samples.run())
    kept = [tensor for tensor in last.state().values() if tensor.shape[:1] == (samples.LABELS,)]
    assert any(tensor.shape == (samples.LABELS, width) for tensor in kept)
    assert sum(tensor.nbytes for tensor in kept) <= 3 * 2 * samples.LABELS * width
    assert bool(module.refinements.weight.any())


def test_float16_refinements_learn_as_float32_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    data = samples.topics()
    halves = samples.model_of(
        samples.steps("siamesexml", data, samples.run(), **samples.SHORT)
    ).tensors["candidates"]
    monkeypatch.setattr(torch, "float16", torch.float32)  # where the table is made
    singles = samples.model_of(
        samples.steps("siamesexml", data, samples.run(), **samples.SHORT)
    ).tensors["candidates"]
    assert not torch.equal(halves, singles)
    torch.testing.assert_close(halves, singles, atol=2e-3, rtol=0)


@pytest.mark.parametrize("side", ["query", "candidate"])
def test_data_without_texts_is_refused(side: str) -> None:
    bare: dict[str, Any] = {f"{side}_texts": None}
    for name in samples.NAMES:
        with pytest.raises(UserError, match="no texts of"):
            samples.steps(name, replace(samples.topics(), **bare), samples.run())


def test_documents_without_labels_and_texts_without_words_are_harmless() -> None:
    data = samples.topics()
    assert isinstance(data.train, Interactions)
    assert data.query_texts is not None
    assert data.candidate_texts is not None
    texts, labels = data.query_texts, data.candidate_texts
    offsets = texts.offsets.clone()
    offsets[1:6] = 0  # the first five documents have no words: theirs go to the sixth
    label_offsets = labels.offsets.clone()
    label_offsets[-1] = label_offsets[-2]  # the last label has no text
    odd = replace(
        data,
        query_texts=Texts(offsets, texts.tokens),
        candidate_texts=Texts(label_offsets, labels.tokens[:-1]),
    )
    for name in samples.NAMES:
        model = samples.model_of(samples.steps(name, odd, samples.run(), **samples.SHORT))
        assert all(bool(tensor.isfinite().all()) for tensor in model.tensors.values())
        assert odd.query_texts is not None
        assert bool((samples.best_candidates(model, odd.query_texts, 3) >= 0).all())


KILLED = [("siamesexml", 0, 0), ("siamesexml", 0, 1), ("siamesexml", 0, 2)]
KILLED += [("siamesexml-paper", 0, 1), ("siamesexml-released", 0, 2), ("siamesexml-3", 1, 1)]
KILLED_ELSEWHERE = [("siamesexml-paper", 0, 0), ("siamesexml-paper", 0, 2)]
KILLED_ELSEWHERE += [("siamesexml-released", 0, 0), ("siamesexml-released", 0, 1)]
KILLED_ELSEWHERE += [("siamesexml-3", 0, 0), ("siamesexml-3", 2, 2)]


@pytest.mark.parametrize(
    ("name", "member", "stage"),
    [*KILLED, *(pytest.param(*place, marks=pytest.mark.slow) for place in KILLED_ELSEWHERE)],
)
def test_killed_in_any_module_and_resumed_gives_the_same_bits(
    name: str, member: int, stage: int, tmp_path: Path
) -> None:
    """A real SIGKILL of a real process, once a checkpoint of the module is on disk."""
    folder.save(samples.topics(), tmp_path / "data")
    out, options = tmp_path / "model", samples.small(name, **samples.SHORT)
    until = partial(has_reached, checkpoint.path_of(out), (member, stage))
    kill_fit(name, tmp_path / "data", out, options, pause=0.05, until=until)
    resumed = rf.fit(name, tmp_path / "data", out=out, resume=True, **options)
    for key, tensor in never_killed(name).items():
        assert torch.equal(resumed.model.tensors[key], tensor)


@cache
def never_killed(name: str) -> Mapping[str, Tensor]:
    return rf.fit(name, samples.topics(), **samples.small(name, **samples.SHORT)).model.tensors


def has_reached(kept: Path, place: tuple[int, int]) -> bool:
    """Whether a checkpoint of the place exists; one that is being replaced does not count."""
    try:
        state = checkpoint.load(kept).state if kept.exists() else None
    except UserError:
        return False
    return state is not None and (int(state["member"]), int(state["stage"])) >= place


def held_out() -> Dataset:
    """The topics with 20 documents for validation."""
    data = samples.topics()
    assert isinstance(data.train, Interactions)
    rows = torch.arange(20, 40)
    held = data.train.select(rows)
    validation = from_pairs(
        rows[held.query_of_pair().long()],
        held.candidates,
        None,
        (samples.DOCUMENTS, samples.LABELS),
    )
    left = torch.ones(samples.DOCUMENTS, dtype=torch.bool)
    left[rows] = False
    kept = left[data.train.query_of_pair().long()]
    train = from_pairs(
        data.train.query_of_pair()[kept],
        data.train.candidates[kept],
        None,
        (samples.DOCUMENTS, samples.LABELS),
    )
    return replace(data, train=train, validation=validation)


class Stop(Exception):
    pass


def stop_in_refit(history: History, _step: Step) -> None:
    if history.phase == "refit" and len(history.entries) > 10:
        raise Stop


def stop_before_refit(history: History, step: Step) -> None:
    """Ctrl-C during the last step of the first fit."""
    if history.phase == "fit" and step.final:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stop", [stop_in_refit, stop_before_refit])
@pytest.mark.parametrize("name", ["siamesexml", "siamesexml-released"])
def test_an_interrupted_refit_is_resumed(name: str, stop: Any, tmp_path: Path) -> None:
    """The choices of the first fit do not make it another fit: its checkpoint is used."""
    data = held_out()
    known = {field.name for field in fields(METHODS[name].config)}
    options = {
        key: value for key, value in {**samples.SMALL, **samples.SHORT}.items() if key in known
    }
    options["refit"] = True
    with pytest.raises((Stop, KeyboardInterrupt)):
        rf.fit(name, data, out=tmp_path / "m", checkpoint_seconds=0, report=stop, **options)
    resumed = rf.fit(name, data, out=tmp_path / "m", resume=True, **options)
    whole_fit = rf.fit(name, data, **options)
    for key, tensor in whole_fit.model.tensors.items():
        assert torch.equal(resumed.model.tensors[key], tensor)
    mixes = whole_fit.model.notes["mixes"]  # of the first fit: the second had nothing to choose
    assert len(mixes) > 1
    assert resumed.model.notes["mixes"] == mixes
