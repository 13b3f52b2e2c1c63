"""Reads answers that can be megabytes, over connections of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from accord.learner.store.errors import translated
from accord.learner.store.keys import PairKeys

CONCURRENT = 2
"""A connection keeps the buffer of the last answer that it read, twice its size, until it is used again. So memory
would hold a state for every connection that ever read one, and a burst of readers opens many."""


class Large:
    """States, histories and heartbeats, a few at a time.

    Args:
        client: redis.asyncio client that nothing else uses, answering bytes.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._reading = asyncio.Semaphore(CONCURRENT)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        """The client, for one answer; what it raises comes out as a StoreError."""
        async with self._reading:
            with translated():
                yield self._client

    async def state_body(self, pair_id: str) -> bytes | None:
        """The learnt state of a pair, None when nothing was learnt (or the pair is unknown)."""
        async with self.reading() as client:
            body: bytes | None = await client.hget(PairKeys(pair_id).state, "body")
        return body
