"""The store: everything that accord keeps in Redis, behind typed methods."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from redis.exceptions import NoScriptError

from ..bounds import EXACT, whole
from ..errors import InvalidValue
from ..wire import MAX_WIRE_BYTES, TOO_LONG
from . import scripts
from .base import Argument, integer
from .errors import (
    FenceLostError,
    OverridesMovedError,
    StoreCorruptError,
    StoreError,
    VersionError,
    WatermarkMovedError,
    translated,
)
from .keys import CHANGES, PairKeys
from .leases import Leases
from .operators import Operators
from .records import (
    ZERO_ID,
    Commit,
    HistoryEntry,
    Lease,
    Published,
    Retention,
    StoredState,
    next_id,
    stream_id,
)
from .registry import Registry

MAX_ENTRIES = 50_000
"""About how many summaries a pair's stream may hold when no learner trims it: a few hundred megabytes."""

MOST_OF_A_TICK = 200
"""How many entries that are given new ids go into one tick: a tick is learnt in one go."""

READ_BYTES = 64 << 20
"""About how much is read of all pairs at once; there is always room for one entry of each."""

AHEAD_ENTRIES = 5_000
"""How many entries with ids in the future are kept, and how many that wait beside one get new ids."""

_REFUSALS: dict[bytes, type[StoreError]] = {
    b"fence": FenceLostError,
    b"watermark": WatermarkMovedError,
    b"overrides": OverridesMovedError,
    b"version": VersionError,
}


class Entries(list[tuple[str, bytes]]):
    """Entries of a stream, (id, payload) each, oldest first.

    Attributes:
        cut: whether the reading ended for its bytes: there may be more, however few these are.
    """

    cut = False


class Store(Registry, Leases, Operators):
    """Summaries in, state and coefficients out, one atomic commit between them.

    Every method raises InvalidValue for malformed arguments, StoreUnavailableError when Redis is out of reach or cannot
    serve now, and StoreError when it refuses a command for good. The client repeats a command whose reply was lost; all
    methods but `append` have the same effect when they run twice. Methods may be called from several threads.

    Args:
        client: from `connect`; the store closes it.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @translated()
    def clock_ms(self, pair_id: str) -> int:
        """Unix ms by the clock of the node that owns the pair, which also stamps the entries of its stream."""
        return int(self._run(scripts.CLOCK, [PairKeys(pair_id).rounds]))

    @translated()
    def append(self, pair_id: str, payload: bytes, *, entry_id: str = "*", max_entries: int = MAX_ENTRIES) -> str:
        """Adds a summary to a pair's stream and returns its entry id.

        A repeated command can add it twice; the summary's own sequence tells.

        Args:
            pair_id: whose stream.
            payload: the encoded summary.
            entry_id: `*` for Redis' clock, or an explicit id after all others (tests, replays).
            max_entries: the oldest entries beyond about this many are dropped.

        Raises:
            StoreError: for an explicit id that does not come after all others.
        """
        if entry_id != "*":
            stream_id("entry_id", entry_id)
        added = self._client.xadd(
            PairKeys(pair_id).rounds,
            {b"d": payload},
            id=entry_id,
            maxlen=whole("max_entries", max_entries, 1),
            approximate=True,
        )
        return str(added.decode())

    @translated()
    def read(
        self, pair_id: str, after: str, count: int, most_bytes: int = READ_BYTES, *, before_ms: int | None = None
    ) -> Entries:
        """At most `count` entries (id, payload) after an id, oldest first, and about so many bytes; never waits.

        Only those with ids before some unix milliseconds, if asked.

        An entry without a payload yields b"", and of one that is longer than a summary can be only its length is read:
        no codec accepts either, so the caller refuses and counts them.
        """
        return _entries(self._run(scripts.READ, *_asked(pair_id, after, count, most_bytes, before_ms)))

    @translated()
    def read_many(self, after: Mapping[str, str], count: int) -> dict[str, Entries]:
        """`read` for several pairs, {pair id: after}: one round trip, or one for each pair on a Cluster."""
        share = READ_BYTES // max(len(after), 1)
        asked = {pair_id: _asked(pair_id, text, count, share) for pair_id, text in after.items()}
        if not self.clustered and len(asked) > 1:
            digest = self._script(scripts.READ).sha
            with self._client.pipeline(transaction=False) as pipe:
                for keys, args in asked.values():
                    pipe.evalsha(digest, len(keys), *keys, *args)
                try:
                    return {pair_id: _entries(found) for pair_id, found in zip(asked, pipe.execute(), strict=True)}
                except NoScriptError:
                    # A server that was started again has forgotten its scripts; a single call loads this one.
                    pass
        return {pair_id: self.read(pair_id, text, count, share) for pair_id, text in after.items()}

    @translated()
    def backlog(self, pair_id: str, after: str) -> tuple[int, int | None]:
        """How many entries wait after the watermark, and the unix ms of the oldest of them (None when none waits).

        The number is the stream's length, exact because a commit trims everything up to the watermark.
        """
        key = PairKeys(pair_id).rounds
        with self._client.pipeline(transaction=False) as pipe:
            pipe.xlen(key)
            pipe.xrange(key, min=_after("after", after), count=1)
            length, oldest = pipe.execute()
        if not oldest:
            return 0, None
        return int(length), stream_id("entry", oldest[0][0].decode())[0]

    @translated()
    def bring_back(self, lease: Lease, limit_ms: int, now_ms: int, earliest_ms: int, tick_ms: int) -> int:
        """Gives entries whose ids lie at or behind `limit_ms` ids of the present, in order; how many that were.

        A tick gets MOST_OF_A_TICK of them: the last ticks up to `now_ms`, none before `earliest_ms`, then later ones.

        Nothing happens while older entries wait, or when the lease has passed on. At most AHEAD_ENTRIES are kept.
        """
        keys = PairKeys(lease.pair_id)
        args: list[Argument] = [lease.owner, lease.fence, whole("limit_ms", limit_ms, 1), AHEAD_ENTRIES]
        ticks = [whole("earliest_ms", earliest_ms, 1), whole("tick_ms", tick_ms, 1), MOST_OF_A_TICK]
        return int(
            self._run(scripts.BRING_BACK, [keys.lease, keys.rounds], [*args, whole("now_ms", now_ms, 1), *ticks])
        )

    @translated()
    def reopen(self, lease: Lease, limit_ms: int, now_ms: int) -> bool:
        """Takes the last id of an empty stream back to `now_ms` when it lies at or behind `limit_ms`: behind the last
        id of all a stream takes no entry any more. False, with nothing done, also when the lease has passed on."""
        keys = PairKeys(lease.pair_id)
        args: list[Argument] = [lease.owner, lease.fence, whole("limit_ms", limit_ms, 1), whole("now_ms", now_ms)]
        return bool(self._run(scripts.REOPEN, [keys.lease, keys.rounds], args))

    @translated()
    def move_on(self, lease: Lease, now_ms: int, limit_ms: int, tick_ms: int, watermark: str | None = None) -> int:
        """Gives every later entry of a pair's stream an id at or behind `now_ms`; the ms behind which they lie now.

        0, with nothing done, when the lease has passed on, there is no stream, or more than AHEAD_ENTRIES entries that
        are to get new ids wait beside an id beyond the limit.

        Args:
            lease: of the owner.
            now_ms: unix milliseconds, at the beginning of a tick.
            limit_ms: ids from here on were given by nobody's clock.
            tick_ms: milliseconds of a tick.
            watermark: give what waits behind it ids of ticks of its own, None to leave them as they are.
        """
        keys = PairKeys(lease.pair_id)
        args: list[Argument] = [lease.owner, lease.fence, whole("now_ms", now_ms, 1), whole("limit_ms", limit_ms, 1)]
        if watermark is not None:
            stream_id("watermark", watermark)
        args += [watermark or "", whole("tick_ms", tick_ms, 1), MOST_OF_A_TICK, AHEAD_ENTRIES]
        return int(self._run(scripts.MOVE_ON, [keys.lease, keys.rounds], args))

    @translated()
    def load(self, pair_id: str) -> StoredState:
        """The state of a pair, read in one step; the empty state for a pair that learnt nothing yet.

        Raises:
            StoreCorruptError: when the stored fields are not what a commit writes.
        """
        fields = ("body", "watermark", "sequences", "counters", "version", "committed_ms")
        body, watermark, sequences, counters, version, committed = self._client.hmget(PairKeys(pair_id).state, fields)
        text = ZERO_ID if watermark is None else watermark.decode(errors="replace")
        try:
            stream_id("watermark", text)
        except InvalidValue as error:
            raise StoreCorruptError(f"state of {pair_id}: {error}") from None
        return StoredState(
            body=body,
            watermark=text,
            sequences=sequences or b"",
            counters=counters or b"",
            version=integer("version", version),
            committed_ms=integer("committed_ms", committed),
        )

    @translated()
    def commit(self, lease: Lease, commit: Commit, retention: Retention | None = None) -> None:
        """Writes state, watermark, coefficients, history and change notice in one step, or nothing at all.

        Then the stream keeps only what lies after the watermark. A repeated commit whose first try was applied is a
        success, also when the lease lapsed in between.

        Args:
            lease: the right to commit.
            commit: what is written.
            retention: how much history stays, by default 10,000 entries of any age.

        Raises:
            FenceLostError: the lease lapsed or passed to somebody else.
            WatermarkMovedError: somebody committed since the state was loaded.
            OverridesMovedError: an operator changed something since the commit was composed.
            VersionError: a publication does not grow past the one before.
            StoreUnavailableError: Redis cannot serve; the commit may have been applied, so load the state again.
        """
        keys, kept = PairKeys(lease.pair_id), retention or Retention()
        args: list[Argument] = [
            lease.owner,
            lease.fence,
            commit.expected_watermark,
            commit.watermark,
            commit.digest(lease),
            "0" if commit.body is None else "1",
            commit.body or b"",
            commit.sequences,
            commit.counters,
            commit.version,
            next_id(commit.watermark),
            kept.count,
            CHANGES,
            lease.pair_id,
            "" if commit.revision is None else commit.revision,
            "" if commit.learnt is None else "1" if commit.learnt else "0",
            commit.learnt or b"",
            kept.age_ms or 0,
        ]
        for item in commit.publications:
            args += [item.version, item.table, item.etag, item.published_ms, item.history]
        touched = [keys.lease, keys.state, keys.coefficients, keys.history, keys.rounds, keys.overrides]
        code, detail = self._run(scripts.COMMIT, touched, args)
        if code in _REFUSALS:
            raise _REFUSALS[code](f"pair {lease.pair_id}: {detail.decode(errors='replace')}")

    @translated()
    def coefficients(self, pair_id: str) -> Published | None:
        """The table in force, None before the first publication.

        Raises:
            StoreCorruptError: when the stored fields are not what a commit writes.
        """
        fields = ("version", "body", "etag", "published_ms", "learnt")
        version, body, etag, published, learnt = self._client.hmget(PairKeys(pair_id).coefficients, fields)
        if version is None:
            return None
        if body is None or etag is None:
            raise StoreCorruptError(f"coefficients of {pair_id}: body or etag is missing")
        tag = etag.decode(errors="replace")
        return Published(integer("version", version), body, tag, integer("published_ms", published), learnt)

    @translated()
    def is_served(self, pair_id: str) -> bool:
        """Whether coefficients are in force."""
        return bool(self._client.hexists(PairKeys(pair_id).coefficients, "version"))

    def newest_version(self, pair_id: str) -> int:
        """The version that was published last as far as the history tells; 0 without one, or where it is none."""
        try:
            version = next((entry.version for entry in self.history(pair_id, 1)), 0)
        except StoreCorruptError:
            return 0
        return version if 0 <= version < EXACT - 1 else 0

    @translated()
    def note_expiry(self, pair_id: str, expires_ms: int | None) -> None:
        """Says when the first override in what is served ends, unix ms by the store's clock; None when none does."""
        if expires_ms is not None:
            self._client.hset(PairKeys(pair_id).coefficients, "expires_ms", whole("expires_ms", expires_ms))

    @translated()
    def history(self, pair_id: str, count: int, before: str = "+") -> list[HistoryEntry]:
        """At most `count` past publications, newest first.

        Args:
            pair_id: whose history.
            count: at least 1.
            before: `+` for the newest, or an id: entries before it only. `<ms + 1>-0` gives the state as of `ms`.

        Raises:
            StoreCorruptError: when an entry is not what a commit writes.
        """
        if before != "+":
            stream_id("before", before)
        start = before if before == "+" else f"({before}"
        found = self._client.xrevrange(PairKeys(pair_id).history, max=start, count=whole("count", count, 1))
        return [_history_entry(key.decode(), fields) for key, fields in found]


def _after(field: str, text: str) -> str:
    stream_id(field, text)
    return f"({text}"


def _asked(
    pair_id: str, after: str, count: int, most_bytes: int, before_ms: int | None = None
) -> tuple[list[str], list[Argument]]:
    start, count = _after("after", after), whole("count", count, 1)
    # An end without a sequence is the last id of its millisecond.
    end = "+" if before_ms is None else str(whole("before_ms", before_ms, 1) - 1)
    return [PairKeys(pair_id).rounds], [start, count, most_bytes, MAX_WIRE_BYTES, TOO_LONG, end]


def _entries(found: list[bytes]) -> Entries:
    read = Entries((key.decode(), payload) for key, payload in zip(found[1::2], found[2::2], strict=True))
    read.cut = found[0] == b"1"
    return read


def _history_entry(key: str, fields: dict[bytes, Any]) -> HistoryEntry:
    return HistoryEntry(
        id=key,
        version=integer("version", fields.get(b"version")),
        published_ms=integer("published_ms", fields.get(b"published_ms")),
        table=fields.get(b"table", b""),
        entry=fields.get(b"entry", b""),
    )
