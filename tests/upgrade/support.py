"""Processes of this release and of the one before it, against one store."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "learner/accord/learner/evaluate/data/bundled.npz"
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Release:
    """A tree of the packages: an unpacked earlier release, or None for what is installed."""

    name: str
    tree: Path | None

    def child(self, what: str, arguments: list[str], log: Path, **variables: str) -> Child:
        """A process of this release, not started."""
        mine = {name: "" for name in os.environ if name.startswith("ACCORD_")}
        path = {"PYTHONPATH": str(self.tree)} if self.tree else {}
        argv = [sys.executable, "-m", what, *arguments]
        return Child(f"{self.name} {what}", argv, log, environment={**mine, **path, **variables}, cwd=log.parent)


@contextmanager
def running(child: Child) -> Iterator[Child]:
    """The process, started; told to stop at the end, and its log shown when something failed."""
    child.start()
    try:
        yield child
    except BaseException:
        print(f"--- {child.name} ---\n{child.log.read_text()[-4000:]}")
        raise
    finally:
        child.stop()


@contextmanager
def service(learner: Release, api: Release, server: EmbeddedServer, folder: Path) -> Iterator[str]:
    """A learner and an api; the api's address, once it is ready."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    learning = learner.child("accord.learner", ["--redis-url", server.url], folder / "learner.log")
    options = ["--redis-url", server.url, "--port", str(port)]
    serving = api.child("accord.api", options, folder / "api.log")
    with running(learning), running(serving):
        until(lambda: _ok(f"{url}/readyz"))
        yield url


def replay(release: Release, name: str, server: EmbeddedServer, url: str, folder: Path, steps: int) -> dict[str, Any]:
    """An engine that replays the trace to its end; what it said last.

    It goes slowly enough to be served coefficients on the way.
    """
    status = folder / f"{name}.jsonl"
    arguments = ["--trace", str(TRACE), "--engine", name, "--redis-url", server.url, "--api-url", url]
    arguments += ["--steps", str(steps), "--rate", "120", "--status-file", str(status)]
    with running(release.child("accord.hooks.replay", arguments, folder / f"{name}.log")) as child:
        until(lambda: not child.alive)
        assert child.returncode == 0
    said: dict[str, Any] = json.loads(status.read_text().splitlines()[-1])
    assert said["final"]
    return said


def detail(url: str, pair: str) -> dict[str, Any]:
    """A pair as the api shows it."""
    found: dict[str, Any] = httpx.get(f"{url}/v1/pairs/{pair}").raise_for_status().json()
    return found


def _ok(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
