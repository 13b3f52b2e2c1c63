"""Open event streams: who listens, what each has yet to hear, and how they end.

A stream holds at most one pending version a pair: a client that reads slowly hears of the newest version, and costs no
more memory than the names of the pairs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from weakref import WeakSet

from .errors import ApiError

HEARTBEAT_S = 10.0
"""How often a quiet stream says that it lives; proxies close silent connections after 30 s or more."""
MAX_PENDING = 1_000
"""Pairs that one stream may have pending; above it the client is told that anything may have changed."""


class TooManyStreamsError(ApiError):
    """As many streams are open as the server allows."""

    status = 503
    code = "too_many_streams"


class Stream:
    """One listener.

    Args:
        pair: what it listens to, None for every pair.
        feed_alive: whether announcements arrive at this moment.
    """

    def __init__(self, pair: str | None, feed_alive: bool) -> None:
        self.pair = pair
        self.pending: dict[str, int] = {}
        self._feed: bool | None = feed_alive
        self._wake = asyncio.Event()
        self._stopped = False

    def changed(self, pair: str, version: int) -> None:
        """A version of a pair was announced."""
        if self.pair not in (None, pair) or self._feed:
            return
        if pair not in self.pending and len(self.pending) >= MAX_PENDING:
            # Less to say than a thousand names: the same word that follows a gap in the announcements.
            self.feed(True)
            return
        # The last one told, not the largest: a restored backup goes back.
        self.pending[pair] = version
        self._wake.set()

    def feed(self, alive: bool) -> None:
        """Announcements arrive again, so that anything may have changed meanwhile; or they stopped."""
        self._feed = alive
        self.pending.clear()
        self._wake.set()

    def stop(self) -> None:
        """Ends the stream."""
        self._stopped = True
        self._wake.set()

    async def messages(self, seconds: float) -> AsyncGenerator[bytes, None]:
        """What to send, for so many seconds: events as they come, and a comment when there were none for a while."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self._stopped and (left := end - loop.time()) > 0:
            self._wake.clear()
            # Taken before anything is sent: what is announced meanwhile waits for the next round.
            said = self._take()
            for message in said:
                yield message
            if said:
                continue
            try:
                async with asyncio.timeout(min(HEARTBEAT_S, left)):
                    await self._wake.wait()
            except TimeoutError:
                yield b": alive\n\n"

    def _take(self) -> list[bytes]:
        said = [] if self._feed is None else [_event("feed", {"alive": self._feed})]
        said += [_event("change", {"pair": pair, "version": version}) for pair, version in self.pending.items()]
        self._feed = None
        self.pending.clear()
        return said


class Streams:
    """All open streams; follows the change feed.

    Args:
        limit: above it a new one is refused.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._alive = False
        self._stopped = False
        # Weak, so that a response that never came to be sent holds no place.
        self._open: WeakSet[Stream] = WeakSet()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def open(self, pair: str | None) -> Stream:
        """A new stream; whoever opens it closes it.

        Raises:
            TooManyStreamsError: at the limit.
        """
        if len(self._open) >= self.limit:
            raise TooManyStreamsError(f"{self.limit} event streams are open; poll instead, or try again later")
        stream = Stream(pair, self._alive)
        self._open.add(stream)
        if self._stopped:
            stream.stop()
        return stream

    def close(self, stream: Stream) -> None:
        """Forgets a stream."""
        self._open.discard(stream)

    def changed(self, pair: str, version: int) -> None:
        """A version of a pair was announced."""
        for stream in self._open:
            stream.changed(pair, version)

    def feed_back(self) -> None:
        """From now on announcements arrive; earlier ones may have been missed."""
        self._alive = True
        for stream in self._open:
            stream.feed(True)

    def feed_lost(self) -> None:
        """Announcements may be missed from now on."""
        if self._alive:
            self._alive = False
            for stream in self._open:
                stream.feed(False)

    def stop(self) -> None:
        """Ends every stream now, and every later one at once: the server is shutting down."""
        self._stopped = True
        for stream in self._open:
            stream.stop()


def _event(name: str, data: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
