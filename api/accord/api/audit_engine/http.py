"""Bounded requests to one engine: no proxy, no redirect, no more bytes or seconds than were agreed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from .address import AuditError
from .page import plain

MAX_PAGE_BYTES = 16 << 20
"""A metrics page of a server with hundreds of engines is about a megabyte."""

MAX_ANSWER_BYTES = 4 << 20
SHOWN = 200
GRACE_S = 1.0


class Http:
    """A client for one engine.

    Args:
        seconds: for a whole answer, however slowly it comes.
        key: sent as a bearer token, never shown.
        connections: how many requests may run at a time.
    """

    def __init__(self, seconds: float, key: str | None = None, connections: int = 1) -> None:
        self._seconds = seconds
        self._client = httpx.Client(
            headers={"Accept-Encoding": "identity", "User-Agent": "accord-audit"}
            | ({} if key is None else {"Authorization": f"Bearer {key}"}),
            timeout=seconds,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=connections),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def page(self, url: str) -> str:
        """A metrics page as text.

        Raises:
            AuditError: for everything that can go wrong, in words for people.
        """
        return self._body("GET", url, None, MAX_PAGE_BYTES).decode("utf-8", "replace")

    def get(self, url: str) -> bytes:
        """One GET; raises AuditError."""
        return self._body("GET", url, None, MAX_ANSWER_BYTES)

    def post(self, url: str, body: Mapping[str, Any]) -> bytes:
        """One POST of JSON; raises AuditError."""
        return self._body("POST", url, body, MAX_ANSWER_BYTES)

    def _body(self, method: str, url: str, body: Mapping[str, Any] | None, limit: int) -> bytes:
        found: list[bytes | Exception] = []

        def work() -> None:
            try:
                found.append(self._request(method, url, body, limit))
            except Exception as error:  # noqa: BLE001  # handed to the thread that waits
                found.append(error)

        # A server may send headers a byte at a time for ever, and no timeout of the client is for a whole answer.
        thread = threading.Thread(target=work, name="audit-request", daemon=True)
        thread.start()
        thread.join(self._seconds + GRACE_S)
        if not found:
            raise AuditError(f"{url} takes longer than {self._seconds:g} s to send its answer")
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _request(self, method: str, url: str, body: Mapping[str, Any] | None, limit: int) -> bytes:
        end = time.monotonic() + self._seconds
        try:
            with self._client.stream(method, url, json=body) as answer:
                content = self._read(answer, limit, end, url)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            raise AuditError(f"{url} does not answer: {_reason(error)}") from None
        if answer.is_redirect:
            target = answer.headers.get("location", "nowhere")[:SHOWN]
            raise AuditError(plain(f"{url} redirects to {target}: give that address"))
        if answer.status_code != 200:
            told = " ".join(content[:SHOWN].decode("utf-8", "replace").split())
            raise AuditError(plain(f"{url} answers {answer.status_code}{f': {told}' if told else ''}"))
        return content

    def _read(self, answer: httpx.Response, limit: int, end: float, url: str) -> bytes:
        content = bytearray()
        for part in answer.iter_raw():
            content += part
            if len(content) > limit:
                raise AuditError(f"{url} sends more than {limit} bytes")
            if time.monotonic() > end:
                raise AuditError(f"{url} takes longer than {self._seconds:g} s to send its answer")
        return bytes(content)


def _reason(error: Exception) -> str:
    return plain(f"{type(error).__name__}: {error}"[:SHOWN].rstrip(": "))
