"""The one exception a person is meant to read, and how words reach a terminal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


class UserError(ValueError):
    """Bad input, said in one sentence; ``hint`` says what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@contextmanager
def enough_memory(what: str, hint: str) -> Iterator[None]:
    """A UserError where there is not enough memory to do ``what``, which is done inside."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        first = str(error).partition("\n")[0]  # torch writes a stack below it
        if isinstance(error, MemoryError) or "memory" in first or "Storage size" in first:
            raise UserError(f"there is not enough memory to {what}", hint=hint) from error
        raise


def counted(n: int, one: str, many: str = "") -> str:
    """So many of something: ``1 row``, ``1,200 rows``; ``many`` where that is not ``one`` + s."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def printable(text: str) -> str:
    """The text with control characters written out: what a file says does not steer a terminal."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
