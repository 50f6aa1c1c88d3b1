"""Products of interactions with dense matrices, by torch's sparse kernels."""

import warnings

import torch
from torch import Tensor

from rankfold.types import Interactions


def csr(rows: Interactions, dtype: torch.dtype = torch.float32) -> Tensor:
    """R as a sparse tensor of ones [M, N]: ``csr(rows) @ dense`` sums a row's candidates' vectors.

    The columns are shared with ``rows``, not copied.
    """
    small = rows.candidates.dtype == torch.int32 and rows.n_pairs < 2**31
    index = torch.int32 if small else torch.int64
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # in beta, and checked: so we know
        return torch.sparse_csr_tensor(
            rows.offsets.to(index),
            rows.candidates.to(index),
            torch.ones(rows.n_pairs, dtype=dtype, device=rows.candidates.device),
            size=(rows.n_queries, rows.n_candidates),
            check_invariants=True,  # a damaged file must not become a crash
        )
