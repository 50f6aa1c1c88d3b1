"""Protocols: the methods, metrics and budgets of published comparisons, as plain declarations.

A protocol is a set of defaults: options that are given override it. To add one: an entry here, its
published figures in ``published.py``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rankfold.errors import UserError, find
from rankfold.types import Dataset

Settings = Mapping[str, Mapping[str, Any]]  # by method


class Protocol(NamedTuple):
    """The defaults of a comparison."""

    summary: str
    methods: str
    options: Mapping[str, Any]  # fields of ``CompareOptions``
    settings: Mapping[str, Settings]  # by source; "": of any


def _negatives(**numbers: int) -> Settings:
    """Negatives for each pair: ``sampled_softmax=100`` is for sampled-softmax."""
    return {name.replace("_", "-"): {"negatives": n} for name, n in numbers.items()}


PROTOCOLS: dict[str, Protocol] = {
    "rg2": Protocol(
        "Tables 3 and 4 and Figure 1 of the RG2 paper",
        "bpr,bce,sampled-softmax,sparsemax,uib,sml,wrmf,softmax,rg2-weighted,rgx,rg2",
        {
            "metrics": "ndcg@10,mrr@10,map@10",
            "metric": "ndcg@10",
            "width": 64,
            "space": "paper",
            "trials": 64,  # the largest grid
            "refit": False,
        },
        {  # appendix B.3
            "ml-10m": _negatives(bpr=10, bce=10, sampled_softmax=100, uib=10, sml=1),
            "amazon-electronics": _negatives(bpr=20, bce=20, sampled_softmax=200, uib=10, sml=100),
            "steam": _negatives(bpr=10, bce=10, sampled_softmax=100, uib=1, sml=50),
            "simplewiki": _negatives(bpr=20, bce=20, sampled_softmax=1000),
        },
    ),
    "strong": Protocol(
        "strong generalisation to held-out queries, as in Liang et al. 2018",
        "popularity,puresvd,ials,ease,rg2",
        {
            "metrics": "ndcg@100,recall-capped@20,recall-capped@50",
            "metric": "ndcg@100",
            "width": 200,
            "trials": 16,
            "refit": False,
        },
        {},
    ),
    "lightgcn": Protocol(
        "the splits of LightGCN, which BARS also uses",
        "popularity,bpr,puresvd,ials,rg2",
        {"metrics": "ndcg@20,recall@20", "metric": "ndcg@20", "width": 64, "trials": 16},
        {},
    ),
}

GRADERS = "cba-trees,trees,cba,ce"  # on graded rows: with the rate in the loss, and without it


def with_protocol(
    methods: Sequence[str] | str | None, data: Dataset, given: Mapping[str, Any]
) -> tuple[Sequence[str] | str, dict[str, Any]]:
    """The methods and options of a comparison, with the defaults of its protocol, if it has one.

    Without one, graded rows have default methods.
    """
    if given.get("protocol") is None:
        return methods or (GRADERS if data.kind == "graded" else ""), dict(given)
    protocol = find(PROTOCOLS, given["protocol"], "protocol")
    if data.kind == "graded":
        raise UserError(
            f"the protocol {given['protocol']} is for pairs, but the data is graded rows",
            hint="leave --protocol out",
        )
    methods, options = methods or protocol.methods, {**protocol.options, **given}
    if given.get("budget") is not None:
        options["trials"] = given.get("trials")
    words = methods.split(",") if isinstance(methods, str) else methods
    compared = {word.rpartition("=")[2].partition("@")[0].strip() for word in words}
    settings = {name: dict(own) for name, own in given.get("settings", {}).items()}
    for source in (str(data.summary.get("source")), ""):
        for name, own in protocol.settings.get(source, {}).items():
            free = {key: own[key] for key in own if key not in given.get("sweep", {})}
            if name in compared:
                settings[name] = {**free, **settings.get(name, {})}
    return methods, {**options, "settings": settings}
