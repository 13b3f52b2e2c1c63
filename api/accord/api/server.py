"""Serves the application: its own socket, its own signals, and an end within two seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from accord.learner.errors import AccordError

from .logs import event
from .settings import Settings

DRAIN_S = 1
"""How long answers may take to reach clients after the stop; whoever reads slower is cut off."""
BACKLOG = 4096
SPARE_FILES = 512


class BindError(AccordError):
    """The address cannot be listened on."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        BindError: saying which address, and why not.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # With its protocol named, asyncio switches Nagle's algorithm off: an answer must not wait for an ACK.
        sock = socket.socket(*found[:3])
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(found[4])
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BindError(f"cannot listen on {host} port {port}: {why}") from None
    return sock


def address(sock: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn, with the long-polls answered first when it stops, and without its traceback on a signal.

    Args:
        app: made by `create_app`.
        on_listen: called once it listens.
    """

    def __init__(self, app: FastAPI, on_listen: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws="none",
                backlog=BACKLOG,
                # Longer than the longest wait of load balancers in front, as they reuse connections.
                timeout_keep_alive=75,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )
        self._app = app
        self._on_listen = on_listen

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen, and says so."""
        await super().startup(sockets)
        if self.started:
            self._on_listen()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers every open long-poll, then closes."""
        self._app.state.services.waiters.stop()
        # Otherwise a traceback for every client that did not take its answer in time.
        logging.getLogger("uvicorn.error").addFilter(_not_cancelled)
        try:
            await super().shutdown(sockets)
        finally:
            logging.getLogger("uvicorn.error").removeFilter(_not_cancelled)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the server, which then ends with status 0."""
        loop = asyncio.get_running_loop()
        caught = []
        for number in (signal.SIGTERM, signal.SIGINT):
            # In a thread other than the main one signals are somebody else's.
            with contextlib.suppress(RuntimeError, ValueError):
                loop.add_signal_handler(number, self.handle_exit, number, None)
                caught.append(number)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)


def allow_waiters(settings: Settings) -> Settings:
    """Every long-poll holds a file descriptor: asks the system for enough, and lowers `max_waiters` to what it grants.

    Polls above that are answered at once; without descriptors they could not even connect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_waiters + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return settings
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    if granted == wanted:
        return settings
    waiters = max(0, granted - SPARE_FILES)
    event("few file descriptors", level=logging.WARNING, granted=granted, wanted=wanted, max_waiters=waiters)
    return settings.model_copy(update={"max_waiters": waiters})


def _not_cancelled(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
