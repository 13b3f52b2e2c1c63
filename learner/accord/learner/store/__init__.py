"""What accord keeps in Redis: keys, Lua, connections, and the typed store."""

from __future__ import annotations

from .connect import connect, connect_async, safe_url
from .errors import (
    FenceLostError,
    OverridesMovedError,
    StoreCorruptError,
    StoreError,
    StoreUnavailableError,
    VersionError,
    WatermarkMovedError,
    unavailable,
)
from .keys import CHANGES, LEARNERS, PAIRS, PairKeys, permanent_reason
from .records import (
    ZERO_ID,
    AuditEntry,
    Commit,
    HistoryEntry,
    Lease,
    LeaseInfo,
    PairRecord,
    Publication,
    Published,
    Retention,
    StoredState,
    stream_id,
)
from .store import Entries, Store

__all__ = [
    "CHANGES",
    "LEARNERS",
    "PAIRS",
    "ZERO_ID",
    "AuditEntry",
    "Commit",
    "Entries",
    "FenceLostError",
    "HistoryEntry",
    "Lease",
    "LeaseInfo",
    "OverridesMovedError",
    "PairKeys",
    "PairRecord",
    "Publication",
    "Published",
    "Retention",
    "Store",
    "StoreCorruptError",
    "StoreError",
    "StoreUnavailableError",
    "StoredState",
    "VersionError",
    "WatermarkMovedError",
    "connect",
    "connect_async",
    "permanent_reason",
    "safe_url",
    "stream_id",
    "unavailable",
]
