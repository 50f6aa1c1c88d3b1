"""Settings: frozen dataclasses whose fields declare their bounds, choices and help.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Settings):
        width: int = setting(64, at_least=1, help="length of the vectors")
        loss: str = setting("bpr", choices=LOSSES, help="the loss to minimise")

They are filled from TOML and ``key=value``. Unknown names and values out of bounds are errors.
"""

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from rankfold.errors import UserError

T = TypeVar("T")
MOST = 2**63  # what 64 bits hold: sizes and seeds are below
DECLARED = "declared"  # the key in the metadata of a field
NOTHING = ("none", "auto", "null")  # spellings of None, for an option that is a number or None


@dataclass(frozen=True, slots=True)
class Declared:
    """What a setting may be, and one line of help."""

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: Collection[str] | None = None  # a registry stays live: later entries count

    def accepts(self, value: Any) -> bool:
        """Whether a value lies within the bounds and is among the choices; None always is."""
        if value is None:
            return True
        if self.choices is not None:
            return value in self.choices
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def describe(self) -> str:
        """The bounds or choices in words: ``at least 0 and below 1``; empty without any."""
        if self.choices is not None:
            return f"one of {', '.join(self.choices)}"
        bounds = (
            ("at least", self.at_least),
            ("above", self.above),
            ("at most", self.at_most),
            ("below", self.below),
        )
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


def setting(
    default: Any,
    *,
    help: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Collection[str] | None = None,
) -> Any:
    """A field of ``Settings``. Bounds hold for numbers; None is always accepted."""
    declared = Declared(help, at_least, above, at_most, below, choices)
    return field(default=default, metadata={DECLARED: declared})


class Settings:
    """Base class of every config: checks what its fields declare.

    A config with a rule across fields overrides ``__post_init__``, which then calls ``check``.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        check(self)


def check(settings: Any) -> None:
    """Raise a UserError for the first setting that is out of bounds."""
    for name, declared in declarations(type(settings)).items():
        value = getattr(settings, name)
        if not declared.accepts(value):
            wanted = declared.describe() or "a finite number"
            raise UserError(f"`{name}` must be {wanted}, got {value!r}", hint=declared.help)


def declarations(config: type[Any]) -> dict[str, Declared]:
    """What the fields of a config declare, by name.

    A subclass that only changes a default, ``width: int = 300``, keeps what its base declared.
    """
    declared: dict[str, Declared] = {}
    for owner in reversed(config.__mro__):
        for one in vars(owner).get("__dataclass_fields__", {}).values():
            if DECLARED in one.metadata:
                declared[one.name] = one.metadata[DECLARED]
    return {one.name: declared[one.name] for one in fields(config) if one.name in declared}


def build(config: type[T], values: Mapping[str, Any]) -> T:
    """Fill ``config`` from ``values``, refusing unknown names and values of another type."""
    check_names(config, values)
    kinds = get_type_hints(config)
    return config(**{name: _convert(name, value, kinds[name]) for name, value in values.items()})


def check_names(config: type[Any], names: Iterable[str]) -> None:
    """A UserError for the first name that is no option of ``config``."""
    known = [one.name for one in fields(config)]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            raise UserError(
                f"there is no option {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"options: {', '.join(known)}",
            )


def read(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}", hint="--config takes a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not valid TOML: {error}", hint="write lines like width = 64"
        ) from None


def parse_words(words: Sequence[str]) -> dict[str, str]:
    """``["width=64"] -> {"width": "64"}``."""
    pairs = [word.partition("=") for word in words]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UserError(
                f"cannot read --set {name}{equals}{value}", hint="write --set key=value"
            )
    return {name.strip().replace("-", "_"): value.strip() for name, _, value in pairs}


def spelled(config: type[Any], name: str, value: Any) -> Any:
    """A value as it is, but every spelling of None in the same way: none."""
    optional = get_type_hints(config).get(name) in _OPTIONAL
    return NOTHING[0] if optional and _is_nothing(value) else value


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in NOTHING)


def _convert(name: str, value: Any, kind: Any) -> Any:
    """``value`` as ``kind``; text is parsed, an int is taken for a float, nothing else is bent."""
    if kind in _OPTIONAL:
        return None if _is_nothing(value) else _convert(name, value, get_args(kind)[0])
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise UserError(f"{name} cannot be {value!r}", hint=f"it is one of {choices}")
        return value
    if kind not in (bool, int, float, str):  # a path, a function: whoever takes it checks it
        return value
    if kind is bool and value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool) is (kind is bool):
        found = value
        if isinstance(value, {int: str, float: str | int}.get(kind, ())):
            with suppress(ValueError, OverflowError):
                found = kind(value)
        if isinstance(found, kind) and (kind is not int or -MOST <= found < MOST):
            return found
    raise UserError(f"{name} cannot be {value!r}", hint=f"it takes {_NAMES.get(kind, kind)}")


_OPTIONAL = (int | None, float | None)
_NAMES = {
    int: "a whole number, below 2**63",
    float: "a number",
    bool: "true or false",
    str: "text; of what is your own, the name that it is registered under",
}
