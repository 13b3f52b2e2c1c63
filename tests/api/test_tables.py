"""The tables in memory, apart from HTTP and the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from accord.api.errors import PairUnknownError
from accord.api.tables import Table, Tables
from accord.api.waiters import Waiters
from accord.learner.store import StoreCorruptError, StoreUnavailableError


class Shelf:
    """A store of tables that can be slow or away, and counts its reads."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.reads: list[str] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, pair: str) -> Table | None:
        """What Tables is given to read with."""
        self.reads.append(pair)
        version = self.versions.get(pair)
        await self.gate.wait()
        if self.error:
            raise self.error
        return None if version is None else Table(version, f'"{version}"', b"", 0)


def run(scenario: Callable[[Shelf, Tables, Waiters], Awaitable[None]], limit: int = 10) -> None:
    """Runs a scenario with a live change feed."""

    async def body() -> None:
        shelf, waiters = Shelf(), Waiters(1000)
        tables = Tables(shelf.read, waiters, limit)
        tables.feed_back()
        async with asyncio.timeout(20):
            await scenario(shelf, tables, waiters)
        tables.close()

    asyncio.run(body())


async def never() -> dict[str, str]:
    """A client that stays."""
    await asyncio.Event().wait()
    return {}


async def soon(condition: Callable[[], object]) -> None:
    """Returns once the condition holds; the scenario's own timeout bounds it."""
    while not condition():
        await asyncio.sleep(0.001)


def test_single_flight() -> None:
    """However many ask at a time, a table is read once."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 1
        shelf.gate.clear()
        asking = [asyncio.create_task(tables.get("a")) for _ in range(50)]
        await soon(lambda: shelf.reads)
        shelf.gate.set()
        assert {table.version for table, _ in await asyncio.gather(*asking)} == {1}
        assert shelf.reads == ["a"]

    run(scenario)


def test_cancelled_request_does_not_end_the_read() -> None:
    """Who goes away while a table is read takes it from nobody else."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 1
        shelf.gate.clear()
        first, second = (asyncio.create_task(tables.get("a")) for _ in range(2))
        await soon(lambda: shelf.reads)
        first.cancel()
        shelf.gate.set()
        assert (await second)[0].version == 1
        assert shelf.reads == ["a"]

    run(scenario)


def test_change_during_a_read() -> None:
    """A version announced while an older one is being read is read before anybody is answered."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 1
        shelf.gate.clear()
        asking = asyncio.create_task(tables.get("a"))
        await soon(lambda: shelf.reads)
        shelf.versions["a"] = 2
        tables.changed("a", 2)
        shelf.gate.set()
        assert (await asking)[0].version == 2
        assert shelf.reads == ["a", "a"]

    run(scenario)


@pytest.mark.parametrize("announced", [1, 2, 3])
def test_announcement_during_a_read(announced: int) -> None:
    """Whatever version is announced while a table is read, it is read once more: the number may be given anew."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 2
        shelf.gate.clear()
        asking = asyncio.create_task(tables.get("a"))
        await soon(lambda: shelf.reads)
        tables.changed("a", announced)
        shelf.gate.set()
        assert (await asking)[0].version == 2
        assert shelf.reads == ["a", "a"]

    run(scenario)


def test_feed_back_during_a_read() -> None:
    """A read that began before the feed came back is repeated, as what it read may be older."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 5
        shelf.gate.clear()
        asking = asyncio.create_task(tables.get("a"))
        await soon(lambda: shelf.reads)
        tables.feed_back()
        shelf.gate.set()
        await asking
        assert shelf.reads == ["a", "a"]

    run(scenario)


def test_unasked_changes_are_not_read() -> None:
    """A change that nobody waits for is read when somebody asks, and one of an unknown pair never."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions |= {"a": 1, "b": 1}
        await tables.get("a")
        for version in range(2, 10):
            shelf.versions["a"] = version
            tables.changed("a", version)
            tables.changed("b", version)
        await asyncio.sleep(0)
        assert shelf.reads == ["a"]
        assert (await tables.get("a"))[0].version == 9
        assert shelf.reads == ["a", "a"]

    run(scenario)


def test_version_may_go_back() -> None:
    """A store that was restored from a backup is believed: the announced version is served, though it is older."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 9
        await tables.get("a")
        shelf.versions["a"] = 2
        tables.changed("a", 2)
        assert (await tables.get("a"))[0].version == 2

    run(scenario)


def test_old_tables_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table past its age is read again when somebody asks, although nothing was announced."""
    monkeypatch.setattr("accord.api.tables.MAX_AGE_S", 0.0)

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 1
        await tables.get("a")
        shelf.versions["a"] = 2
        assert (await tables.get("a"))[0].version == 2

    run(scenario)


def test_failed_refresh_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody waits, a refresh that fails is tried again until it works; the feed need not be cut for that."""
    monkeypatch.setattr("accord.api.tables.RETRY_S", (0.001, 0.002))

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 1
        await tables.get("a")
        changed = lambda: tables.peek("a") != Table(1, '"1"', b"", 0)  # noqa: E731
        poll = asyncio.create_task(waiters.hold("a", 10, never, changed))
        await soon(lambda: waiters.has("a"))
        shelf.error = StoreUnavailableError("away")
        shelf.versions["a"] = 2
        tables.changed("a", 2)
        await soon(lambda: len(shelf.reads) > 5)
        table, stale = await tables.get("a")
        assert (table.version, stale) == (1, True)
        shelf.error = None
        assert await poll == "changed"
        assert (await tables.get("a"))[0].version == 2

    run(scenario)


@pytest.mark.parametrize("kind", [StoreUnavailableError, StoreCorruptError])
def test_errors_are_told_apart(kind: type[Exception]) -> None:
    """Without anything in memory the kind of failure reaches whoever asked, and leaves nothing behind."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.error = kind("why")
        with pytest.raises(kind, match="why"):
            await tables.get("a")
        assert len(tables) == 0

    run(scenario)


def test_cut_feed_refreshes_behind_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the feed is cut a table is answered at once and read behind the answer, in case only the feed is gone."""
    monkeypatch.setattr("accord.api.tables.CUT_AGE_S", -1.0)

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions["a"] = 1
        await tables.get("a")
        tables.feed_lost()
        shelf.versions["a"] = 2
        table, stale = await tables.get("a")
        assert (table.version, stale) == (1, True)
        await soon(lambda: (found := tables.peek("a")) is not None and found.version == 2)

    run(scenario)


def test_bounded() -> None:
    """The least recently asked pair makes room, never one that somebody waits for, and unknown pairs take none."""

    async def scenario(shelf: Shelf, tables: Tables, waiters: Waiters) -> None:
        shelf.versions = dict.fromkeys("abcd", 1)
        await tables.get("a")
        poll = asyncio.create_task(waiters.hold("a", 10, never, lambda: False))
        await soon(lambda: waiters.has("a"))
        await tables.get("b")
        for number in range(20):
            with pytest.raises(PairUnknownError):
                await tables.get(f"nobody{number}")
        assert (tables.peek("a") is not None, tables.peek("b") is not None) == (True, True)
        await tables.get("c")
        assert (tables.peek("a") is not None, tables.peek("b"), len(tables)) == (True, None, 2)
        waiters.stop()
        assert await poll == "stopped"
        assert await waiters.hold("a", 10, never, lambda: False) == "stopped"

    run(scenario, limit=2)
