"""Settings: frozen dataclasses whose fields declare their bounds, choices and help.

    class Config(Settings):
        width: int = setting(64, at_least=1, help="length of the vectors")
        loss: str = setting("bpr", choices=LOSSES, help="the loss to minimise")
        inner: Literal["cg", "cholesky"] = setting("cg", help="how a row is solved")

A fixed set of values is a ``Literal``; a registry is given as ``choices`` and stays live. A
subclass that changes only a default writes ``width: int = 128`` and inherits the rest.

Settings are filled from TOML and ``key=value``. Unknown names and values out of bounds are errors.
"""

import inspect
import math
import operator
import tomllib
import warnings
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from rankfold.errors import UserError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_INT_LIMIT = 2**63  # sizes and seeds are stored in 64 bits
_DECLARED = "declared"  # key of a declaration in the metadata of a field
_NONE_WORDS = ("none", "auto", "null")  # spellings of None for an optional number
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Declared:
    """The help, bounds and choices of one setting."""

    help: str
    choices: Collection[str] | None = None  # a registry stays live: later entries count
    bounds: Mapping[str, float] = field(default_factory=dict)  # ``{"at_least": 1}``
    check: Callable[[Any], object] | None = None  # raises a ValueError: what a value must be

    def accepts(self, value: Any) -> bool:
        """Whether a value is within the bounds and among the choices. None always is."""
        if value is None:
            return True
        if self.choices is not None:
            return value in self.choices
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return all(_BOUNDS[name](value, bound) for name, bound in self.bounds.items())

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
    choices: Collection[str] | None = None,
    check: Callable[[Any], object] | None = None,
    **bounds: float,
) -> Any:
    """A field of ``Settings``. Bounds, named as in ``_BOUNDS``, apply to numbers, not to None."""
    assert bounds.keys() <= _BOUNDS.keys(), bounds
    return field(default=default, metadata={_DECLARED: Declared(help, choices, bounds, check)})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Base class of every config: a frozen dataclass that checks the declarations of its fields.

    A config with a rule across fields overrides ``__post_init__``, which then calls ``check``. A
    setting that is used only with one value of another is declared in ``used_with``, to which
    subclasses add: ``{"nu": ("regulariser", "frequency")}``. None: never used.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    used_with: ClassVar[Mapping[str, tuple[str, str] | None]] = {}

    def __init_subclass__(cls) -> None:
        if "__dataclass_fields__" in vars(cls):
            raise TypeError(f"{cls.__name__} is a dataclass as a Settings: remove the decorator")
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        check(self)

    def for_data(self, _rows: Any, _comm: Any) -> Self:
        """The settings for these training pairs: those left open follow from the data."""
        return self


def check(settings: object) -> None:
    """Raise a UserError for the first setting that is out of bounds."""
    for name, declared in declarations(type(settings)).items():
        value, wanted = getattr(settings, name), ""
        if not declared.accepts(value):
            wanted = declared.describe() or "a finite number"
        elif declared.check is not None:
            try:
                declared.check(value)
            except ValueError as error:
                wanted = str(error)
        if wanted:
            raise UserError(f"`{name}` must be {wanted}, got {value!r}", hint=declared.help)


def declarations(config: type[Any]) -> dict[str, Declared]:
    """The declarations of a config's fields, by name.

    A field without one inherits that of the class above. A ``Literal`` type gives the choices.
    """
    if config not in _declarations:  # types are read once per class: configs are built per request
        kinds = get_type_hints(config)
        _declarations[config] = {
            name: replace(one, choices=get_args(kinds[name])) if _is_literal(kinds[name]) else one
            for name, _, one in list_settings(config)
        }
    return _declarations[config]


_declarations: dict[type[Any], dict[str, Declared]] = {}


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def list_settings(config: type[Any]) -> Iterator[tuple[str, Any, Declared]]:
    """Name, default and own or inherited declaration of each setting; reads no types, so cheap."""
    for one in fields(config):
        above = (getattr(kind, "__dataclass_fields__", {}).get(one.name) for kind in config.__mro__)
        every = (each.metadata[_DECLARED] for each in above if each and _DECLARED in each.metadata)
        if (declared := next(every, None)) is not None:
            yield one.name, one.default, declared


def listed(title: str, config: type[Any], names: Collection[str] | None = None) -> str:
    """The settings, or those named, with their defaults and help, a line each, for a docstring."""
    lines = [title]
    for name, default, declared in list_settings(config):
        if names is None or name in names:
            value = "" if default is MISSING else f"={getattr(default, '__name__', repr(default))}"
            lines.append(f"    {name}{value}: {declared.help}")
    return "\n".join(lines)


def explicit(
    *configs: type[Any], omit: Collection[str] = (), more: bool = False
) -> Callable[[F], F]:
    """Show the settings of ``configs`` as keyword arguments, in place of ``**options``.

    ``inspect.signature``, ``help`` and completion in notebooks then list them with their types,
    defaults and help. ``more``: other keywords are taken too.
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        last = [one for one in own.parameters.values() if one.kind is one.VAR_KEYWORD]
        parameters = dict(own.parameters)
        parameters.pop(last[0].name)
        blocks: list[str] = []
        for config in configs:
            wanted = {one.name: one for one in _keywords(config) if one.name not in omit}
            for name, one in wanted.items():
                parameters.setdefault(name, one)
            blocks.append(listed("" if blocks else "Options:", config, wanted))
        every = [*parameters.values(), *(last if more else [])]
        function.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
        doc = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n\n".join([doc, "".join(blocks)])
        return function

    return decorate


def _keywords(config: type[Any]) -> Iterator[inspect.Parameter]:
    """The fields of a config as keyword arguments."""
    kinds = get_type_hints(config)
    own = inspect.get_annotations(config)
    for one in sorted(fields(config), key=lambda one: one.name not in own):  # inherited ones last
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if default is MISSING:
            default = inspect.Parameter.empty
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(one.name, kind, default=default, annotation=kinds[one.name])


def describe_settings(config: type[Any]) -> dict[str, dict[str, Any]]:
    """The settings of a config as plain data: default, type, values or bounds, help."""
    result: dict[str, dict[str, Any]] = {}
    for name, default, _ in list_settings(config):
        declared = declarations(config)[name]
        entry = {"default": default, "type": describe_type(config, name)}
        if declared.choices is not None:
            entry["values"] = list(declared.choices)
        elif declared.bounds:
            entry["bounds"] = declared.bounds
        result[name] = {**entry, "help": declared.help}
    return result


def describe_values(config: type[Any], name: str) -> str:
    """The values that a setting accepts, in words: ``a number above 0, or none``."""
    declared = declarations(config)[name]
    if declared.choices is not None:
        return ", ".join(declared.choices)
    kind, optional, _ = describe_type(config, name).partition(" or none")
    words = f"{kind} {declared.describe()}".rstrip()
    return f"{words}, or none" if optional else words


def describe_type(config: type[Any], name: str) -> str:
    """The type of a setting in words: ``a whole number or none``."""
    kind = get_type_hints(config)[name]
    kinds = () if _is_literal(kind) else get_args(kind)
    return " or ".join(_NAMES.get(one, "text") for one in kinds or (kind,))


def plugins(group: str) -> dict[str, Any]:
    """What other installed packages add to a registry: their entry points of a group, by name.

    One that cannot be imported is left out with a warning: it must not stop everything else.
    """
    loaded = {}
    for point in entry_points(group=group):
        try:
            loaded[point.name] = point.load()
        except Exception as error:
            warnings.warn(
                f"{point.name!r} of {group} is left out: {point.value} fails with "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
    return loaded


def build(config: type[T], values: Mapping[str, Any]) -> T:
    """Fill ``config`` from ``values``. Unknown names and values of another type are refused."""
    check_names(config, values)
    for one in fields(config):  # type: ignore[arg-type]
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values:
            hint = one.metadata[_DECLARED].help if _DECLARED in one.metadata else ""
            raise UserError(f"`{one.name}` is required", hint=hint)
    kinds = get_type_hints(config)
    built = config(**{name: _convert(name, value, kinds[name]) for name, value in values.items()})
    check_use(built, values)
    return built


def check_use(settings: Any, given: Iterable[str]) -> None:
    """Raise a UserError for the first given setting that has no effect, unless it is a default."""
    config = type(settings)
    defaults = {one.name: one.default for one in fields(config)}
    needs = needs_of(config)
    for name in given:
        if name not in needs or getattr(settings, name) == defaults[name]:
            continue
        need = needs[name]
        if need is None:
            raise UserError(f"`{name}` has no effect in this method", hint=f"leave out {name}")
        other, value = need
        actual = getattr(settings, other)
        if actual != value:
            hint = f"leave out {name}, or set {other}={value}"
            raise UserError(f"`{name}` has no effect with {other}={actual}", hint=hint)


def needs_of(config: type[Any]) -> Mapping[str, tuple[str, str] | None]:
    """``used_with`` of a config and of the classes above it."""
    return ChainMap(*(dict(vars(one).get("used_with", {})) for one in config.__mro__))


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
    except (ValueError, RecursionError) as error:
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
    return _NONE_WORDS[0] if optional and _is_none(value) else value


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in _NONE_WORDS)


def _convert(name: str, value: Any, kind: Any) -> Any:
    """``value`` as ``kind``: text is parsed, an int becomes a float; nothing else is converted."""
    if kind in _OPTIONAL:
        return None if _is_none(value) else _convert(name, value, get_args(kind)[0])
    if kind not in (bool, int, float, str):  # a choice, a path, a function: checked by its user
        return value
    if kind is bool and value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool) is (kind is bool):
        converted = value
        if isinstance(value, {int: str, float: str | int}.get(kind, ())):
            with suppress(ValueError, OverflowError):
                converted = kind(value)
        if isinstance(converted, kind) and (
            kind is not int or -_INT_LIMIT <= converted < _INT_LIMIT
        ):
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
    int: "write a whole number below 2**63, such as 64",
    float: "write 0.1 or 1e-3",
    bool: "write true or false",
    str: "write a name, such as that of a registered part",
}
