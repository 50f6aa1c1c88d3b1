"""Published figures, to print beside measured ones. They are copied from their sources as printed.

They were measured by others, with other seeds and often other splits of the same data. To add some:
an entry here with the source of each row.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Table(NamedTuple):
    """The figures for one data set."""

    queries: int  # the sizes that its sources state
    candidates: int
    metrics: Sequence[str]
    rows: Mapping[str, Mapping[str, Sequence[float]]]  # by source and method, a value per metric


_RG2 = "Pu et al., NDCG-Consistent Softmax Approximation with Accelerated Convergence, Table"
_BARS = "BARS leaderboard, openbenchmark.github.io/BARS"
_LIGHTGCN = "He et al., LightGCN, SIGIR 2020"
_CHEBYCF = "Kim et al., ChebyCF, SIGIR 2025"
_BSPM = "Choi et al., BSPM, SIGIR 2023"
_SANSA = "Spišák et al., SANSA, RecSys 2023"
_VASP = "Vančura and Kordík, VASP, ICANN 2021, Table III"
_EDLAE = "Steck, Autoencoders that don't overfit towards the Identity, NeurIPS 2020"

_RANKS = ("mrr@10", "ndcg@10")
_STRONG = ("recall-capped@20", "recall-capped@50", "ndcg@100")
_LIGHT = ("recall@20", "ndcg@20")


def _table3(*columns: Sequence[float]) -> Mapping[str, Mapping[str, Sequence[float]]]:
    names = ("BPR", "BCE", "SSM", "Sparsemax", "UIB", "SML", "WRMF", "SM", "RG2", "RGx")
    return {f"{_RG2} 3": dict(zip(names, zip(*columns, strict=True), strict=True))}


PUBLISHED: dict[str, dict[str, Table]] = {  # by protocol and source
    "rg2": {
        "ml-10m": Table(69_815, 9_888, _RANKS, _table3(
            (.3476, .3602, .3785, .3177, .3836, .3386, .4475, .4487, .4720, .4737),
            (.2116, .2228, .2378, .1738, .2426, .2045, .2797, .2849, .2957, .2975),
        )),
        "amazon-electronics": Table(192_403, 63_001, _RANKS, _table3(
            (.0124, .0098, .0119, .0078, .0100, .0076, .0146, .0172, .0186, .0189),
            (.0154, .0126, .0152, .0100, .0133, .0103, .0178, .0212, .0229, .0233),
        )),
        "steam": Table(281_204, 11_961, _RANKS, _table3(
            (.0434, .0435, .0466, .0317, .0410, .0406, .0464, .0493, .0509, .0513),
            (.0521, .0532, .0549, .0359, .0506, .0482, .0544, .0579, .0586, .0590),
        )),
        "simplewiki": Table(129_404, 129_432, ("map@10", "mrr@10"), {f"{_RG2} 4": {
            "BPR": (.3691, .5291),
            "BCE": (.4527, .5813),
            "SSM": (.5235, .6717),
            "SM": (.5750, .7202),
            "RG2": (.5525, .6988),
            "RGx": (.5537, .6996),
        }}),
    },
    "strong": {
        "ml-20m": Table(136_677, 20_108, _STRONG, {_VASP: {
            "Mult-VAE": (.395, .537, .426),
            "EASE": (.391, .521, .420),
            "RecVAE": (.414, .553, .442),
            "H+Vamp Gated": (.413, .551, .445),
            "VASP": (.414, .552, .448),
        }}),
        "netflix": Table(463_435, 17_769, _STRONG, {_VASP: {
            "Mult-VAE": (.351, .444, .386),
            "EASE": (.362, .445, .393),
            "RecVAE": (.361, .452, .394),
            "H+Vamp Gated": (.376, .463, .409),
            "VASP": (.372, .457, .406),
        }}),
        "msd": Table(571_355, 41_140, _STRONG, {
            _EDLAE: {"EASE": (.332, .428, .388), "EDLAE": (.334, .430, .392)},
        }),
    },
    "lightgcn": {
        "gowalla": Table(29_858, 40_981, _LIGHT, {
            _BARS: {"EASE": (.1765, .1467), "GF-CF": (.1849, .1518)},
            _LIGHTGCN: {"LightGCN": (.1830, .1554)},
            _BSPM: {"BSPM": (.1920, .1597)},
            _CHEBYCF: {"ChebyCF": (.1941, .1616)},
        }),
        "yelp2018": Table(31_668, 38_048, _LIGHT, {
            _BARS: {"EASE": (.0657, .0552), "GF-CF": (.0697, .0571)},
            _BSPM: {"BSPM": (.0713, .0584)},
        }),
        "amazon-book": Table(52_643, 91_599, _LIGHT, {
            _BARS: {"EASE": (.0710, .0567), "GF-CF": (.0710, .0584), "SLIM": (.0755, .0602)},
            _CHEBYCF: {"ChebyCF": (.0738, .0613)},
            _SANSA: {"SANSA": (.0768, .0637)},
        }),
    },
}  # fmt: skip

_TOLERANCE = 0.01  # by which the sizes of the same data may differ: splits drop rare candidates


def published(
    protocol: str | None, summary: Mapping[str, Any], metrics: Sequence[str]
) -> dict[str, Any] | None:
    """The published rows for data with this summary, best first, as JSON; None without any.

    Only the metrics of the comparison are kept. ``same`` is false if the data has other sizes.
    """
    table = PUBLISHED.get(protocol or "", {}).get(summary.get("source", ""))
    if table is None:
        return None
    rows: list[dict[str, Any]] = []
    for origin, methods in table.rows.items():
        for name, values in methods.items():
            figures = dict(zip(table.metrics, values, strict=True))
            own = {metric: figures[metric] for metric in metrics if metric in figures}
            rows += [{"name": name, "origin": origin, "metrics": own}] if own else []
    rows.sort(key=lambda row: list(row["metrics"].values()), reverse=True)
    sizes = {"queries": table.queries, "candidates": table.candidates}
    same = all(abs(summary[name] - size) <= _TOLERANCE * size for name, size in sizes.items())
    return {**sizes, "same": same, "rows": rows}
