"""Settings: frozen dataclasses whose fields declare their bounds, choices and help.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Settings):
        width: int = setting(64, at_least=1, help="length of the vectors")
        loss: str = setting("bpr", choices=LOSSES, help="the loss to minimise")
        inner: Literal["cg", "cholesky"] = setting("cg", help="how a row is solved")

A fixed set of values is a ``Literal``; a registry is given as ``choices`` and stays live. A
subclass that changes only a default writes ``width: int = 128`` and inherits the rest.

Settings are filled from TOML and ``key=value``. Unknown names and values out of bounds are errors.
"""

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from rankfold.errors import UserError

T = TypeVar("T")
INT_LIMIT = 2**63  # sizes and seeds are stored in 64 bits
DECLARED = "declared"  # key of a declaration in the metadata of a field
NONE_WORDS = ("none", "auto", "null")  # spellings of None for an optional number


@dataclass(frozen=True, slots=True)
class Declared:
    """The help, bounds and choices of one setting."""

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: Collection[str] | None = None  # a registry stays live: later entries count

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that are set: ``{"at_least": 1}``."""
        names = ("at_least", "above", "at_most", "below")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def accepts(self, value: Any) -> bool:
        """Whether a value is within the bounds and among the choices. None always is."""
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
        """The bounds or choices in words: ``at least 0 and below 1``. Empty without any."""
        if self.choices is not None:
            return f"one of {', '.join(self.choices)}"
        words = [f"{name.replace('_', ' ')} {bound:g}" for name, bound in self.bounds.items()]
        return " and ".join(words)


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
    """A field of ``Settings``. Bounds apply to numbers. None is always accepted."""
    declared = Declared(help, at_least, above, at_most, below, choices)
    return field(default=default, metadata={DECLARED: declared})


class Settings:
    """Base class of every config: checks the declarations of its fields.

    A config with a rule across fields overrides ``__post_init__``, which then calls ``check``.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        check(self)


def check(settings: object) -> None:
    """Raise a UserError for the first setting that is out of bounds."""
    for name, declared in declarations(type(settings)).items():
        value = getattr(settings, name)
        if not declared.accepts(value):
            wanted = declared.describe() or "a finite number"
            raise UserError(f"`{name}` must be {wanted}, got {value!r}", hint=declared.help)


def declarations(config: type[Any]) -> dict[str, Declared]:
    """The declarations of a config's fields, by name.

    A field without one inherits that of the class above. A ``Literal`` type gives the choices.
    """
    if config not in _declarations:  # types are read once per class: configs are built per request
        kinds = get_type_hints(config)
        every = {one.name: _declared(config, one.name, kinds[one.name]) for one in fields(config)}
        _declarations[config] = {name: one for name, one in every.items() if one is not None}
    return _declarations[config]


def _declared(config: type[Any], name: str, kind: Any) -> Declared | None:
    """The declaration of one field: its own, or that of the nearest class above."""
    for owner in config.__mro__:
        one = getattr(owner, "__dataclass_fields__", {}).get(name)
        if one is not None and DECLARED in one.metadata:
            declared: Declared = one.metadata[DECLARED]
            choices = _literals(kind)
            return declared if choices is None else replace(declared, choices=choices)
    return None


_declarations: dict[type[Any], dict[str, Declared]] = {}


def describe_settings(config: type[Any]) -> dict[str, dict[str, Any]]:
    """The settings of a config as plain data: default, type, values or bounds, help."""
    declared = declarations(config)
    result: dict[str, dict[str, Any]] = {}
    for one in fields(config):
        entry = {"default": one.default, "type": describe_type(config, one.name)}
        known = declared.get(one.name, Declared(help=""))
        if known.choices is not None:
            entry["values"] = list(known.choices)
        elif known.bounds:
            entry["bounds"] = known.bounds
        result[one.name] = {**entry, "help": known.help}
    return result


def describe_values(config: type[Any], name: str) -> str:
    """The values that a setting accepts, in words: ``a number above 0, or none``."""
    declared = declarations(config).get(name)
    if declared is not None and declared.choices is not None:
        return ", ".join(declared.choices)
    words = "" if declared is None else declared.describe()
    kind = describe_type(config, name)
    required = kind.removesuffix(" or none")
    described = f"{required} {words}" if words else required
    return described if kind == required else f"{described}, or none"


def describe_type(config: type[Any], name: str) -> str:
    """The type of a setting in words: ``a whole number or none``."""
    kind = get_type_hints(config)[name]
    kinds = get_args(kind) if get_origin(kind) is not Literal else ()
    return " or ".join(_NAMES.get(one, "text") for one in kinds or (kind,))


def build(config: type[T], values: Mapping[str, Any]) -> T:
    """Fill ``config`` from ``values``. Unknown names and values of another type are refused."""
    check_names(config, values)
    kinds = get_type_hints(config)
    return config(**{name: _convert(name, value, kinds[name]) for name, value in values.items()})


def check_names(config: type[Any], names: Iterable[str]) -> None:
    """Raise a UserError for the first name that ``config`` does not have."""
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


def normalize_none(config: type[Any], name: str, value: Any) -> Any:
    """The value unchanged, but every spelling of None becomes ``none``."""
    optional = get_type_hints(config).get(name) in _OPTIONAL
    return NONE_WORDS[0] if optional and _is_none(value) else value


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in NONE_WORDS)


def _literals(kind: Any) -> tuple[Any, ...] | None:
    """The values of a ``Literal`` type."""
    return get_args(kind) if get_origin(kind) is Literal else None


def _convert(name: str, value: Any, kind: Any) -> Any:
    """``value`` as ``kind``: text is parsed, an int becomes a float; nothing else is converted."""
    if kind in _OPTIONAL:
        return None if _is_none(value) else _convert(name, value, get_args(kind)[0])
    choices = _literals(kind)
    if choices is not None:
        if value not in choices:
            wanted = f"one of {', '.join(map(str, choices))}"
            raise UserError(f"`{name}` must be {wanted}, got {value!r}", hint="pick one of them")
        return value
    if kind not in (bool, int, float, str):  # a path, a function: checked by its user
        return value
    if kind is bool and value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool) is (kind is bool):
        converted = value
        if isinstance(value, {int: str, float: str | int}.get(kind, ())):
            with suppress(ValueError, OverflowError):
                converted = kind(value)
        if isinstance(converted, kind) and (kind is not int or -INT_LIMIT <= converted < INT_LIMIT):
            return converted
    raise UserError(f"`{name}` must be {_NAMES[kind]}, got {value!r}", hint=_HINTS[kind])


_OPTIONAL = (int | None, float | None)
_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "none",
}
_HINTS = {
    int: "whole numbers must be below 2**63",
    float: "write 0.1 or 1e-3",
    bool: "write true or false",
    str: "a part of your own is given by the name it is registered under",
}
