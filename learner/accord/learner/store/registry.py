"""Who takes part: pairs, learners, engines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..basis import SplineBasis
from ..bounds import whole
from ..errors import InvalidValue
from ..logs import event
from ..pair import Pair, check_pair_id
from . import scripts
from .base import Argument, Base, Command
from .errors import StoreCorruptError, translated
from .keys import LEARNERS, PAIRS, PairKeys
from .records import PairRecord, name

log = logging.getLogger(__name__)

MAX_PAIRS, MAX_RECORD_BYTES, MAX_PAIRS_BYTES = 200_000, 8 << 10, 128 << 20
"""Of the register, what is read of it; a record has a few hundred bytes."""
MAX_NEW_RECORDS = 10_000
"""Decoded at one reading, which must not take longer than a lease; the next one goes on."""
MOST_TOLD = 20
"""Records that cannot be read and are logged at one reading."""

MAX_STATUS_BYTES = 64 << 10
"""Of a heartbeat; one with both cost tables has a tenth of it."""
MAX_ENGINES = 16_384
"""Heartbeats of a pair that are kept, and shown."""
MAX_ENGINES_BYTES = 32 << 20
"""Of all heartbeats that are read at once."""


class Registry(Base):
    """The register of pairs, the learners that are alive, and the last status of every engine."""

    _known: Mapping[bytes, tuple[bytes, PairRecord | None]] = MappingProxyType({})
    """What was read last, and None for what could not be: learners read the register every second."""

    register_complete = True
    """Whether the last reading had time for every record."""

    @translated()
    def register(self, pair: Pair, knots: tuple[float, ...]) -> PairRecord:
        """Registers a pair unless it is known; the first to register fixes the knots.

        Returns:
            The record in force, perhaps with other knots than these.

        Raises:
            InvalidValue: for knots that are no basis.
            StoreCorruptError: when the record in force cannot be read.
            StoreUnavailableError: when Redis cannot serve.
        """
        record = PairRecord(pair, SplineBasis(knots).knots, self.now_ms())
        self._client.hsetnx(PAIRS, pair.id, record.to_json())
        found = self.record(pair.id)
        if found is None:
            raise StoreCorruptError(f"pair {pair.id} vanished from the register")
        return found

    @translated()
    def now_ms(self) -> int:
        """Unix ms by the clock of the node that holds the register."""
        return int(self._run(scripts.CLOCK, [PAIRS]))

    @translated()
    def record(self, pair_id: str) -> PairRecord | None:
        """The record of a pair, None when it is not registered.

        Raises:
            InvalidValue: for a malformed pair id.
            StoreCorruptError: when the record cannot be read.
            StoreUnavailableError: when Redis cannot serve.
        """
        body = self._client.hget(PAIRS, check_pair_id(pair_id))
        return None if body is None else _decode(pair_id, body)

    @translated()
    def pairs(self) -> dict[str, PairRecord]:
        """Every registered pair by id, in order of id; unreadable records are left out, and logged once each.

        Raises:
            StoreUnavailableError: when Redis cannot serve.
        """
        asked: list[Argument] = [MAX_PAIRS, MAX_RECORD_BYTES, MAX_PAIRS_BYTES]
        reply = self._run(scripts.ENGINES, [PAIRS], asked)
        known: dict[bytes, tuple[bytes, PairRecord | None]] = {}
        found: dict[str, PairRecord] = {}
        told, room = 0, MAX_NEW_RECORDS
        for key, body in sorted(zip(reply[1::2], reply[2::2], strict=True)):
            pair_id = key.decode(errors="replace")
            if self._known.get(key, (None,))[0] == body:
                known[key] = self._known[key]
            elif not room:
                continue
            else:
                room -= 1
                known[key] = body, self._readable(pair_id, body, tell=told < MOST_TOLD)
                told += known[key][1] is None
            record = known[key][1]
            if record is not None:
                found[pair_id] = record
        if told > MOST_TOLD:
            event(
                log, "left out of the register", level=logging.WARNING, count=told - MOST_TOLD, reason="as those before"
            )
        self._known, self.register_complete = known, room > 0
        return found

    def _readable(self, pair_id: str, body: bytes, *, tell: bool) -> PairRecord | None:
        try:
            return _decode(pair_id, body)
        except StoreCorruptError as error:
            if tell:
                event(log, "left out of the register", level=logging.WARNING, pair=pair_id[:200], reason=str(error))
            return None

    @translated()
    def stirring(self, pair_ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Of these pairs those that have been learnt, and those that have not but whose rounds wait.

        Raises:
            InvalidValue: for a malformed pair id.
            StoreUnavailableError: when Redis cannot serve.
        """
        with self._client.pipeline(transaction=False) as pipe:
            for pair_id in pair_ids:
                pipe.hexists(PairKeys(pair_id).state, "watermark")
                pipe.xlen(PairKeys(pair_id).rounds)
            # A key of a wrong type is the owner's to find.
            answers = pipe.execute(raise_on_error=False)
        learnt = [pair_id for pair_id, answer in zip(pair_ids, answers[::2], strict=True) if answer]
        waiting = [pair_id for pair_id, answer in zip(pair_ids, answers[1::2], strict=True) if answer]
        known = set(learnt)
        return learnt, [pair_id for pair_id in waiting if pair_id not in known]

    @translated()
    def heartbeat(self, pair_id: str, engine: str, status: bytes) -> None:
        """Replaces the last status of an engine.

        Raises:
            InvalidValue: for a malformed pair id or engine name.
            StoreUnavailableError: when Redis cannot serve.
        """
        self._client.hset(PairKeys(pair_id).engines, name("engine", engine), status)

    @translated()
    def engines(self, pair_id: str) -> dict[str, bytes]:
        """The last status of every engine of a pair, in order of name.

        Raises:
            InvalidValue: for a malformed pair id.
            StoreUnavailableError: when Redis cannot serve.
        """
        found = self._client.hgetall(PairKeys(pair_id).engines)
        return {engine.decode(errors="replace"): status for engine, status in sorted(found.items())}

    @translated()
    def sweep_engines(self, pair_id: str, cursor: str, count: int = 500) -> tuple[str, int, dict[str, bytes]]:
        """A slice of the engines of a pair: the next cursor (`0` at the end), how many were deleted because no
        engine writes such a name or so long a status, and the last status of the others.

        Raises:
            InvalidValue: for a malformed pair id.
            StoreUnavailableError: when Redis cannot serve.
        """
        found = self._run(scripts.SWEEP, [PairKeys(pair_id).engines], [cursor, count, MAX_STATUS_BYTES])
        names, statuses = found[2::2], found[3::2]
        slice_ = {name.decode(errors="replace"): status for name, status in zip(names, statuses, strict=True)}
        return found[0].decode(), int(found[1]), slice_

    @translated()
    def forget_engines(self, pair_id: str, engines: Iterable[str]) -> int:
        """Drops engines; returns how many were there.

        Raises:
            InvalidValue: for a malformed pair id.
            StoreUnavailableError: when Redis cannot serve.
        """
        gone = list(engines)
        return int(self._client.hdel(PairKeys(pair_id).engines, *gone)) if gone else 0

    @translated()
    def announce(self, learner_id: str, ttl_ms: int) -> None:
        """Says that a learner is alive for the next `ttl_ms` milliseconds.

        Raises:
            InvalidValue: for a malformed id or a TTL below 1.
            StoreUnavailableError: when Redis cannot serve.
        """
        self._run(scripts.ANNOUNCE, [LEARNERS], [name("learner", learner_id), whole("ttl_ms", ttl_ms, 1)])

    @translated()
    def learners(self) -> list[str]:
        """Ids of the learners that are alive by Redis' clock, sorted.

        Raises:
            StoreUnavailableError: when Redis cannot serve.
        """
        return sorted(item.decode(errors="replace") for item in self._run(scripts.ALIVE, [LEARNERS]))

    @translated()
    def retire(self, learner_id: str) -> None:
        """Says that a learner is gone.

        Raises:
            InvalidValue: for a malformed id.
            StoreUnavailableError: when Redis cannot serve.
        """
        self._client.zrem(LEARNERS, name("learner", learner_id))


def ask_engines(pair_id: str, most: int = MAX_ENGINES, most_bytes: int = MAX_ENGINES_BYTES) -> Command:
    """The script, keys and arguments that read the last status of at most so many engines, and so many bytes."""
    return scripts.ENGINES, [PairKeys(pair_id).engines], [most, MAX_STATUS_BYTES, most_bytes]


def read_engines(reply: Sequence[Any]) -> tuple[int, dict[str, bytes]]:
    """What the reply to `ask_engines` says: how many engines there are, and the statuses that were read."""
    names = (name.decode("utf-8", "replace") for name in reply[1::2])
    return int(reply[0]), dict(zip(names, reply[2::2], strict=True))


def _decode(pair_id: str, body: bytes) -> PairRecord:
    try:
        record = PairRecord.from_json(body)
    except InvalidValue as error:
        raise StoreCorruptError(f"pair {pair_id}: {error}") from None
    if record.pair.id != pair_id:
        raise StoreCorruptError(f"pair {pair_id}: the record is of {record.pair.id}")
    return record
