"""A real browser for tests: Chromium, driven by Selenium, and a server in another process."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

TIMEOUT = 15.0  # seconds: a busy machine is slow
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
)


class Browser:
    """A window: its content, clicks and key presses."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.address = ""

    def open(self, path: str = "/", address: str | None = None) -> None:
        """Load the page and wait for its first response."""
        self.address = address or self.address
        self.driver.get(self.address + path)
        self.wait()

    def js(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def wait(self) -> str:
        """Wait until the newest request has its response; returns ``done`` or ``failed``."""
        script = "return document.querySelector('#results').dataset.state"
        return str(self.until(lambda: self.js(script) in ("done", "failed") and self.js(script)))

    def until(self, condition: Callable[[], Any]) -> Any:
        end = time.monotonic() + TIMEOUT
        while not (value := condition()):
            assert time.monotonic() < end, f"timeout; the page shows: {self.text('main')}"
            time.sleep(0.02)
        return value

    def text(self, css: str) -> str:
        """The visible text of the first such element; "" if there is none."""
        return str(self.js("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def texts(self, css: str) -> list[str]:
        """The text of each such element, including text for screen readers."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return list(self.js(script, css))

    def click(self, css: str, place: int = 0) -> None:
        self.js("document.querySelectorAll(arguments[0])[arguments[1]].click()", css, place)

    def fill(self, css: str, text: str) -> None:
        """Put text in a field, as if it was typed."""
        script = """const field = document.querySelector(arguments[0]);
            field.focus(); field.value = arguments[1];
            field.dispatchEvent(new Event('input', {bubbles: true}))"""
        self.js(script, css, text)

    def press(self, *keys: str, holding: str | None = None) -> None:
        """Real key presses on the focused element."""
        chain = webdriver.ActionChains(self.driver, duration=0)
        if holding is not None:
            chain.key_down(holding)
        chain.send_keys(*keys)
        if holding is not None:
            chain.key_up(holding)
        chain.perform()

    def tab_to(self, css: str) -> None:
        """Press Tab until such an element has the focus."""
        at = "return document.activeElement.matches(arguments[0])"
        for _ in range(60):
            self.press(Keys.TAB)
            if self.js(at, css):
                return
        raise AssertionError(f"Tab never reaches {css}")

    def focus(self) -> str:
        """The focused element, as ``tag#id.class: text``."""
        script = """const e = document.activeElement;
            return `${e.localName}#${e.id}.${e.className}: ${e.innerText || e.key || ''}`"""
        return str(self.js(script))

    def size(self, width: int, height: int = 800) -> None:
        seen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", seen)

    def offline(self, value: bool) -> None:  # noqa: FBT001
        conditions = {
            "offline": value,
            "latency": 0,
            "downloadThroughput": -1,
            "uploadThroughput": -1,
        }
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)

    def console(self) -> list[str]:
        """The console messages since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def violations(self) -> list[str]:
        """What axe-core finds against WCAG 2.2 AA and its best practices, and where."""
        found = find_spec("axe_core_python")
        if found is None or found.origin is None:
            pytest.skip("no axe-core: pip install axe-core-python")
        self.js((Path(found.origin).parent / "axe.min.js").read_text())
        script = "axe.run(document).then(arguments[0], error => arguments[0](String(error)))"
        result = self.driver.execute_async_script(script)
        assert isinstance(result, dict), result
        assert result["passes"]
        return [
            f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes']]}"
            for one in result["violations"]
        ]

    def requests(self) -> list[str]:
        """The URLs of everything that the page has loaded."""
        return list(self.js("return performance.getEntriesByType('resource').map(e => e.name)"))


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser; skips the test if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("browser tests skipped: no chromium; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in OPTIONS:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options, Service(driver))
    try:
        yield Browser(window)
    finally:
        window.quit()


@contextmanager
def serving(*folders: Path, token: str = "") -> Iterator[Callable[[], str]]:
    """``rankfold serve`` on a free port; yields a function that returns its URL."""
    variables = {"OMP_NUM_THREADS": "1", **({"RANKFOLD_TOKEN": token} if token else {})}
    words = ["-m", "rankfold", "serve", *map(str, folders), "--port", "0", "--threads", "1"]
    server = subprocess.Popen(
        [sys.executable, *words, "--quiet"],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    @cache
    def address() -> str:
        assert server.stdout is not None
        first = server.stdout.readline()
        assert first.startswith("serving on "), f"the server did not start: {first!r}"
        return first.split()[-1]

    try:
        yield address
    finally:
        server.kill()
        server.communicate(timeout=20)


def fetch(address: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The server's own response, to compare the page with."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address + path, data, {"Content-Type": "application/json"})) as response:
        return json.load(response)


def names(page: Browser) -> list[str]:
    """The keys of the results that the page shows."""
    return page.texts(".hit > .name .key")


def keys_of(results: Any) -> list[str]:
    """The keys of the first list in a response."""
    return [str(entry["candidate"]) for entry in results["results"][0]["candidates"]]
