"""One valkey-server process, with what a campaign does to it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.e2e.recorder import NO_REWRITE
from tests.waiting import until

from accord.learner.child import Child
from accord.learner.embedded import _find_binary, _free_port

FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
"""Moves a server's clock; on Debian the package libfaketime."""


class Node:
    """A server that appends every write to a file before it answers.

    Args:
        folder: data and log; survive the process.
        options: more options of the server.
        fake_time: whether its clock can be moved, where libfaketime is installed.
    """

    def __init__(self, folder: Path, options: Sequence[str] = (), *, fake_time: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, _free_port()
        self.extra: list[str] = []
        self._clock = folder.parent / f"{folder.name}.clock"
        environment = {}
        self.movable = fake_time and FAKETIME is not None
        if self.movable:
            self.move_clock(0)
            environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                           "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}  # fmt: skip
        self._argv = [str(_find_binary()), "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        self._argv += ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
        self._argv += [*NO_REWRITE, "--repl-diskless-sync-delay", "0", *options]
        self._environment = environment
        self.child = self._make()

    def _make(self) -> Child:
        log = self.folder.parent / f"{self.folder.name}.log"
        return Child("valkey", [*self._argv, *self.extra], log, environment=self._environment, cwd=self.folder)

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """A client that neither waits long nor repeats."""
        return redis.Redis(port=self.port, socket_timeout=2.0, protocol=2, retry=Retry(NoBackoff(), 0))

    def do(self, *command: object) -> object:
        """One command."""
        with self.client() as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Starts it on its data and waits until it serves."""
        self.child = self.child if not self.extra else self._make()
        self.child.start()
        until(self.serves, what=f"server {self.port} serving; {self.child.tail(5)}")

    def serves(self) -> bool:
        """Whether it answers, and is this process."""
        with contextlib.suppress(redis.RedisError, OSError):
            return f"process_id:{self.child.pid}".encode() in _bytes(self.do("INFO", "server"))
        return False

    def move_clock(self, seconds: float) -> None:
        """Its clock is this far from the real one from now on."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}")
        os.replace(fresh, self._clock)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.child.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.child.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self.child.kill()

    def stop(self) -> None:
        """SIGTERM."""
        self.child.stop()


def _bytes(value: object) -> bytes:
    if isinstance(value, dict):
        return "\n".join(f"{key}:{item}" for key, item in value.items()).encode()
    return value if isinstance(value, bytes) else str(value).encode()
