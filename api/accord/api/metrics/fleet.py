"""The fleet as the store shows it: every pair's version, owner, backlog, engines, and how well its workloads predict.

One reading serves every scrape for a few seconds, and a scrape never waits for it long: whatever was read last is
better than a scrape that times out, and its age is a metric of its own.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accord.learner.overrides import Overrides, decode_overrides
from accord.learner.overrides import in_force as overrides_in_force
from accord.learner.pair import check_pair_id
from accord.learner.store.base import integer
from accord.learner.store.errors import StoreCorruptError, StoreError, StoreUnavailableError, translated
from accord.learner.store.keys import PAIRS, PairKeys
from accord.learner.store.records import next_id, stream_id
from accord.learner.store.registry import ask_engines, read_engines

from ..engine_status import SILENT_MS, whole
from ..learnt import Learnt
from ..logs import logger

CACHE_S = 5.0
"""How long a reading serves."""
PATIENCE_S = 1.0
"""How long a scrape waits for a new reading."""
EXPIRES_S = 60.0
"""A reading that is older says nothing of now any more."""
CHUNK = 50
LOOKS = 4_000
"""Of more pairs than are shown, at how many a reading looks whether they have ever been published."""
ANSWERS = 5

STATES = ("starting", "fleet", "stale", "local", "observe", "frozen")
"""What engines call their own states."""
STOPPED, SILENT, UNKNOWN = "stopped", "silent", "unknown"
FOLLOWING = frozenset({"starting", "fleet", "stale", "observe"})
"""States in which an engine means to apply the version in force."""


@dataclass(frozen=True)
class Workload:
    """A workload: its key, all labels ever learnt, and metrics that are None where there is too little to say."""

    key: str
    labels: int
    accepted: float | None
    log_loss: float | None
    ece: float | None


@dataclass(frozen=True)
class Seen:
    """A pair as it was read.

    Attributes:
        pair: its id; version, published_ms: of the coefficients in force.
        owned: whether a learner holds it; waiting, waited_s: summaries not learnt yet, and the age of the oldest.
        engines: state -> how many.
        version_lag: by how many versions the last of the engines that follow is behind; behind: how many are.
        overrides: how many are in force.
    """

    pair: str
    version: int
    published_ms: int
    owned: bool
    waiting: int
    waited_s: float
    engines: Mapping[str, int]
    version_lag: int
    behind: int
    overrides: int = 0
    workloads: Sequence[Workload] = ()


@dataclass(frozen=True)
class Snapshot:
    """One reading.

    Attributes:
        read_at: when, on the event loop's clock.
        known: registered pairs; left_out: those beyond the limit; unreadable: those whose stored values are damaged.
        workloads_left_out: workloads beyond the limit.
    """

    read_at: float
    pairs: Sequence[Seen] = ()
    known: int = 0
    left_out: int = 0
    unreadable: int = 0
    workloads_left_out: int = 0


@dataclass
class _Known:
    """What was decoded of a pair, and as of when, so that it is decoded once and not at every reading."""

    judged: tuple[int, int] = (-1, -1)
    workloads: list[Workload] = field(default_factory=list)
    revision: int = 0
    overrides: Overrides = field(default_factory=dict)


class Fleet:
    """Reads the fleet.

    Args:
        client: redis.asyncio client, standalone or cluster, answering bytes.
        learnt: decodes states off the event loop.
        max_pairs, max_workloads: beyond these, in the order of ids, pairs and workloads are left out and counted.
    """

    def __init__(self, client: Any, learnt: Learnt, max_pairs: int, max_workloads: int) -> None:
        self._client, self._learnt = client, learnt
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
            pipe = self._client.pipeline(transaction=False)
            for pair in pairs:
                keys = PairKeys(pair)
                pipe.hmget(keys.state, "watermark", "committed_ms")
                pipe.hmget(keys.coefficients, "version", "published_ms")
                pipe.hmget(keys.lease, "owner", "expires_ms")
                pipe.hmget(keys.overrides, "revision")
                pipe.xlen(keys.rounds)
            # A value of a wrong type concerns its own pair only.
            answers = await pipe.execute(raise_on_error=False)
            seconds, micros = await self._client.time()
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        rows = [answers[i : i + ANSWERS] for i in range(0, len(answers), ANSWERS)]
        return [
            await self._pair(pair, await self._engines(pair), row, now_ms)
            for pair, row in zip(pairs, rows, strict=True)
        ]

    async def _engines(self, pair: str) -> dict[str, bytes] | None:
        script, keys, args = ask_engines(pair)
        try:
            with translated():
                return read_engines(await self._client.eval(script, len(keys), *keys, *args))[1]
        except StoreUnavailableError:
            raise
        except StoreError:
            return None

    async def _pair(self, pair: str, engines: dict[str, bytes] | None, row: Sequence[Any], now_ms: int) -> Seen | None:
        if engines is None or any(isinstance(answer, Exception) for answer in row):
            return None
        (watermark, committed), (version, published), (owner, expires), (revision,), length = row
        try:
            in_force = integer("version", version)
            oldest_ms = await self._oldest_ms(pair, watermark) if length else None
            workloads = await self._workloads(pair, integer("committed_ms", committed), in_force)
            overrides = await self._overrides(pair, integer("revision", revision))
            states, lag, behind = judge_engines(engines.values(), in_force, now_ms)
            return Seen(
                pair=pair,
                version=in_force,
                published_ms=integer("published_ms", published),
                owned=owner is not None and integer("expires_ms", expires) > now_ms,
                waiting=0 if oldest_ms is None else length,
                waited_s=0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000.0),
                engines=states,
                version_lag=lag,
                behind=behind,
                overrides=len(overrides_in_force(overrides, now_ms)),
                workloads=workloads,
            )
        except (StoreCorruptError, ValueError):
            return None

    async def _oldest_ms(self, pair: str, watermark: bytes | None) -> int | None:
        start = next_id(watermark.decode(errors="replace")) if watermark else "-"
        with translated():
            found = await self._client.xrange(PairKeys(pair).rounds, min=start, count=1)
        return stream_id("entry", found[0][0].decode())[0] if found else None

    async def _workloads(self, pair: str, committed_ms: int, version: int) -> list[Workload]:
        known = self._known.setdefault(pair, _Known())
        if known.judged != (committed_ms, version):
            keys = PairKeys(pair)
            with translated():
                body = await self._client.hget(keys.state, "body")
                table = await self._client.hget(keys.coefficients, "body")
            view = await self._learnt.pair(body, None, table)
            known.workloads = sorted((_workload(item) for item in view["workloads"]), key=lambda item: item.key)
            known.judged = (committed_ms, version)
        return known.workloads

    async def _overrides(self, pair: str, revision: int) -> Overrides:
        known = self._known.setdefault(pair, _Known())
        if known.revision != revision:
            with translated():
                body = await self._client.hget(PairKeys(pair).overrides, "overrides")
            known.overrides, known.revision = decode_overrides(body), revision
        return known.overrides


def judge_engines(statuses: Any, in_force: int, now_ms: int) -> tuple[dict[str, int], int, int]:
    """Engines by state, the largest version lag among those that follow, and how many of these are behind.

    What engines write is not trusted: a status that is not understood counts as `unknown`.
    """
    states: Counter[str] = Counter()
    lag, behind = 0, 0
    for body in statuses:
        status = _status(body)
        state = _state(status, now_ms)
        states[state] += 1
        version = whole(status.get("version"))
        if state in FOLLOWING and version is not None and version < in_force:
            lag, behind = max(lag, in_force - version), behind + 1
    return dict(states), lag, behind


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


def _pair_ids(names: list[bytes]) -> list[str]:
    return sorted(pair for name in names if (pair := _pair_id(name)) is not None)


def _pair_id(name: bytes) -> str | None:
    try:
        return check_pair_id(name.decode("utf-8", "replace"))
    except ValueError:
        return None


def _with(seen: Seen, workloads: Sequence[Workload]) -> Seen:
    return seen if len(workloads) == len(seen.workloads) else Seen(**{**vars(seen), "workloads": workloads})


def _workload(item: Mapping[str, Any]) -> Workload:
    return Workload(item["workload"], item["labels"], item["accepted"], item["log_loss"], item["ece"])


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}


def _state(status: Mapping[str, Any], now_ms: int) -> str:
    if status.get("stopped") is True:
        return STOPPED
    seen = whole(status.get("time_ms"))
    if seen is not None and now_ms - seen > SILENT_MS:
        return SILENT
    state = status.get("state")
    return state if isinstance(state, str) and state in STATES else UNKNOWN
