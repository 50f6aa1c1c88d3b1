"""Models with ``encoder=history``: what they learn, new queries, updates, resuming, folders."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from planted import groups
from torch import Tensor, nn

import rankfold as rf
from rankfold.encoders.history import POOLINGS, PoolSpec
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.training import checkpoint
from rankfold.types import Dataset, Interactions, Vocabulary

BUILT_IN = ["mean", "recent", "attention"]
SMALL = {"encoder": "history", "width": 8, "history_length": 8}


def chains(n: int = 90) -> pl.DataFrame:
    """Each query walks along a circle of 30 candidates: the next one has the next number."""
    rows = [(q, (7 * q + step) % 30, 100 * q + step) for q in range(n) for step in range(8)]
    return pl.DataFrame(rows, schema=["query", "candidate", "time"], orient="row")


def walked() -> Dataset:
    return rf.prepare(chains(), split="last")


def fitted(name: str = "softmax", data: Any = None, **more: Any) -> Ranker:
    given = walked() if data is None else data
    ranker = rf.fit(name, given, **{**SMALL, "epochs": 2, **more})
    assert isinstance(ranker, Ranker)
    return ranker


@pytest.fixture(scope="module")
def walker() -> Ranker:
    return fitted(pooling="attention", epochs=30, lr=0.02, dropout=0.1)


def test_attention_learns_what_comes_next(walker: Ranker) -> None:
    """The order of the history decides, not the order of its keys."""
    ranking = walker.search(history=[3, 4, 5], k=1)
    assert ranking.keys == [[6]]
    assert walker.search(history=[5, 4, 3], include_seen=True, k=30).keys[0].index(4) < 6
    assert walker.search(history=[27, 28, 29], k=1).keys == [[0]]


@pytest.mark.parametrize("pooling", BUILT_IN)
@pytest.mark.parametrize("name", ["softmax", "bir", "xir", "bpr", "bce"])
def test_a_history_has_the_vector_of_its_query(name: str, pooling: str) -> None:
    ranker = fitted(name, pooling=pooling)
    encode = METHODS[name].open(ranker.model).histories
    assert encode is not None
    torch.testing.assert_close(encode(ranker.seen), ranker.model.tensors["queries"])


@pytest.mark.parametrize("name", ["sampled", "full", "uib", "ssl-pop", "g-tower", "mns"])
def test_every_loss_and_sampler_takes_histories(name: str) -> None:
    more = {"loss": "rgx", "sampler": "popularity"} if name == "sampled" else {}
    ranker = fitted(name, similarity="dot", pooling="attention", epochs=1, **more)
    assert ranker.search(history=[1, 2], k=3).scores.shape == (1, 3)


def test_without_times_a_mean_finds_the_group() -> None:
    data = rf.prepare(groups())
    for pooling in ("mean", "attention"):
        model = fitted("softmax", data, pooling=pooling, epochs=30, lr=0.02)
        (keys,) = model.search(history=[1, 7, 13, 19], k=3).keys
        assert {key % 6 for key in keys} == {1}


def test_a_new_query_needs_no_fit(walker: Ranker) -> None:
    """``add`` reads all that a query chose, in order of time; later pairs are the latest."""
    more = pl.DataFrame({"query": [500, 500, 500], "candidate": [12, 10, 11], "time": [9, 7, 8]})
    grown = walker.add(rf.prepare(more, split=(1, 0, 0), time_column="time"))
    assert grown.search(500, k=1).keys == [[13]]
    again = grown.add(pl.DataFrame({"query": [500], "candidate": [20]}))
    assert again.search(500, k=1).keys == [[21]]


def test_cosines_temperatures_and_biases() -> None:
    for more in ({"similarity": "cosine", "temperature": 0.2}, {}):
        ranker = fitted("bce", pooling="attention", **more)
        encode = METHODS["bce"].open(ranker.model).histories
        assert encode is not None
        torch.testing.assert_close(encode(ranker.seen), ranker.model.tensors["queries"])


def test_a_known_query_answers_by_its_latest_choice(walker: Ranker) -> None:
    """Validation pairs are held out from training; what is asked or scored later reads them."""
    data = walked()
    assert rf.evaluate(walker, data, split="test", metrics=["hit@1"])["hit@1"] > 0.9
    assert rf.evaluate(walker, data, split="validation", metrics=["hit@1"])["hit@1"] > 0.9
    assert walker.search(0, k=1).keys == [[7]]  # it chose 0 to 6, 6 in validation
    same = rf.evaluate(walker, rf.prepare(chains()), split="validation", metrics=["hit@1"])
    assert same.queries > 0  # data without times: by what the model has seen


def test_add_keeps_the_features_of_a_query() -> None:
    rows = pl.DataFrame({"query": [*range(90)], "kind": [f"k{n % 3}" for n in range(90)]})
    model = fitted(data=rf.prepare(chains(), split="last", query_features=rows))
    grown = model.add(pl.DataFrame({"query": [4, 999], "candidate": [1, 1]}))
    opened = METHODS["softmax"].open(model.model)
    assert opened.histories is not None
    assert opened.features is not None
    longer = grown.seen.select(grown.queries.rows([4, 999], "query"))
    own = opened.features(model.read_features([{"kind": "k1"}]), "query")
    expected = opened.histories(longer) + torch.cat([own, torch.zeros_like(own)])
    found = grown.model.tensors["queries"][grown.queries.rows([4, 999], "query")]
    torch.testing.assert_close(found, expected)


class Latest(nn.Module):
    """A module of a user: the state before a place is a map of the choice before it."""

    def __init__(self, spec: PoolSpec, _rng: torch.Generator) -> None:
        super().__init__()
        self.map = nn.Linear(spec.width, spec.width)

    def forward(self, vectors: Tensor, _counts: Tensor, rate: float) -> Tensor:
        states = nn.functional.dropout(self.map(vectors[:, :-1]), rate, self.training)
        return torch.cat([torch.zeros_like(vectors[:, :1]), states], dim=1)


def test_a_module_of_a_user_is_a_pooling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POOLINGS, "latest", Latest)
    model = fitted(pooling="latest", epochs=20, lr=0.02)
    assert model.search(history=[9, 4], k=1).keys == [[5]]
    model.save(tmp_path / "model")
    assert rf.load(tmp_path / "model").search(history=[9, 4], k=1).keys == [[5]]
    monkeypatch.delitem(POOLINGS, "latest")
    with pytest.raises(UserError, match="'latest' of the module") as caught:
        rf.load(tmp_path / "model")
    assert "--import" in str(caught.value.hint)
    with pytest.raises(UserError, match="`pooling` must be one of mean, recent, attention"):
        fitted(pooling="latest")


def test_saved_loaded_and_resumed(tmp_path: Path, walker: Ranker) -> None:
    walker.save(tmp_path / "model")
    again = rf.load(tmp_path / "model")
    assert again.search(history=[3, 4, 5], k=5).keys == walker.search(history=[3, 4, 5], k=5).keys
    assert again.add(pl.DataFrame({"query": [1], "candidate": [20]})).search(1, k=1).keys == [[21]]
    whole = fitted("xir", pooling="attention", epochs=3, patience=9)
    path = tmp_path / "part"

    def stop(_: object, step: Any) -> None:
        if step.number == 2:
            raise RuntimeError("stopped")

    kept = {"pooling": "attention", "epochs": 3, "patience": 9, "out": path}
    with pytest.raises(RuntimeError, match="stopped"):
        fitted("xir", **kept, report=stop, checkpoint_seconds=0)
    assert checkpoint.path_of(path).exists()
    done = fitted("xir", **kept, resume=True)
    for name, tensor in whole.model.tensors.items():
        assert torch.equal(tensor, done.model.tensors[name]), name


def test_features_of_both_sides() -> None:
    """A new query by its features, a new candidate by its own, and both by history."""
    table = pl.DataFrame({"candidate": [*range(60)], "kind": [f"k{n % 6}" for n in range(60)]})
    ages = pl.DataFrame({"query": [*range(120)], "group": [f"g{n % 6}" for n in range(120)]})
    data = rf.prepare(groups(), candidate_features=table, query_features=ages)
    model = fitted("softmax", data, epochs=30, lr=0.02)
    assert {key % 6 for key in model.search(features={"group": "g2"}, k=4).keys[0]} == {2}
    grown = model.extend(pl.DataFrame({"candidate": [100], "kind": ["k3"]}))
    assert 100 in grown.search(history=[3, 9, 15], k=10).keys[0]
    assert {key % 6 for key in grown.search(history=[100], k=3).keys[0]} == {3}


def test_what_it_cannot_do_is_one_error() -> None:
    with pytest.raises(UserError, match="needs the times of pairs"):
        fitted("bpr", rf.prepare(groups()), pooling="recent")
    with pytest.raises(UserError, match="takes no weights=grade"):
        fitted("bpr", rf.prepare(groups(graded=True)), weights="grade")
    with pytest.raises(UserError, match="sml has a margin for each query"):
        fitted("sml")
    tables = rf.fit("bir", walked(), width=4, epochs=1)
    with pytest.raises(UserError, match="encoder=tables, cannot be queried by history") as caught:
        tables.search(history=[1])
    assert "bir with --set encoder=history" in str(caught.value.hint)
    with pytest.raises(UserError, match="cannot add pairs") as caught:
        tables.add(pl.DataFrame({"query": [1], "candidate": [20]}))
    assert "encoder=history" in str(caught.value.hint)


@pytest.mark.parametrize("pooling", ["mean", "attention"])
@pytest.mark.parametrize("name", ["softmax", "xir"])
def test_rows_without_pairs_and_empty_histories_are_harmless(name: str, pooling: str) -> None:
    train = Interactions(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 0]).int(), None, 4)
    names = Vocabulary.numbered(3), Vocabulary.numbered(4)
    model = fitted(name, Dataset("interactions", train, None, None, *names), pooling=pooling)
    assert all(tensor.isfinite().all() for tensor in model.model.tensors.values())
    assert model.search(history=[], k=2).scores.tolist() == [[2.0, 1.0]]
    assert model.search(history=[], k=2).keys == [[0, 1]]
    alone = Interactions(torch.tensor([0, 1]), torch.tensor([0]).int(), None, 1)
    one = Vocabulary.numbered(1)
    single = fitted(name, Dataset("interactions", alone, None, None, one, one), pooling=pooling)
    assert single.search([0], include_seen=True).keys == [[0]]


def test_a_repeated_candidate_counts_at_its_last_place(walker: Ranker) -> None:
    twice, once = walker.search(history=[5, 3, 4, 5]), walker.search(history=[3, 4, 5])
    assert twice.keys == once.keys
    assert twice.scores.tolist() == once.scores.tolist()


def test_explanations(walker: Ranker) -> None:
    ranking = walker.search(history=[3, 4, 5], k=1, explain=True)
    assert ranking.explanations is not None
    assert {one.key for one in ranking.explanations[0][0].contributions} <= {3, 4, 5}


def test_held_out_queries_are_ranked_by_their_histories() -> None:
    data = rf.prepare(groups(), split="queries:0.8,0.1,0.1", fold_in=0.5)
    model = fitted("softmax", data, epochs=20, lr=0.02)
    values = rf.evaluate(model, data, split="test", metrics=["ndcg@10"])
    assert values["ndcg@10"] > 0.4
