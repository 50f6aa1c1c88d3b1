"""Every endpoint answers like the model itself."""

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rankings import assert_same_keys
from serving import Client, item, ranked

import rankfold as rf
from rankfold.serve.search import unknown
from rankfold.types import Key, Vocabulary

Start = Callable[..., Client]


def test_queries_get_the_rankings_of_the_model(client: Client, folders: dict[str, Path]) -> None:
    results = client.search(queries=[3, "4"], k=5)
    assert [entry["query"] for entry in results] == [3, 4]  # of the type of the model's keys
    assert [len(entry["candidates"]) for entry in results] == [5, 5]
    assert_same_keys(ranked(results), rf.load(folders["shop"]).search([3, 4], k=10))


def test_scores_are_explained(client: Client) -> None:
    plain = client.search(queries=[3], k=2)[0]["candidates"]
    answer = client.search(queries=[3], k=2, explain=True)[0]["candidates"]
    for entry, other in zip(answer, plain, strict=True):
        total = sum(one["score"] for one in entry["because"]) + entry["rest"]
        assert total == pytest.approx(other["score"], abs=1e-5)
        assert "because" not in other
    many = client.post("/search", {"queries": [3] * 101, "k": 10, "explain": True})
    assert (many.status_code, "explain:" in many.json()["error"]) == (400, True)


def test_seen_pairs_are_returned_on_request(client: Client) -> None:
    seen = client.get("/history", params={"query": "3"}).json()
    assert seen["query"] == 3
    chosen = {entry["candidate"] for entry in seen["candidates"]}
    hidden = {each["candidate"] for each in client.search(queries=[3], k=60)[0]["candidates"]}
    shown = client.search(queries=[3], k=60, include_seen=True)[0]["candidates"]
    assert chosen
    assert not chosen & hidden
    assert chosen | hidden == {each["candidate"] for each in shown}


def test_one_history_and_several(client: Client, folders: dict[str, Path]) -> None:
    ranker = rf.load(folders["shop"])
    one, two = [item(5), item(11)], [item(0)]
    for body, histories in ((one, [one]), ([one, two], [one, two]), ([[], two], [[], two])):
        results = client.search(history=body, k=3)
        assert [entry["query"] for entry in results] == histories
        assert [len(entry["candidates"]) for entry in results] == [3] * len(histories)
        for entry, history in zip(results, histories, strict=True):
            assert_same_keys(ranked([entry]), ranker.search(history=history, k=9))


def test_an_empty_history_gets_the_most_popular(client: Client, folders: dict[str, Path]) -> None:
    (ranking,) = client.search(history=[], k=4)
    expected = rf.load(folders["shop"]).search(history=[], k=4)
    assert [each["candidate"] for each in ranking["candidates"]] == expected.keys[0]
    scores = [each["score"] for each in ranking["candidates"]]
    assert scores == pytest.approx(expected.scores[0].tolist(), rel=1e-5)


def test_one_text_and_several(client: Client) -> None:
    (ranking,) = client.search("notes", text="Cups of GREEN tea", k=1)
    assert ranking["query"] == "Cups of GREEN tea"
    (best,) = ranking["candidates"]
    assert (best["candidate"], best["text"]) == ("t2", "green tea")
    both = client.search("notes", text=["blue äther", "red apples"], k=1)
    assert [entry["candidates"][0]["candidate"] for entry in both] == ["t1", "t0"]


def test_similar_candidates(client: Client, folders: dict[str, Path]) -> None:
    results = client.search(candidates=[item(5), item(6)], k=3)
    assert [entry["query"] for entry in results] == [item(5), item(6)]
    assert [len(entry["candidates"]) for entry in results] == [3, 3]
    expected = rf.load(folders["shop"]).search(candidates=[item(5), item(6)], k=9)
    assert_same_keys(ranked(results), expected)


@pytest.mark.parametrize(
    "inputs", [{"queries": [3, 4]}, {"history": [item(5)]}, {"candidates": [item(5)]}]
)
def test_exclude_and_allow_for_every_input(client: Client, inputs: dict[str, object]) -> None:
    free = client.search(**inputs, k=60)
    for entry in free:
        few = entry["candidates"][1:8:2]
        names = [each["candidate"] for each in few]
        filters = {"allow": [*names, "nobody"], "exclude": [names[1], "nobody"]}
        allowed = client.search(**inputs, k=60, **filters)
        mine = next(each for each in allowed if each["query"] == entry["query"])
        left = {**entry, "candidates": few[:1] + few[2:]}
        assert {each["candidate"] for each in mine["candidates"]} == {names[0], *names[2:]}
        assert_same_keys(ranked([mine]), ranked([left]))
    nothing = client.search(**inputs, allow=["nobody"])
    assert all(entry["candidates"] == [] for entry in nothing)


def test_rows_get_scores_and_grades(client: Client, folders: dict[str, Path]) -> None:
    rows = [
        {"age": 3.0, "dose": 1, "site": "a"},
        {"age": -2.5, "dose": 0.25, "site": "b"},
        {"age": 1, "dose": 1, "site": "an unknown level"},
    ]
    response = client.post("/models/patients/grade", {"rows": rows, "fpr": 0.1})
    assert response.status_code == 200
    result = response.json()["results"]
    assert [entry["score"] for entry in result] == pytest.approx([4.0, -1.25, 1.0])
    grader = rf.load(folders["patients"])
    assert isinstance(grader, rf.Grader)
    expected = grader.predict(pl.DataFrame(rows, strict=False), fpr=0.1)
    assert [entry["grade"] for entry in result] == expected["grade"].to_list()
    assert len({entry["grade"] for entry in result}) > 1
    for place, entry in enumerate(result):
        each = [expected[f"probability_{name}"][place] for name in grader.names]
        assert list(entry["probabilities"]) == grader.names
        assert list(entry["probabilities"].values()) == pytest.approx(each)


def test_a_promise_or_an_explanation_that_a_model_cannot_give_is_refused(client: Client) -> None:
    for more, why in (
        ({"confidence": 0.95}, "cannot be promised"),
        ({"explain": True}, "fitted on"),
    ):
        response = client.post("/models/patients/grade", {"rows": [{"age": 1, "dose": 1}], **more})
        assert response.status_code == 400
        assert why in response.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "error", "hint"),
    [
        ("shop/search", {"query": [3]}, "there is no field 'query'", "did you mean 'queries'?"),
        (
            "shop/search",
            {"queries": [3], "where_": ""},
            "no field 'where_'",
            "did you mean 'where'?",
        ),
        ("patients/grade", {"lines": []}, "no field 'lines'", "fields: rows, fpr"),
        ("shop/search", {"queries": "3"}, "queries: ", "write a list"),
    ],
)
def test_a_wrong_field_gets_the_right_one(
    client: Client, path: str, body: dict[str, Any], error: str, hint: str
) -> None:
    response = client.post(f"/models/{path}", body)
    assert response.status_code == 400
    assert error in response.json()["error"]
    assert hint in response.json()["hint"]


def test_a_missing_column_is_a_missing_value(client: Client) -> None:
    rows = [{"age": 1.0, "dose": 2.0, "site": None}, {"age": 1.0, "dose": 2.0}]
    result = client.post("/models/patients/grade", {"rows": rows}).json()["results"]
    assert result[0] == result[1]
    assert result[0]["score"] == pytest.approx(3.0 - 1)  # an unknown level is -1


@pytest.mark.parametrize("wrong", [b"1e400", b"1" + 400 * b"0", b"NaN", b"[1]", b"{}"])
def test_invalid_values_are_explained(client: Client, wrong: bytes) -> None:
    content, kind = b'{"rows":[{"age":' + wrong + b"}]}", {"content-type": "application/json"}
    response = client.request("POST", "/models/patients/grade", content=content, headers=kind)
    assert response.status_code == 400
    assert response.json()["error"] == (
        "rows.0.age: a value must be a string, a finite number, true, false or null"
    )


def test_keys_with_the_prefix_come_first(client: Client) -> None:
    def keys(**parameters: object) -> list[object]:
        response = client.get(
            "/keys", params={name: str(value) for name, value in parameters.items()}
        )
        return [entry["key"] for entry in response.json()["keys"]]

    assert keys(side="query", like=1, limit=3) == [1, 10, 11]
    assert keys(side="query", like=19, limit=2) == [19, 119]
    assert keys(side="candidate", like="ALERT(1)") == [item(1)]
    assert keys(side="candidate", like="nobody") == []
    assert len(keys(side="query")) == 10


def test_keys_match_by_their_texts(client: Client) -> None:
    parameters = {"side": "candidate", "like": "ÄTHER"}
    response = client.get("/models/notes/keys", params=parameters)
    assert response.json() == {"keys": [{"key": "t1", "text": "blue Äther"}]}


def test_cards_list_the_accepted_inputs(client: Client) -> None:
    shop, notes, patients = (
        client.get(f"/models/{name}/card").json() for name in ("shop", "notes", "patients")
    )
    assert client.get("/card").json() == shop  # the first
    assert shop["accepts"] == ["queries", "history", "candidates"]
    assert (shop["method"], shop["data_kind"]) == ("rg2-plain", "interactions")
    assert (shop["sizes"]["queries"], shop["sizes"]["candidates"]) == (120, 60)
    assert shop["config"]["width"] == 8
    assert shop["index"]["kind"] == "exact"
    assert re.match(r"\d{4}-\d\d-\d\dT", shop["written"])
    assert notes["accepts"] == ["queries", "text", "candidates"]
    assert patients["accepts"] == ["rows"]
    assert patients["grades"] == ["none", "mild", "severe"]
    assert patients["columns"] == [
        {"name": "age", "type": "number"},
        {"name": "dose", "type": "number"},
        {"name": "site", "type": "text", "levels": ["a", "b"]},
    ]


def test_the_first_model_answers_without_its_name(client: Client) -> None:
    body = {"queries": [7], "k": 3}
    assert client.post("/search", body).json() == client.post("/models/shop/search", body).json()
    assert client.get("/models").json() == {"models": ["shop", "notes", "patients"]}


@pytest.mark.parametrize(
    ("name", "path", "body", "status", "message"),
    [
        ("shop", "search", {"queries": ["nobody"]}, 404, "unknown query 'nobody'"),
        ("shop", "search", {"history": [item(1), "x"]}, 404, "unknown candidate 'x'"),
        ("shop", "search", {"candidates": ["x"]}, 404, "unknown candidate 'x'"),
        ("shop", "search", {"queries": [2**63 - 1]}, 404, "unknown query"),
        ("shop", "search", {"queries": ["07"]}, 404, "unknown query '07'"),
        ("shop", "search", {"text": "tea"}, 400, "does not rank by text"),
        ("notes", "search", {"history": ["t0"]}, 400, "ranks by text, not by history"),
        ("patients", "search", {"queries": [1]}, 400, "grades rows"),
        ("shop", "grade", {"rows": [{"age": 1}]}, 400, "ranks candidates"),
        ("nobody", "search", {"queries": [1]}, 404, "unknown model 'nobody'"),
        ("shop", "search", {}, 400, "got none"),
        ("shop", "search", {"queries": [1], "history": []}, 400, "got queries and history"),
        ("shop", "search", {"queries": [1], "size": 3}, 400, "size"),
        ("shop", "search", {"queries": [True]}, 400, "queries.0"),
        ("shop", "search", {"queries": [1.5]}, 400, "queries.0"),
        ("shop", "search", {"queries": None}, 400, "queries"),
        ("shop", "search", {"queries": 1}, 400, "queries"),
        ("shop", "search", {"queries": [[1]]}, 400, "queries.0"),
        ("shop", "search", {"queries": []}, 400, "queries"),
        ("shop", "search", {"queries": [2**63]}, 400, "queries.0"),
        ("shop", "search", {"queries": [1], "k": "3"}, 400, "k: "),
        ("shop", "search", [1], 400, "object"),
        ("patients", "grade", {"rows": [{"weight": 1}]}, 400, "row 0: unknown column 'weight'"),
        (
            "patients",
            "grade",
            {"rows": [{}, {"age": "old"}]},
            400,
            "row 1: 'age' must be a number, got 'old'",
        ),
        ("patients", "grade", {"rows": [{"site": 3}]}, 400, "'site' must be a text, got 3"),
        ("patients", "grade", {"rows": [{"age": [1]}]}, 400, "rows.0.age"),
        ("patients", "grade", {"rows": []}, 400, "rows"),
        ("patients", "grade", {"rows": [{}], "fpr": 2}, 400, "fpr"),
    ],
)
def test_invalid_requests_are_explained(
    client: Client, name: str, path: str, body: object, status: int, message: str
) -> None:
    response = client.post(f"/models/{name}/{path}", body)
    assert response.status_code == status
    error = response.json()
    assert set(error) == {"error", "hint"}
    assert message in error["error"]
    assert error["hint"]


def test_hints_name_fields_of_the_body(client: Client) -> None:
    response = client.post("/models/notes/search", {"history": ["t0"]})
    assert response.json()["hint"] == "send `text` instead"


@pytest.mark.parametrize("wrong", [True, 1.5, None, {}, 2**63, -(2**63) - 1, 2**70])
@pytest.mark.parametrize("name", ["queries", "history", "candidates", "exclude", "allow"])
def test_invalid_keys_are_explained(client: Client, name: str, wrong: object) -> None:
    more = {} if name in ("queries", "history", "candidates") else {"queries": [1]}
    response = client.post("/search", {name: [1, wrong], **more})
    assert response.status_code == 400
    expected = f"{name}.1: a key must be a string or a 64-bit integer"
    assert response.json()["error"] == expected


@pytest.mark.parametrize(
    ("keys", "key", "hint"),
    [
        ([f"item-{n:06}" for n in range(9000)], "item-005000x", "'item-005000'"),
        ([f"Item-{n}" for n in range(150)], "item-77", "'Item-77'"),
        ([f"a long name with {n}" for n in range(150)], "WITH 77", "'a long name with 77'"),
        (list(range(0, 90_000, 2)), 5001, "did you mean 5"),
        (list(range(9000)), "nobody", "GET /keys?side=query"),
        (list(range(9000)), "9" * 1000, "GET /keys?side=query"),
        ([], "nobody", "GET /keys?side=query"),
    ],
)
def test_similar_keys_are_searched_among_few(
    monkeypatch: pytest.MonkeyPatch, keys: list[Key], key: Key, hint: str
) -> None:
    compared: list[int] = []
    whole = difflib.get_close_matches

    def counted(word: str, words: Iterable[str], **more: Any) -> list[str]:
        compared.append(len(list(words)))
        return whole(word, words, **more)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    held = pl.Series(keys, dtype=None if keys else pl.String)
    problem = unknown(Vocabulary(len(keys), lambda: held), key, "query", near=True)
    assert hint in problem.hint
    assert max(compared) <= 200


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"\xff", "application/json"),
        (b'{"queries": ["\\ud800"]}', "application/json"),
        (b'{"\\ud800": 1}', "application/json"),
        (b'{"queries": [NaN]}', "application/json"),
        (b'{"queries": [' + b"9" * 6000 + b"]}", "application/json"),
        (b'{"history": ' + b"[" * 5000 + b"]" * 5000 + b"}", "application/json"),
        (b'{"queries": [1]}', "text/plain"),
        (b'{"queries": [1]}', ""),
    ],
)
def test_invalid_json_is_explained(client: Client, content: bytes, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    response = client.request("POST", "/search", content=content, headers=headers)
    assert response.status_code == 400, response.text
    assert set(response.json()) == {"error", "hint"}


def test_numbers_that_are_infinite_in_single_precision_are_refused(client: Client) -> None:
    headers = {"content-type": "application/json"}
    for value in (b"NaN", b"Infinity", b"1e999", b"1e308", b"-3.5e38"):
        content = b'{"rows": [{"age": %s}]}' % value
        response = client.request(
            "POST", "/models/patients/grade", content=content, headers=headers
        )
        assert response.status_code == 400, response.text
