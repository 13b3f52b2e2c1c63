"""Fetches coefficients by long-poll, and believes nothing that it cannot verify."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

import httpx

from accord.learner.coefficients import CoefficientTable
from accord.learner.errors import Refusal

from .backoff import Backoff
from .credentials import CredentialError, Credentials
from .judge import Judge
from .transport import CONNECT_TIMEOUT_S, Answer, BoundedClient, OverdueError, TokenRefusedError

GRACE_S = 5.0
"""An answer may take this much longer than the wait that was asked for."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 5.0
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


class Puller:
    """A daemon thread with an HTTP client of its own; constructing one opens no socket.

    Args:
        api_url: of the service, without `/v1`.
        credentials: the token to show, and whom to trust. A token in a file is read again when it is refused.
        engine: named in the User-Agent, so that a server's log tells who polls.
        judge: decides about tables.
        listener: hears of every poll.
        wait_s: how long one poll may be held open; jittered downwards.
        clock: seconds, monotonic, of the times that the listener hears.
        grace_s: how much longer than that an answer may take.
    """

    def __init__(
        self,
        api_url: str,
        credentials: Credentials,
        engine: str,
        judge: Judge,
        listener: Listener,
        wait_s: float = 25.0,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = GRACE_S,
    ) -> None:
        self._url = f"{api_url.rstrip('/')}/v1/pairs/{judge.pair}/coefficients"
        self._credentials, self._engine = credentials, engine
        self._token: str | None = None
        self._token_known = False
        self._judge, self._listener = judge, listener
        self._wait_s, self._grace_s, self._clock = wait_s, grace_s, clock
        self._etag: str | None = None
        self._stale = False
        self._last: CoefficientTable | None = None
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        self._stopping = threading.Event()
        self._client: BoundedClient | None = None
        self._thread: threading.Thread | None = None

    @property
    def patience_s(self) -> float:
        """The longest that a working puller may go without reporting."""
        return self._wait_s + self._grace_s + CONNECT_TIMEOUT_S + LONGEST_WAIT_S

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
            client = self._client
            if client is not None:
                client.interrupt()
            self._thread.join(0.02)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._turn())
        if self._client is not None:
            self._client.close()

    def _turn(self) -> float:
        """One poll, reported; returns how long to wait before the next."""
        started = self._clock()
        try:
            return self._poll()
        except Refusal as refusal:
            self._listener.on_refusal(refusal)
            self._failed(self._clock(), f"refused: {refusal}")
        except TokenRefusedError as error:
            if self._token_changed():
                return 0.0
            self._failed(self._clock(), self._told(error))
        except CredentialError as error:
            self._failed(self._clock(), str(error))
        except Exception as error:  # noqa: BLE001  # this thread must outlive whatever a server does
            silent = isinstance(error, httpx.TimeoutException | OverdueError)
            self._failed(started if silent else self._clock(), f"{type(error).__name__}: {error}"[:300])
        return self._backoff.next()

    def _poll(self) -> float:
        longest_s = min(self._wait_s, STALE_WAIT_S) if self._stale else self._wait_s
        wait_s = longest_s * random.uniform(1.0 - _JITTER, 1.0)
        started = time.monotonic()
        answer = self._open().get(
            self._url, {"wait": f"{wait_s:.3f}"}, self._etag, wait_s + self._grace_s, self._current_token()
        )
        self._stale = answer.stale
        fresh = answer.modified and self._take(answer)
        self._answered()
        took_s = time.monotonic() - started
        if fresh:
            return max(SPACING_S - took_s, 0.0)
        # A server that does not wait, repeats itself, or gives no ETag to wait on must not be asked in a loop.
        waited = not answer.modified and took_s >= 0.5 * wait_s > 0.0
        return 0.0 if waited else random.uniform(0.5 * PAUSE_S, PAUSE_S)

    def _take(self, answer: Answer) -> bool:
        """Judges a body; returns whether it brought something new, and the next poll can wait for its successor."""
        table = self._judge.decode(answer.body)
        fresh = self._judge.supersedes(table, self._last)
        waitable = answer.etag is not None and answer.etag != self._etag
        self._etag = answer.etag
        if fresh:
            self._last = table
            self._listener.on_table(table)
        return fresh and waitable

    def _answered(self) -> None:
        self._backoff.reset()
        now = self._clock()
        if self._stale:
            self._listener.on_failure(now, now, "the service has lost its store")
        else:
            self._listener.on_answer(now)

    def _failed(self, since: float, reason: str) -> None:
        if not self._stopping.is_set():
            self._listener.on_failure(self._clock(), since, reason)

    def _current_token(self) -> str | None:
        if not self._token_known:
            self._token, self._token_known = self._credentials.token(), True
        return self._token

    def _token_changed(self) -> bool:
        """Reads the token again after a refusal; whether it is another one now."""
        before = self._token
        self._token_known = False
        try:
            return self._current_token() != before
        except CredentialError:
            # The next poll says what is wrong with the file.
            return True

    def _told(self, error: TokenRefusedError) -> str:
        source = self._credentials.source
        told = f"the token of {source} is refused" if self._credentials.given else f"a token is needed, set {source}"
        return f"{told}: {error}"

    def _open(self) -> BoundedClient:
        if self._client is None:
            agent = f"accord-engine ({self._engine})"
            verify = self._credentials.verify(self._url)
            self._client = BoundedClient(agent, self._wait_s + self._grace_s, verify)
        return self._client
