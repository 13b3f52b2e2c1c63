"""Serves a learner's metrics over HTTP, on threads of its own: the learning thread never waits for a client."""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from ..errors import AccordError
from .metrics import Meters

SILENT_S = 30.0
"""A loop that has ended no pass for so long is stuck: its longest waits are those for the store, a few seconds."""
CLIENT_TIMEOUT_S = 5.0
MAX_CLIENTS = 16


class MetricsServerError(AccordError):
    """The address cannot be listened on."""


class MetricsServer:
    """`/metrics`; `/livez`: the loop goes round; `/readyz`: and the store answers.

    Args:
        meters: what is served.
        host, port: where; port 0 takes any free one.

    Raises:
        MetricsServerError: naming the address, and why not.
    """

    def __init__(self, meters: Meters, host: str, port: int) -> None:
        try:
            self._server = _Server(host, port, meters)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise MetricsServerError(
                f"ACCORD_LEARNER_METRICS_HOST = {host!r}, ACCORD_LEARNER_METRICS_PORT = {port}: {why}"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, meters: Meters) -> None:
        self.meters = meters
        self.free = threading.BoundedSemaphore(MAX_CLIENTS)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = found[0]
        super().__init__((str(found[4][0]), port), _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """One thread a client, and no more of them than MAX_CLIENTS."""
        if not self.free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answers one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is nobody's business."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "accord", ""
    timeout = CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        meters = self.server.meters
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, generate_latest(meters.registry), CONTENT_TYPE_PLAIN_0_0_4)
        elif path in ("/livez", "/readyz"):
            alive = meters.pass_age_s < SILENT_S
            fine = alive and (meters.ready or path == "/livez")
            word = b"ok\n" if fine else b"the store is away\n" if alive else b"the loop does not go round\n"
            self._answer(HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE, word, "text/plain; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Never a line a request."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
