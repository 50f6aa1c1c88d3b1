"""Prepare every graded set: those to develop on, and the judges.

python -m benchmarks.quality.graded_prepare            # under scratch
"""

from typing import Any

from benchmarks.paths import SCRATCH
from benchmarks.quality.graded_judges import JUDGES
from benchmarks.quality.graded_sets import LATER, SETS

FOLDERS = SCRATCH / "graded-sets"
EVERY = SETS | LATER | JUDGES


def prepare(name: str) -> Any:
    """The prepared data of a set, made on first use."""
    import rankfold as rf

    folder = FOLDERS / name
    if not folder.exists():
        FOLDERS.mkdir(parents=True, exist_ok=True)
        one = EVERY[name]
        options: dict[str, Any] = {"format": "features", "grade_column": "grade", "seed": 0}
        table = one.table()
        if one.in_order:
            first, second = int(0.7 * len(table)), int(0.8 * len(table))
            del options["seed"]
            rf.prepare(train=table[:first], validation=table[first:second], test=table[second:],
                       grades=list(one.grades), out=folder, **options)  # fmt: skip
        else:
            rf.prepare(table, grades=list(one.grades), split=(0.7, 0.1, 0.2), out=folder, **options)
    return rf.load_data(folder)


if __name__ == "__main__":
    for each in EVERY:
        data = prepare(each)
        counts = [data.graded(split).grades.bincount().tolist() for split in ("train", "test")]
        shape = data.graded("train")
        print(each, counts, tuple(shape.numbers.shape), tuple(shape.categories.shape), flush=True)
