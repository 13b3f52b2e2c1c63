"""What the api reads from the store, with the client's errors translated."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accord.learner.coefficients import CoefficientTable
from accord.learner.store.base import integer
from accord.learner.store.errors import StoreCorruptError, translated
from accord.learner.store.keys import PAIRS, PairKeys
from accord.learner.store.records import ZERO_ID, PairRecord, next_id
from accord.learner.store.registry import ask_engines, read_engines

from .large import Large
from .tables import Table

CONCURRENT_READS = 16
"""Table reads at a time: after a reconnection every pair that somebody waits for is read."""
REMEMBERED_COUNTS = 10_000
CHUNK = 100


@dataclass(frozen=True)
class Listed:
    """A pair as the list shows it; version 0 before the first publication."""

    pair_id: str
    record: PairRecord
    version: int
    published_ms: int
    workloads: int


@dataclass(frozen=True)
class Detail:
    """Everything of a pair but its tables.

    Args:
        record: as registered.
        engines: engine id -> status as the engine wrote it, plain values; engines_known: how many there are.
        body, counters, watermark, committed_ms: of the learnt state.
        waiting: stream entries not learnt yet.
        oldest_ms: when the oldest of them was written, None without any.
        now_ms: the store's clock.
    """

    record: PairRecord
    engines: Mapping[str, Mapping[str, Any]]
    engines_known: int
    body: bytes | None
    counters: bytes | None
    watermark: str
    committed_ms: int
    waiting: int
    oldest_ms: int | None
    now_ms: int


class Source:
    """Reads from the store.

    Args:
        client: redis.asyncio client, standalone or cluster, answering bytes.
        large: reads what can be large.
    """

    def __init__(self, client: Any, large: Large) -> None:
        self._client, self._large = client, large
        self._reading = asyncio.Semaphore(CONCURRENT_READS)
        self._counts: OrderedDict[str, tuple[bytes, int]] = OrderedDict()

    async def ping(self) -> None:
        """Returns when the store answers."""
        with translated():
            await self._client.ping()

    async def record(self, pair_id: str) -> PairRecord | None:
        """A registered pair, or None."""
        with translated():
            body = await self._client.hget(PAIRS, pair_id)
        return None if body is None else _record(pair_id, body)

    async def table(self, pair_id: str) -> Table | None:
        """The table in force, version 0 before the first publication, or None for an unknown pair."""
        async with self._reading:
            with translated():
                fields = await self._client.hmget(
                    PairKeys(pair_id).coefficients, "version", "body", "etag", "published_ms", "expires_ms"
                )
            version, body, etag, published_ms, expires_ms = fields
            if body is not None and etag is not None:
                return Table(
                    integer("version", version),
                    etag.decode("latin-1"),
                    body,
                    integer("published_ms", published_ms),
                    None if expires_ms is None else integer("expires_ms", expires_ms),
                )
            record = await self.record(pair_id)
        return None if record is None else cold_table(pair_id, record)

    async def pairs(self, after: str, limit: int) -> tuple[list[Listed], list[str], str | None]:
        """Pairs in the order of their ids: those that could be read, the ids of those that could not, and after which
        id to go on, None at the end."""
        with translated():
            names = await self._client.hkeys(PAIRS)
        ids = await asyncio.to_thread(_after, names, after)
        page, listed, unreadable = ids[:limit], [], []
        for start in range(0, len(page), CHUNK):
            known: dict[str, PairRecord] = {}
            chunk = page[start : start + CHUNK]
            with translated():
                bodies = await self._client.hmget(PAIRS, chunk)
            for pair_id, body in zip(chunk, bodies, strict=True):
                try:
                    # One whose name is no text, or that an operator has just removed, has no record.
                    known[pair_id] = _record(pair_id, body or b"")
                except StoreCorruptError:
                    unreadable.append(pair_id)
            listed += await self._listed(known)
        return listed, unreadable, page[-1] if len(ids) > limit else None

    async def detail(self, pair_id: str) -> Detail | None:
        """A pair's engines, learnt state and backlog, or None for an unknown pair."""
        record = await self.record(pair_id)
        if record is None:
            return None
        keys = PairKeys(pair_id)
        engines_known, engines = await self._engines(pair_id)
        async with self._large.reading() as large:
            body, counters, mark, committed_ms = await large.hmget(
                keys.state, "body", "counters", "watermark", "committed_ms"
            )
        watermark = mark.decode() if mark else ZERO_ID
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.xlen(keys.rounds)
            pipe.xrange(keys.rounds, min=next_id(watermark), count=1)
            waiting, oldest = await pipe.execute()
            seconds, micros = await self._client.time()
        return Detail(
            record=record,
            engines=engines,
            engines_known=engines_known,
            body=body,
            counters=counters,
            watermark=watermark,
            committed_ms=integer("committed_ms", committed_ms),
            waiting=waiting if oldest else 0,
            oldest_ms=int(oldest[0][0].partition(b"-")[0]) if oldest else None,
            now_ms=int(seconds) * 1000 + int(micros) // 1000,
        )

    async def engines(self, pair_id: str) -> dict[str, dict[str, Any]]:
        """Engine id -> status as the engine wrote it, plain values."""
        return (await self._engines(pair_id))[1]

    async def state_body(self, pair_id: str) -> bytes | None:
        """The learnt state of a pair, None when nothing was learnt (or the pair is unknown)."""
        return await self._large.state_body(pair_id)

    async def _engines(self, pair_id: str) -> tuple[int, dict[str, dict[str, Any]]]:
        # Whoever may write a heartbeat may write a million of them, of any length.
        script, keys, args = ask_engines(pair_id)
        async with self._large.reading() as large:
            reply = await large.eval(script, len(keys), *keys, *args)
        known, statuses = read_engines(reply)
        return known, {name: _status(status) for name, status in statuses.items()}

    async def _listed(self, records: Mapping[str, PairRecord]) -> list[Listed]:
        if not records:
            return []
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for pair_id in records:
                pipe.hmget(PairKeys(pair_id).coefficients, "version", "published_ms", "etag")
            rows = await pipe.execute()
        listed = []
        for (pair_id, record), (version, published_ms, etag) in zip(records.items(), rows, strict=True):
            count = await self._workloads(pair_id, etag)
            listed.append(
                Listed(pair_id, record, integer("version", version), integer("published_ms", published_ms), count)
            )
        return listed

    async def _workloads(self, pair_id: str, etag: bytes | None) -> int:
        # Only the table itself tells; read it once a version, not once a listing.
        if etag is None:
            return 0
        known = self._counts.get(pair_id)
        if known is not None and known[0] == etag:
            return known[1]
        table = await self.table(pair_id)
        count = count_workloads(table.body) if table else 0
        self._counts[pair_id] = (etag, count)
        self._counts.move_to_end(pair_id)
        if len(self._counts) > REMEMBERED_COUNTS:
            self._counts.popitem(last=False)
        return count


def _after(names: list[bytes], after: str) -> list[str]:
    return sorted(pair_id for name in names if (pair_id := name.decode("utf-8", "replace")) > after)


def cold_table(pair_id: str, record: PairRecord) -> Table:
    """What a registered pair serves before anything was published: the same bytes on every server."""
    table = CoefficientTable.cold(pair_id, record.pair.k, record.knots)
    return Table(0, f'"0-{table.digest}"', table.to_json(), 0)


def count_workloads(body: bytes) -> int:
    """How many workloads a table has rows for; 0 when it is not a table."""
    try:
        workloads = json.loads(body)["workloads"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return len(workloads) if isinstance(workloads, dict) else 0


def _record(pair_id: str, body: bytes) -> PairRecord:
    try:
        PairKeys(pair_id)
        return PairRecord.from_json(body)
    except ValueError as error:
        raise StoreCorruptError(f"the record of pair {pair_id!r:.140}: {error}") from None


def _status(value: bytes) -> dict[str, Any]:
    try:
        status = json.loads(value)
        # JSON can name half a character, which no answer of ours could then be encoded with.
        json.dumps(status, ensure_ascii=False, allow_nan=True).encode()
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}
