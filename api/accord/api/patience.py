"""How long a connection may take over a request: a socket is what a server has fewest of, and no token guards it."""

from __future__ import annotations

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import SECURITY_HEADERS

WHOLE_REQUEST_S = 30.0
"""From the connection, or the first byte of a later request, to the last byte of its body. Answers have no such limit:
long-polls and streams are meant to last."""


class PatientProtocol(H11Protocol):
    """uvicorn's own, which waits for ever for the rest of a request, with an end to that."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request begins."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """A request goes on, or is whole."""
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._calm()
        elif self._overdue is None and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._calm()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._overdue = self.loop.call_later(WHOLE_REQUEST_S, self._give_up)

    def _calm(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        self._overdue = None
        if self.transport.is_closing():
            return
        # In the middle of a body somebody waits for the rest of it, and hears of the end by itself.
        if self.conn.our_state is h11.IDLE:
            message = f"no whole request within {WHOLE_REQUEST_S:g} s"
            body = json.dumps({"error": {"code": "request_timeout", "message": message}}).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            answer = h11.Response(status_code=408, headers=[*(headers | SECURITY_HEADERS).items()], reason=b"Timeout")
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
