"""Models are loaded from folders, watched for changes, and replaced between requests."""

import asyncio
import gc
import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from serving import Client, fit_shop

from rankfold.errors import UserError
from rankfold.serve import folders as module
from rankfold.serve.folders import Reading, named
from rankfold.serve.models import line_of

Start = Callable[..., Client]


@pytest.fixture
def shop(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["shop"], tmp_path / "shop"))


def lists(client: Client) -> list[str]:
    return [each["candidate"] for each in client.search(queries=[3], k=20)[0]["candidates"]]


def swaps(client: Client) -> dict[tuple[str, ...], int]:
    return dict(client.models.metrics.swaps)


def test_a_new_model_in_the_folder_is_loaded(start: Start, shop: Path) -> None:
    client = start(shop=shop)
    before = lists(client)
    client.folders.look()
    assert swaps(client) == {}  # nothing was written
    fit_shop(shop, seed=5)
    assert lists(client) == before
    client.folders.look()
    assert lists(client) != before
    assert swaps(client) == {("shop", "done"): 1}


def test_the_old_model_is_released(start: Start, shop: Path) -> None:
    client = start(shop=shop)
    lists(client)
    old = weakref.ref(client.models.slots["shop"].served)
    fit_shop(shop, seed=5)
    client.folders.look()
    lists(client)
    gc.collect()
    assert old() is None


def test_an_unreadable_folder_keeps_the_old_model(
    start: Start, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(shop=shop)
    before = lists(client)
    manifest = (shop / "manifest.json").read_bytes()
    (shop / "manifest.json").write_text("{}")
    client.folders.look()
    client.folders.look()  # not retried immediately
    assert lists(client) == before
    assert swaps(client) == {("shop", "failed"): 1}
    monkeypatch.setattr(module, "RETRY_SECONDS", -1.0)
    client.folders.look()
    assert swaps(client) == {("shop", "failed"): 2}
    shutil.rmtree(shop)
    client.folders.look()
    assert lists(client) == before
    assert client.get("/ready").status_code == 200
    shop.mkdir()
    (shop / "manifest.json").write_bytes(manifest)
    client.folders.look()  # its files are missing
    assert lists(client) == before
    client.models.log.close()
    entries = [json.loads(line) for line in client.log.getvalue().splitlines()]
    errors = [line for line in entries if line["level"] == "error"]
    assert len(errors) == 3  # one for each state of the folder
    assert all(line["model"] == "shop" and line["hint"] for line in errors)


def test_another_kind_of_model_is_refused_unless_asked_for(
    start: Start, shop: Path, folders: dict[str, Path]
) -> None:
    client = start(shop=shop)
    before = lists(client)
    shutil.rmtree(shop)
    shutil.copytree(folders["patients"], shop)
    client.folders.look()
    assert lists(client) == before
    assert swaps(client) == {("shop", "failed"): 1}
    client.models.log.close()
    (last,) = [
        line
        for line in map(json.loads, client.log.getvalue().splitlines())
        if line["level"] == "error"
    ]
    assert "holds a model of the kind 'graded'" in last["error"]
    assert "--any-kind" in last["hint"]
    client.folders.reading = Reading(any_kind=True)
    client.folders.sources["shop"].stamp = None
    client.folders.look()
    assert client.get("/card").json()["accepts"] == ["rows"]
    assert client.post("/grade", {"rows": [{"age": 1, "dose": 0}]}).status_code == 200
    assert client.post("/search", {"queries": [1]}).status_code == 400


def test_no_request_fails_while_models_are_replaced(start: Start, shop: Path) -> None:
    client = start(shop=shop)

    async def load() -> list[int]:
        statuses: list[int] = []
        done = asyncio.Event()

        async def ask(number: int) -> None:
            async with client.connect() as http:
                while not done.is_set():
                    body = {"queries": [number % 120], "k": 5}
                    statuses.append((await http.post("/search", json=body)).status_code)

        asks = [asyncio.create_task(ask(number)) for number in range(4)]
        for seed in range(3):
            await asyncio.to_thread(fit_shop, shop, seed)
            await asyncio.to_thread(client.folders.look)
        done.set()
        await asyncio.gather(*asks)
        return statuses

    statuses = asyncio.run(load())
    assert len(statuses) > 20
    assert set(statuses) == {200}
    assert swaps(client) == {("shop", "done"): 3}


def test_requests_fail_until_the_model_is_loaded(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Folders, "load", lambda _self: None)
    client = start()
    assert client.get("/health").status_code == 200
    for answer in (
        client.get("/ready"),
        client.get("/card"),
        client.post("/search", {"queries": [1]}),
    ):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert set(answer.json()) == {"error", "hint"}
    monkeypatch.undo()


def test_names_of_models(folders: dict[str, Path], tmp_path: Path) -> None:
    shop, notes = folders["shop"], folders["notes"]
    assert list(named([str(shop), str(notes)])) == ["shop", "notes"]
    assert named([str(shop), f"other={shop}"]) == {"shop": shop, "other": shop}
    odd = Path(shutil.copytree(shop, tmp_path / "a=b"))
    with pytest.raises(UserError, match="'a=b' cannot be the name"):
        named([str(odd)])
    assert named([f"good={odd}"]) == {"good": odd}
    with pytest.raises(UserError, match="two models have the name 'shop'") as error:
        named([str(shop), str(shop)])
    assert "NAME=" in error.value.hint
    with pytest.raises(UserError, match="there is no folder"):
        named([str(tmp_path / "nothing")])


def test_a_card_in_a_line(client: Client) -> None:
    served = client.models.slots["shop"].served
    assert served is not None
    line = line_of(served.card)
    assert line.startswith("shop: rg2-plain; 120 queries, 60 candidates")
    assert line.endswith("accepts queries, history, candidates")
