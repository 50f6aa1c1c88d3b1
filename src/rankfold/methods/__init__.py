"""The methods. To add one: one file in its family's folder, one line here, one test."""

from collections.abc import Mapping
from typing import Any

from rankfold.config import plugins
from rankfold.errors import find
from rankfold.methods.als import ials, rg
from rankfold.methods.closed_form import blend, ease, popularity, puresvd, rg2, rg2_plain
from rankfold.methods.gradient import full, rg2_newton, sampled, sml, uib
from rankfold.methods.ordinal import (
    cba,
    cba_trees,
    classifiers,
    constrained,
    decision_dag,
    partial_auc,
    trees,
)
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.siamesexml import fit as siamesexml
from rankfold.methods.text.siamesexml.released import fit as released
from rankfold.types import Input, Method, Model

METHODS: dict[str, Method] = {
    "popularity": popularity.METHOD,
    "rg2": rg2.METHOD,
    "rg2-plain": rg2_plain.METHOD,
    "rg2-weighted": rg.RG2_WEIGHTED,
    "rg2-sampled": rg.RG2_SAMPLED,
    "rgx": rg.RGX,
    "rgx-sampled": rg.RGX_SAMPLED,
    "wrmf": ials.WRMF,
    "ials": ials.IALS,
    "puresvd": puresvd.METHOD,
    "ease": ease.METHOD,
    "softmax": full.SOFTMAX,
    "sparsemax": full.SPARSEMAX,
    "full": full.FULL,
    "bpr": sampled.BPR,
    "bce": sampled.BCE,
    "sampled-softmax": sampled.SAMPLED_SOFTMAX,
    "ssl": sampled.SSL,
    "ssl-pop": sampled.SSL_POP,
    "mns": sampled.MNS,
    "g-tower": sampled.G_TOWER,
    "bir": sampled.BIR,
    "xir": sampled.XIR,
    "sampled": sampled.SAMPLED,
    "uib": uib.METHOD,
    "sml": sml.METHOD,
    "rg2-newton": rg2_newton.METHOD,
    "siamesexml": siamesexml.SIAMESEXML,
    "siamesexml-paper": siamesexml.SIAMESEXML_PAPER,
    "siamesexml-3": siamesexml.SIAMESEXML_3,
    "siamesexml-released": released.METHOD,
    "text-neighbours": neighbours.METHOD,
    "text-linear": linear.METHOD,
    "cba": cba.METHOD,
    "ce": classifiers.CE,
    "focal": classifiers.FOCAL,
    "soft-label": classifiers.SOFT_LABEL,
    "nnrank": classifiers.NNRANK,
    "fh": classifiers.FH,
    "fh-auc": classifiers.FH_AUC,
    "ddag": decision_dag.METHOD,
    "eban": constrained.METHOD,
    "pauc": partial_auc.METHOD,
    "trees": trees.METHOD,
    "cba-trees": cba_trees.METHOD,
}
METHODS["blend"] = blend.blend_of(METHODS)
METHODS |= plugins("rankfold.methods")


def answers_of(model: Model) -> tuple[Input, ...]:
    """What a model can be queried by, besides known queries."""
    return answers_with(model.method, model.config)


def answers_with(name: str, config: Mapping[str, Any]) -> tuple[Input, ...]:
    """What the models of a method can be queried by with some settings."""
    method = METHODS[name]
    return (*method.answers, *method.answers_with(config))


def find_method(name: str) -> Method:
    """A method by name; a UserError if there is none."""
    return find(METHODS, name, "method")
