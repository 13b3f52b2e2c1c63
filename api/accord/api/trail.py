"""What happened to a pair: past versions, and who changed what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from accord.learner.store import scripts
from accord.learner.store.base import integer
from accord.learner.store.errors import StoreCorruptError, translated
from accord.learner.store.keys import PairKeys
from accord.learner.store.operators import read_audit
from accord.learner.store.records import AuditEntry, Publication

from .errors import PairUnknownError, VersionUnknownError
from .large import Large
from .source import Source, cold_table
from .tables import Table

T = TypeVar("T")

CHUNK = 100
NOWHERE = "0-0"
MOST_SCANNED = 2_000
"""Entries looked at for one page of a filtered history; the rest is behind `next`."""


@dataclass(frozen=True)
class Past:
    """One entry of the history, without its table."""

    id: str
    version: int
    published_ms: int
    values: Mapping[str, Any]


class Trail:
    """Reads history and audit.

    Args:
        client: redis.asyncio client, standalone or cluster, answering bytes.
        large: reads what can be large.
        source: reads the rest.
    """

    def __init__(self, client: Any, large: Large, source: Source) -> None:
        self._client, self._large = client, large
        self._source = source

    async def history(
        self, pair_id: str, limit: int, before: str | None, shown: Callable[[Past], T | None]
    ) -> tuple[list[T], str | None]:
        """At most `limit` entries as they are shown, None for one that is left out, newest first; and what comes next.

        A page may be short while `next` is not None: only so many entries are looked at for one.
        """
        found: list[T] = []
        at, scanned = _start(before), 0
        while scanned < MOST_SCANNED:
            chunk = await self._slim(pair_id, at, CHUNK)
            for entry in chunk:
                scanned += 1
                at = f"({entry.id}"
                if (item := shown(entry)) is not None:
                    found.append(item)
                    if len(found) == limit:
                        return found, entry.id
            if len(chunk) < CHUNK:
                return found, None
        return found, at.removeprefix("(")

    async def version(self, pair_id: str, version: int) -> Table:
        """The table of a version, byte for byte as it was served.

        Raises:
            PairUnknownError: when no engine has registered the pair.
            VersionUnknownError: when there was no such version, or it is not kept any more.
        """
        cold = await self._cold(pair_id)
        if version == 0:
            return cold
        with translated():
            found = await self._client.eval(scripts.BY_VERSION, 1, PairKeys(pair_id).history, version)
        if found is None:
            raise VersionUnknownError(
                "there was no such version, or it has left the history", field="version", value=version
            )
        fields = dict(zip(found[1][::2], found[1][1::2], strict=True))
        return _table(found[0], fields)

    async def as_of(self, pair_id: str, at_ms: int) -> Table:
        """The table that was in force at a moment, unix ms by the store's clock.

        Raises:
            PairUnknownError: when no engine has registered the pair.
            VersionUnknownError: when the history does not reach back so far.
        """
        cold = await self._cold(pair_id)
        key = PairKeys(pair_id).history
        with translated():
            found = await self._client.xrevrange(key, max=str(at_ms), count=1)
            if found:
                return _table(*found[0])
            oldest = await self._client.xrange(key, count=1)
        if not oldest or integer("version", oldest[0][1].get(b"version")) == 1:
            return cold
        raise VersionUnknownError("the history does not reach back so far", field="as_of", value=at_ms)

    async def audit(self, pair_id: str, limit: int, before: str | None) -> tuple[list[AuditEntry], str | None]:
        """At most `limit` changes, newest first, and what comes next."""
        with translated():
            found = await self._client.xrevrange(PairKeys(pair_id).audit, max=_start(before), count=limit)
        entries = [read_audit(key, fields) for key, fields in found]
        return entries, entries[-1].id if len(entries) == limit else None

    async def _slim(self, pair_id: str, start: str, count: int) -> list[Past]:
        async with self._large.reading() as large:
            found = await large.eval(scripts.HISTORY, 1, PairKeys(pair_id).history, start, count)
        return [_past(*entry) for entry in found]

    async def _cold(self, pair_id: str) -> Table:
        record = await self._source.record(pair_id)
        if record is None:
            raise PairUnknownError(pair_id)
        return cold_table(pair_id, record)


def _start(before: str | None) -> str:
    if before is None:
        return "+"
    # No entry has the id 0-0, and the store takes no bound before it.
    return NOWHERE if before == NOWHERE else f"({before}"


def _past(key: bytes, version: bytes | None, published_ms: bytes | None, entry: bytes | None) -> Past:
    try:
        values = json.loads(entry or b"{}")
    except (ValueError, RecursionError):
        values = {}
    return Past(
        key.decode(),
        integer("version", version),
        integer("published_ms", published_ms),
        values if isinstance(values, dict) else {},
    )


def _table(key: bytes, fields: Mapping[bytes, bytes]) -> Table:
    version, published_ms = (integer(name, fields.get(name.encode())) for name in ("version", "published_ms"))
    body = fields.get(b"table")
    if not body:
        raise StoreCorruptError(f"history entry {key!r} has no table")
    return Table(version, Publication(version, body, b"", published_ms).etag, body, published_ms)
