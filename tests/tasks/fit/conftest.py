"""Commands for the tests of fits."""

from commands import rankfold as rankfold
