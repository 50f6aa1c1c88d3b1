"""Work in parts keeps its result, and its shares fall into place."""

import pytest

from rankfold.solvers.progress import Work, finished, part, stops


def halves() -> Work[str]:
    yield 0.5
    yield 1.0
    return "result"


def test_finished_gives_the_result() -> None:
    assert finished(halves()) == "result"


def test_a_part_lies_between_its_shares() -> None:
    def whole() -> Work[str]:
        return (yield from part(halves(), 0.2, 0.6)) + "!"

    work = whole()
    assert [next(work), next(work)] == pytest.approx([0.4, 0.6])
    assert finished(whole()) == "result!"


def test_stops_are_inside_the_first_step() -> None:
    steps = list(stops(halves()))
    assert [step.share for step in steps] == [0.5, 1.0]
    assert not any(step.whole or step.final or step.model for step in steps)
    assert {step.number for step in steps} == {1}
