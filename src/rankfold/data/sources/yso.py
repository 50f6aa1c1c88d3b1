"""Titles of Finnish library records in English with their subjects, by Finna and the YSO ontology.

``docs.tsv.zst`` has a line per record, ``title TAB numbers of subjects``; ``labels.tsv.zst`` a line
per subject, ``number TAB address TAB name``.
"""

from pathlib import Path

import polars as pl

from rankfold.data.build.split import TEST, TRAIN, VALIDATION
from rankfold.data.read.documents import Documents, TextTable
from rankfold.data.read.files import Reading
from rankfold.data.sources import tsv

DOCUMENTS = ("title", "labels")
LABELS = ("number", "address", "name")


def read(paths: list[Path], _reading: Reading) -> Documents:
    """Rows ``query`` (line) and ``candidate`` (number of the subject), with their words.

    The last tenth of the lines is for the test; of the others the last twentieth for validation.
    """
    docs, names = tsv.find(paths, "docs.tsv", "labels.tsv")
    labels = tsv.read(names, LABELS)
    tsv.check_rows(labels, names.name)
    documents = tsv.read(docs, DOCUMENTS).with_row_index("line").cast({"line": pl.Int64})
    found = tsv.numbers(documents["labels"], len(labels), docs.name)
    ends = int(len(documents) * 0.9 * 0.95), int(len(documents) * 0.9)
    line = pl.col("query")
    split = (
        pl.when(line < ends[0]).then(TRAIN).when(line < ends[1]).then(VALIDATION).otherwise(TEST)
    )
    pairs = (
        pl.LazyFrame({"query": documents["line"], "candidate": found})
        .explode("candidate")
        .drop_nulls()
        .with_columns(split=split.cast(pl.UInt8))
    )
    tables = {
        "query": TextTable(docs.name, documents["line"], documents["title"]),
        "candidate": TextTable(names.name, pl.int_range(len(labels), eager=True), labels["name"]),
    }
    return Documents(pairs, tables)
