"""Conditions on features: the same list as with the candidates that meet them allowed by hand."""

from pathlib import Path

import polars as pl
import pytest
import torch
from planted import groups
from rankings import assert_same_keys

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.conditions import Conditions, to_table
from rankfold.types import Columns, Features

BRANDS = ("acme", "o'neil", None)
TABLE = pl.DataFrame(
    {
        "candidate": range(60),
        "price": [19.99 + c if c % 7 else None for c in range(60)],
        "brand": [BRANDS[c % 3] for c in range(60)],
    }
)
CONDITIONS = {
    "price < 40": lambda c: c % 7 > 0 and 19.99 + c < 40,
    "price = 20.99": lambda c: c == 1,
    "brand = 'acme' and not price > 50": lambda c: c % 3 == 0 and c % 7 > 0 and 19.99 + c <= 50,
    "brand in ('o''neil', 'other')": lambda c: c % 3 == 1,
    "brand is null or price is null": lambda c: c % 3 == 2 or c % 7 == 0,
    "brand is not null and not (price < -1)": lambda c: c % 3 < 2 and c % 7 > 0,
    "price not between 0 and 40 and -price < 0": lambda c: c % 7 > 0 and 19.99 + c > 40,
    "brand not in ('acme') and (1 = 1)": lambda c: c % 3 == 1,
}


@pytest.fixture(scope="module")
def model() -> rf.Ranker:
    return rf.fit("puresvd", rf.prepare(groups(), candidate_features=TABLE), width=6)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_only_candidates_that_meet_a_condition_are_returned(
    model: rf.Ranker, condition: str
) -> None:
    allowed = [c for c in range(60) if CONDITIONS[condition](c)]
    expected = model.search([0, 3], k=60, allow=allowed)
    assert sum(map(len, expected.keys)) > 0
    assert_same_keys(model.search([0, 3], k=60, where=condition), expected)
    some = allowed[::2]
    both = model.search([0], k=60, where=condition, allow=some)
    assert_same_keys(both, model.search([0], k=60, allow=some))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("prize < 3", "there is no feature 'prize'"),
        ("price <", "cannot read the condition 'price <'"),
        ("price < 1 and and brand = 'x'", "at \"and brand = 'x'\": a feature or a value"),
        ("price = = 3", "at '= 3': a feature or a value"),
        ("(price < 3 or )", "at '\\)': a feature"),
        ("price not in (1, 2) and", "it ends too early"),
        ("", "it ends too early, or is empty"),
        ("price", "is not true or false"),
        ("count(*) > 1", "there is no feature 'count'"),
        ("(select 1)", "there is no feature 'select'"),
        ("price(1) > 1", "may not call functions"),
        ("price '2020' > 1", "may not call functions"),
        ("brand ~ '(a*)*'", "cannot read the condition"),
        ("1; drop table x", "cannot read the condition"),
        ("lpad(brand, 1000000000, 'x') = 'x'", "there is no feature 'lpad'"),  # 1 GB a row
        ("cast(price as decimal(99,99)) > 1", "there is no feature 'cast'"),  # polars panics
        ('"price\\"" < 3', "there is no feature 'price"),
        ("\ud800 = 1", "cannot read the condition"),
        ("price < 'x'", "cannot read the condition"),
        ("price < 1 or " * 200 + "price < 1", "at most 1000 characters"),
    ],
)
def test_a_bad_condition_is_one_error(model: rf.Ranker, condition: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")) as caught:
        model.search(0, where=condition)
    str(caught.value).encode()


def test_a_name_may_be_quoted_and_a_number_may_have_an_exponent() -> None:
    columns = Columns(("list price", "lpad"), {})
    features = Features(torch.tensor([[1.0, 3.0], [2.5, 1.0]]), torch.zeros(2, 0).int(), columns)
    conditions = Conditions(features)
    assert conditions.rows('"list price" > 1.5e0 AND (lpad<2 or lpad in (7,8))').tolist() == [1]
    with pytest.raises(UserError, match="may not call functions"):
        conditions.rows("\"lpad\" ('x', 1000000000, 'y') = 'y'")


def test_kept_conditions_have_a_limited_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankfold.models.conditions._MAX_KEPT_ROWS", 25)
    conditions = Conditions(Features(torch.arange(10.0)[:, None], torch.zeros(10, 0).int(),
                                     Columns(("price",), {})))  # fmt: skip
    for most in range(20):
        assert len(conditions.rows(f"price >= -{most}")) == 10
        assert sum(map(len, conditions._rows.values())) <= 25


def test_features_are_saved_with_the_model_and_follow_its_updates(
    model: rf.Ranker, tmp_path: Path
) -> None:
    model.save(tmp_path / "m")
    loaded = rf.load(tmp_path / "m")
    expected = model.search(0, k=60, where="brand = 'acme'")
    assert_same_keys(loaded.search(0, k=60, where="brand = 'acme'"), expected)
    grown = loaded.add(pl.DataFrame({"query": [999], "candidate": [0]}))
    assert_same_keys(grown.search(0, k=60, where="brand = 'acme'"), expected)


def test_a_new_candidate_has_the_features_of_its_table() -> None:
    data = rf.prepare(groups(), candidate_features=TABLE)
    model = rf.fit("bpr", data, encoder="towers", width=4, epochs=1)
    new = pl.DataFrame({"candidate": [100], "price": [1.5], "brand": ["acme"]})
    grown = model.extend(new)
    assert grown.search(0, k=60, where="price < 2").keys == [[100]]


def test_a_model_without_features_says_so() -> None:
    with pytest.raises(UserError, match="no features of candidates"):
        rf.fit("puresvd", groups(), width=4).search(0, where="price < 2")


def test_a_table_has_the_numbers_and_words_that_were_read() -> None:
    columns = Columns(("price",), {"brand": ("acme", "bee")})
    numbers = torch.tensor([[19.99], [torch.nan], [1e-7]])
    features = Features(numbers, torch.tensor([[1], [-1], [0]], dtype=torch.int32), columns)
    assert to_table(features).rows() == [(19.99, "bee"), (None, None), (1e-7, "acme")]
    assert Conditions(features).rows("price < 1").tolist() == [2]
    forged = Features(numbers, torch.tensor([[1], [2], [99]], dtype=torch.int32), columns)
    assert to_table(forged)["brand"].to_list() == ["bee", None, None]


@pytest.mark.parametrize(
    "columns", [{"numbers": [1], "levels": {}}, {"numbers": [], "levels": {"a": [0]}}]
)
def test_names_that_are_no_texts_are_refused(columns: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="must be texts"):
        Columns.from_json(columns)
