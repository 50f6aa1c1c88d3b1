"""Files of the KEEL repository (https://sci2s.ugr.es/keel), and one of its data sets by name.

The output of a file is the grade; the header lists its values in ascending order.
"""

from dataclasses import replace
from pathlib import Path

from rankfold.data.read import graded_rows
from rankfold.data.read.graded_rows import RowOptions
from rankfold.data.read.reading import Reading
from rankfold.data.read.results import RawRows
from rankfold.errors import UserError

_SEVERITY = "INJURY_SEVERITY"
SEVERITIES = (
    "No_Injury",
    "Possible_Injury",
    "Nonincapaciting_Evident_Injury",
    "Incapaciting_Injury",
    "Fatal_Injury",
)
_LEAKING = ("HISPANIC_ORIGIN", "RACE")  # "not a fatality" for all but 166 who lived


def read(paths: list[Path], reading: Reading) -> RawRows:
    """Any KEEL files, one after another."""
    return graded_rows.join([graded_rows.from_keel(path, RowOptions(), reading) for path in paths])


def read_fars(paths: list[Path], reading: Reading) -> RawRows:
    """Persons in fatal accidents in the United States in 2001, by the severity of their injury.

    Persons with none of the five severities (unknown, died before the accident) are dropped, and
    so are the columns that leak the grade: they say whether a person died.
    """
    rows = read(paths, reading)
    if rows.grades is None or rows.grades.name != _SEVERITY:
        raise UserError(
            f"{rows.name} has no output {_SEVERITY}", hint="is it the fars.dat of KEEL?"
        )
    kept = rows.grades.is_in(SEVERITIES).fill_null(value=True)
    others = rows.grades.filter(~kept).value_counts(sort=True)
    why = "it says whether the person died"
    return replace(
        graded_rows.drop_columns(rows.take(kept.to_numpy()), _LEAKING, why),
        order=SEVERITIES,
        set_aside={f"the severity {value}": n for value, n in others.iter_rows()},
    )
