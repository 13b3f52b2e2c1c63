"""`accord up`: the service in the foreground, its processes started again when they die."""

from __future__ import annotations

import threading
import time

import typer

from accord.learner.signals import when_told
from accord.learner.store import safe_url

from .stack import Stack

_LONGEST_PAUSE_S = 30.0
_CALM_AFTER_S = 60.0


class Supervisor:
    """Watches the processes of a stack and starts a dead one again, ever later while it keeps dying."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._failures: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._retry_at: dict[str, float] = {}

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
                child.start()
                self._started[name] = now
                said.append(f"{name} was started again")
        server = self.stack.server
        if server is not None and not server.running:
            server.start()
            said.append("the embedded store was started again")
        return said


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
