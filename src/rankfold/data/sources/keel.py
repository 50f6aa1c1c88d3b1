"""Files of the KEEL repository (https://sci2s.ugr.es/keel), and one of its data sets by name.

The output of a file is the grade; its values ascend in the order of the header.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankfold.data.read import graded_rows
from rankfold.data.read.files import Reading
from rankfold.data.read.graded_rows import Asked, RawRows
from rankfold.errors import UserError

SEVERITY = "INJURY_SEVERITY"
SEVERITIES = (
    "No_Injury",
    "Possible_Injury",
    "Nonincapaciting_Evident_Injury",
    "Incapaciting_Injury",
    "Fatal_Injury",
)
LEAKING = ("HISPANIC_ORIGIN", "RACE")  # "not a fatality" for all but 166 who lived


def read(paths: list[Path], reading: Reading) -> RawRows:
    """Any KEEL files, one after another."""
    return graded_rows.join([graded_rows.from_keel(path, Asked(), reading) for path in paths])


def read_fars(paths: list[Path], reading: Reading) -> RawRows:
    """Persons in fatal accidents in the United States in 2001, by how badly they were hurt.

    Left out are persons whose severity is none of the five (unknown, died before the accident), and
    the columns that say whether a person died: they tell the grade.
    """
    found = read(paths, reading)
    if found.grades is None or found.grades.name != SEVERITY:
        raise UserError(
            f"{found.name} has no output {SEVERITY}", hint="is it the fars.dat of KEEL?"
        )
    graded_ = found.grades.is_in(SEVERITIES).fill_null(value=True)
    others = found.grades.filter(~graded_).value_counts(sort=True)
    return replace(
        graded_rows.leave_out(
            found.take(graded_.to_numpy()), LEAKING, "it says whether the person died"
        ),
        order=SEVERITIES,
        set_aside={f"the severity {value}": n for value, n in others.iter_rows()},
    )
