"""A real browser for tests: Chromium, driven by Selenium, and a server in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

PATIENCE = 15.0  # seconds: a busy machine is slow
QUIET = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
QUIETER = ("--disable-background-networking", "--no-first-run", "--hide-scrollbars")


class Browser:
    """A window, what it shows, and keys that are pressed in it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.address = ""

    def open(self, path: str = "/", address: str | None = None) -> None:
        """Load the page and wait for its first answer."""
        self.address = address or self.address
        self.driver.get(self.address + path)
        self.finalize()

    def js(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def finalize(self) -> str:
        """Wait until the newest question has its answer; ``answered`` or ``failed``."""
        script = "return document.querySelector('#answer').dataset.state"
        return str(
            self.until(lambda: self.js(script) in ("answered", "failed") and self.js(script))
        )

    def until(self, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert time.monotonic() < end, f"never so; the page says: {self.text('main')}"
            time.sleep(0.02)
        return found

    def text(self, css: str) -> str:
        """What a person sees of the first such element; "" where there is none."""
        return str(self.js("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def texts(self, css: str) -> list[str]:
        """All that screen readers get of each such element."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return list(self.js(script, css))

    def click(self, css: str, place: int = 0) -> None:
        self.js("document.querySelectorAll(arguments[0])[arguments[1]].click()", css, place)

    def fill(self, css: str, words: str) -> None:
        """Put words in a field, as if they were typed."""
        script = """const field = document.querySelector(arguments[0]);
            field.focus(); field.value = arguments[1];
            field.dispatchEvent(new Event('input', {bubbles: true}))"""
        self.js(script, css, words)

    def press(self, *keys: str, holding: str | None = None) -> None:
        """Real key presses, to whatever has the focus."""
        chain = webdriver.ActionChains(self.driver, duration=0)
        if holding is not None:
            chain.key_down(holding)
        chain.send_keys(*keys)
        if holding is not None:
            chain.key_up(holding)
        chain.perform()

    def tab_to(self, css: str) -> None:
        """Press Tab until the focus is at such an element."""
        at = "return document.activeElement.matches(arguments[0])"
        for _ in range(60):
            self.press(Keys.TAB)
            if self.js(at, css):
                return
        raise AssertionError(f"Tab never comes to {css}")

    def focus(self) -> str:
        """What has the focus, as ``tag#id.class: text``."""
        script = """const e = document.activeElement;
            return `${e.localName}#${e.id}.${e.className}: ${e.innerText || e.key || ''}`"""
        return str(self.js(script))

    def size(self, width: int, height: int = 800) -> None:
        seen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", seen)

    def offline(self, is_so: bool) -> None:  # noqa: FBT001
        how = {"offline": is_so, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", how)

    def console(self) -> list[str]:
        """What was logged since it was last asked for."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that the page has loaded something from."""
        return list(self.js("return performance.getEntriesByType('resource').map(e => e.name)"))


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser; skips the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("browser tests skipped: no chromium; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in (*QUIET, *QUIETER):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options, Service(driver))
    try:
        yield Browser(window)
    finally:
        window.quit()


@contextmanager
def serving(*folders: Path, token: str = "") -> Iterator[Callable[[], str]]:
    """``rankfold serve`` as a person starts it, at a free port; gives what tells its address."""
    own = {"OMP_NUM_THREADS": "1", **({"RANKFOLD_TOKEN": token} if token else {})}
    words = ["-m", "rankfold", "serve", *map(str, folders), "--port", "0", "--threads", "1"]
    server = subprocess.Popen(
        [sys.executable, *words, "--quiet"],
        env={**os.environ, **own},
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


def asked(address: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The server's own answer, to hold the page against."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address + path, data, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)
