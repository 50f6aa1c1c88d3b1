from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold import config
from rankfold.errors import UserError


class Options(config.Settings):
    width: int = 64
    reg: float = 0.1
    shuffle: bool = True
    name: str = "x"
    loss: Literal["softmax", "sparsemax"] = config.setting("softmax", help="the loss")


# ---------------------------------------------------------------------------------- values


@given(
    width=st.integers(-(2**63), 2**63 - 1), reg=st.floats(allow_nan=False), shuffle=st.booleans()
)
def test_text_and_value_mean_the_same(width: int, reg: float, *, shuffle: bool) -> None:
    values = {"width": width, "reg": reg, "shuffle": shuffle}
    words = {"width": str(width), "reg": repr(reg), "shuffle": str(shuffle).lower()}
    assert config.build(Options, values) == config.build(Options, words) == Options(**values)  # type: ignore[arg-type]


def test_defaults_stay_where_no_value_is_given() -> None:
    assert config.build(Options, {}) == Options()
    assert config.build(Options, {"name": "7"}).name == "7"
    assert config.build(Options, {"loss": "sparsemax"}).loss == "sparsemax"


def test_whole_number_is_accepted_for_a_number() -> None:
    reg = config.build(Options, {"reg": 1}).reg
    assert (reg, type(reg)) == (1.0, float)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("width", 1.0, "a whole number"),
        ("width", "1.5", "a whole number"),
        ("width", "", "a whole number"),
        ("width", True, "a whole number"),
        ("width", None, "a whole number"),
        ("width", [1], "a whole number"),
        ("width", 2**63, "a whole number"),
        ("width", "1" + 30 * "0", "a whole number"),
        ("reg", "much", "a number"),
        ("reg", False, "a number"),
        ("reg", 10**400, "a number"),
        ("shuffle", 1, "true or false"),
        ("shuffle", "yes", "true or false"),
        ("name", 7, "text"),
        ("name", True, "text"),
        ("loss", "hinge", "one of softmax, sparsemax"),
        ("loss", 1, "one of softmax, sparsemax"),
    ],
)
def test_value_of_another_type_is_refused(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(UserError) as error:
        config.build(Options, {name: value})
    assert str(error.value) == f"`{name}` must be {wanted}, got {value!r}"
    assert error.value.hint


def test_too_large_a_number_gets_the_limit_as_a_hint() -> None:
    with pytest.raises(UserError) as error:
        config.build(Options, {"width": 2**63})
    assert "below 2**63" in error.value.hint


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="there is no option 'widht'") as error:
        config.build(Options, {"reg": 1.0, "widht": 2})
    assert error.value.hint == "did you mean 'width'?"


def test_unknown_name_without_a_near_one_is_refused_with_all() -> None:
    with pytest.raises(UserError, match="there is no option 'q'") as error:
        config.check_names(Options, ["q"])
    assert error.value.hint == "options: width, reg, shuffle, name, loss"


@dataclass(frozen=True)
class Optional:
    share: float | None = 0.5
    name: str = ""


@pytest.mark.parametrize("value", [None, "none", "None", "AUTO", "null"])
def test_every_spelling_of_none_is_accepted_for_an_optional_number(value: Any) -> None:
    assert config.build(Optional, {"share": value}).share is None
    assert config.normalize_none(Optional, "share", value) == "none"
    assert config.normalize_none(Optional, "name", value) == value
    with pytest.raises(UserError, match="`width` must be a whole number"):
        config.build(Options, {"width": value})


def test_numbers_keep_their_spelling() -> None:
    assert config.normalize_none(Optional, "share", ".10") == ".10"


# ---------------------------------------------------------------------------------- declarations

REGISTRY = {"softmax": 1, "bpr": 2}


def even(value: int) -> None:
    if value % 2:
        raise ValueError("an even number")


class Declaring(config.Settings):
    width: int = config.setting(64, at_least=1, help="length of the vectors")
    share: float | None = config.setting(0.5, above=0, below=1, help="a share")
    power: float = config.setting(0.0, help="any power")
    loss: str = config.setting("bpr", choices=REGISTRY, help="the loss")
    inner: Literal["cg", "cholesky"] = config.setting("cg", help="the solver")
    pairs: int = config.setting(2, help="how many", check=even)


class Inheriting(Declaring):
    width: int = 128
    inner: Literal["cholesky"] = "cholesky"


@pytest.mark.parametrize("kind", [Declaring, Inheriting])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 0}, "`width` must be at least 1, got 0"),
        ({"share": 0.0}, "`share` must be above 0 and below 1, got 0.0"),
        ({"share": 1.0}, "`share` must be above 0 and below 1, got 1.0"),
        ({"share": float("nan")}, "`share` must be above 0 and below 1, got nan"),
        ({"power": float("inf")}, "`power` must be a finite number, got inf"),
        ({"loss": "hinge"}, "`loss` must be one of softmax, bpr, got 'hinge'"),
        ({"pairs": 3}, "`pairs` must be an even number, got 3"),
    ],
)
def test_value_out_of_bounds_is_refused_with_the_help(
    kind: type[Declaring], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        kind(**values)
    assert str(error.value) == message
    (name,) = values
    assert error.value.hint == config.declarations(kind)[name].help


def test_settings_are_frozen_dataclasses_without_a_decorator() -> None:
    with pytest.raises(FrozenInstanceError):
        Declaring().width = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="Twice is a dataclass as a Settings"):

        @dataclass(slots=True)
        class Twice(config.Settings):
            width: int = 3


def test_bounds_themselves_and_none_are_accepted() -> None:
    assert Declaring(width=1, share=None).share is None
    assert Inheriting().width == 128


def test_literal_type_gives_the_choices_and_a_subclass_may_narrow_them() -> None:
    with pytest.raises(UserError, match="`inner` must be one of cg, cholesky, got 'lu'"):
        Declaring(inner="lu")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="`inner` must be one of cholesky, got 'cg'"):
        Inheriting(inner="cg")  # type: ignore[arg-type]
    assert config.declarations(Inheriting)["inner"].help == "the solver"


def test_registry_stays_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "hinge", 3)
    assert Declaring(loss="hinge").loss == "hinge"


def test_types_in_words() -> None:
    words = {name: config.describe_type(Declaring, name) for name in ("width", "share", "loss")}
    assert words == {"width": "a whole number", "share": "a number or none", "loss": "text"}


def test_values_in_words() -> None:
    words = {
        name: config.describe_values(Declaring, name) for name in config.declarations(Declaring)
    }
    assert words == {
        "width": "a whole number at least 1",
        "share": "a number above 0 and below 1, or none",
        "power": "a number",
        "loss": "softmax, bpr",
        "inner": "cg, cholesky",
        "pairs": "a whole number",
    }


def test_settings_as_plain_data() -> None:
    described = config.describe_settings(Inheriting)
    bounds = {"at_least": 1}
    width = {
        "default": 128,
        "type": "a whole number",
        "bounds": bounds,
        "help": "length of the vectors",
    }
    assert described["width"] == width
    assert described["loss"]["values"] == ["softmax", "bpr"]
    assert described["inner"]["values"] == ["cholesky"]


# ---------------------------------------------------------------------------------- words


def test_words_are_split_at_the_first_equals_sign() -> None:
    words = ["width=64", "cut-off = a=b ", "width=8"]
    assert config.parse_words(words) == {"width": "8", "cut_off": "a=b"}


@pytest.mark.parametrize("word", ["width", "width=", "=64", "="])
def test_word_without_name_or_value_is_refused_as_written(word: str) -> None:
    with pytest.raises(UserError) as error:
        config.parse_words(["reg=1", word])
    assert str(error.value) == f"cannot read --set {word}"


# ---------------------------------------------------------------------------------- files


@pytest.mark.parametrize("begin", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_file_gives_its_values(begin: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(f'{begin}# more\r\nwidth = 8\r\nreg = 0.5\r\nname = "é"\r\n'.encode())
    assert config.read(path) == {"width": 8, "reg": 0.5, "name": "é"}


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*c\.toml: No such file"):
        config.read(tmp_path / "c.toml")
    with pytest.raises(UserError, match="Is a directory"):
        config.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        *(b"width: 8", b'name = "caf\xe9"', b"a = 1\na = 2", b"\x00"),
        *(b"a = " + b"[" * 9999, b"a = " + b"9" * 9999),
    ],
    ids=["yaml", "latin", "repeated", "null", "deep", "huge"],
)
def test_invalid_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"c\.toml is not valid TOML") as error:
        config.read(path)
    assert error.value.hint == "write lines like width = 64"


class Point(NamedTuple):
    """An entry point of another package."""

    name: str
    value: str
    load: Callable[[], object]


def test_other_packages_add_to_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> object:
        raise ImportError("no torch")

    points = [Point("own", "own:METHOD", lambda: 3), Point("bad", "bad:METHOD", fail)]
    monkeypatch.setattr(config, "entry_points", lambda group: points if group == "g" else [])
    with pytest.warns(
        UserWarning, match="'bad' of g is left out: bad:METHOD fails with ImportError"
    ):
        assert config.plugins("g") == {"own": 3}
    assert config.plugins("other") == {}
