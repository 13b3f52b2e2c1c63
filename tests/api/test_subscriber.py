"""The change feed, apart from the api."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from accord.api.subscriber import Subscriber
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect_async


class Heard:
    """What a feed was told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def changed(self, pair: str, version: int) -> None:
        """An announcement."""
        self.events.append((pair, version))

    def feed_back(self) -> None:
        """Alive."""
        self.events.append("back")

    def feed_lost(self) -> None:
        """Cut."""
        self.events.append("lost")


async def soon(condition: Callable[[], object]) -> None:
    """Returns once the condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_survives_faults(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the code, which nobody expects, is logged and the feed starts again."""
    monkeypatch.setattr("accord.api.subscriber.RECONNECT_S", (0.001, 0.002))
    attempts = []

    def connect() -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise KeyError("fault")
        return connect_async(server.url)

    async def scenario() -> None:
        heard, reports = Heard(), []
        subscriber = Subscriber(connect, heard, reports.append)
        subscriber.start()
        await soon(lambda: subscriber.alive)
        assert heard.events == ["lost", "lost", "back"]
        assert reports == ["change feed failed", None]
        await subscriber.stop()

    asyncio.run(scenario())


def test_client_reconnects_by_itself(server: EmbeddedServer, store: Store) -> None:
    """A reconnection that the Redis client makes unasked counts as one: announcements may have been missed."""

    async def scenario() -> None:
        heard = Heard()
        # With the client's own retries, which hide a lost connection.
        subscriber = Subscriber(lambda: connect_async(server.url, role="probe"), heard, lambda _: None)
        subscriber.start()
        await soon(lambda: subscriber.alive)
        before = heard.events.count("back")
        for client in store.client.client_list(_type="pubsub"):
            store.client.client_kill_filter(_id=client["id"])
        await soon(lambda: heard.events.count("back") > before)
        store.client.publish("accord:changes", "a.b 7")
        await soon(lambda: ("a.b", 7) in heard.events)
        await subscriber.stop()

    asyncio.run(scenario())


def test_quiet_feed_stays_alive(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed without announcements is kept alive by pings, on one subscription."""
    monkeypatch.setattr("accord.api.subscriber.PING_EVERY_S", 0.02)

    async def scenario() -> None:
        heard = Heard()
        subscriber = Subscriber(lambda: connect_async(server.url), heard, lambda _: None)
        subscriber.start()
        await soon(lambda: subscriber.alive)
        await asyncio.sleep(0.5)
        assert heard.events == ["back"]
        await subscriber.stop()

    asyncio.run(scenario())


def test_lost_cancellation() -> None:
    """The feed ends although the Redis client swallows the cancellation that should end it."""
    swallowed = []

    class Client:
        async def aclose(self) -> None:
            """Nothing to close."""

        def pubsub(self) -> Any:
            """Fails as late as it can."""
            return self

        async def subscribe(self, channel: str) -> None:
            """Two cancellations are lost, the third is not."""
            while len(swallowed) < 2:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    swallowed.append(channel)
            await asyncio.sleep(60)

    async def scenario() -> None:
        subscriber = Subscriber(Client, Heard(), lambda _: None)
        subscriber.start()
        await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await subscriber.stop()

    asyncio.run(scenario())
    assert len(swallowed) == 2
