"""The methods. To add one: one file (or a recipe in its family's), one line here, one test."""

from rankfold.methods import popularity, rg2
from rankfold.types import Method

METHODS: dict[str, Method] = {
    "popularity": popularity.METHOD,
    "rg2-plain": rg2.PLAIN,
}
