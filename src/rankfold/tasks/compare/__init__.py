"""Which method is best on some data: the same budget for each, several seeds, paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold import config, storage
from rankfold.data.integrity import check_content
from rankfold.data.prepare import as_data
from rankfold.tasks.compare.plan import Comparing, make_plan
from rankfold.tasks.compare.records import opened
from rankfold.tasks.compare.results import assemble, to_csv
from rankfold.tasks.compare.runner import run_entry
from rankfold.types import Dataset


def compare(
    data: Dataset | str | Path, methods: Sequence[str] | str, **options: Any
) -> dict[str, Any]:
    """Tune, fit and test methods alike; write ``results.json`` and ``results.csv``.

    A folder that holds a part of the same comparison already is gone on with.

    Args:
        data: prepared data with a test split, or its folder.
        methods: keys of ``METHODS``; ``NAME=METHOD`` gives a name of your own, ``METHOD@100`` the
            seeds from 100 on.
        options: the fields of ``Comparing``; ``out`` must be there.

    Returns:
        The document that was written; ``rankfold.report.compare.write`` makes a page of it.
    """
    name = str(data) if isinstance(data, str | Path) else "DATA"
    how = config.build(Comparing, options)
    plan = make_plan(as_data(data), name, methods, how)
    check_content(plan.data)
    with opened(plan):
        outcomes = [run_entry(plan, entry, how.progress) for entry in plan.entries]
        how.progress("testing differences", 0.0)
        results = assemble(plan, outcomes)
        storage.write_text(plan.out / "results.json", storage.to_json(results, indent=1))
        storage.write_text(plan.out / "results.csv", to_csv(results))
    return results
