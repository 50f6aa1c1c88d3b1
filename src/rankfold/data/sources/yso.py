"""English titles of Finnish library records with their subjects, from Finna and YSO.

``docs.tsv.zst`` has one line per record, ``title TAB numbers of subjects``; ``labels.tsv.zst`` has
one line per subject, ``number TAB address TAB name``.
"""

from pathlib import Path

import polars as pl

from rankfold.data.read.reading import Reading
from rankfold.data.read.results import Documents, TextTable
from rankfold.data.sources import tsv
from rankfold.types import TEST, TRAIN, VALIDATION

DOCUMENTS = ("title", "labels")
LABELS = ("number", "address", "name")


def read(paths: list[Path], _reading: Reading) -> Documents:
    """Rows ``query`` (line) and ``candidate`` (number of the subject), with their words.

    The last tenth of the lines is test; of the others, the last twentieth is validation.
    """
    docs, names = tsv.find(paths, "docs.tsv", "labels.tsv")
    labels = tsv.read(names, LABELS)
    tsv.check_rows(labels, names.name)
    documents = tsv.read(docs, DOCUMENTS).with_row_index("line").cast({"line": pl.Int64})
    subjects = tsv.numbers(documents["labels"], len(labels), docs.name)
    ends = int(len(documents) * 0.9 * 0.95), int(len(documents) * 0.9)
    line = pl.col("query")
    split = (
        pl.when(line < ends[0]).then(TRAIN).when(line < ends[1]).then(VALIDATION).otherwise(TEST)
    )
    pairs = (
        pl.LazyFrame({"query": documents["line"], "candidate": subjects})
        .explode("candidate")
        .drop_nulls()
        .with_columns(split=split.cast(pl.UInt8))
    )
    tables = {
        "query": TextTable(docs.name, documents["line"], documents["title"]),
        "candidate": TextTable(names.name, pl.int_range(len(labels), eager=True), labels["name"]),
    }
    return Documents(pairs, tables)
