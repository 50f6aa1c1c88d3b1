"""The page in a real browser: keys with unusual characters, and a token."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, names, serving
from page_models import LARGE, UNUSUAL_KEYS, fit_odd
from selenium.webdriver.common.keys import Keys


@pytest.fixture(scope="module")
def odd(window: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    return fit_odd(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def server(odd: Path) -> Iterator[Callable[[], str]]:
    with serving(odd) as address:
        yield address


@pytest.fixture(scope="module")
def protected(odd: Path) -> Iterator[Callable[[], str]]:
    with serving(odd, token="open-sesame") as address:
        yield address


def test_a_token_is_kept_only_in_memory(page: Browser, protected: Callable[[], str]) -> None:
    page.open("/", protected())
    assert page.text("label[for=token]") == "Token"
    for token, state in (("wrong", "failed"), ("open-sesame", "done")):
        page.fill("#token", token)
        page.press(Keys.ENTER)
        assert page.wait() == state
    page.click("#examples a")
    page.until(lambda: page.wait() and names(page))
    kept = "return location.href + JSON.stringify([localStorage, sessionStorage, history.state])"
    assert "sesame" not in page.js(kept) + page.js("return document.cookie")
    page.js("location.reload()")
    page.until(lambda: page.text("label[for=token]"))


@pytest.mark.parametrize("key", UNUSUAL_KEYS)
def test_unusual_keys(page: Browser, key: str) -> None:
    """They are shown unchanged, can be searched for, and survive in addresses."""
    page.open(f"/?model=odd&query={LARGE}&include_seen=1")
    assert sorted(names(page)) == sorted(UNUSUAL_KEYS)
    page.click("button.name", names(page).index(key))
    page.until(lambda: len(page.texts(".similar li")) == len(UNUSUAL_KEYS) - 1)
    page.click(".actions a")
    page.until(lambda: page.js("return document.querySelector('#candidate').value") == key)
    page.wait()
    assert sorted([*names(page), key]) == sorted(UNUSUAL_KEYS)
    page.open(page.js("return location.pathname + location.search"))
    assert page.js("return document.querySelector('#candidate').value") == key
    assert page.js("return document.querySelectorAll('script, img').length") == 1


def test_large_integers_keep_all_digits(page: Browser) -> None:
    page.open("/?model=odd")
    page.fill("#query", str(LARGE))
    page.until(lambda: page.texts("[role=option]"))
    assert page.texts("[role=option]")[0] == str(LARGE)
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.until(lambda: page.wait() and names(page))
    assert page.js("return new URLSearchParams(location.search).get('query')") == str(LARGE)
