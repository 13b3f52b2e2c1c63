"""Reads the fleet from the store: every pair's version, owner, backlog, engines, and how well its workloads predict.

Of a chunk of pairs all that is small is read at once; what may be large (a state, thousands of engines) alone.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accord.learner.overrides import Overrides, decode_overrides
from accord.learner.overrides import in_force as overrides_in_force
from accord.learner.pair import check_pair_id
from accord.learner.store.base import integer
from accord.learner.store.errors import StoreError, StoreUnavailableError, translated
from accord.learner.store.keys import PAIRS, PairKeys
from accord.learner.store.records import next_id, stream_id
from accord.learner.store.registry import ask_engines, read_engines

from ..large import Large
from ..learnt import Learnt
from .engines import judge_engines
from .snapshot import Seen, Snapshot, Workload

CHUNK = 50
FEW_ENGINES, FEW_BYTES = 64, 256 << 10
"""As many engines of a pair are read with the rest of its chunk; those of a larger one alone."""
LOOKS = 4_000
"""Of more pairs than are shown, at how many a reading looks whether they have ever been published."""


@dataclass
class _Known:
    """What was decoded of a pair, and of what, so that it is decoded once and not at every reading.

    By the table's tag and not by numbers alone: a restored backup counts versions and revisions anew.
    """

    judged: tuple[Any, ...] = ()
    workloads: list[Workload] = field(default_factory=list)
    changed: tuple[Any, ...] = ()
    overrides: Overrides = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    """The small values of a pair as the store answered them; an error stands for a value of a wrong type."""

    state: Any
    table: Any
    lease: Any
    overrides: Any
    length: Any
    engines: Any
    oldest: Any = ()

    @property
    def damaged(self) -> bool:
        return any(isinstance(answer, Exception) for answer in vars(self).values())


class Fleet:
    """Reads the fleet.

    Args:
        client: redis.asyncio client, standalone or cluster, answering bytes.
        large: reads what can be large.
        learnt: decodes states off the event loop.
        max_pairs, max_workloads: beyond these pairs and workloads are left out and counted: of pairs first those that
            were never published, otherwise the last ones in the order of ids.
    """

    def __init__(self, client: Any, large: Large, learnt: Learnt, max_pairs: int, max_workloads: int) -> None:
        self._client, self._large, self._learnt = client, large, learnt
        self._max_pairs, self._max_workloads = max_pairs, max_workloads
        self._known: dict[str, _Known] = {}
        self._published: set[str] = set()
        self._looked = ""

    async def read(self) -> Snapshot:
        """Everything, as of now.

        Raises:
            StoreError: when the store does not answer.
        """
        at = asyncio.get_running_loop().time()
        with translated():
            names = await self._client.hkeys(PAIRS)
        ids = await asyncio.to_thread(_pair_ids, names)
        taken, seen = await self._taken(ids), list[Seen]()
        unreadable, dropped, room = len(names) - len(ids), 0, self._max_workloads
        for start in range(0, len(taken), CHUNK):
            for found in await self._chunk(taken[start : start + CHUNK]):
                if found is None:
                    unreadable += 1
                    continue
                dropped += max(0, len(found.workloads) - room)
                seen.append(_with(found, found.workloads[:room]))
                room -= len(seen[-1].workloads)
        kept = set(taken)
        self._known = {pair: known for pair, known in self._known.items() if pair in kept}
        return Snapshot(at, seen, len(names), len(ids) - len(taken), unreadable, dropped)

    async def _taken(self, ids: Sequence[str]) -> Sequence[str]:
        """The pairs that are shown. Whoever registers enough pairs must not push those out of sight that are in use."""
        if len(ids) <= self._max_pairs:
            return ids
        begin = bisect_right(ids, self._looked)
        look = [pair for pair in [*ids[begin:], *ids[:begin]] if pair not in self._published][:LOOKS]
        self._looked = look[-1] if look else ""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for pair in look:
                pipe.hexists(PairKeys(pair).coefficients, "version")
            answers = await pipe.execute(raise_on_error=False) if look else []
        self._published.update(pair for pair, answer in zip(look, answers, strict=True) if answer in (True, 1))
        self._published.intersection_update(ids)
        ranked = sorted(ids, key=lambda pair: (pair not in self._published, pair not in self._known))
        return sorted(ranked[: self._max_pairs])

    async def _chunk(self, pairs: Sequence[str]) -> list[Seen | None]:
        with translated():
            rows = await self._rows(pairs)
            seconds, micros = await self._client.time()
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return [await self._pair(pair, row, now_ms) for pair, row in zip(pairs, rows, strict=True)]

    async def _rows(self, pairs: Sequence[str]) -> list[_Row]:
        pipe = self._client.pipeline(transaction=False)
        for pair in pairs:
            keys = PairKeys(pair)
            pipe.hmget(keys.state, "watermark", "committed_ms")
            pipe.hmget(keys.coefficients, "version", "published_ms", "etag")
            pipe.hmget(keys.lease, "owner", "expires_ms")
            pipe.hmget(keys.overrides, "revision")
            pipe.xlen(keys.rounds)
            script, names, args = ask_engines(pair, FEW_ENGINES, FEW_BYTES)
            pipe.eval(script, len(names), *names, *args)
        # A value of a wrong type concerns its own pair only.
        answers = await pipe.execute(raise_on_error=False)
        size = len(answers) // len(pairs)
        rows = [_Row(*answers[i : i + size]) for i in range(0, len(answers), size)]
        waiting = [i for i, row in enumerate(rows) if not row.damaged and row.length]
        if waiting:
            pipe = self._client.pipeline(transaction=False)
            for i in waiting:
                pipe.xrange(PairKeys(pairs[i]).rounds, min=_after(rows[i].state[0]), count=1)
            for i, oldest in zip(waiting, await pipe.execute(raise_on_error=False), strict=True):
                rows[i] = replace(rows[i], oldest=oldest)
        return rows

    async def _pair(self, pair: str, row: _Row, now_ms: int) -> Seen | None:
        if row.damaged:
            return None
        (watermark, committed), (version, published, etag), (owner, expires), (revision,) = (
            row.state,
            row.table,
            row.lease,
            row.overrides,
        )
        try:
            in_force = integer("version", version)
            oldest_ms = stream_id("entry", row.oldest[0][0].decode())[0] if row.oldest else None
            workloads = await self._workloads(pair, (watermark, committed, etag))
            overrides = await self._overrides(pair, (integer("revision", revision), etag))
            states, lag, behind = judge_engines(await self._engines(pair, row.engines), in_force, now_ms)
            return Seen(
                pair=pair,
                version=in_force,
                published_ms=integer("published_ms", published),
                owned=owner is not None and integer("expires_ms", expires) > now_ms,
                waiting=0 if oldest_ms is None else row.length,
                waited_s=0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000.0),
                engines=states,
                version_lag=lag,
                behind=behind,
                overrides=len(overrides_in_force(overrides, now_ms)),
                workloads=workloads,
            )
        except StoreUnavailableError:
            raise
        except (StoreError, ValueError):
            return None

    async def _engines(self, pair: str, reply: Sequence[Any]) -> Sequence[bytes]:
        known, statuses = read_engines(reply)
        if len(statuses) < known:
            script, keys, args = ask_engines(pair)
            async with self._large.reading() as large:
                _, statuses = read_engines(await large.eval(script, len(keys), *keys, *args))
        return list(statuses.values())

    async def _workloads(self, pair: str, of: tuple[Any, ...]) -> list[Workload]:
        known = self._known.setdefault(pair, _Known())
        if known.judged != of:
            body = await self._large.state_body(pair)
            with translated():
                table = await self._client.hget(PairKeys(pair).coefficients, "body")
            view = await self._learnt.pair(body, None, table)
            known.workloads = sorted((_workload(item) for item in view["workloads"]), key=lambda item: item.key)
            known.judged = of
        return known.workloads

    async def _overrides(self, pair: str, of: tuple[Any, ...]) -> Overrides:
        known = self._known.setdefault(pair, _Known())
        if known.changed != of:
            with translated():
                body = await self._client.hget(PairKeys(pair).overrides, "overrides")
            known.overrides, known.changed = decode_overrides(body), of
        return known.overrides


def _after(watermark: bytes | None) -> str:
    try:
        return next_id(watermark.decode(errors="replace")) if watermark else "-"
    except ValueError:
        # Nobody of accord wrote that; the pair is found damaged by what else stands in its state.
        return "-"


def _pair_ids(names: list[bytes]) -> list[str]:
    return sorted(pair for name in names if (pair := _pair_id(name)) is not None)


def _pair_id(name: bytes) -> str | None:
    try:
        return check_pair_id(name.decode("utf-8", "replace"))
    except ValueError:
        return None


def _with(seen: Seen, workloads: Sequence[Workload]) -> Seen:
    return seen if len(workloads) == len(seen.workloads) else replace(seen, workloads=workloads)


def _workload(item: Mapping[str, Any]) -> Workload:
    return Workload(item["workload"], item["labels"], item["accepted"], item["log_loss"], item["ece"])
