"""Compare methods on the same data: equal budgets, several seeds, paired tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold import config, storage
from rankfold.data.folder import check_content
from rankfold.data.prepare import as_data
from rankfold.tasks.compare.plan import make_plan
from rankfold.tasks.compare.protocols import with_protocol
from rankfold.tasks.compare.records import open_folder
from rankfold.tasks.compare.results import Comparison, assemble
from rankfold.tasks.compare.runner import run_entry
from rankfold.tasks.options import CompareOptions
from rankfold.types import Dataset


@config.explicit(CompareOptions)
def compare(
    data: Dataset | str | Path, methods: Sequence[str] | str | None = None, **options: Any
) -> Comparison:
    """Tune, fit and test methods in the same way; write ``results.json`` and ``results.csv``.

    An unfinished comparison in the folder is resumed.

    Args:
        data: prepared data with a test split, or its folder.
        methods: keys of ``METHODS``; ``NAME=METHOD`` renames one, ``METHOD@100`` starts its
            seeds at 100. Default: those of the protocol; for graded rows
            ``GRADERS``.
        options: see below; ``out`` is required.

    Returns:
        The document written, which is also a table with a row per method and metric;
        ``rankfold.report.compare.write`` makes a page of it.
    """
    name = str(data) if isinstance(data, str | Path) else "DATA"
    loaded = as_data(data)
    methods, options = with_protocol(methods, loaded, options)
    checked = config.build(CompareOptions, options)
    plan = make_plan(loaded, name, methods, checked)
    check_content(plan.data)
    with open_folder(plan):
        outcomes = [run_entry(plan, entry) for entry in plan.entries]
        checked.progress("testing differences", 0.0)
        results = assemble(plan, outcomes)
        storage.write_text(plan.out / "results.json", storage.to_json(results, indent=1))
        storage.write_text(plan.out / "results.csv", results.to_polars().write_csv())
    return results
