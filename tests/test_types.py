"""Interactions compared with dense matrices, vocabularies with plain lists."""

from dataclasses import replace

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.errors import UserError
from rankfold.types import Dataset, Graded, Interactions, Texts, Vocabulary, from_pairs
from rankfold.types.vocabulary import MAX_SINGLE_LOOKUPS


@st.composite
def matrices(draw: st.DrawFn, shape: tuple[int, int] | None = None) -> Tensor:
    """Grades, 0 for no pair; rows, columns and the matrix may be empty."""
    m, n = shape or (draw(st.integers(0, 5)), draw(st.integers(1, 5)))
    grade = st.sampled_from([0.0, 0.0, 1.0, 2.5])
    return torch.tensor(draw(st.lists(grade, min_size=m * n, max_size=m * n))).reshape(m, n)


def test_pairs_are_shown_by_their_sizes() -> None:
    pairs = sparse(torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]))
    assert repr(pairs) == "<Interactions: 2 queries x 3 candidates, 3 pairs>"


@st.composite
def two_matrices(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    shape = (draw(st.integers(0, 4)), draw(st.integers(1, 4)))
    return draw(matrices(shape)), draw(matrices(shape))


def sparse(dense: Tensor, *, graded: bool = True) -> Interactions:
    queries, candidates = dense.nonzero(as_tuple=True)
    grades = dense[queries, candidates] if graded else None
    return from_pairs(queries, candidates, grades, (dense.shape[0], dense.shape[1]))


def dense_of(pairs: Interactions) -> Tensor:
    """A dense matrix by a plain loop, which also checks that candidates ascend."""
    dense = torch.zeros(pairs.n_queries, pairs.n_candidates)
    for query in range(pairs.n_queries):
        start, end = pairs.offsets[query], pairs.offsets[query + 1]
        row = pairs.candidates[start:end].tolist()
        assert row == sorted(set(row))
        for place, candidate in enumerate(row, start=int(start)):
            dense[query, candidate] = 1.0 if pairs.grades is None else pairs.grades[place]
    return dense


# ---------------------------------------------------------------------------------- interactions


@given(matrices())
def test_pairs_become_the_matrix(dense: Tensor) -> None:
    pairs = sparse(dense)
    assert torch.equal(dense_of(pairs), dense)
    assert pairs.offsets.dtype == torch.int64
    assert pairs.candidates.dtype == torch.int32
    assert pairs.n_pairs == int((dense > 0).sum())
    assert torch.equal(pairs.counts(), (dense > 0).sum(dim=1))
    assert torch.equal(pairs.candidate_counts(), (dense > 0).sum(dim=0))
    assert torch.equal(pairs.query_of_pair().long(), dense.nonzero()[:, 0])


def test_candidates_are_int64_if_int32_is_too_small() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert from_pairs(none, none, None, (1, 2**31 - 1)).candidates.dtype == torch.int32
    assert from_pairs(none, none, None, (1, 2**31)).candidates.dtype == torch.int64


@given(dense=matrices(), graded=st.booleans())
def test_transpose_is_that_of_the_matrix(dense: Tensor, *, graded: bool) -> None:
    transposed = sparse(dense, graded=graded).transpose()
    expected = dense.T if graded else (dense.T > 0).float()
    assert torch.equal(dense_of(transposed), expected)
    assert (transposed.grades is None) is not graded


@given(dense=matrices(), data=st.data(), graded=st.booleans())
def test_select_takes_rows_in_the_given_order(
    dense: Tensor, data: st.DataObject, *, graded: bool
) -> None:
    rows = st.lists(st.integers(0, len(dense) - 1), max_size=6) if len(dense) else st.just([])
    queries = torch.tensor(data.draw(rows), dtype=torch.int64)
    taken = sparse(dense, graded=graded).select(queries)
    expected = dense[queries] if graded else (dense[queries] > 0).float()
    assert torch.equal(dense_of(taken), expected)
    assert (taken.grades is None) is not graded


@given(both=two_matrices(), graded=st.booleans(), other_graded=st.booleans())
def test_union_takes_the_grade_of_the_second(
    both: tuple[Tensor, Tensor], *, graded: bool, other_graded: bool
) -> None:
    ours, theirs = (
        dense if keep else (dense > 0).float()
        for dense, keep in zip(both, (graded, other_graded), strict=True)
    )
    united = sparse(ours, graded=graded).union(sparse(theirs, graded=other_graded))
    assert torch.equal(dense_of(united), torch.where(theirs > 0, theirs, ours))
    assert (united.grades is None) is not (graded or other_graded)


@given(both=two_matrices(), graded=st.booleans())
def test_without_removes_the_pairs_of_the_other(
    both: tuple[Tensor, Tensor], *, graded: bool
) -> None:
    ours, theirs = both[0] if graded else (both[0] > 0).float(), both[1]
    left = sparse(ours, graded=graded).without(sparse(theirs, graded=False))
    assert torch.equal(dense_of(left), torch.where(theirs > 0, 0.0, ours))


def test_joined_texts_are_concatenated() -> None:
    bags = Texts(torch.tensor([0, 2, 2, 5]), torch.arange(5), torch.rand(5))
    first, second = bags.part(0, 1), bags.part(1, 3)
    for field in ("offsets", "tokens", "weights"):
        assert torch.equal(getattr(first.join(second), field), getattr(bags, field))
    words = [replace(part, weights=None) for part in (first, second)]
    assert words[0].join(words[1]).weights is None


# ---------------------------------------------------------------------------------- vocabulary


def vocabulary(keys: list[int] | list[str]) -> Vocabulary:
    return Vocabulary(len(keys), lambda: pl.Series(sorted(keys)))  # type: ignore[type-var]


NUMBERS = vocabulary([-3, 0, 7, 12, 2**63 - 1])
WORDS = vocabulary(["", "007", "7", "Alice", "alice", "bob", "zoë", "日本", "😀"])


@given(st.lists(st.integers(-20, 20), unique=True), st.lists(st.integers(-25, 25)))
def test_integer_keys_map_to_their_rows(keys: list[int], wanted: list[int]) -> None:
    known = sorted(keys)
    expected = [known.index(key) if key in known else -1 for key in wanted]
    result = vocabulary(keys)
    assert result.find(wanted).tolist() == expected
    assert result.find([str(key) for key in wanted]).tolist() == expected
    assert result.find(pl.Series(wanted, dtype=pl.Int64)).tolist() == expected
    assert result.find(pl.Series(map(str, wanted), dtype=pl.String)).tolist() == expected


@given(st.lists(st.text(max_size=3), unique=True), st.lists(st.text(max_size=3)))
def test_text_keys_map_to_their_rows(keys: list[str], wanted: list[str]) -> None:
    known = sorted(keys)
    wanted = wanted + keys
    expected = [known.index(key) if key in known else -1 for key in wanted]
    words = Vocabulary(len(keys), lambda: pl.Series(known, dtype=pl.String))
    assert words.find(wanted).tolist() == expected


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), unique=True, max_size=8),
    st.lists(st.integers() | st.integers(-9, 9) | st.text(max_size=3), max_size=8),
    st.booleans(),
)
def test_few_keys_and_many_keys_give_the_same_rows(
    known: list[int],
    wanted: list[int | str],
    integers: bool,  # noqa: FBT001
) -> None:
    held = pl.Series(sorted(known), dtype=pl.Int64)
    keys = held if integers else held.cast(pl.String).sort()
    vocabulary = Vocabulary(len(keys), lambda: keys)
    lookups = [*wanted, *known]
    many = vocabulary.find([*lookups, *["x"] * MAX_SINGLE_LOOKUPS])[: len(lookups)]
    assert vocabulary.find(lookups).tolist() == many.tolist()
    assert vocabulary.find(lookups).dtype == many.dtype


@pytest.mark.parametrize(
    "key", ["07", "+7", " 7", "7 ", "7.0", "", "x", "-0", "9223372036854775808", "\u0667"]
)
def test_text_that_is_not_the_canonical_integer_is_unknown(key: str) -> None:
    assert NUMBERS.find([key]).tolist() == [-1]


def test_edges_of_int64_are_found() -> None:
    assert NUMBERS.find([2**63 - 1, 2**63, -(10**30), -3]).tolist() == [4, -1, -1, 0]


def test_numbers_are_looked_up_as_text_among_words() -> None:
    assert WORDS.find([7, 8]).tolist() == [2, -1]
    assert WORDS.find(pl.Series([7, 8, None])).tolist() == [2, -1, -1]
    assert WORDS.find(["😀", "日本", "zoe"]).tolist() == [8, 7, -1]


def test_missing_key_in_a_column_is_unknown() -> None:
    assert NUMBERS.find(pl.Series([None, 7])).tolist() == [-1, 2]
    assert NUMBERS.find(pl.Series([None, "7"])).tolist() == [-1, 2]


def test_nothing_is_found_in_an_empty_vocabulary() -> None:
    assert vocabulary([]).find(["a", 1]).tolist() == [-1, -1]
    assert NUMBERS.find([]).tolist() == []


def test_numbered_rows_are_their_own_keys() -> None:
    numbered = Vocabulary.numbered(4)
    assert numbered.keys.to_list() == [0, 1, 2, 3]
    assert numbered.find(["3", 4, 0]).tolist() == [3, -1, 0]
    assert numbered.holds_integers


def test_keys_are_loaded_once_and_not_before_they_are_needed() -> None:
    loads = []

    def load() -> pl.Series:
        loads.append(1)
        return pl.Series(["a", "b"])

    lazy = Vocabulary(2, load)
    assert len(lazy) == 2
    assert loads == []
    assert lazy.find(["b"]).tolist() == [1]
    assert lazy.take(torch.tensor([1, 0, 1])).to_list() == ["b", "a", "b"]
    assert loads == [1]


def test_unknown_key_names_the_nearest() -> None:
    assert WORDS.rows(["bob", "alice"]).tolist() == [5, 4]
    with pytest.raises(UserError, match="unknown candidate 'alise'") as error:
        WORDS.rows(["bob", "alise"], "candidate")
    assert error.value.hint == "did you mean 'alice', 'Alice'?"


def test_unknown_number_names_known_numbers() -> None:
    with pytest.raises(UserError, match="unknown query 121") as error:
        NUMBERS.rows([7, 121])
    assert error.value.hint == "did you mean 12?"


def test_hint_without_similar_keys() -> None:
    with pytest.raises(UserError, match="unknown query 'xyzzy'") as error:
        vocabulary(["1", "a"]).rows(["xyzzy"])
    assert error.value.hint == "no known key is similar"


@pytest.mark.parametrize(
    ("key", "near"), [("ALICE", "alice"), ("zoe", "zoë"), ("ali", "alice"), ("bobby", "bob")]
)
def test_nearest_ignores_case_and_endings(key: str, near: str) -> None:
    assert near in [str(result).lower() for result in WORDS.nearest(key)]


def test_nearest_finds_a_part_of_a_key() -> None:
    long = vocabulary([f"the complete works, volume {i}" for i in range(30)] + ["zzz"])
    assert "the complete works, volume 17" in long.nearest("volume 17")


# ---------------------------------------------------------------------------------- data


def dataset(train: Tensor, validation: Tensor | None, test: Tensor | None) -> Dataset:
    parts = [None if part is None else sparse(part) for part in (train, validation, test)]
    assert parts[0] is not None
    queries, candidates = map(Vocabulary.numbered, train.shape)
    return Dataset("interactions", parts[0], parts[1], parts[2], queries, candidates)


def test_seen_holds_the_earlier_splits() -> None:
    train = torch.tensor([[1.0, 0, 0, 0]])
    validation, test = torch.tensor([[0, 2.0, 0, 0]]), torch.tensor([[0, 0, 3.0, 0]])
    data = dataset(train, validation, test)
    assert torch.equal(dense_of(data.seen("validation")), train)
    assert torch.equal(dense_of(data.seen("test")), train + validation)
    assert torch.equal(dense_of(dataset(train, None, test).seen("test")), train)


def test_excluded_pairs_are_seen_too() -> None:
    data = dataset(torch.tensor([[1.0, 0, 0]]), None, torch.tensor([[0, 1.0, 0]]))
    excluded = sparse(torch.tensor([[0, 0, 1.0]]))
    with_excluded = Dataset(
        data.kind, data.train, None, data.test, data.queries, data.candidates, excluded=excluded
    )
    assert torch.equal(dense_of(with_excluded.seen("test")), torch.tensor([[1.0, 0, 1.0]]))


def test_missing_split_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="has no validation split"):
        dataset(torch.ones(1, 1), None, None).split("validation")


def test_graded_rows_are_not_pairs() -> None:
    rows = Graded(torch.zeros(2, 1), torch.zeros(2, 0).int(), None, torch.tensor([0, 1]))
    data = Dataset("graded", rows, None, None, Vocabulary.numbered(2), Vocabulary.numbered(2))
    assert len(rows) == 2
    with pytest.raises(UserError, match="graded rows"):
        data.split("train")


def test_selected_texts_are_those_rows() -> None:
    weights = torch.arange(5.0)
    texts = Texts(torch.tensor([0, 2, 2, 5]), torch.tensor([7, 8, 1, 2, 3]).int(), weights)
    some = texts.select(torch.tensor([2, 1, 0, 2]))
    assert len(some) == 4
    assert some.offsets.tolist() == [0, 3, 3, 5, 8]
    assert some.tokens.tolist() == [1, 2, 3, 7, 8, 1, 2, 3]
    assert some.weights is not None
    assert some.weights.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert Texts(texts.offsets, texts.tokens).to(torch.device("cpu")).weights is None


def test_a_dataset_is_shown_in_one_line() -> None:
    train = from_pairs(torch.tensor([0, 1]), torch.tensor([0, 2]), None, (2, 3))
    data = Dataset(
        "interactions", train, None, None, Vocabulary.numbered(2), Vocabulary.numbered(3)
    )
    assert repr(data) == "<Dataset interactions: 2 queries x 3 candidates>"
