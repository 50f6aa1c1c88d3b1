"""The split of rows with ordered grades: by shares of each grade, by time, or by whole groups."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rankfold.data.build import split
from rankfold.data.build.grades import GradedRows
from rankfold.data.build.pairs import Pairs
from rankfold.data.read.results import RawRows
from rankfold.errors import UserError
from rankfold.types import TEST, TRAIN, VALIDATION

_HINT = (
    "write --split 0.8,0.1,0.1 (shares of the rows of each grade), last (the latest tenth to test, "
    "the tenth before it to validation), time:T, where T is a date like 2024-01-01 or seconds "
    "since 1970, or group:COLUMN (whole groups, such as customers)"
)
_GROUP = "group:"
_HELD_OUT = 0.1  # of the rows, for each of validation and test, by last and by groups


class GradedRule(NamedTuple):
    """How graded rows are split."""

    splitter: split.Splitter  # of rows as pairs: their queries are grades, their candidates groups
    group: str | None = None  # the column of groups, if it needs one


def parse(rule: str | Sequence[float] | None, validation_share: float) -> GradedRule:
    """The rule of ``--split`` for graded rows; None: the default shares."""
    if isinstance(rule, str):
        if rule == "last":
            return GradedRule(split.Splitter(lambda rows, _: by_last(rows), needs_time=True))
        if rule.startswith("time:"):
            return GradedRule(split.parse(rule, validation_share))
        if group := rule.removeprefix(_GROUP) if rule.startswith(_GROUP) else "":
            return GradedRule(split.Splitter(by_group, needs_time=False), group)
        if rule.startswith((_GROUP, split.QUERIES)):
            raise UserError(f"graded rows cannot be split by {rule!r}", hint=_HINT)
    return GradedRule(split.parse_shares(split.DEFAULT_SHARES if rule is None else rule, _HINT))


def assign(
    graded: GradedRows, rule: str | Sequence[float] | None, validation_share: float, seed: int
) -> split.Assignment:
    """The split of each row; the splits of the input are kept.

    Without validation rows among those, ``validation_share`` of each grade is drawn from train.
    """
    rows, grades, rng = graded.rows, graded.grades, np.random.default_rng(seed)
    own = parse(rule, validation_share)
    if rows.splits is None:
        _check_columns(rows, own)
    groups = None if rows.groups is None else rows.groups.rank("dense").to_numpy().astype(np.int64)
    times = None if rows.times is None else rows.times.to_numpy()
    pairs = Pairs(grades, grades if groups is None else groups, None, times, grades, rows.splits)
    splits = split.assign(pairs, own.splitter, validation_share, rng)
    for place, name in enumerate(graded.names):
        if not (splits[grades == place] == TRAIN).any():
            raise UserError(
                f"no row of the grade {name!r} is in train",
                hint="name the other grades with --grades, or change --split",
            )
    return splits


def _check_columns(rows: RawRows, rule: GradedRule) -> None:
    """A UserError for rows without the column of the split, such as those of a source."""
    needs = {
        "times": rule.splitter.needs_time and rows.times is None,
        "groups": rule.group is not None and rows.groups is None,
    }
    for what, lacks in needs.items():
        if lacks:
            hint = "use shares: --split 0.8,0.1,0.1"
            raise UserError(f"{rows.name} has no column of {what}", hint=hint)


def by_last(rows: Pairs) -> split.Assignment:
    """The latest tenth of the rows to test, the tenth before it to validation.

    Rows of the same time stay together.
    """
    assert rows.times is not None
    latest = np.sort(rows.times)
    cut = latest[-max(1, round(_HELD_OUT * len(latest)))]
    return split.by_time(rows, float(cut), _HELD_OUT / (1 - _HELD_OUT))


def by_group(rows: Pairs, rng: np.random.Generator) -> split.Assignment:
    """Whole groups in random order: the first tenth of the rows to test, the next to validation.

    The group in the middle of which a tenth ends belongs to it if most of the group does.
    """
    names, places, counts = np.unique(rows.candidates, return_inverse=True, return_counts=True)
    if len(names) < 3:
        raise UserError(
            f"cannot split {len(names)} groups into train, validation and test",
            hint="use shares: --split 0.8,0.1,0.1",
        )
    order = rng.permutation(len(names))
    ends = counts[order].cumsum()
    middles = (ends - counts[order] / 2) / len(rows)
    drawn = np.full(len(names), TRAIN, dtype=np.uint8)
    n_test = max(1, int((middles < _HELD_OUT).sum()))
    n_validation = max(1, int((middles < 2 * _HELD_OUT).sum()) - n_test)
    drawn[order[:n_test]] = TEST
    drawn[order[n_test : n_test + n_validation]] = VALIDATION
    return drawn[places]
