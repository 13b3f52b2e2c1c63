"""The last reading of the fleet, for every scrape of some seconds.

A scrape never waits for a reading long: whatever was read last is better than a scrape that times out, and its age is a
metric of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from accord.learner.store.errors import StoreError

from ..logs import logger
from .snapshot import Snapshot

CACHE_S = 5.0
"""How long a reading serves."""
PATIENCE_S = 1.0
"""How long a scrape waits for a new reading."""
EXPIRES_S = 60.0
"""A reading that is older says nothing of now any more."""


class FleetCache:
    """The last reading, renewed when somebody asks and it is a few seconds old.

    Args:
        read: makes a reading; raises StoreError.
    """

    def __init__(self, read: Callable[[], Awaitable[Snapshot]]) -> None:
        self._read = read
        self._last: Snapshot | None = None
        self._task: asyncio.Task[None] | None = None

    async def get(self) -> Snapshot | None:
        """A reading of the last seconds; an older one while the store is slow or away; None when that is too old."""
        now = asyncio.get_running_loop().time()
        if self._last is None or now - self._last.read_at >= CACHE_S:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._renew(), name="fleet reading")
            await asyncio.wait({self._task}, timeout=PATIENCE_S)
        if self._last is None or asyncio.get_running_loop().time() - self._last.read_at > EXPIRES_S:
            return None
        return self._last

    async def close(self) -> None:
        """Ends a reading that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _renew(self) -> None:
        try:
            self._last = await self._read()
        except StoreError:
            # That the store is away has a metric of its own, and a line in the log.
            return
        except Exception:  # noqa: BLE001  # a scrape shows the last reading whatever went wrong with the next
            logger.exception("fleet reading failed")
