"""Long-polls that are open: who waits for which pair, how many there are, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from starlette.types import Receive


class Ended(StrEnum):
    """Why a long-poll stopped waiting."""

    CHANGED = "changed"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    STOPPED = "stopped"
    FULL = "full"


class Waiters:
    """The futures of all open long-polls, by pair.

    Args:
        limit: above it nobody waits: the poll is answered at once with what is known.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self._stopped = False
        self._by_pair: dict[str, set[asyncio.Future[None]]] = {}

    def has(self, pair: str) -> bool:
        """Whether anybody waits for a pair."""
        return pair in self._by_pair

    def wake(self, pair: str) -> None:
        """Lets everybody who waits for a pair look again."""
        for future in self._by_pair.get(pair, ()):
            _wake(future)

    def stop(self) -> None:
        """Ends every poll now, and every later one at once: the server is shutting down."""
        self._stopped = True
        for pair in self._by_pair:
            self.wake(pair)

    async def hold(self, pair: str, seconds: float, receive: Receive, changed: Callable[[], bool]) -> Ended:
        """Waits until something changed, the time is over, the client has gone or the server stops.

        Args:
            pair: what the client waits for.
            seconds: how long at most.
            receive: the request's ASGI channel, on which a disconnect arrives.
            changed: looks whether there is news; called whenever the pair is woken.
        """
        if self._stopped:
            return Ended.STOPPED
        if self.count >= self.limit:
            return Ended.FULL
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        gone = asyncio.create_task(disconnected(receive))
        self.count += 1
        try:
            while not changed():
                if loop.time() >= deadline:
                    return Ended.TIMEOUT
                await self._pause(pair, deadline, gone)
                if self._stopped:
                    return Ended.STOPPED
                if gone.done():
                    gone.result()
                    return Ended.DISCONNECTED
            return Ended.CHANGED
        finally:
            self.count -= 1
            gone.cancel()

    async def _pause(self, pair: str, deadline: float, gone: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        # One future for all that may end a pause: asyncio.wait would make several for each of ten thousand polls.
        future: asyncio.Future[None] = loop.create_future()
        waiting = self._by_pair.setdefault(pair, set())
        waiting.add(future)
        wake = partial(_wake, future)
        timer = loop.call_at(deadline, wake)
        gone.add_done_callback(wake)
        try:
            await future
        finally:
            timer.cancel()
            gone.remove_done_callback(wake)
            waiting.discard(future)
            if not waiting and self._by_pair.get(pair) is waiting:
                del self._by_pair[pair]


def _wake(future: asyncio.Future[None], _: object = None) -> None:
    if not future.done():
        future.set_result(None)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
