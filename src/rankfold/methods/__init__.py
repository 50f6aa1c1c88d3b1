"""The methods. To add one: one file (or a recipe in its family's), one line here, one test."""

from rankfold.methods.als import alternating
from rankfold.methods.closed_form import ease, plain, popularity, rg2
from rankfold.methods.gradient import margins, newton
from rankfold.methods.gradient.full import FULL
from rankfold.methods.gradient.sampled import SAMPLED
from rankfold.methods.ordinal import cba, constrained, decision_dag, partial_auc
from rankfold.methods.ordinal.classifiers import CLASSIFIERS
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.siamesexml.fit import SIAMESE
from rankfold.methods.text.siamesexml.released import fit as released
from rankfold.types import Method

METHODS: dict[str, Method] = {
    "popularity": popularity.METHOD,
    "rg2": rg2.METHOD,
    "rg2-plain": plain.PLAIN,
    "rg2-weighted": alternating.RG2_WEIGHTED,
    "rg2-sampled": alternating.RG2_SAMPLED,
    "rgx": alternating.RGX,
    "rgx-sampled": alternating.RGX_SAMPLED,
    "wrmf": alternating.WRMF,
    "ials": alternating.IALS,
    "puresvd": plain.PURESVD,
    "ease": ease.METHOD,
    **FULL,
    **SAMPLED,
    "uib": margins.UIB,
    "sml": margins.SML,
    "rg2-newton": newton.METHOD,
    **SIAMESE,
    "siamesexml-released": released.METHOD,
    "text-neighbours": neighbours.METHOD,
    "text-linear": linear.METHOD,
    "cba": cba.METHOD,
    **CLASSIFIERS,
    "ddag": decision_dag.METHOD,
    "eban": constrained.METHOD,
    "pauc": partial_auc.METHOD,
}
