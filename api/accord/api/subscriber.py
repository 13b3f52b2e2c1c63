"""The change feed: one subscription to the store's announcements, kept alive for as long as the api runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import redis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.cluster import RedisCluster

from accord.learner.store.errors import StoreError, translated
from accord.learner.store.keys import CHANGES

from .logs import logger

PING_EVERY_S = 2.0
PONG_WITHIN_S = 3.0
RECONNECT_S = (0.1, 1.0)
"""First and longest pause before another attempt; drawn between half of it and all, so that a fleet spreads out."""
CANCEL_EVERY_S = 0.1


class Feed(Protocol):
    """Who follows the announcements."""

    def changed(self, pair: str, version: int) -> None:
        """A version of a pair was announced."""

    def feed_back(self) -> None:
        """From now on announcements arrive; earlier ones may have been missed."""

    def feed_lost(self) -> None:
        """Announcements may be missed from now on."""


class Feeds:
    """Several who follow, told in the order given."""

    def __init__(self, *feeds: Feed) -> None:
        self._feeds = feeds

    def changed(self, pair: str, version: int) -> None:
        """A version of a pair was announced."""
        for feed in self._feeds:
            feed.changed(pair, version)

    def feed_back(self) -> None:
        """From now on announcements arrive."""
        for feed in self._feeds:
            feed.feed_back()

    def feed_lost(self) -> None:
        """Announcements may be missed from now on."""
        for feed in self._feeds:
            feed.feed_lost()


class Subscriber:
    """Keeps one subscription, on a connection of its own.

    Args:
        connect: makes a client that nobody else uses.
        feed: told of changes, and of the feed's own state.
        report: told once when the store is lost, with the reason, and once when it is back, with None.
    """

    def __init__(self, connect: Callable[[], Any], feed: Feed, report: Callable[[str | None], None]) -> None:
        self._connect = connect
        self._feed = feed
        self._report = report
        self.alive = False
        self._reported: bool | None = None
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, in the background."""
        self._task = asyncio.create_task(self._supervise(), name="change feed")

    async def stop(self) -> None:
        """Ends it and closes its connection."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _supervise(self) -> None:
        while True:
            task = asyncio.create_task(self._run(), name="change feed session")
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                # The client loses a cancellation that meets one of its own timeouts, so one may not be enough.
                while not task.done():
                    task.cancel()
                    await asyncio.wait({task}, timeout=CANCEL_EVERY_S)
                raise
            # Only a fault in the code ends up here; without the feed every client would be served old tables for good.
            logger.error("change feed failed", exc_info=task.exception())
            self._lost("change feed failed")
            await asyncio.sleep(RECONNECT_S[1])

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except (StoreError, OSError, TimeoutError) as error:
                self._lost(str(error) or type(error).__name__)
            first, longest = RECONNECT_S
            pause = min(longest, first * 2 ** min(self._failures, 16)) * random.uniform(0.5, 1.0)
            self._failures += 1
            await asyncio.sleep(pause)

    async def _session(self) -> None:
        client = self._connect()
        try:
            with translated():
                listener = await _one_node(client)
                pubsub = listener.pubsub()
                try:
                    await pubsub.subscribe(CHANGES)
                    await self._follow(pubsub)
                finally:
                    with suppress(redis.RedisError, OSError):
                        await pubsub.aclose()
                        await listener.aclose()
        finally:
            with suppress(redis.RedisError, OSError):
                await client.aclose()

    async def _follow(self, pubsub: Any) -> None:
        loop = asyncio.get_running_loop()
        # The first answer is due like a pong is: the confirmation of the subscription.
        heard = loop.time()
        due: float | None = heard + PONG_WITHIN_S
        while True:
            now = loop.time()
            if due is None and now >= heard + PING_EVERY_S:
                await pubsub.ping()
                due = loop.time() + PONG_WITHIN_S
            if due is not None and now >= due:
                raise TimeoutError(f"no answer within {PONG_WITHIN_S:g} s")
            wake_at = due if due is not None else heard + PING_EVERY_S
            message = await pubsub.get_message(timeout=max(0.01, wake_at - now))
            if message is None:
                continue
            heard, due = loop.time(), None
            if message["type"] == "subscribe":
                # Also after a reconnection that the client made by itself: announcements were missed then too.
                self._back()
            elif message["type"] == "message":
                self._announce(message["data"])

    def _announce(self, data: bytes | str) -> None:
        text = data.decode(errors="replace") if isinstance(data, bytes) else data
        pair, _, version = text.rpartition(" ")
        if pair and version.isascii() and version.isdigit() and len(version) <= 16:
            self._feed.changed(pair, int(version))

    def _back(self) -> None:
        self.alive, self._failures = True, 0
        self._feed.feed_back()
        if self._reported is not True:
            self._reported = True
            self._report(None)

    def _lost(self, reason: str) -> None:
        self.alive = False
        self._feed.feed_lost()
        if self._reported is not False:
            self._reported = False
            self._report(reason)


async def _one_node(client: Any) -> Any:
    """The client itself, or of a cluster any node: every node hears every announcement.

    The cluster client's own subscription is not used because older versions of it have none.
    """
    if not isinstance(client, RedisCluster):
        return client
    await client.initialize()
    node = client.get_random_node()
    return Redis(connection_pool=ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs))
