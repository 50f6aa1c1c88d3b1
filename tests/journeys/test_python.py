"""In Python and in scikit-learn: from a table to a list."""

from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import rankfold as rf

LOANS = {"query_column": "Leser", "candidate_column": "Buch"}


def test_1_a_notebook(library: Path) -> None:
    assert {"fit", "prepare", "predict", "diagnose", "extend"} <= {*dir(rf)}
    assert "import_module" not in dir(rf)
    data = rf.prepare(library / "loans.csv", **LOANS)
    model = rf.fit("rg2", data, width=8)
    assert repr(data).count("\n") == repr(model).count("\n") == 0
    assert "90" in data._repr_html_()
    assert "validation" in model._repr_html_()
    lists = rf.predict(model, pl.DataFrame({"query": ["r001", "r002"]}), k=3)
    assert lists.to_pandas()["rank"].tolist() == [1, 2, 3] * 2


def test_2_results_are_tables_and_mistakes_speak_python(library: Path) -> None:
    frame = pd.read_csv(library / "loans.csv", sep=";")
    data = rf.prepare(frame[["Leser", "Buch"]], **LOANS)
    model = rf.fit("popularity", data)
    ranking = model.search(["r001", "r004"], k=4)
    assert ranking.to_pandas().shape == (8, 4)
    assert ranking.to_polars().equals(pl.DataFrame(ranking.to_arrow()))
    assert [one.query for one in ranking] == ["r001", "r004"]
    table = rf.evaluate(model, data, metrics=["ndcg@10", "recall@20"]).to_polars()
    assert table["metric"].to_list() == ["ndcg@10", "recall@20"]
    for wrong, words in (
        (lambda: rf.fit("RG2", data), "rg2"),
        (lambda: rf.fit(data, "rg2"), "method"),
        (lambda: model.search("r001", k=3.5), "whole number"),
        (lambda: model.save(3), "path"),
        (lambda: rf.prepare(frame, query_column="Reader"), "Leser"),
    ):
        with pytest.raises(rf.UserError) as caught:
            wrong()
        message = str(caught.value) + str(caught.value.__notes__)
        assert words in message
        assert "--" not in message


@pytest.mark.slow
def test_3_scikit_learn(bridges: Path, complaints: Path) -> None:
    pytest.importorskip("sklearn.base")
    from sklearn.model_selection import cross_val_score

    from rankfold.sklearn import Labeler, OrdinalGrader

    table = pd.read_csv(bridges / "bridges.csv").drop(columns="bridge")
    X, y = table.drop(columns="condition"), table["condition"].to_numpy()
    grader = OrdinalGrader("ce", grades=["good", "watch", "repair"], epochs=4, metric="order")
    assert cross_val_score(grader, X, y, cv=3).mean() > 0.75
    texts = pd.read_csv(complaints / "complaints.csv")
    topics = [row.split("|") for row in texts["topics"]]
    labeler = Labeler("text-neighbours", metric="precision@1").fit(texts["complaint"], topics)
    assert labeler.predict(["the heating is broken"])[0, 0] == "heat"
