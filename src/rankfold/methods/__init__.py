"""The methods. To add one: one file in its family's folder, one line here, one test."""

from rankfold.methods.als import ials, rg2_weighted, rg_sampled, rgx, wrmf
from rankfold.methods.closed_form import ease, popularity, puresvd, rg2, rg2_plain
from rankfold.methods.gradient import (
    bce,
    bpr,
    full,
    in_batch,
    resampled,
    rg2_newton,
    sampled,
    sampled_softmax,
    sml,
    uib,
)
from rankfold.methods.ordinal import cba, constrained, decision_dag, partial_auc
from rankfold.methods.ordinal.classifiers import CLASSIFIERS
from rankfold.methods.text import linear, neighbours
from rankfold.methods.text.siamesexml.fit import SIAMESE
from rankfold.methods.text.siamesexml.released import fit as released
from rankfold.types import Method

METHODS: dict[str, Method] = {
    "popularity": popularity.METHOD,
    "rg2": rg2.METHOD,
    "rg2-plain": rg2_plain.METHOD,
    "rg2-weighted": rg2_weighted.METHOD,
    "rg2-sampled": rg_sampled.RG2_SAMPLED,
    "rgx": rgx.METHOD,
    "rgx-sampled": rg_sampled.RGX_SAMPLED,
    "wrmf": wrmf.METHOD,
    "ials": ials.METHOD,
    "puresvd": puresvd.METHOD,
    "ease": ease.METHOD,
    "softmax": full.SOFTMAX,
    "sparsemax": full.SPARSEMAX,
    "full": full.FULL,
    "bpr": bpr.METHOD,
    "bce": bce.METHOD,
    "sampled-softmax": sampled_softmax.METHOD,
    "ssl": in_batch.SSL,
    "ssl-pop": in_batch.SSL_POP,
    "mns": in_batch.MNS,
    "g-tower": in_batch.G_TOWER,
    "bir": resampled.BIR,
    "xir": resampled.XIR,
    "sampled": sampled.METHOD,
    "uib": uib.METHOD,
    "sml": sml.METHOD,
    "rg2-newton": rg2_newton.METHOD,
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
