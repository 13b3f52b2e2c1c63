"""What operators change: overrides, the tables that follow from them, and the trail of who did what.

How commands are made and replies are read is apart from who sends them, as the api asks asynchronously.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..bounds import whole
from ..changes import Change, Standing, lapse
from ..errors import InvalidValue, Refusal
from ..overrides import compose
from . import scripts
from .base import Argument, Base, Command, integer
from .errors import OverridesMovedError, StoreCorruptError, StoreError, VersionError, translated
from .keys import CHANGES, PairKeys
from .records import AuditEntry, PairRecord, Publication, stream_id

MAX_AUDIT = 10_000
"""About how many changes of a pair are kept."""

MOST_HISTORY = 100_000
"""About how many publications a pair may keep at all: commits trim to less."""

MAX_LAPSES = 200
"""More overrides than a pair can have."""


def ask_standing(pair_id: str) -> Command:
    """The script, keys and arguments that read what stands."""
    keys = PairKeys(pair_id)
    return scripts.STANDING, [keys.coefficients, keys.overrides], []


def read_standing(record: PairRecord, reply: Sequence[bytes | None]) -> Standing:
    """What the reply to `ask_standing` says.

    Raises:
        StoreCorruptError: when it is not what accord writes.
    """
    now, version, body, published_ms, learnt, revision, stored = reply
    found = Standing(
        pair_id=record.pair.id,
        k=record.pair.k,
        knots=record.knots,
        now_ms=integer("now", now),
        version=integer("version", version),
        published_ms=integer("published_ms", published_ms),
        body=body,
        learnt_body=learnt,
        revision=integer("revision", revision),
        stored=stored,
    )
    try:
        _ = found.overrides
    except InvalidValue as error:
        raise StoreCorruptError(f"overrides of {record.pair.id}: {error}") from None
    return found


def check_tables(standing: Standing) -> Standing:
    """The same, once its tables are known to be tables, and its overrides to fit them.

    Raises:
        StoreCorruptError: when they are not.
    """
    try:
        _ = standing.served, compose(standing.learnt, standing.overrides, standing.now_ms)
    except (Refusal, InvalidValue) as error:
        raise StoreCorruptError(f"coefficients of {standing.pair_id}: {error}") from None
    return standing


def ask_apply(change: Change) -> Command:
    """The script, keys and arguments that apply a change."""
    keys, table = PairKeys(change.pair_id), change.table
    publication = Publication(table.version, table.to_json(), _json(change.history), table.published_ms)
    args: list[Argument] = [
        change.id,
        change.expected_revision,
        change.expected_version,
        change.revision,
        change.overrides,
        publication.version,
        publication.table,
        publication.etag,
        publication.published_ms,
        change.learnt_body,
        "" if change.expires_ms is None else change.expires_ms,
        publication.history,
        _json(change.audit),
        MOST_HISTORY,
        MAX_AUDIT,
        CHANGES,
        change.pair_id,
    ]
    return scripts.APPLY, [keys.coefficients, keys.overrides, keys.history, keys.audit], args


def read_apply(change: Change, reply: Sequence[bytes]) -> None:
    """Returns when the change was applied, now or by an earlier try.

    Raises:
        OverridesMovedError: an operator changed something since it was worked out.
        VersionError: only something else was published since then: work it out again.
    """
    refusals: dict[bytes, type[StoreError]] = {b"overrides": OverridesMovedError, b"version": VersionError}
    code, detail = reply
    if code in refusals:
        raise refusals[code](f"pair {change.pair_id}: {detail.decode(errors='replace')}")


def read_audit(key: bytes, fields: dict[bytes, bytes]) -> AuditEntry:
    """One entry of the audit stream.

    Raises:
        StoreCorruptError: when it is not what accord writes.
    """
    try:
        values = json.loads(fields[b"entry"])
    except (KeyError, ValueError, RecursionError):
        raise StoreCorruptError(f"audit entry {key!r} is not understood") from None
    if not isinstance(values, dict):
        raise StoreCorruptError(f"audit entry {key!r} is not understood")
    return AuditEntry(key.decode(), values)


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


class Operators(Base):
    """Reads what stands, applies changes, and reads the trail."""

    @translated()
    def standing(self, record: PairRecord) -> Standing:
        """What is served and overridden now, read in one step.

        Raises:
            StoreCorruptError: when the stored overrides are not what accord writes.
        """
        return read_standing(record, self._run(*ask_standing(record.pair.id)))

    @translated()
    def apply(self, change: Change) -> None:
        """Writes overrides, coefficients, history, audit and change notice in one step, or nothing at all.

        A repeated change whose first try was applied is a success.

        Raises:
            OverridesMovedError: an operator changed something since it was worked out.
            VersionError: the learner published since it was worked out.
            StoreUnavailableError: Redis cannot serve; the change may have been applied.
        """
        read_apply(change, self._run(*ask_apply(change)))

    def settled(self, record: PairRecord, explain: Callable[[Change], Change] | None = None) -> Standing:
        """What stands once every override whose time is over has been taken away; whoever comes first records it.

        Args:
            record: of the pair.
            explain: adds to a change's history entry what its author knows of the traffic.

        Raises:
            StoreCorruptError: when what is stored is not what accord writes.
            StoreUnavailableError: when Redis cannot serve.
        """
        for _ in range(MAX_LAPSES):
            standing = self.standing(record)
            if standing.due is None:
                return standing
            change = lapse(check_tables(standing))
            assert change is not None
            try:
                self.apply(change if explain is None else explain(change))
            except (OverridesMovedError, VersionError):
                continue
        raise StoreError(f"pair {record.pair.id}: overrides lapse faster than they can be taken away")

    @translated()
    def audit(self, pair_id: str, count: int, before: str = "+") -> list[AuditEntry]:
        """At most `count` changes, newest first, those before an id only.

        Raises:
            StoreCorruptError: when an entry is not what accord writes.
        """
        if before != "+":
            stream_id("before", before)
        start = before if before == "+" else f"({before}"
        found: Any = self._client.xrevrange(PairKeys(pair_id).audit, max=start, count=whole("count", count, 1))
        return [read_audit(key, fields) for key, fields in found]
