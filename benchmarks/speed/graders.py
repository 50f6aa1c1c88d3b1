"""CPU seconds of a fit on 100,000 rows with 20 columns: trees beside LightGBM, and ``cba``.

    python -m benchmarks.speed.graders [--write]

Four grades, 16 numbers and four categories. ``lightgbm`` and ``trees`` have 600 trees of 31 leaves:
150 rounds of four, and 200 of three. Validation rows are scored in each round, as ``fit`` does.
``cba-trees`` have 200 rounds of four fits, ``cba`` and ``ce`` their defaults. One thread.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from typing import Any

import torch

from benchmarks.paths import RESULTS
from rankfold.types import Columns, Dataset, Graded, Vocabulary

OUT = RESULTS / "speed" / "graders.json"
ROWS, NUMBERS, CATEGORIES, GRADES, ROUNDS = 100_000, 16, 4, 4, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--methods", nargs="+", default=["lightgbm", "trees", "cba-trees", "ce", "cba"]
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = generated()
    result = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in args.methods:
        work = directly if name == "lightgbm" else partial(ours, name)
        began = time.process_time()
        work(data)
        result[name] = round(time.process_time() - began, 1)
        print(name, result[name], flush=True)
        if args.write:
            OUT.write_text(json.dumps(result, indent=1) + "\n")


def ours(name: str, data: Dataset) -> None:
    import rankfold as rf

    settings: dict[str, Any] = {"wait": ROUNDS, "max_rounds": ROUNDS} if "trees" in name else {}
    rf.fit(name, data, seed=0, calibration_share=0, **settings)


def directly(data: Dataset) -> None:
    """The same rounds, a validation loss in each."""
    import lightgbm

    from rankfold.methods.ordinal.boosting import matrix

    settings = {
        "objective": "multiclass", "num_class": GRADES, "num_leaves": 31, "learning_rate": 0.05,
        "num_threads": 1, "verbosity": -1, "deterministic": True, "force_row_wise": True,
    }  # fmt: skip
    places, sets = list(range(NUMBERS, NUMBERS + CATEGORIES)), []
    for rows in (data.graded("train"), data.graded("validation")):
        before = sets[0] if sets else None
        known = lightgbm.Dataset(
            matrix(rows), rows.grades.numpy(), before, categorical_feature=places
        )
        sets.append(known)
    rounds = ROUNDS * (GRADES - 1) // GRADES  # as many trees
    lightgbm.train(settings, sets[0], rounds, valid_sets=sets[1:])


def generated() -> Dataset:
    rng = torch.Generator().manual_seed(0)

    def rows(n: int) -> Graded:
        numbers = torch.randn(n, NUMBERS, generator=rng)
        categories = torch.randint(0, 30, (n, CATEGORIES), generator=rng, dtype=torch.int32)
        hidden = numbers[:, 0] * numbers[:, 1] + numbers[:, 2] + (categories[:, 0] % 5 == 0)
        hidden = hidden + torch.randn(n, generator=rng)
        return Graded(numbers, categories, None, torch.bucketize(hidden, torch.arange(1.0, GRADES)))

    parts = [rows(n) for n in (ROWS, ROWS // 10, ROWS // 10)]
    columns = Columns(
        tuple(f"n{i:02}" for i in range(NUMBERS)),
        {f"c{i}": tuple(f"l{j:02}" for j in range(30)) for i in range(CATEGORIES)},
    )
    keys = Vocabulary.numbered(sum(map(len, parts)))
    grades = Vocabulary.numbered(GRADES, [str(grade) for grade in range(GRADES)])
    return Dataset("graded", *parts, keys, grades, columns=columns, fingerprint="speed")


if __name__ == "__main__":
    main()
