"""The one exception that users see, and how its text reaches a terminal."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")
_LONGEST = 4000  # characters of a message or a hint
_OPTION = re.compile(
    r"(?<!\S)--(?P<name>[a-z][a-z-]*)(?:[ =](?P<value>[A-Z][A-Z,.]*\b|[\w.:,@]*\d[\w.:,@]*))?"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


class UserError(ValueError):
    """Bad input, described in one sentence; ``hint`` says how to fix it.

    Hints name options as on the command line. A traceback shows them as Python writes them.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(_clipped(message))
        self.hint = _clipped(hint)
        if self.hint:
            self.add_note(f"hint: {in_python(self.hint)}")


def in_python(hint: str) -> str:
    """Options as keyword arguments: ``--query-column NAME`` becomes ``query_column=NAME``."""

    def keyword(match: re.Match[str]) -> str:
        name, value = match["name"].replace("-", "_"), match["value"]
        return f"{name}={value}" if value else name

    return _OPTION.sub(keyword, hint)


def _clipped(text: str) -> str:
    """The text without its middle if it is long: a file may have a name or a cell of 10 MB."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"


class DiskError(UserError):
    """The disk refused something; the same command may succeed later."""


def format_error(message: str, hint: str | None) -> str:
    """An error as the command line prints it."""
    return printable(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))


def find(registry: Mapping[str, T], name: str, what: str) -> T:
    """The entry of that name; a UserError with similar names if there is none."""
    if not isinstance(name, str):
        raise UserError(
            f"the {what} must be a name, got {type(name).__name__}",
            hint=f"the name comes first; known: {', '.join(registry)}",
        )
    if name not in registry:
        near = get_close_matches(name.lower(), registry, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(registry)}"
        raise UserError(f"there is no {what} {name!r}", hint=hint)
    return registry[name]


def require(module: str, what: str, extra: str | None = None, package: str | None = None) -> Any:
    """An optional module, or a UserError: ``what`` needs its package; ``extra`` installs it too."""
    try:
        return import_module(module)
    except ImportError:
        name = package or module
        raise UserError(
            f"{what} needs {name}, which is not installed",
            hint=f"pip install {name}" if extra is None else f"pip install 'rankfold[{extra}]'",
        ) from None


@contextmanager
def memory_errors(what: str, hint: str) -> Iterator[None]:
    """Turn a lack of memory into a UserError: ``not enough memory to {what}``."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        first = str(error).partition("\n")[0]  # torch appends a stack
        if isinstance(error, MemoryError) or "memory" in first or "Storage size" in first:
            raise UserError(f"not enough memory to {what}", hint=hint) from error
        raise


def pluralize(n: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 row``, ``1,200 rows``. ``many`` if it is not ``one`` + s."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def format_bytes(n: float) -> str:
    """A size: ``512 bytes``, ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def printable(text: str) -> str:
    """The text with control characters escaped: a file's content cannot steer a terminal."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
