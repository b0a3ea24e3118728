"""Debian's Chromium, driven by its own driver: pages from disk, with what went wrong in them.

Where there is no Chromium, tests with it are skipped by name; with REWARM_TEST_BROWSER=1 that is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_BROWSERS, _DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
          "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip

# A loaded machine takes its time; what a page itself takes is measured inside.
_PATIENCE = 60.0


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


def _missing() -> str | None:
    if _found(_BROWSERS) is None or _found(_DRIVERS) is None:
        return "no chromium and chromedriver (apt-get install chromium chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium (pip install 'rewarm[test]')"
    return None


def need_browser() -> None:
    """Skip the test, or fail it, where there is no browser."""
    missing = _missing()
    if missing is not None and os.environ.get("REWARM_TEST_BROWSER") == "1":
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)


class Page:
    """One window, and what it was told of."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, path: Path) -> float:
        """Show a page from disk, and wait until all of it is there; returns its own measure of that, in seconds."""
        self.driver.get(path.absolute().as_uri())
        until = time.monotonic() + _PATIENCE
        while (ready := self.run("return document.documentElement.dataset.ready")) is None:
            assert time.monotonic() < until, self.driver.get_log("browser")
            time.sleep(0.05)
        return int(ready) / 1000

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def column(self, table: str, number: int) -> list[str]:
        """The texts of a table's column, from 0."""
        found = self.run(
            "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map(row => "
            "row.children[arguments[1]].textContent.toWellFormed())",
            table,
            number,
        )
        return list(found)

    def wait(self, script: str) -> None:
        """Until a script returns something true."""
        until = time.monotonic() + _PATIENCE
        while not self.run(script):
            assert time.monotonic() < until, script
            time.sleep(0.05)

    def complaints(self) -> list[str]:
        """What the console has, since the last look."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was asked for, since the last look, but the page itself."""
        told = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not (url.startswith("file://") and url.endswith(".html")) and url != "data:,"]

    def prefer(self, scheme: str) -> None:
        """Have the system prefer "dark" or "light"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}]  # else what is to be clicked still moves
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def press(self, *keys: str) -> None:
        """Keys, to what has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()


@contextmanager
def browser(width: int = 1400, height: int = 1000) -> Iterator[Page]:
    """A fresh browser, with nothing of another's in it."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(_found(_BROWSERS))
    for flag in (*_FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(_found(_DRIVERS)))
    try:
        yield Page(driver)
    finally:
        driver.quit()
