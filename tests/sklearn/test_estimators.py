"""The estimators follow scikit-learn's conventions and give what rankfold gives."""

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

pytest.importorskip("sklearn.base")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import rankfold as rf
from rankfold.sklearn import Labeler, OrdinalGrader, Recommender

FOLDS = KFold(3, shuffle=True, random_state=0)
WORDS = ["red", "blue", "green", "cat", "dog"]
UNLIKE_OURS = {  # of scikit-learn's checks
    "check_no_attributes_set_in_init": "settings of the method are parameters too",
    "check_classifiers_train": "a grade follows from the false-positive rate, not from the mode",
    "check_methods_subset_invariance": "scores are float32: they agree to 1e-6",
    "check_fit2d_1feature": "ten rows leave validation without two grades",
}


def pairs() -> pl.DataFrame:
    """Four groups of queries, each with five candidates of its own."""
    rows = [(f"u{u}", f"i{u % 4 * 5 + j}") for u in range(40) for j in range(5)]
    return pl.DataFrame(rows, schema=["customer", "product"], orient="row")


def texts(n: int) -> tuple[list[str], list[list[str]]]:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 3)) for _ in range(n)]
    return texts, [sorted(set(text.split())) for text in texts]


def rows(n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Three grades by the first column."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, (X[:, 0] > 0).astype(np.int64) + (X[:, 0] > 1)


def test_a_recommender_gives_the_lists_of_its_model() -> None:
    table = pairs()
    model = Recommender("ials", width=8, sweeps=3, k=4, validation_share=0.2).fit(table)
    data = rf.prepare(
        table, query_column="customer", candidate_column="product", split=(0.8, 0.2, 0.0)
    )
    expected = rf.fit("ials", data, width=8, sweeps=3, metric="ndcg@10").search(["u7", "u2"], k=4)
    assert model.predict(["u7", "u2"]).tolist() == expected.keys
    assert model.predict(table[:1]).shape == model.predict(table.to_numpy()[:1]).shape == (1, 4)
    assert model.predict(["u7"]).tolist() != model.predict(["u2"]).tolist()


def test_a_grid_search_varies_settings_of_the_method() -> None:
    table = pairs().to_pandas()
    grid = GridSearchCV(Recommender("ials", sweeps=3), {"width": [2, 8]}, cv=FOLDS).fit(table)
    assert grid.best_params_ == {"width": 8}  # four groups need more than two columns
    assert grid.best_estimator_.model_.model.config["width"] == 8
    assert grid.best_score_ > 0.9
    several = Recommender("ials", sweeps=3).set_params(method="popularity", k=2)
    with pytest.raises(rf.UserError, match="sweeps"):
        several.fit(table)


def test_grades_of_pairs_are_y() -> None:
    table = pairs()
    y = np.where(table["product"].str.slice(1).cast(int) % 5 == 0, 0.0, 1.0)
    model = Recommender("popularity", k=20, validation_share=0.0).fit(table, y)
    assert {"i0", "i5", "i10", "i15"}.isdisjoint(set(model.predict(["u0"]).ravel()))
    assert model.predict(["u0"]).tolist()[0][-1] is None  # fewer than k are left


@pytest.mark.parametrize("shape", ["lists", "matrix"])
def test_a_labeler(shape: str) -> None:
    X, y = texts(90)
    labels: Any = MultiLabelBinarizer(classes=WORDS).fit_transform(y) if shape == "matrix" else y
    model = Labeler("text-neighbours", k=2, metric="precision@1").fit(X[:60], labels[:60])
    assert set(model.classes_) == set(range(5) if shape == "matrix" else WORDS)
    first = [WORDS[one] if shape == "matrix" else one for one in model.predict(X[60:])[:, 0]]
    share = np.mean([one in labels for one, labels in zip(first, y[60:], strict=True)])
    assert model.score(X[60:], labels[60:]) == pytest.approx(share)
    assert share > 0.9


def test_unknown_labels_count_and_texts_of_labels_are_used() -> None:
    X, _ = texts(60)
    y = [text.split()[0] for text in X]
    model = Labeler("text-neighbours", k=1, metric="recall@5").fit(X, y)
    assert model.score(X[:9], y[:9]) == 1
    assert model.score(X[:9], [[label, "unseen"] for label in y[:9]]) == 0.5
    named = Labeler("text-neighbours", label_texts={"red": "crimson"}).fit(X, y).model_.candidates
    assert named.texts is not None
    assert named.texts[int(named.find(pl.Series(["red"]))[0])] == "crimson"


def test_a_grader_in_a_pipeline() -> None:
    X, y = rows(240)
    steps = make_pipeline(StandardScaler(), OrdinalGrader("ce", epochs=2, metric="auc"))
    assert cross_val_score(steps, X, y, cv=FOLDS).mean() > 0.8
    model = steps.fit(X, y)[-1]
    scaled = steps[:-1].transform(X)
    assert steps.predict_proba(X).sum(axis=1) == pytest.approx(1)
    assert steps.predict(X).tolist() == model.predict(scaled).tolist()
    loose = model.set_params(fpr=0.5).predict(scaled)
    assert loose.sum() > steps.set_params(ordinalgrader__fpr=0.001).predict(X).sum()


def test_a_grader_takes_tables_and_named_grades() -> None:
    X, y = rows(200)
    table = pl.DataFrame({"size": X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b")})
    names = np.asarray(["low", "high"])[(y > 0).astype(int)]
    model = OrdinalGrader("ce", grades=["low", "high"], epochs=2, fpr=0.1).fit(table, names)
    assert model.classes_.tolist() == ["low", "high"]
    assert model.feature_names_in_.tolist() == ["size", "kind"]
    direct = model.model_.predict(table, fpr=0.1)
    assert model.predict(table).tolist() == direct["grade"].to_list()
    assert model.score_samples(table) == pytest.approx(direct["score"].to_numpy())
    to_table = FunctionTransformer(lambda frame: frame.select("size", "kind"))
    assert make_pipeline(to_table, clone(model)).fit(table, names).predict(table).shape == (200,)


def test_clones_and_pickles() -> None:
    X, y = rows(100)
    model = OrdinalGrader("ce", epochs=1)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y)
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model))))  # noqa: S301
    assert copy.predict_proba(X).tolist() == model.predict_proba(X).tolist()
    table = pairs()
    ranks = Recommender("popularity").fit(table)
    again = pickle.loads(pickle.dumps(ranks))  # noqa: S301
    assert again.predict(["u1"]).tolist() == ranks.predict(["u1"]).tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn() -> None:
    results = check_estimator(
        OrdinalGrader("ce", epochs=2), expected_failed_checks=UNLIKE_OURS, on_skip=None
    )
    assert {one["check_name"] for one in results if one["status"] == "xfail"} == {*UNLIKE_OURS}
