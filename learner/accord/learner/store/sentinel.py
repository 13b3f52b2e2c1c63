"""Connections through Sentinel that notice when their primary was replaced while it stood still.

A primary that is frozen for longer than the Sentinels wait wakes up as a second one, and answers for seconds more until
they tell it: what it acknowledges then is lost. So a late reply counts only if the Sentinels still name this primary,
and they are asked again now and then in any case.
"""

from __future__ import annotations

import time
from typing import Any

import redis
import redis.asyncio.sentinel
import redis.sentinel

LATE_S = 0.5
"""A reply that takes longer is believed only if the primary is still the primary."""

ASK_EVERY_S = 2.0
"""How old the Sentinels' word may be when a command is sent."""

SILENT_S = 20.0
"""How long Sentinels that do not answer are left alone: commands must not wait for them again and again."""


class ReplacedError(redis.ConnectionError):
    """The Sentinels name another primary now; the client connects to that one and repeats the command."""


class _Watch:
    """When the Sentinels are to be asked.

    Args:
        now: seconds, monotonic.
    """

    def __init__(self, now: float) -> None:
        self.sent_at = now
        self._fresh_until = now + ASK_EVERY_S

    def stale(self, now: float) -> bool:
        """Whether to ask before sending."""
        return now >= self._fresh_until

    def late(self, now: float) -> bool:
        """Whether to ask before a reply is believed."""
        return now - self.sent_at > LATE_S

    def asked(self, now: float, answered: bool) -> None:
        """They were asked."""
        self.sent_at = now
        self._fresh_until = now + (ASK_EVERY_S if answered else SILENT_S)


_Base: Any = redis.sentinel.SentinelManagedConnection
_TlsBase: Any = redis.sentinel.SentinelManagedSSLConnection
_AsyncBase: Any = redis.asyncio.sentinel.SentinelManagedConnection
_AsyncTlsBase: Any = redis.asyncio.sentinel.SentinelManagedSSLConnection


class WatchedConnection(_Base):  # type: ignore[misc]
    """A connection to the primary that the Sentinels name."""

    def connect_to(self, address: tuple[str, int]) -> None:
        """Connects to what they just named."""
        self._watch = _Watch(time.monotonic())
        super().connect_to(address)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Sends, after asking them if that was long ago."""
        # A command that is repeated would otherwise go to the same address again.
        if self._sock is None:
            self.connect()
        if self._watch.stale(time.monotonic()):
            self._ask(self._watch)
        self._watch.sent_at = time.monotonic()
        super().send_packed_command(command, check_health)

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Reads, and asks them before a late reply is believed."""
        reply = super().read_response(*args, **options)
        if self._watch.late(time.monotonic()):
            self._ask(self._watch)
        return reply

    def _ask(self, watch: _Watch) -> None:
        try:
            named = self.connection_pool.get_master_address()
        except redis.RedisError:
            watch.asked(time.monotonic(), answered=False)
            return
        watch.asked(time.monotonic(), answered=True)
        if tuple(named) != (self.host, self.port):
            self.disconnect()
            raise ReplacedError(f"{self.host}:{self.port} is not the primary any more")


class WatchedTlsConnection(WatchedConnection, _TlsBase):  # type: ignore[misc]
    """The same over TLS."""


class WatchedAsyncConnection(_AsyncBase):  # type: ignore[misc]
    """The asyncio twin."""

    async def connect_to(self, address: tuple[str, int]) -> None:
        """Connects to what they just named."""
        self._watch = _Watch(time.monotonic())
        await super().connect_to(address)

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Sends, after asking them if that was long ago."""
        if not self.is_connected:
            await self.connect()
        if self._watch.stale(time.monotonic()):
            await self._ask(self._watch)
        self._watch.sent_at = time.monotonic()
        await super().send_packed_command(command, check_health)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Reads, and asks them before a late reply is believed."""
        reply = await super().read_response(*args, **options)
        if self._watch.late(time.monotonic()):
            await self._ask(self._watch)
        return reply

    async def _ask(self, watch: _Watch) -> None:
        try:
            named = await self.connection_pool.get_master_address()
        except redis.RedisError:
            watch.asked(time.monotonic(), answered=False)
            return
        watch.asked(time.monotonic(), answered=True)
        if tuple(named) != (self.host, self.port):
            await self.disconnect()
            raise ReplacedError(f"{self.host}:{self.port} is not the primary any more")


class WatchedAsyncTlsConnection(WatchedAsyncConnection, _AsyncTlsBase):  # type: ignore[misc]
    """The same over TLS."""
