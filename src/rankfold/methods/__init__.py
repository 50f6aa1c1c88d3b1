"""The methods. To add one: one file (or a recipe in its family's), one line here, one test."""

from rankfold.methods import (
    alternating,
    cba,
    ease,
    margins,
    newton,
    plain,
    popularity,
    rg2,
    siamese_released,
    text_linear,
    text_neighbours,
)
from rankfold.methods.full import FULL
from rankfold.methods.grades import GRADES
from rankfold.methods.sampled import SAMPLED
from rankfold.methods.siamese import SIAMESE
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
    "siamesexml-released": siamese_released.METHOD,
    "text-neighbours": text_neighbours.METHOD,
    "text-linear": text_linear.METHOD,
    "cba": cba.METHOD,
    **GRADES,
}
