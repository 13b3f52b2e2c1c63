"""`accord up`: the service in the foreground, its processes started again when they die."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import typer

from accord.learner.errors import AccordError
from accord.learner.signals import when_told
from accord.learner.store import safe_url

from .stack import Stack

_LONGEST_PAUSE_S = 30.0
_CALM_AFTER_S = 60.0
_FAILED_PAUSE_S = 5.0
_STORE = "the embedded store"


class Supervisor:
    """Watches the processes of a stack and starts a dead one again, ever later while it keeps dying."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._failures: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._retry_at: dict[str, float] = {}
        self._told_of_loss = False

    def check(self, now: float) -> list[str]:
        """Starts what is due and returns a line for everything that happened."""
        said: list[str] = []
        for child in self.stack.children:
            name = child.name
            if child.alive:
                if now - self._started.get(name, now) > _CALM_AFTER_S:
                    self._failures.pop(name, None)
                continue
            if name not in self._retry_at:
                pause = min(0.5 * 2.0 ** self._failures.get(name, 0), _LONGEST_PAUSE_S)
                self._failures[name] = self._failures.get(name, 0) + 1
                self._retry_at[name] = now + pause
                said.append(f"{name} ended with status {child.returncode}; it starts again in {pause:.1f} s")
            elif now >= self._retry_at[name]:
                del self._retry_at[name]
                said.append(self._again(name, now, child.start, f"{name} was started again"))
        return said + self._store(now)

    def _store(self, now: float) -> list[str]:
        server, said = self.stack.server, list[str]()
        if server is None:
            return said
        if server.running:
            lost = server.lost_its_data
            if lost and not self._told_of_loss:
                said.append(f"{server.data_dir} is gone: nothing is written to it, all is lost when the store ends")
            self._told_of_loss = lost
        elif now >= self._retry_at.pop(_STORE, now):
            line = f"{_STORE} was started again"
            if server.lost_its_data:
                line += f", without its data: {server.data_dir} was gone"
            said.append(self._again(_STORE, now, server.start, line))
        return said

    def _again(self, name: str, now: float, start: Callable[[], object], line: str) -> str:
        try:
            start()
        except (AccordError, OSError) as error:
            # The others go on; whatever is in the way may be mended meanwhile.
            self._retry_at[name] = now + _FAILED_PAUSE_S
            return f"{name} cannot be started, it is tried again in {_FAILED_PAUSE_S:.0f} s: {error}"
        self._started[name] = now
        return line


def serve(stack: Stack) -> None:
    """Runs a stack until SIGINT or SIGTERM, then stops it in order."""
    ended = ended_by_signal()
    with stack:
        where = f"embedded store in {stack.folder}" if stack.server else f"store {safe_url(stack.redis_url)}"
        typer.echo(f"accord serves {stack.api_url} ({where}); Ctrl-C stops it")
        typer.echo(f"engines: ACCORD_REDIS_URL={safe_url(stack.redis_url)} ACCORD_API_URL={stack.api_url}")
        supervise(stack, ended)
    typer.echo("accord has stopped")


def ended_by_signal() -> threading.Event:
    """Set once SIGINT or SIGTERM has come."""
    ended = threading.Event()
    when_told(ended.set)
    return ended


def supervise(stack: Stack, ended: threading.Event) -> None:
    """Starts dead processes of a stack again until the event is set; says on stderr what happened."""
    stack.pin_api_port()
    supervisor = Supervisor(stack)
    while not ended.wait(0.2):
        for line in supervisor.check(time.monotonic()):
            typer.echo(line, err=True)
