"""The page in a real browser, with a real server: requests, answers, errors, the keyboard."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, fetch, keys_of, names, serving
from page_models import LARGE, TOPICS, fit_odd, fit_patients, fit_texts
from planted import informed_groups
from selenium.webdriver.common.keys import Keys

import rankfold as rf

Page = Browser


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The bundled packages; unusual keys; texts; graded patients; people with features."""
    home = tmp_path_factory.mktemp("page")
    data = rf.prepare(source="debian", out=home / "debian")
    rf.fit("rg2", data, width=16, validation_queries=300).save(home / "packages")
    people = rf.fit("bir", informed_groups(), encoder="towers", width=8, epochs=10)
    people.save(home / "people")
    topics, odd, patients = fit_texts(home), fit_odd(home), fit_patients(home)
    return [home / "packages", odd, topics, patients, home / "people"]


@pytest.fixture(scope="module")
def server(window: Browser, models: list[Path]) -> Iterator[Callable[[], str]]:  # noqa: ARG001
    """A server of all models. Nothing is fitted without a browser."""
    with serving(*models) as address:
        yield address


# ---------------------------------------------------------------------------------- requests


def test_a_query_shows_its_ranking_and_its_history(page: Page) -> None:
    page.open()
    assert page.texts("#examples .chip")
    page.fill("#query", "vlc")
    page.press(Keys.ENTER)
    page.wait()
    result = fetch(page.address, "/search", {"queries": ["vlc"]})
    assert names(page) == keys_of(result)
    scores = [float(words.removeprefix("score ")) for words in page.texts(".score")]
    assert scores == pytest.approx(
        [entry["score"] for entry in result["results"][0]["candidates"]], rel=1e-3
    )
    shares = page.js("""return [...document.querySelectorAll('.bar')].map(
        e => Number(e.style.getPropertyValue('--share')))""")
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    chosen = fetch(page.address, "/history?query=vlc")["candidates"]
    assert page.texts("#history .key") == [entry["candidate"] for entry in chosen]
    assert page.js("return location.search") == "?query=vlc"
    assert page.text("#status").startswith("10 candidates in ")


def test_toggling_the_history_moves_ranks(page: Page) -> None:
    page.open("/?query=vlc")
    before = names(page)
    chosen = page.texts("#history .key")
    page.click("#history input", 2)
    page.wait()
    left = chosen[:2] + chosen[3:]
    body = {"exclude": ["vlc"]}  # the data links packages: none is its own candidate
    now = keys_of(fetch(page.address, "/search", {"history": left, **body}))
    full = keys_of(fetch(page.address, "/search", {"history": chosen, "k": 200, **body}))
    assert names(page) == now
    assert now != before
    moves = page.texts(".move .visually-hidden")
    for rank, (key, words) in enumerate(zip(now, moves, strict=True), 1):
        was = full.index(key) + 1 if key in full else None
        if key == chosen[2]:
            assert words == "was in the history"
        elif was is None:
            assert words == "new: was not in the top 200"
        elif was == rank:
            assert words == "same rank"
        else:
            ranks = abs(was - rank)
            direction = "up" if was > rank else "down"
            assert words == f"{direction} {ranks} rank{'s' * (ranks > 1)}, from {was}"
    ups = sum(words.startswith("up") for words in moves)
    assert f"Compared with the full history: {ups} up" in page.text("#status")
    gone = [key for key in full[:10] if key not in now]
    assert page.texts(".gone .key") == gone
    assert page.js("return new URLSearchParams(location.search).getAll('off')") == [chosen[2]]
    page.click("#history .tools button")
    page.wait()
    assert names(page) == before
    assert page.texts(".move") == []


def test_a_query_is_not_in_its_own_ranking(page: Page) -> None:
    """If its own ranking excludes it, so does that of a changed history."""
    key = "libgtk-3-0t64"  # its history ranks it
    chosen = [
        one["candidate"] for one in fetch(page.address, f"/history?query={key}")["candidates"]
    ]
    assert key in keys_of(fetch(page.address, "/search", {"history": chosen[1:], "k": 50}))
    page.open(f"/?query={key}&k=50")
    page.click("#history input")
    page.wait()
    assert len(names(page)) == 50
    assert key not in names(page)


def test_an_empty_history_gives_the_most_popular(page: Page) -> None:
    page.open("/?query=vlc")
    page.click("#history .tools button", 1)
    page.wait()
    assert names(page) == keys_of(
        fetch(page.address, "/search", {"history": [], "exclude": ["vlc"]})
    )
    assert page.text(".count").startswith("0 of ")


def test_a_candidate_shows_similar_ones(page: Page) -> None:
    page.open("/?query=vlc")
    page.click("button.name", 3)
    page.until(lambda: page.texts(".similar li"))
    key = names(page)[3]
    like = keys_of(fetch(page.address, "/search", {"candidates": [key]}))
    assert page.texts(".similar .key") == like
    page.click(".similar a")
    page.until(lambda: page.js("return location.search") == f"?candidate={like[0]}")
    page.wait()
    assert names(page) == keys_of(fetch(page.address, "/search", {"candidates": like[:1]}))
    assert page.js("return document.querySelector('#candidate').value") == like[0]


def test_a_candidate_joins_the_history(page: Page) -> None:
    page.open("/?query=vlc")
    key = names(page)[0]
    page.click("button.name")
    page.js("document.querySelector('.actions button').focus()")
    page.press(Keys.ENTER)
    page.until(lambda: page.wait() and key in page.texts("#history .key"))
    assert key not in names(page)
    assert page.focus().startswith("section#results")  # not at the top of the page
    page.click(".remove")
    page.until(lambda: page.wait() and key in names(page))


def test_a_history_is_pasted(page: Page) -> None:
    page.open()
    page.click("input[value=history]")
    page.js("""const data = new DataTransfer();
        data.setData('text', 'python3-numpy\\r\\npython3-scipy\\n python3-pandas \\n');
        document.querySelector('#history-key').dispatchEvent(
            new ClipboardEvent('paste', {clipboardData: data, cancelable: true}))""")
    page.wait()
    chosen = ["python3-numpy", "python3-scipy", "python3-pandas"]
    assert page.texts("#history .key") == chosen
    assert names(page) == keys_of(fetch(page.address, "/search", {"history": chosen}))
    page.fill("#history-key", "no-such-package")
    page.press(Keys.ENTER)
    assert page.wait() == "failed"
    page.click(".remove", 3)  # the chips stay
    assert page.wait() == "done"
    assert page.texts("#history .key") == chosen


def test_a_text_is_ranked_with_texts_beside_keys(page: Page) -> None:
    page.open("/?model=topics")
    page.fill("#text", "a cup of green tea")
    page.press(Keys.ENTER, holding=Keys.CONTROL)
    page.wait()
    assert names(page)[0] == "tea"
    assert page.texts(".hit .text")[0] == TOPICS["tea"]
    page.click("button.name")  # shows a long text in full
    assert page.text(".full-text") == TOPICS["tea"]
    page.until(lambda: page.texts(".why li"))
    assert "tea" in page.texts(".why .name .key")
    assert (
        page.js("return new URLSearchParams(location.search).get('text')") == "a cup of green tea"
    )


def test_a_new_query_is_ranked_by_its_features(page: Page) -> None:
    page.open("/?model=people")
    assert page.texts("#feature-columns label") == ["age", "group"]
    page.click("#kinds input[value=features]")
    page.fill("#column-0", "20")
    page.js("document.querySelector('#column-1').value = arguments[0]", "g4")
    page.click("#search button.main")
    page.wait()
    given = {"features": {"age": 20, "group": "g4"}}
    expected = fetch(page.address, "/models/people/search", given)
    listed = [one["candidate"] for one in expected["results"][0]["candidates"]]
    assert names(page) == [str(key) for key in listed]
    page.open(page.js("return location.pathname + location.search"))
    assert page.js("return document.querySelector('#column-1').value") == "g4"


def test_the_model_card(page: Page) -> None:
    page.open("/?model=packages")
    card = fetch(page.address, "/card")
    rows = dict(zip(page.texts("#card dt"), page.texts("#card dd"), strict=True))
    assert rows["Method"] == "rg2"
    assert rows["Candidates"] == f"{card['sizes']['candidates']:,}"
    assert card["notes"]["data"][:12] in rows["Trained on"]
    [(metric, value)] = card["metrics"].items()
    assert rows[metric] == f"{value:.4f}"
    assert rows["Recall"].startswith("100%")
    assert rows["Written"]
    assert rows["width"] == "16"


def test_a_model_is_chosen(page: Page) -> None:
    page.open()
    shown = page.texts("#model option")
    assert shown == ["packages", "odd", "topics", "patients", "people"]
    page.js("""const select = document.querySelector('#model'); select.value = 'patients';
        select.dispatchEvent(new Event('change', {bubbles: true}))""")
    page.until(lambda: page.texts("#columns label"))
    assert not page.js("return document.querySelector('#search').checkVisibility()")
    page.js("history.back()")
    page.until(lambda: page.js("return document.querySelector('#search').checkVisibility()"))


def test_links_and_back(page: Page) -> None:
    page.open("/?query=vlc&k=5")
    assert len(names(page)) == 5
    first = names(page)
    page.fill("#query", "gimp")
    page.press(Keys.ENTER)
    page.wait()
    second = names(page)
    assert second != first
    page.js("history.back()")
    page.until(lambda: page.wait() and names(page) == first)
    assert page.js("return document.querySelector('#query').value") == "vlc"
    page.js("history.forward()")
    page.until(lambda: page.wait() and names(page) == second)


def test_a_long_list_stays_light(page: Page) -> None:
    page.open("/?query=vlc&k=1000")
    rows = page.js("return document.querySelectorAll('.hit').length")
    assert rows == 1000
    assert names(page) == keys_of(fetch(page.address, "/search", {"queries": ["vlc"], "k": 1000}))
    drawn = """return [...document.querySelectorAll('.hit .name')].filter(
        e => e.checkVisibility({contentVisibilityAuto: true})).length"""
    page.until(lambda: 5 < page.js(drawn) < 200)  # rows far away are not drawn
    frame = page.driver.execute_async_script("""const done = arguments[0];
        let steps = 0, last = performance.now(), times = [];
        requestAnimationFrame(function step(now) {
            times.push(now - last); last = now; scrollBy(0, 600);
            if (++steps < 40) requestAnimationFrame(step);
            else done(times.sort((a, b) => a - b)[20]);
        })""")
    assert frame < 100  # ms; the median of 40, on a machine that may be busy
    page.fill("#k", "2000")
    page.press(Keys.ENTER)
    assert not page.js("return document.querySelector('#k').validity.valid")


# ---------------------------------------------------------------------------------- keyboard


def test_the_page_works_by_keyboard(page: Page) -> None:
    page.open()
    page.tab_to("a.skip")
    page.tab_to("#query")
    page.press("python3-nump")
    page.until(lambda: page.texts("[role=option]"))
    expanded = "return document.activeElement.ariaExpanded"
    assert page.js(expanded) == "true"
    page.press(Keys.ESCAPE)
    assert page.js(expanded) == "false"
    page.press("y")
    page.until(lambda: page.js(expanded) == "true")
    page.press(Keys.ARROW_DOWN)
    marked = "document.activeElement.getAttribute('aria-activedescendant')"
    assert page.js(f"return document.getElementById({marked}).innerText") == "python3-numpy"
    page.press(Keys.ENTER)
    page.until(lambda: page.js("return location.search") == "?query=python3-numpy")
    page.wait()
    before = names(page)
    page.tab_to("#history input")
    page.press(Keys.SPACE)
    page.until(lambda: page.wait() and names(page) != before)
    assert page.js("return document.activeElement.checked") is False  # the focus stays
    page.tab_to("button.name")
    page.press(Keys.ENTER)
    page.until(lambda: page.texts(".similar li"))
    page.press(Keys.TAB)
    assert page.focus().startswith("a#.name")
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.js(outline) == "solid"


def test_every_field_has_a_label(page: Page) -> None:
    for path in ("/?query=vlc", "/?model=patients", "/?model=topics"):
        page.open(path)
        bare = page.js("""return [...document.querySelectorAll('input, select, textarea')].filter(
            e => e.checkVisibility() && !e.labels.length).map(e => e.outerHTML)""")
        assert bare == []


# ---------------------------------------------------------------------------------- errors


def test_an_unknown_key_shows_an_error(page: Page) -> None:
    page.open("/?query=vlc")
    page.fill("#query", "vlx")
    page.press(Keys.ENTER)
    assert page.wait() == "failed"
    assert page.text("[role=alert] .message") == "Unknown query 'vlx'."
    assert "'vlc'" in page.text("[role=alert] .hint")
    assert names(page) == []
    assert page.texts("#history .key") == []
    assert page.js("return document.querySelector('#query').value") == "vlx"
    page.fill("#query", "vlc")
    page.press(Keys.ENTER)
    assert page.wait() == "done"
    assert page.text("[role=alert]") == ""
    assert len(names(page)) == 10


def test_a_busy_server_can_be_tried_again(page: Page) -> None:
    page.open("/?query=vlc")
    page.js("""const real = window.fetch; window.fetch = async () => { window.fetch = real;
        return new Response('{"error": "the server is busy", "hint": "try again in a moment"}',
            {status: 429, headers: {'Retry-After': '1'}}) }""")
    page.click("button.main")
    assert page.wait() == "failed"
    assert page.text("[role=alert] .message") == "The server is busy."
    page.click("[role=alert] button")
    page.until(lambda: len(names(page)) == 10)


def test_a_server_that_does_not_respond(page: Page) -> None:
    page.open("/?query=vlc")
    page.offline(True)
    page.click("#history input")
    assert page.wait() == "failed"
    page.offline(False)
    assert page.text("[role=alert] .message") == "The server does not respond."
    assert len(page.texts("#history .key")) > 1
    page.click("[role=alert] button")
    page.until(lambda: len(names(page)) == 10)
    page.console()  # the browser itself logs failed requests


def test_late_responses_are_dropped(page: Page) -> None:
    page.open()
    page.js("""const real = window.fetch; window.begun = window.late = 0;
        window.fetch = async (address, options) => {
            const {signal, ...rest} = options;  // even without an abort
            const slow = options.body?.includes('gimp');
            window.begun += slow ? 1 : 0;
            try {
                return await real(address, rest);
            } finally {
                if (slow) await new Promise(done => setTimeout(done, 600));
                window.late += slow ? 1 : 0;
            } }""")
    for key in ("gimp", "vlc"):
        page.fill("#query", key)
        page.press(Keys.ENTER)
        page.until(lambda: page.js("return window.begun") > 0)
    page.wait()
    page.until(lambda: page.js("return window.late === window.begun"))
    page.js("return new Promise(done => setTimeout(done, 50))")
    assert page.wait() == "done"  # the late one does not change the state
    assert names(page) == keys_of(fetch(page.address, "/search", {"queries": ["vlc"]}))
    assert page.js("return location.search") == "?query=vlc"


def test_narrow_screens_do_not_scroll_sideways(page: Page) -> None:
    page.size(320, 640)
    paths = {
        "/?query=vlc&off=vlc-bin&k=30": "button.name",
        f"/?model=odd&query={LARGE}&include_seen=1": "button.name",
        f"/?model=odd&history={'w' * 300}": None,
        "/?model=topics&text=green": "button.name",
        "/?model=patients&row.age=50&fpr=0.1": None,
        "/?query=" + "x" * 200: None,
    }
    for path, opened in paths.items():
        page.open(path)
        if opened:
            page.click(opened)
        wide = page.js("return document.documentElement.scrollWidth")
        assert wide <= 320, path
        button = "document.querySelector('form:not([hidden]) button.main')"
        assert page.js(f"return {button}.getBoundingClientRect().height") >= 40
