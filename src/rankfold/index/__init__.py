"""Search by inner product: ``exact`` is the reference for the approximate kinds."""

from rankfold.index.auto import build_chosen
from rankfold.index.compressed import build_compressed, open_compressed
from rankfold.index.exact import Exact
from rankfold.index.hnsw import build_hnsw, open_hnsw
from rankfold.index.inverted import build_inverted, open_inverted
from rankfold.index.kind import Kind

INDEXES = {
    "exact": Kind(
        build=lambda candidates, memory_budget, **_: Exact(candidates, memory_budget),
        open=lambda _saved, candidates, memory_budget: Exact(candidates, memory_budget),
    ),
    "inverted": Kind(build_inverted, open_inverted),
    "hnsw": Kind(build_hnsw, open_hnsw),
    "compressed": Kind(build_compressed, open_compressed),
    "auto": Kind(build_chosen, None),  # builds one of the others
}
