"""GET with every dimension bounded: bytes, seconds in all, and how long it takes to give up when told to."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from accord.learner.coefficients import MAX_TABLE_BYTES
from accord.learner.errors import AccordError, Reason, Refusal

CONNECT_TIMEOUT_S = 5.0
SHORT_BYTES = 4096
"""A refusal of a service of ours is shorter."""


class PullError(AccordError):
    """A request brought no usable answer."""


class TokenRefusedError(PullError):
    """The server answered 401 or 403: without another token, asking again does not help.

    Attributes:
        status: of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"HTTP {status}: {message}" if message else f"HTTP {status}")


class OverdueError(PullError):
    """An answer took longer than it may, however alive the server looked."""


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        body: of a 200; empty for a 304.
        etag: of the body, or None.
        modified: False for a 304.
        stale: the service says that it has lost its store.
    """

    body: bytes
    etag: str | None
    modified: bool
    stale: bool


class BoundedClient:
    """An HTTP client for one thread; any other may `interrupt` it.

    Args:
        agent: the User-Agent.
        read_s: longest silence of a server.
        verify: certificates, by which authorities; False where there are none to verify.
    """

    def __init__(self, agent: str, read_s: float, verify: bool | ssl.SSLContext) -> None:
        # Compressed bodies are not asked for: a megabyte may inflate to a gigabyte.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": agent}
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(read_s, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # A proxy from the environment would end long-polls, and .netrc replace the token.
            trust_env=False,
            verify=verify,
        )
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def interrupt(self) -> None:
        """Wakes a `get` that waits for bytes, which then raises; from any thread."""
        found = self._socket
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def get(
        self, url: str, params: dict[str, str], etag: str | None, within_s: float, token: str | None = None
    ) -> Answer:
        """One GET, conditional on an ETag unless it is None, with a bearer token unless that is None.

        Raises:
            TokenRefusedError: for 401 and 403.
            OverdueError: when the whole answer is not there after `within_s` seconds.
            PullError: for a status other than 200, or 304 to a condition.
            Refusal: size, or schema for a compressed body.
            httpx.HTTPError: for everything that a network does.
        """
        headers = {} if etag is None else {"If-None-Match": etag}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # No timeout of the client bounds a whole answer that drips in byte by byte.
        with _Watch(within_s, self.interrupt) as watch:
            try:
                return self._get(url, params, headers, time.monotonic() + within_s)
            except Exception:
                if watch.fired:
                    raise OverdueError(f"no answer within {within_s:.0f} s") from None
                raise

    def _get(self, url: str, params: dict[str, str], headers: dict[str, str], deadline: float) -> Answer:
        extensions = {"trace": self._trace}
        with self._client.stream("GET", url, params=params, headers=headers, extensions=extensions) as response:
            stale = response.headers.get("accord-stale") == "true"
            if response.status_code == httpx.codes.NOT_MODIFIED and "If-None-Match" in headers:
                return Answer(b"", None, False, stale)
            if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                raise TokenRefusedError(response.status_code, _message(response))
            if response.status_code != httpx.codes.OK:
                raise PullError(f"HTTP {response.status_code}")
            if response.headers.get("content-encoding", "identity") != "identity":
                raise Refusal(Reason.SCHEMA, "a compressed body")
            return Answer(_read(response, deadline), response.headers.get("etag"), True, stale)

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            stream = info.get("return_value")
            self._socket = stream.get_extra_info("socket") if stream is not None else None


class _Watch:
    """Interrupts what runs inside it when it takes too long."""

    def __init__(self, after_s: float, interrupt: Callable[[], None]) -> None:
        self.fired = False
        self._interrupt = interrupt
        self._timer = threading.Timer(after_s, self._fire)
        self._timer.daemon = True

    def __enter__(self) -> _Watch:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _fire(self) -> None:
        self.fired = True
        self._interrupt()


def _message(response: httpx.Response) -> str:
    """What the service says about its refusal; nothing when it says it in a way of its own."""
    body = b""
    for part in response.iter_raw():
        body += part
        if len(body) > SHORT_BYTES:
            return ""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return "".join(character for character in message[:200] if character.isprintable()) if type(message) is str else ""


def _read(response: httpx.Response, deadline: float) -> bytes:
    declared = response.headers.get("content-length", "0")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > MAX_TABLE_BYTES):
        raise Refusal(Reason.SIZE, f"a body of {declared[:20]} bytes; at most {MAX_TABLE_BYTES}")
    parts, size = [], 0
    for part in response.iter_raw():
        parts.append(part)
        size += len(part)
        if size > MAX_TABLE_BYTES:
            raise Refusal(Reason.SIZE, f"a body of more than {MAX_TABLE_BYTES} bytes")
        if time.monotonic() > deadline:
            raise OverdueError("the body took too long")
    return b"".join(parts)
