"""Whether a promised false-positive rate holds: 1,000 fits, each on its own draw of rows.

    python -m benchmarks.checks.promise --method ce --write      # about 15 minutes on one core
    python -m benchmarks.checks.promise --method trees --write

Rows have two numbers, a category and one of three grades: 86%, 10% and 4% of the rows. A draw has
``ROWS`` rows; three tenths are validation, and half of those set the cuts. Each fit selects on the
other half. The true rate of its cuts is measured on the same 200,000 other rows. A promise with
confidence .95 is kept if that rate is at most the promised one; of 1,000, at least 936 must be (of
1,000 draws that are each kept with .95, fewer are one time in 40). For comparison: the cuts without
a confidence, and promises on rows that took part in the fit, which rankfold refuses. An interrupted
run is resumed.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import torch

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH
from rankfold.data.build.graded import dataset
from rankfold.models.cuts import CALIBRATION, find_cuts
from rankfold.models.grader import Grader
from rankfold.tasks.fit.calibration_rows import SHARE, apart_rows
from rankfold.types import Columns, Dataset, Graded

OUT = RESULTS / "checks" / "promise.json"
NAMES, SHARES = ("none", "mild", "severe"), (0.86, 0.10, 0.04)
ROWS, JUDGED, VALIDATION = 4_000, 200_000, 0.3
RATES, CONFIDENCE, AT_LEAST = (0.01, 0.05), 0.95, 936
COLUMNS = Columns(("a", "b"), {"c": ("x", "y", "z")})
SETTINGS: dict[str, dict[str, Any]] = {
    "ce": {"epochs": 4, "width": 16, "dropout": 0.0, "patience": 4},  # so that it selects
    "trees": {"rounds": 30, "leaves": 7},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--method", choices=list(SETTINGS), default="ce")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1e9, help="no draw begins later")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    end, judged = time.time() + args.seconds, rows_of(-1, JUDGED)
    path = SCRATCH / "promise" / f"{args.method}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    records = [json.loads(line) for line in path.read_text().splitlines()][: args.draws]
    with path.open("a") as file:
        for seed in range(len(records), args.draws):
            if time.time() > end:
                print(f"{seed} draws so far", flush=True)
                return
            records.append(one_draw(args.method, seed, judged))
            file.write(json.dumps(records[-1]) + "\n")
            file.flush()
    result = summary(records)
    print(json.dumps(result, indent=1))
    if args.write:
        known = json.loads(OUT.read_text()) if OUT.exists() else {}
        known[args.method] = {"settings": SETTINGS[args.method], **result}
        OUT.write_text(json.dumps(known, indent=1) + "\n")


def rows_of(seed: int, n: int) -> Graded:
    """Rows whose columns say something of their grade."""
    rng = torch.Generator().manual_seed(seed + 1)
    grades = torch.multinomial(torch.tensor(SHARES), n, replacement=True, generator=rng)
    numbers = torch.randn(n, 2, generator=rng) + torch.stack([grades, grades.sqrt()], dim=1)
    odds = torch.tensor([[6.0, 3, 1], [4, 3, 3], [2, 3, 5]])[grades]
    levels = torch.multinomial(odds, 1, generator=rng).int()
    return Graded(numbers, levels, None, grades)


def drawn(seed: int) -> Dataset:
    rows, n = rows_of(seed, ROWS), round(VALIDATION * ROWS)
    parts = {"train": rows.part(n, ROWS), "validation": rows.part(0, n), "test": rows.part(0, 0)}
    return dataset(parts, NAMES, COLUMNS)


def one_draw(method: str, seed: int, judged: Graded) -> dict[str, Any]:
    """For each kind of cut and rate, the true rate of each threshold."""
    data = drawn(seed)
    fitted = rf.fit(method, data, seed=seed, **SETTINGS[method])
    assert isinstance(fitted, Grader)
    assert fitted.model.notes["operating_on"] == CALIBRATION
    scores = fitted.score(judged).double()
    validation = data.graded("validation")
    others = ~apart_rows(validation.grades, SHARE)
    selected = with_kept(fitted, validation.select(others.nonzero().flatten()))
    trained = with_kept(fitted, data.graded("train"))
    record: dict[str, Any] = {"kept": [int((fitted.model.tensors["operating_grades"] < 1).sum())]}
    for rate in RATES:
        cuts = {
            "promised": fitted.cuts(rate, CONFIDENCE),
            "on average": fitted.cuts(rate),
            "promised on rows that selected": find_cuts(selected.model, NAMES, rate, CONFIDENCE),
            "promised on training rows": find_cuts(trained.model, NAMES, rate, CONFIDENCE),
        }
        for kind, own in cuts.items():
            passed = [scores[judged.grades <= k] > cut for k, cut in enumerate(own)]
            record[f"{kind}, {rate:g}"] = [float(each.double().mean()) for each in passed]
    return record


def with_kept(fitted: Grader, rows: Graded) -> Grader:
    """The model with cuts from other rows, as if they had taken no part in the fit."""
    kept = {"operating_scores": fitted.score(rows), "operating_grades": rows.grades}
    return replace(fitted, model=replace(fitted.model, tensors={**fitted.model.tensors, **kept}))


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """In how many draws the rate was at most the wanted one, by threshold; and its mean."""
    result: dict[str, Any] = {"draws": len(records), "confidence": CONFIDENCE}
    result["kept rows below mild, mean"] = sum(r["kept"][0] for r in records) / len(records)
    for name in (key for key in records[0] if key != "kept"):
        rate, rates = float(name.split(", ")[-1]), torch.tensor([r[name] for r in records])
        within = rates <= rate
        result[name] = {
            "kept": within.sum(dim=0).tolist(),
            "kept at all thresholds": int(within.all(dim=1).sum()),
            "mean rate": [round(float(mean), 6) for mean in rates.double().mean(dim=0)],
        }
    if len(records) == 1000:
        promised = [min(v["kept"]) for n, v in result.items() if n.startswith("promised, ")]
        result["holds"] = min(promised) >= AT_LEAST
    return result


if __name__ == "__main__":
    main()
