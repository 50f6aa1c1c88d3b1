"""Golden figures: fit every method on small data, and write the results to ``figures.json``.

Record the cases that have no figures yet, or some cases again::

    python tests/golden/record.py
    python tests/golden/record.py rg2 cba

Record again only when a change of results is meant, and say so in the change log.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import rankfold as rf

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
ALTERNATING: dict[str, Any] = {"width": 16, "sweeps": 3}
GRADIENT: dict[str, Any] = {"width": 16, "epochs": 5, "batch_size": 256}
SIAMESE: dict[str, Any] = {"width": 24, "batch_size": 64, "classifier_batch_size": 64}
MIX: dict[str, Any] = {"classifier_share": 0.5, "centroid_weight": 0.3, "popularity_weight": 0.06}
MIX |= {"linear_weight": 0.0, "neighbour_weight": 0.0}
WORDS: dict[str, Any] = {"linear_weight": 1.0, "linear_rare": 0.5, "linear_middle": 1.0}
WORDS |= {"neighbour_weight": 0.2}
RESAMPLED: dict[str, Any] = {"width": 16, "epochs": 3, "batch_size": 1024, "lr": 0.05}
RESAMPLED |= {"weight_decay": 1e-5}
IN_BATCH: dict[str, Any] = {**GRADIENT, "weight_decay": 1e-5}
FULL: dict[str, Any] = {"width": 16, "epochs": 5, "batch_size": 32, "lr": 0.01}
FULL |= {"weight_decay": 1e-5}
UNIFORM: dict[str, Any] = {**GRADIENT, "weight_decay": 1e-6}
WEIGHTED: dict[str, Any] = {"reg": 0.03, "alpha": 0.02}
GRADED: dict[str, Any] = {"width": 16, "epochs": 6, "batch_size": 64}

# Given settings: a choice among points that are almost equal may follow the rounding of a CPU.
WITHOUT_TAIL: dict[str, Any] = {"width": 32, "query_exponent": -0.375, "candidate_exponent": 0.35}
WITHOUT_TAIL |= {"rank": 32, "threshold": 0.5, "discount": 0.2, "popularity": 0.0}
RG2 = {**WITHOUT_TAIL, "tail_weight": 4.0}
EASE: dict[str, Any] = {"query_exponent": -0.2, "candidate_exponent": 0.2, "reg": 5.0}
EASE |= {"candidate_reg": 0.5, "diagonal": 0.1, "discount": 0.1}

SMALL: dict[str, dict[str, Any]] = {  # settings by method; others: see ``small``
    "rg2": RG2,
    "rg2-plain": {"width": 16, "reg": 3.0},
    "rg2-weighted": {"width": 32, "sweeps": 4, **WEIGHTED},
    "rgx": {"width": 32, "sweeps": 4, **WEIGHTED},
    "ials": {"width": 32, "sweeps": 6, "reg": 0.003, "background": 0.03},
    "wrmf": {**ALTERNATING, "reg": 1.0, "alpha": 40.0},
    "ease": EASE,
    "blend": {"share": 0.5, "settings": json.dumps({"rg2": RG2, "ease": EASE})},
    "puresvd": {"width": 16},
    "softmax": FULL,
    "trees": {"rounds": 40, "leaves": 7, "members": 1},
    "cba-trees": {"rounds": 40, "leaves": 7, "fpr": 0.1},
    "sparsemax": {**GRADIENT, "lr": 0.01, "weight_decay": 1e-5},
    "bpr": UNIFORM,
    "bce": UNIFORM,
    "sampled-softmax": UNIFORM,
    "uib": UNIFORM,
    **dict.fromkeys(("ssl", "ssl-pop", "mns", "g-tower"), IN_BATCH),
    "bir": RESAMPLED,
    "xir": RESAMPLED,
    "full": {**FULL, "loss": "rg2"},
    "rg2-newton": {"width": 16, "steps": 6, "products": 10},
    "siamesexml": {**SIAMESE, "joint_epochs": 2, **MIX, **WORDS},
    "siamesexml-3": {**SIAMESE, "joint_epochs": 2, **MIX},
    "siamesexml-paper": {**SIAMESE, "encoder_epochs": 10, "classifier_epochs": 2},
    "siamesexml-released": {**SIAMESE, "encoder_epochs": 6, "classifier_epochs": 2},
    "text-linear": {"least": 3},
}
MORE: dict[str, tuple[str, dict[str, Any]]] = {  # more cases: method and settings
    "rg2 without tail": ("rg2", {**WITHOUT_TAIL, "tail": "none"}),
    "rg2-plain als": ("rg2-plain", {"solver": "als", "width": 16, "reg": 3.0, "sweeps": 4}),
    "rg2-weighted cholesky": ("rg2-weighted", {**ALTERNATING, **WEIGHTED, "inner": "cholesky"}),
    "rg2-weighted released": ("rg2-weighted", {**ALTERNATING, **WEIGHTED, "variant": "released"}),
    "rgx matrix": ("rgx", {**ALTERNATING, **WEIGHTED, "regulariser": "matrix"}),
    "full rgx": ("full", {**FULL, "loss": "rgx"}),
    "sampled warp": (
        "sampled",
        {**GRADIENT, "loss": "warp", "sampler": "uniform", "negatives": 20},
    ),
    "sampled popularity": ("sampled", {**GRADIENT, "sampler": "popularity", "negatives": 20}),
    "bpr towers": (
        "bpr",
        {**UNIFORM, "width": 8, "epochs": 2, "batch_size": 1024, "encoder": "towers"},
    ),
    "ssl cosine": ("ssl", {**IN_BATCH, "similarity": "cosine", "temperature": 0.2}),
    "bir multinomial": ("bir", {**RESAMPLED, "draw": "multinomial", "correction": "sir"}),
    "text-neighbours words": ("text-neighbours", {"bigrams": False, "label_weight": 0.2}),
    "cba likeness": ("cba", {**GRADED, "ranks": "likeness"}),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in rf.METHODS} | MORE

HISTORIES = [
    ["gimp", "inkscape"],
    ["texlive-latex-extra"],
    ["python3-numpy", "python3-scipy", "gcc"],
]
TEXTS = ["a library to read and write image files", "small web server", "game of chess"]


def figures(case: str) -> dict[str, Any]:
    """Fit one case and measure it: a flat table of numbers, and lists of keys."""
    method, settings = CASES[case]
    kind = rf.METHODS[method].data_kind
    data = DATA[kind]()
    how: dict[str, Any] = {"seed": 0, "device": "cpu"}
    if kind != "graded":
        how["validation_queries"] = 500
    model = rf.fit(method, data, **how, **(settings or small(method)))
    return graded_figures(model, data) if kind == "graded" else ranked_figures(model, data)


def small(method: str) -> dict[str, Any]:
    """Settings that make a fit fast; the others keep their defaults."""
    if method in SMALL:
        return SMALL[method]
    known = rf.METHODS[method].config.__dataclass_fields__
    few = {
        "graded": GRADED,
        "texts": {**SIAMESE, "joint_epochs": 2},
        "interactions": GRADIENT if "epochs" in known else ALTERNATING,
    }[rf.METHODS[method].data_kind]
    return {name: value for name, value in few.items() if name in known}


def ranked_figures(model: Any, data: Any) -> dict[str, Any]:
    """Metrics on test, and the size of scores by query, by history, by text and by candidate."""
    metrics = rf.evaluate(model, data, metrics=["ndcg@10", "recall@20"]).metrics
    texts = rf.METHODS[model.model.method].data_kind == "texts"
    inputs: dict[str, list[dict[str, Any]]] = {
        "queries": [{"queries": data.queries.keys.to_list()[:50]}],
        "history": [] if texts else [{"history": history} for history in HISTORIES],
        "texts": [{"text": TEXTS}] if texts else [],
        "candidates": [{"candidates": data.candidates.keys.to_list()[100:105]}],
    }
    result: dict[str, Any] = dict(metrics)
    for name, questions in inputs.items():
        answers = [answer for question in questions if (answer := ask(model, question))]
        if answers:
            scores = np.concatenate([answer.scores.ravel() for answer in answers])
            result[f"{name} scores"] = float(np.abs(scores[np.isfinite(scores)]).mean())
            if name != "candidates":  # of similar candidates many are equally similar
                lists = [keys[:5] for answer in answers for keys in answer.keys]
                result[f"{name} keys"] = lists[:5]
    return result


def ask(model: Any, question: dict[str, Any]) -> Any:
    """The ranking of the model; None if it does not support this input."""
    try:
        return model.search(k=10, **question)
    except rf.UserError:
        return None


def graded_figures(model: Any, data: Any) -> dict[str, Any]:
    """Metrics on test, and the scores and grades of all rows."""
    metrics = rf.evaluate(model, data, metrics=["tpr@fpr=.1", "auc"]).metrics
    predicted = model.predict(rows().drop("grade"), fpr=0.1)
    scores = predicted["score"].to_numpy()
    shares = predicted["grade"].value_counts(normalize=True)
    return {
        **metrics,
        "scores mean": float(scores.mean()),
        "scores deviation": float(scores.std()),
        **{f"share {name}": share for name, share in sorted(shares.iter_rows())},
    }


@cache
def interactions() -> Any:
    return rf.prepare(source="debian-seealso", kcore=3, seed=0)


@cache
def texts() -> Any:
    """Every 30th tagged package of Debian, and its tags."""
    packages = tagged().gather_every(30)
    labels = packages["labels"].explode().unique().sort()
    named = pl.DataFrame({"candidate": labels, "text": labels.str.replace_all("[:-]+", " ")})
    split = "queries:0.7,0.15,0.15"
    return rf.prepare(packages, format="texts", candidate_texts=named, split=split, seed=0)


def tagged() -> pl.DataFrame:
    """Names, descriptions and tags of packages, as bundled."""
    path = next(Path(rf.__file__).parent.rglob("debian/packages.tsv.zst"))
    names = ["number", "id", "source", "section", "priority", "summary", "tags"]
    schema = dict.fromkeys(names, pl.String)
    table = pl.read_csv(path, separator="\t", has_header=False, quote_char=None, schema=schema)
    text = pl.concat_str("id", "summary", separator=" ", ignore_nulls=True)
    labels = pl.col("tags").str.split(", ")
    return table.drop_nulls("tags").select("id", text=text, labels=labels)


@cache
def graded() -> Any:
    return rf.prepare(
        rows(), format="features", grade_column="grade", split=(0.6, 0.15, 0.25), seed=0
    )


def rows(n: int = 700) -> pl.DataFrame:
    """Rows whose grade follows from two numbers and a category, with noise; some are missing."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n, 4))
    kinds = rng.integers(0, 3, n)
    hidden = numbers[:, 0] - 0.7 * numbers[:, 1] + 0.8 * kinds + rng.normal(size=n)
    numbers[rng.random(numbers.shape) < 0.03] = np.nan
    table = {f"number_{place}": column for place, column in enumerate(numbers.T)}
    kind = [["low", "middle", "high"][place] for place in kinds]
    return pl.DataFrame({**table, "kind": kind, "grade": np.digitize(hidden, [-0.5, 1.0, 2.5])})


DATA: dict[str, Callable[[], Any]] = {
    "interactions": interactions,
    "texts": texts,
    "graded": graded,
}


def read() -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return result


def write(result: dict[str, dict[str, Any]]) -> None:
    """A line per figure, in the order of the cases; removed cases are dropped."""
    cases = [f"{json.dumps(name)}: {lines(result[name])}" for name in CASES if name in result]
    FIGURES.write_text("{\n" + ",\n".join(cases) + "\n}\n")


def lines(case: dict[str, Any]) -> str:
    rounded = {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in case.items()
    }
    return "{\n" + ",\n".join(f' "{key}": {json.dumps(rounded[key])}' for key in rounded) + "\n}"


def main(names: list[str]) -> None:
    """Record these cases, or those that have no figures yet."""
    result = read()
    for name in names or [name for name in CASES if name not in result]:
        result[name] = figures(name)
        write(result)


if __name__ == "__main__":
    main(sys.argv[1:])
