from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold import config
from rankfold.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Settings:
    width: int = 64
    reg: float = 0.1
    shuffle: bool = True
    name: str = "x"
    loss: Literal["softmax", "sparsemax"] = "softmax"


# ---------------------------------------------------------------------------------- values


@given(
    width=st.integers(-(2**63), 2**63 - 1), reg=st.floats(allow_nan=False), shuffle=st.booleans()
)
def test_text_and_value_mean_the_same(width: int, reg: float, *, shuffle: bool) -> None:
    values = {"width": width, "reg": reg, "shuffle": shuffle}
    words = {"width": str(width), "reg": repr(reg), "shuffle": str(shuffle).lower()}
    assert config.build(Settings, values) == config.build(Settings, words) == Settings(**values)  # type: ignore[arg-type]


def test_defaults_stay_where_nothing_is_said() -> None:
    assert config.build(Settings, {}) == Settings()
    assert config.build(Settings, {"name": "7"}).name == "7"
    assert config.build(Settings, {"loss": "sparsemax"}).loss == "sparsemax"


def test_whole_number_is_taken_for_a_number() -> None:
    reg = config.build(Settings, {"reg": 1}).reg
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
        ("width", 2**63, "below 2**63"),
        ("width", "1" + 30 * "0", "below 2**63"),
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
        config.build(Settings, {name: value})
    assert str(error.value) == f"{name} cannot be {value!r}"
    assert wanted in error.value.hint


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="there is no option 'widht'") as error:
        config.build(Settings, {"reg": 1.0, "widht": 2})
    assert error.value.hint == "did you mean 'width'?"


def test_unknown_name_that_is_like_none_is_refused_with_all() -> None:
    with pytest.raises(UserError, match="there is no option 'q'") as error:
        config.check_names(Settings, ["q"])
    assert error.value.hint == "options: width, reg, shuffle, name, loss"


@dataclass(frozen=True)
class Optional:
    share: float | None = 0.5
    name: str = ""


@pytest.mark.parametrize("value", [None, "none", "None", "AUTO", "null"])
def test_every_spelling_of_none_is_none_where_it_may_be(value: Any) -> None:
    assert config.build(Optional, {"share": value}).share is None
    assert config.spelled(Optional, "share", value) == "none"
    assert config.spelled(Optional, "name", value) == value
    with pytest.raises(UserError, match="width cannot be"):
        config.build(Settings, {"width": value})


def test_numbers_stay_as_they_were_spelled() -> None:
    assert config.spelled(Optional, "share", ".10") == ".10"


# ---------------------------------------------------------------------------------- words


def test_words_are_parted_at_the_first_equals_sign() -> None:
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


def test_absent_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*c\.toml: No such file"):
        config.read(tmp_path / "c.toml")
    with pytest.raises(UserError, match="Is a directory"):
        config.read(tmp_path)


@pytest.mark.parametrize("content", [b"width: 8", b'name = "caf\xe9"', b"a = 1\na = 2", b"\x00"])
def test_file_that_is_no_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"c\.toml is not valid TOML") as error:
        config.read(path)
    assert error.value.hint == "write lines like width = 64"
