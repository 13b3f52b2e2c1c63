"""The response of an event stream: sends until the stream ends, the client has gone, or takes nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .streams import Stream, Streams
from .waiters import disconnected

SEND_WITHIN_S = 30.0
"""A client that takes nothing for so long is cut off: it would hold one of a bounded number of streams."""
END_WITHIN_S = 0.5
BEGIN = b"retry: 2000\n\n"


class EventStreamResponse(Response):
    """Streams `text/event-stream`; closes its stream whatever happens.

    Args:
        streams: where the stream was opened.
        stream: what to send.
        seconds: how long it may last; the client then connects again, with a token that is still good.
    """

    media_type = "text/event-stream"

    def __init__(self, streams: Streams, stream: Stream, seconds: float) -> None:
        # Proxies such as nginx would otherwise collect events until a buffer is full.
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._streams, self._stream, self._seconds = streams, stream, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends events until one side ends the stream."""
        gone = asyncio.create_task(disconnected(receive))
        sending = asyncio.create_task(self._send(scope, send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            # A token that was taken away looks like a client that has gone, but can still be told of the end.
            self._stream.stop()
            await asyncio.wait({sending}, timeout=END_WITHIN_S)
            if sending.done():
                sending.result()
        finally:
            self._streams.close(self._stream)
            for task in (gone, sending):
                task.cancel()
            # A body that grew too large ends the watch for a disconnect with an exception, which nobody else takes.
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # HEAD asks for the headers alone, and would otherwise wait for a body that nobody sees.
        if not scope.get("accord.head"):
            async with aclosing(self._body()) as body:
                async for chunk in body:
                    try:
                        async with asyncio.timeout(SEND_WITHIN_S):
                            await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    except TimeoutError:
                        return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _body(self) -> AsyncGenerator[bytes, None]:
        yield BEGIN
        async with aclosing(self._stream.messages(self._seconds)) as messages:
            async for message in messages:
                yield message
