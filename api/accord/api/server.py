"""Serves the application: its own socket, its own signals, and an end within two seconds."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from accord.learner.errors import AccordError
from accord.learner.log_throttle import LogThrottle

from .logs import event
from .patience import PatientProtocol
from .settings import Settings

DRAIN_S = 1
"""How long answers may take to reach clients after the stop; whoever reads slower is cut off."""
BACKLOG = 4096
ACCEPTED_AT_ONCE = 128
"""Connections that the event loop takes in one go; without descriptors it complains as often, every second."""
NO_FILES = "socket.accept() out of system resource"
"""How asyncio says so."""
SPARE_FILES = 512


class BindError(AccordError):
    """The address cannot be listened on."""


class TlsError(AccordError):
    """The certificate or its key cannot be used."""


class ExposedError(AccordError):
    """The address can be reached by others, and there are no tokens to tell them apart."""


def bind(host: str, port: int, loopback_only: bool = False) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Args:
        host, port: where.
        loopback_only: refuse every address that others could reach.

    Raises:
        BindError: saying which address, and why not.
        ExposedError: for an address beyond loopback.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if loopback_only and not ipaddress.ip_address(str(found[4][0]).partition("%")[0]).is_loopback:
            raise ExposedError(
                f"ACCORD_API_HOST = {host!r:.120}: others reach this address, and without tokens they all could change "
                "what engines are served; set ACCORD_API_TOKENS_FILE (see accord token create), or say --insecure"
            )
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


def address(sock: socket.socket, tls: bool = False) -> str:
    """The URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def check_tls(settings: Settings) -> None:
    """Loads the certificate once, so that a bad one is refused before anything starts.

    Raises:
        TlsError: naming the setting.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        # An empty password, or OpenSSL asks the terminal for that of an encrypted key.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_cert, settings.tls_key, password=""
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise TlsError(
            f"ACCORD_API_TLS_CERT = {settings.tls_cert!r:.120} with ACCORD_API_TLS_KEY = {settings.tls_key!r:.120}: "
            f"no usable certificate and key: {why}"
        ) from None


class Server(uvicorn.Server):
    """uvicorn, with the long-polls answered first when it stops, and without its traceback on a signal.

    Args:
        app: made by `create_app`.
        on_listen: called once it listens.
        tls: files of certificate and key, or None for plain HTTP.
    """

    def __init__(
        self, app: FastAPI, on_listen: Callable[[], None] = lambda: None, tls: tuple[str, str] | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                # uvicorn looks for a coroutine function; this application only returns an awaitable.
                interface="asgi3",
                ws="none",
                # Of h11: the other one has no bound on the size of headers.
                http=PatientProtocol,
                ssl_certfile=None if tls is None else tls[0],
                ssl_keyfile=None if tls is None else tls[1],
                backlog=ACCEPTED_AT_ONCE,
                # Longer than the longest wait of load balancers in front, as they reuse connections.
                timeout_keep_alive=75,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )
        self._app = app
        self._on_listen = on_listen

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen, and says so."""
        asyncio.get_running_loop().set_exception_handler(_tell)
        await super().startup(sockets)
        for sock in sockets or ():
            # The loop has set the length of the queue to what it accepts at once.
            sock.listen(BACKLOG)
        if self.started:
            self._on_listen()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers every open long-poll and ends every stream, then closes."""
        self._app.state.services.stop()
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
    """Every long-poll and every event stream holds a file descriptor: asks the system for enough, and lowers
    `max_waiters`, then `max_streams`, to what it grants.

    Polls above that are answered at once, and streams refused; without descriptors they could not even connect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_waiters + settings.max_streams + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return settings
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    if granted == wanted:
        return settings
    left = max(0, granted - SPARE_FILES)
    # However many streams are allowed, half of what there is stays for engines.
    streams = min(settings.max_streams, left // 2)
    fewer = {"max_waiters": min(settings.max_waiters, left - streams), "max_streams": streams}
    event("few file descriptors", level=logging.WARNING, granted=granted, wanted=wanted, **fewer)
    return settings.model_copy(update=fewer)


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Whoever opens connections must not fill the log with them: one line a minute when no descriptor is left."""
    if context.get("message") != NO_FILES:
        loop.default_exception_handler(context)
    elif count := _complaints.count(NO_FILES):
        event("no file descriptors left", level=logging.ERROR, reason=str(context.get("exception")), count=count)


_complaints = LogThrottle()


def _not_cancelled(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
