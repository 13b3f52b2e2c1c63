"""A browser, and a service that a real fleet has taught, for the page's tests."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from tests.page.support import REASON, SHIFT, SHIFTED, Tabs, Taught

from accord.hooks.demo.fleet import Fleet
from accord.hooks.demo.stack import Stack

LABELS = 1_500
"""Of every workload of the bundled trace, at least; so many are judged."""
CALIBRATED = 0.045
TAUGHT_WITHIN_S = 60.0
WORKLOADS = 8


@pytest.fixture(scope="session")
def taught(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taught]:
    """Store, learner and api as processes, after a short run of two replay engines and one operator's mistake.

    Asks for Chromium first: without it nothing needs to be learnt.
    """
    folder = tmp_path_factory.mktemp("page")
    with Stack(folder) as stack:
        fleet = Fleet(folder, stack.redis_url, stack.api_url, engines=2, rate=100.0)
        fleet.start()
        try:
            pair = _learnt(stack.api_url)
        finally:
            assert fleet.stop() == [0, 0]
        taught = Taught(stack.api_url, stack.redis_url, pair)
        taught.put(SHIFTED, kind="shift", shift=SHIFT, reason=REASON, actor="anna", expires_in_s=7200)
        yield taught


def _learnt(url: str) -> str:
    deadline = time.monotonic() + TAUGHT_WITHIN_S
    while time.monotonic() < deadline:
        pairs = httpx.get(f"{url}/v1/pairs", timeout=20.0).json()["pairs"]
        if pairs:
            pair: str = pairs[0]["id"]
            detail = httpx.get(f"{url}/v1/pairs/{pair}", timeout=20.0).json()
            known = [row["labels"] >= LABELS and (row["ece"] or 1.0) < CALIBRATED for row in detail["workloads"]]
            if len(known) == WORKLOADS and all(known):
                return pair
        time.sleep(0.2)
    raise TimeoutError(f"not all workloads were learnt in {TAUGHT_WITHIN_S} s")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is; without one the tests are skipped, unless ACCORD_REQUIRE_BROWSER=1 asks for it."""
    path = os.environ.get("ACCORD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        reason = "no Chromium: install the chromium package, or set ACCORD_CHROMIUM to one"
        if os.environ.get("ACCORD_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Headless Chromium. It ends with each module: its event loop would be in the way of other tests' own."""
    # Its sandbox needs rights that root in a container does not have.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    # Well above what is needed on a quiet machine.
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield running
        running.close()


@pytest.fixture
def tabs(browser: Browser) -> Iterator[Tabs]:
    """Pages, of which none may complain."""
    opened = Tabs(browser)
    try:
        yield opened
    finally:
        opened.close()
