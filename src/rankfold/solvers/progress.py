"""Long work in parts: a generator of the shares that are done, which returns the result."""

from collections.abc import Generator
from typing import TypeVar

from rankfold.types import Step

T = TypeVar("T")
Work = Generator[float, None, T]
"""It yields the share of the work that is done, from 0 to 1."""


def part(work: Work[T], start: float, stop: float) -> Work[T]:
    """Work as the part of other work between two shares of it."""
    while True:
        try:
            share = next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        yield start + (stop - start) * share


def finished(work: Work[T]) -> T:
    """The result, without a stop on the way."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def stops(work: Work[T]) -> Generator[Step, None, T]:
    """Places to stop at inside the only step of a fit. A resumed fit starts again."""
    while True:
        try:
            share = next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        yield Step(1, 0.0, None, dict, final=False, share=share, whole=False)
