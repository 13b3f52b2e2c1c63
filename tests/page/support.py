"""What the page's tests share: the service that was taught, and pages that are watched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, ConsoleMessage, Page, Request
from tests.api.harness import RunningApi

from accord.api import Settings

SHIFTED, SHIFT = "chat:warm", -0.8
REASON = "drafts of last night's build look too sure"


@dataclass
class Taught:
    """A service that knows a pair, one workload of which somebody has made worse.

    Attributes:
        url, redis_url: where it is.
        pair: its id.
    """

    url: str
    redis_url: str
    pair: str

    def get(self, path: str) -> Any:
        """The answer below the pair."""
        answer = httpx.get(f"{self.url}/v1/pairs/{self.pair}{path}", timeout=20.0)
        answer.raise_for_status()
        return answer.json()

    def override(self, key: str) -> dict[str, Any] | None:
        """The override in force of a workload."""
        found: list[dict[str, Any]] = self.get("/overrides")["overrides"]
        return next((one for one in found if one["scope"] == key), None)

    def put(self, key: str, **body: Any) -> dict[str, Any]:
        """Puts an override, whatever was there."""
        url = f"{self.url}/v1/pairs/{self.pair}/workloads/{key}/override"
        answer = httpx.put(url, json=body, headers={"If-Match": "*"}, timeout=20.0)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


@dataclass
class Watched:
    """A page of which every complaint is remembered.

    Attributes:
        allowed: statuses of answers that the test provokes; the browser complains of each.
    """

    page: Page
    allowed: set[int] = field(default_factory=set)
    offline: bool = False
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error in a script: {error}"))
        self.page.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        text = message.text
        told = any(f"status of {status} " in text for status in self.allowed)
        lost = self.offline and "net::ERR_" in text
        if message.type in ("error", "warning") and not told and not lost:
            self.complaints.append(f"console: {text}")

    def _failed(self, request: Request) -> None:
        # The page ends reads of a view that was left, and the browser those of a page that was closed.
        if request.failure != "net::ERR_ABORTED" and not self.offline:
            self.complaints.append(f"{request.url}: {request.failure}")


class Tabs:
    """Opens pages, and fails the test in which one complained."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._watched: list[Watched] = []

    def open(self, url: str, *, width: int = 1280, scheme: str = "light", allowed: set[int] | None = None) -> Watched:
        """A page of its own context, at a URL."""
        context = self._browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        context.set_default_timeout(20_000)
        watched = Watched(context.new_page(), allowed or set())
        self._watched.append(watched)
        watched.page.goto(url)
        return watched

    def close(self) -> None:
        """Closes everything and tells of complaints."""
        for watched in self._watched:
            watched.page.context.close()
        assert [complaint for watched in self._watched for complaint in watched.complaints] == []


@contextmanager
def another_api(taught: Taught, **settings: Any) -> Iterator[RunningApi]:
    """An api of this process on the same store, with other settings."""
    with RunningApi(Settings.model_validate({"redis_url": taught.redis_url, **settings})) as running:
        yield running.ready()


def picture(page: Page, name: str) -> None:
    """Keeps a picture where ACCORD_SCREENSHOTS says, to be looked at."""
    folder = os.environ.get("ACCORD_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
