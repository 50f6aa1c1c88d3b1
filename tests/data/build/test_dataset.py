"""Sparse matrices become training data."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from prepared_splits import training_rows

from rankfold.data.build.dataset import from_sparse
from rankfold.data.prepare import prepare
from rankfold.errors import UserError


@st.composite
def matrices(draw: st.DrawFn) -> sp.coo_matrix:
    """Entries may be repeated, and may be 0."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    entry = st.tuples(st.integers(0, shape[0] - 1), st.integers(0, shape[1] - 1), st.integers(0, 2))
    entries = [*draw(st.lists(entry, max_size=12)), (0, 0, 1)]
    i, j, values = map(np.array, zip(*entries, strict=True))
    return sp.coo_matrix((values.astype(np.float64), (i, j)), shape=shape)


FORMATS = ["csr", "csc", "coo", "dok", "lil", "bsr", "dia"]


@given(matrix=matrices(), form=st.sampled_from(FORMATS), arrays=st.booleans())
def test_sparse_matrix_is_training_data(matrix: Any, form: str, *, arrays: bool) -> None:
    dense = matrix.toarray()
    data = from_sparse((sp.coo_array(matrix) if arrays else matrix).asformat(form))
    expected = [(i, j, dense[i, j]) for i, j in zip(*dense.nonzero(), strict=True)]
    assert training_rows(data) == expected
    assert (len(data.queries), len(data.candidates)) == dense.shape
    assert data.split("train").n_candidates == dense.shape[1]
    assert data.validation is data.test is None


@given(matrix=matrices(), form=st.sampled_from(FORMATS))
def test_sparse_matrix_is_prepared_without_its_empty_rows(matrix: Any, form: str) -> None:
    data = prepare(matrix.asformat(form), split=(1, 0, 0))
    assert training_rows(data) == training_rows(from_sparse(matrix))
    assert data.candidates.keys.to_list() == np.flatnonzero(matrix.toarray().any(axis=0)).tolist()


def test_matrix_is_not_modified() -> None:
    matrix = sp.csr_matrix((np.array([1.0, 1.0, 0.0]), [1, 1, 0], [0, 3]), shape=(1, 2))
    assert training_rows(from_sparse(matrix)) == [(0, 1, 2.0)]
    assert (matrix.data.tolist(), matrix.indices.tolist()) == ([1, 1, 0], [1, 1, 0])


def test_ones_have_no_grades() -> None:
    for dtype in (bool, np.int8, np.float64):
        assert from_sparse(sp.eye(3, dtype=dtype, format="csr")).split("train").grades is None


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_matrix_with_invalid_grades_is_refused(value: float) -> None:
    with pytest.raises(UserError, match="negative, infinite or missing entries"):
        from_sparse(sp.csr_matrix(np.array([[1.0, value]])))


def test_matrix_without_entries_is_refused() -> None:
    with pytest.raises(UserError, match="the matrix has no entries"):
        from_sparse(sp.csr_matrix((3, 3)))


def test_very_wide_matrix_has_int64_candidates() -> None:
    class Wide:
        """The parts of a matrix of 2**31 columns that ``from_sparse`` uses."""

        shape = (1, 2**31)
        data, indices, indptr = np.ones(1), np.array([2**31 - 1]), np.array([0, 1])

        def tocsr(self) -> "Wide":
            return self

        tocoo = copy = tocsr

        def sum_duplicates(self) -> None: ...

        eliminate_zeros = sort_indices = sum_duplicates

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankfold.data.build.dataset.fingerprint", lambda *_: "")
        patch.setattr("rankfold.types.Vocabulary.keys", None)
        candidates = from_sparse(Wide()).split("train").candidates
    assert (candidates.dtype, candidates.tolist()) == (torch.int64, [2**31 - 1])


def test_equal_matrices_have_equal_fingerprints() -> None:
    matrix = sp.random(20, 30, 0.2, format="csr", rng=np.random.default_rng(0))
    prints = {from_sparse(m).fingerprint for m in (matrix, matrix.tocoo(), matrix.tocsc())}
    assert len(prints) == 1
    assert from_sparse(matrix * 2).fingerprint not in prints
