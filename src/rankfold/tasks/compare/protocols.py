"""Protocols: the methods, metrics and budgets of published comparisons, as plain declarations.

A protocol is a set of defaults: options that are given override it. To add one: an entry here, its
published figures in ``published.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from rankfold.errors import UserError
from rankfold.tasks.fit.plan import find_method
from rankfold.types import Dataset

Settings = Mapping[str, Mapping[str, Any]]  # by method


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The defaults of a comparison."""

    summary: str
    methods: str
    metrics: str
    metric: str  # selects on validation
    width: int  # of every method that has one
    trials: int  # at most, for each method
    space: str = "usual"
    refit: bool = True
    settings: Settings = field(default_factory=dict)  # fixed, on every data set
    settings_of: Mapping[str, Settings] = field(default_factory=dict)  # on one source


def _negatives(**numbers: int) -> Settings:
    """Negatives for each pair: ``sampled_softmax=100`` is for sampled-softmax."""
    return {name.replace("_", "-"): {"negatives": n} for name, n in numbers.items()}


PROTOCOLS: dict[str, Protocol] = {
    "rg2": Protocol(
        summary="Tables 3 and 4 and Figure 1 of the RG2 paper",
        methods="bpr,bce,sampled-softmax,sparsemax,uib,sml,wrmf,softmax,rg2-weighted,rgx,rg2",
        metrics="ndcg@10,mrr@10,map@10",
        metric="ndcg@10",
        width=64,
        space="paper",
        trials=64,  # the largest grid
        refit=False,
        settings_of={  # appendix B.3
            "ml-10m": _negatives(bpr=10, bce=10, sampled_softmax=100, uib=10, sml=1),
            "amazon-electronics": _negatives(bpr=20, bce=20, sampled_softmax=200, uib=10, sml=100),
            "steam": _negatives(bpr=10, bce=10, sampled_softmax=100, uib=1, sml=50),
            "simplewiki": _negatives(bpr=20, bce=20, sampled_softmax=1000),
        },
    ),
    "strong": Protocol(
        summary="strong generalisation to held-out queries, as in Liang et al. 2018",
        methods="popularity,puresvd,ials,ease,rg2",
        metrics="ndcg@100,recall-capped@20,recall-capped@50",
        metric="ndcg@100",
        width=200,
        trials=16,
        refit=False,
        settings={"ease": {"largest": 50_000}},
    ),
    "lightgcn": Protocol(
        summary="the splits of LightGCN, which BARS also uses",
        methods="popularity,bpr,puresvd,ials,rg2",
        metrics="ndcg@20,recall@20",
        metric="ndcg@20",
        width=64,
        trials=16,
    ),
}


def find_protocol(name: str) -> Protocol:
    """A protocol by name; a UserError for another name."""
    if name not in PROTOCOLS:
        near = get_close_matches(name, PROTOCOLS, n=1)
        known = f"the protocols are {', '.join(PROTOCOLS)}"
        raise UserError(
            f"there is no protocol {name!r}", hint=f"did you mean {near[0]}?" if near else known
        )
    return PROTOCOLS[name]


def with_protocol(
    methods: Sequence[str] | str | None, data: Dataset, given: Mapping[str, Any]
) -> tuple[Sequence[str] | str, dict[str, Any]]:
    """The methods and options of a comparison, with the defaults of its protocol, if it has one."""
    options = dict(given)
    if options.get("protocol") is None:
        return methods or "", options
    protocol = find_protocol(options["protocol"])
    if data.kind == "graded":
        raise UserError(
            f"the protocol {options['protocol']} is for pairs, but the data is graded rows",
            hint="leave --protocol out",
        )
    methods = methods or protocol.methods
    for name in ("metrics", "metric", "space", "refit"):
        options.setdefault(name, getattr(protocol, name))
    if options.get("budget") is None:
        options.setdefault("trials", protocol.trials)
    options["settings"] = _settings(protocol, methods, data, options)
    return methods, options


def _settings(
    protocol: Protocol, methods: Sequence[str] | str, data: Dataset, options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The settings of each compared method; given ones override those of the protocol."""
    words = methods.split(",") if isinstance(methods, str) else methods
    names = {word.rpartition("=")[2].partition("@")[0].strip() for word in words} - {""}
    of_source = protocol.settings_of.get(str(data.summary.get("source")), {})
    merged = {name: dict(own) for name, own in options.get("settings", {}).items()}
    for name in sorted(names):
        has = {one.name for one in fields(find_method(name).config)}
        own = {"width": protocol.width} if "width" in has else {}
        own |= {**protocol.settings.get(name, {}), **of_source.get(name, {})}
        free = {key: value for key, value in own.items() if key not in options.get("sweep", {})}
        if free or name in merged:
            merged[name] = {**free, **merged.get(name, {})}
    return merged
