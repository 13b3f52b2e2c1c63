"""Fetches coefficients by long-poll, and believes nothing that it cannot verify."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import httpx

from accord.learner.coefficients import MAX_TABLE_BYTES, CoefficientTable
from accord.learner.errors import AccordError, Reason, Refusal

from .backoff import Backoff
from .judge import Judge

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
GRACE_S = 5.0
"""An answer may take this much longer than the wait that was asked for."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 15.0
PAUSE_S = 1.0
"""Before the next poll, when a server answers "nothing new" without having waited."""

SPACING_S = 0.1
"""Between the starts of two polls that both brought a table: a service publishes once a second at most."""

STALE_WAIT_S = 2.0
"""How long a poll is held while the service says that it has lost its store: recovery should not wait longer."""

_JITTER = 0.2


class Listener(Protocol):
    """Who hears what became of the polls; called on the puller's thread."""

    def on_table(self, table: CoefficientTable) -> None:
        """A good table that replaces the one before."""

    def on_answer(self, now: float) -> None:
        """A usable answer: a table, or nothing new."""

    def on_failure(self, now: float, since: float, reason: str) -> None:
        """No usable answer; `since` is the last sign of life that this poll saw."""

    def on_refusal(self, refusal: Refusal) -> None:
        """An answer that was refused; nothing of it is in force."""


class PullError(AccordError):
    """A poll brought no usable answer."""


class Puller:
    """A daemon thread with an HTTP client of its own; constructing one opens no socket.

    Args:
        api_url: of the service, without `/v1`.
        token: sent as a bearer token, or None.
        engine: name sent as the user agent's comment, so that a server log tells who polls.
        judge: decides about tables.
        listener: hears of every poll.
        wait_s: how long one poll may be held open; jittered downwards.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        api_url: str,
        token: str | None,
        engine: str,
        judge: Judge,
        listener: Listener,
        wait_s: float = 25.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = f"{api_url.rstrip('/')}/v1/pairs/{judge.pair}/coefficients"
        self._token, self._engine = token, engine
        self._judge, self._listener = judge, listener
        self._wait_s, self._clock = wait_s, clock
        self._etag: str | None = None
        self._stale = False
        self._last: CoefficientTable | None = None
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def patience_s(self) -> float:
        """The longest that a working puller may go without reporting."""
        return self._wait_s + GRACE_S + CONNECT_TIMEOUT_S + LONGEST_WAIT_S

    def start(self) -> None:
        """Starts the thread; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="accord-puller", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ends the thread, also in the middle of a poll; False when it did not end in time."""
        self._stopping.set()
        if self._thread is None:
            return True
        end = time.monotonic() + timeout_s
        while self._thread.is_alive() and time.monotonic() < end:
            self._interrupt()
            self._thread.join(0.02)
        return not self._thread.is_alive()

    def _run(self) -> None:
        client: httpx.Client | None = None
        try:
            while not self._stopping.is_set():
                pause = 0.0
                started = self._clock()
                try:
                    client = client or self._client()
                    pause = self._poll(client)
                except Refusal as refusal:
                    pause = self._backoff.next()
                    self._listener.on_refusal(refusal)
                    self._listener.on_failure(self._clock(), self._clock(), f"refused: {refusal}")
                except Exception as error:  # noqa: BLE001  # this thread must outlive whatever a server does
                    pause = self._backoff.next()
                    now = self._clock()
                    since = started if isinstance(error, httpx.TimeoutException | _OverdueError) else now
                    if not self._stopping.is_set():
                        self._listener.on_failure(now, since, f"{type(error).__name__}: {error}"[:300])
                self._stopping.wait(pause)
        finally:
            if client is not None:
                client.close()

    def _client(self) -> httpx.Client:
        # Compressed bodies are not asked for: a megabyte may inflate to a gigabyte.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        headers["User-Agent"] = f"accord-engine ({self._engine})"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        read_s = self._wait_s + GRACE_S
        return httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(read_s, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # A proxy from the environment would end long-polls, and .netrc replace the token.
            trust_env=False,
        )

    def _poll(self, client: httpx.Client) -> float:
        """One poll; returns how long to wait before the next."""
        longest_s = min(self._wait_s, STALE_WAIT_S) if self._stale else self._wait_s
        wait_s = longest_s * random.uniform(1.0 - _JITTER, 1.0)
        headers = {} if self._etag is None else {"If-None-Match": self._etag}
        started = time.monotonic()
        deadline = started + wait_s + GRACE_S
        with self._watched(wait_s + GRACE_S) as watch:
            try:
                status, etag, body = self._request(client, wait_s, headers, deadline)
            except Exception:
                if watch.fired:
                    raise _OverdueError(f"no answer within {wait_s + GRACE_S:.0f} s") from None
                raise
        if status == httpx.codes.OK:
            fresh = self._answer(body, etag)
            pause_s = SPACING_S - (time.monotonic() - started)
            return max(pause_s, 0.0) if fresh else random.uniform(0.5 * PAUSE_S, PAUSE_S)
        self._answered()
        in_time = time.monotonic() - started >= 0.5 * wait_s > 0.0
        return 0.0 if in_time else random.uniform(0.5 * PAUSE_S, PAUSE_S)

    def _request(
        self, client: httpx.Client, wait_s: float, headers: dict[str, str], deadline: float
    ) -> tuple[int, str | None, bytes]:
        params = {"wait": f"{wait_s:.3f}"}
        extensions = {"trace": self._trace}
        with client.stream("GET", self._url, params=params, headers=headers, extensions=extensions) as response:
            self._stale = response.headers.get("accord-stale") == "true"
            if response.status_code == httpx.codes.NOT_MODIFIED and self._etag is not None:
                return response.status_code, None, b""
            if response.status_code != httpx.codes.OK:
                raise PullError(f"HTTP {response.status_code}")
            if response.headers.get("content-encoding", "identity") != "identity":
                raise Refusal(Reason.SCHEMA, "a compressed body")
            etag = response.headers.get("etag")
            return response.status_code, etag, _read(response, deadline)

    def _answer(self, body: bytes, etag: str | None) -> bool:
        """Judges a body; returns whether it brought something new, and the next poll can wait for its successor."""
        table = self._judge.decode(body)
        fresh = self._judge.supersedes(table, self._last)
        known = etag is not None and etag == self._etag
        self._etag = etag
        if fresh:
            self._last = table
            self._listener.on_table(table)
        self._answered()
        return fresh and etag is not None and not known

    def _answered(self) -> None:
        self._backoff.reset()
        now = self._clock()
        if self._stale:
            self._listener.on_failure(now, now, "the service has lost its store")
        else:
            self._listener.on_answer(now)

    def _watched(self, after_s: float) -> _Watch:
        return _Watch(after_s, self._interrupt)

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            stream = info.get("return_value")
            self._socket = stream.get_extra_info("socket") if stream is not None else None

    def _interrupt(self) -> None:
        """Wakes a thread that waits for bytes: no timeout of the client bounds a whole answer that drips in."""
        found = self._socket
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)


class _OverdueError(PullError):
    """A poll took longer than it may, however alive the server looked."""


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
            raise _OverdueError("the body took too long")
    return b"".join(parts)
