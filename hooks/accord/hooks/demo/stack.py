"""The service on one machine: a store, learners and an API, each a real process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from accord.learner.child import Child
from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import AccordError
from accord.learner.store import safe_url


class StackError(AccordError):
    """A part of the service did not come up; the message ends with the last lines of its log."""


class Stack:
    """Store, learners and API as child processes on loopback.

    Args:
        folder: for logs, the ready file and the embedded store's data.
        redis_url: an existing store; by default an embedded one is started and owned.
        learners: how many learner processes.
        host, port: where the API listens; port 0 picks a free one, and keeps it over restarts.

    Attributes:
        server: the embedded store, or None.
        learners: the learner processes.
        api: the API process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        redis_url: str | None = None,
        learners: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "api.url").unlink(missing_ok=True)
        except OSError as error:
            raise StackError(f"{folder} cannot be used: {error.strerror or error}") from None
        self.server = None if redis_url else EmbeddedServer(folder / "store")
        self._given_url = redis_url
        self._ready = folder / "api.url"
        self._count, self._host, self._port = learners, host, port
        self.learners: list[Child] = []
        self.api_url = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def redis_url(self) -> str:
        """Where the store is."""
        return self._given_url or (self.server.url if self.server else "")

    @property
    def children(self) -> list[Child]:
        """Learners and API."""
        return [*self.learners, self.api]

    def start(self, timeout_s: float = 30.0) -> Self:
        """Starts everything and waits until the API is ready.

        Raises:
            StackError, EmbeddedServerError: with the log of the part that failed; what had started is stopped.
        """
        try:
            if self.server:
                self.server.start(timeout_s)
            # In the environment, not the arguments: a URL may hold a password, and arguments are visible to everyone.
            environment = {"ACCORD_REDIS_URL": self.redis_url}
            self._ready.unlink(missing_ok=True)
            python = [sys.executable, "-m"]
            self.learners = [
                Child(
                    f"learner-{i + 1}",
                    [*python, "accord.learner"],
                    self._log(f"learner-{i + 1}"),
                    environment=environment,
                )
                for i in range(self._count)
            ]
            where = ["--host", self._host, "--port", str(self._port), "--ready-file", str(self._ready)]
            self.api = Child("api", [*python, "accord.api", *where], self._log("api"), environment=environment)
            for child in self.children:
                child.start()
            self._wait_for_api(timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def restart_api(self, timeout_s: float = 30.0) -> None:
        """Starts the API again where it listened before."""
        self.pin_api_port()
        self.api.stop()
        self.api.start()
        self._wait_for_api(timeout_s)

    def pin_api_port(self) -> None:
        """From now on the API starts on the port that it has."""
        self.api.argv[self.api.argv.index("--port") + 1] = self.api_url.rsplit(":", 1)[1]

    def stop(self) -> None:
        """Stops the API and the learners, then the store; leases are given back on the way."""
        for child in reversed([*self.learners, *([self.api] if hasattr(self, "api") else [])]):
            child.stop()
        if self.server:
            self.server.stop()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait_for_api(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        why = "did not answer in time"
        while time.monotonic() < deadline:
            for child in self.children:
                if not child.alive:
                    raise StackError(f"{child.name} ended with status {child.returncode}:\n{child.tail()}")
            if self._ready.exists():
                self.api_url = self._ready.read_text(encoding="utf-8").strip()
                try:
                    answer = httpx.get(f"{self.api_url}/readyz", timeout=2.0, trust_env=False)
                except httpx.HTTPError as error:
                    why = str(error)
                else:
                    if answer.status_code == 200:
                        return
                    why = f"/readyz answered {answer.status_code}"
            time.sleep(0.02)
        store = safe_url(self.redis_url)
        raise StackError(f"the API at {self.api_url or self._host}, store {store}: {why}\n{self.api.tail()}")


def default_folder() -> Path:
    """Where `accord up` keeps its data: $XDG_STATE_HOME/accord, or ~/.local/state/accord."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "accord"
