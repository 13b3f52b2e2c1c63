"""What the store hands out and takes in."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..basis import SplineBasis
from ..bounds import whole
from ..errors import InvalidValue
from ..pair import Pair

ZERO_ID = "0-0"
"""The watermark of a pair that learnt nothing yet: before every stream entry."""

_STREAM_ID = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")
_MAX_PART = (1 << 64) - 1


@dataclass(frozen=True)
class PairRecord:
    """A registered pair.

    Args:
        pair: whose acceptance is estimated.
        knots: of the spline basis, fixed by whoever registered first.
        registered_ms: unix ms by Redis' clock.
    """

    pair: Pair
    knots: tuple[float, ...]
    registered_ms: int

    def to_json(self) -> bytes:
        """The stored form."""
        values = {"pair": self.pair.to_dict(), "knots": list(self.knots), "registered_ms": self.registered_ms}
        return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes) -> PairRecord:
        """The inverse of `to_json`.

        Raises:
            InvalidValue: for anything that `to_json` does not write.
        """
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            raise InvalidValue("pair record", body, "is not JSON") from None
        if not isinstance(values, dict) or not isinstance(values.get("knots"), list):
            raise InvalidValue("pair record", body, "must be an object with a list of knots")
        try:
            knots = SplineBasis(tuple(float(t) for t in values["knots"])).knots
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidValue("knots", values["knots"], str(error)) from None
        return cls(
            Pair.from_dict(values.get("pair", {})), knots, whole("registered_ms", values.get("registered_ms", 0))
        )


@dataclass(frozen=True)
class Lease:
    """The right to commit for a pair: good while Redis holds the same owner and fence, unexpired."""

    pair_id: str
    owner: str
    fence: int


@dataclass(frozen=True)
class LeaseInfo:
    """Who owns a pair now; `expires_ms` is unix ms by Redis' clock, `left_ms` how long that was from the reading."""

    owner: str
    fence: int
    expires_ms: int
    left_ms: int


@dataclass(frozen=True)
class StoredState:
    """What a pair's owner continues from.

    Args:
        body: the numeric state, opaque here; None for a pair that learnt nothing yet.
        watermark: id of the last stream entry that the body contains.
        sequences, counters: opaque bytes, empty at first.
        version: as of the last commit.
        committed_ms: unix ms by Redis' clock, 0 before the first commit.
    """

    body: bytes | None = None
    watermark: str = ZERO_ID
    sequences: bytes = b""
    counters: bytes = b""
    version: int = 0
    committed_ms: int = 0


@dataclass(frozen=True)
class Publication:
    """One version of a pair's coefficients.

    Args:
        version: grows strictly with every publication of the pair.
        table: the served bytes.
        history: the history entry, opaque here.
        published_ms: unix ms.
    """

    version: int
    table: bytes
    history: bytes
    published_ms: int

    def __post_init__(self) -> None:
        whole("version", self.version)
        whole("published_ms", self.published_ms)

    @property
    def etag(self) -> str:
        """`"<version>-<12 hex digits of the body's SHA-1>"` with the quotes that HTTP wants."""
        return f'"{self.version}-{hashlib.sha1(self.table, usedforsecurity=False).hexdigest()[:12]}"'


@dataclass(frozen=True)
class Commit:
    """One atomic step of a pair.

    Args:
        expected_watermark: as loaded; the commit is refused when the stored one differs.
        watermark: id of the last entry that is learnt now, never before the expected one.
        body: the numeric state, None to keep the stored one.
        sequences, counters: opaque bytes, always replaced.
        version: of the last publication, this commit's included.
        publications: oldest first.
        revision: of the overrides that the publications were composed under, None when it does not matter.
        learnt: the learner's own table, b"" when it is what is served, None to leave what is stored.

    Raises:
        InvalidValue: for ids that are no stream ids, or a watermark that would go back.
    """

    expected_watermark: str
    watermark: str
    body: bytes | None
    sequences: bytes
    counters: bytes
    version: int
    publications: Sequence[Publication] = ()
    revision: int | None = None
    learnt: bytes | None = None

    def __post_init__(self) -> None:
        if stream_id("watermark", self.watermark) < stream_id("expected_watermark", self.expected_watermark):
            raise InvalidValue("watermark", self.watermark, f"must not lie before {self.expected_watermark}")
        whole("version", self.version)

    def digest(self, lease: Lease) -> str:
        """Names this commit under this lease by its content, so that a retry is recognised."""
        parts: list[bytes] = [
            f"{lease.owner} {lease.fence} {self.expected_watermark} {self.watermark} {self.version}".encode(),
            b"" if self.body is None else b"1" + self.body,
            self.sequences,
            self.counters,
            f"{self.revision}".encode(),
            b"" if self.learnt is None else b"1" + self.learnt,
        ]
        for item in self.publications:
            parts += [f"{item.version} {item.published_ms}".encode(), item.table, item.history]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Published:
    """The version in force.

    Args:
        version, body, etag, published_ms: the etag has its quotes, the time is unix ms.
        learnt: the learner's own table while overrides make the body another, else None.
    """

    version: int
    body: bytes
    etag: str
    published_ms: int
    learnt: bytes | None = None


@dataclass(frozen=True)
class HistoryEntry:
    """One past publication; `id` is where it stands in the history and what `before` takes."""

    id: str
    version: int
    published_ms: int
    table: bytes
    entry: bytes


@dataclass(frozen=True)
class Retention:
    """How much of a pair's history a commit keeps; what is in force stays, however old it is.

    Args:
        count: most entries.
        age_ms: greatest age, None for any.
    """

    count: int = 10_000
    age_ms: int | None = None

    def __post_init__(self) -> None:
        whole("count", self.count, 1)
        if self.age_ms is not None:
            whole("age_ms", self.age_ms, 1)


@dataclass(frozen=True)
class AuditEntry:
    """What an operator did, or what happened by itself; `id` is what `before` takes, `values` are the entry's own."""

    id: str
    values: dict[str, Any]

    @property
    def at_ms(self) -> int:
        """When, unix ms by the store's clock."""
        return stream_id("id", self.id)[0]


def stream_id(field: str, text: object) -> tuple[int, int]:
    """A stream id `ms-seq` as two integers that compare as Redis does, or InvalidValue.

    >>> stream_id("after", "12-3") < stream_id("after", "12-10")
    True
    """
    match = _STREAM_ID.fullmatch(text) if isinstance(text, str) else None
    parts = (int(match[1]), int(match[2])) if match else (_MAX_PART + 1, 0)
    if max(parts) > _MAX_PART:
        raise InvalidValue(field, text, "must be a stream id such as 1700000000000-0")
    return parts


def next_id(text: str) -> str:
    """The smallest stream id after this one.

    >>> next_id("5-0"), next_id("5-18446744073709551615")
    ('5-1', '6-0')
    """
    ms, seq = stream_id("id", text)
    return f"{ms}-{seq + 1}" if seq < _MAX_PART else f"{ms + 1}-0"


def name(field: str, value: object) -> str:
    """1 to 256 printable characters, or InvalidValue."""
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise InvalidValue(field, value, "must be 1 to 256 printable characters")
    return value
