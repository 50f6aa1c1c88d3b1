"""Where the best candidates are found: ``exact`` is the reference for whatever is faster."""

from rankfold.index.ann import build_inverted, open_inverted
from rankfold.index.choose import build_chosen
from rankfold.index.compressed import build_compressed, open_compressed
from rankfold.index.exact import build_exact, open_exact
from rankfold.index.graph import build_graph, open_graph
from rankfold.index.kind import Kind

INDEXES = {
    "exact": Kind(build_exact, open_exact),
    "inverted": Kind(build_inverted, open_inverted),
    "hnsw": Kind(build_graph, open_graph),
    "compressed": Kind(build_compressed, open_compressed),
    "auto": Kind(build_chosen, None),  # becomes one of the others
}
