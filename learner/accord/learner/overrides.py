"""What operators put over learnt coefficients, and the table that results: pure functions, no store.

A scope is a workload key, or None for the whole pair. A workload's own override wins over the pair's; it starts from
the *learnt* row, so the two never add up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from .bounds import whole
from .coefficients import COEFFICIENT_LIMIT, MAX_WORKLOADS, Coefficients, CoefficientTable
from .errors import InvalidValue, Reason
from .workload import WorkloadKey

MAX_REASON = 500
MAX_ACTOR = 120
MAX_EXPIRES_S = 31_536_000
"""One year: a longer wish is one without an end."""
MAX_SHIFT = COEFFICIENT_LIMIT

Scope = str | None


class Kind(StrEnum):
    """How an override changes what is served."""

    PIN = "pin"
    """Exactly these coefficients."""
    SHIFT = "shift"
    """The learnt row with something added to every intercept, however it goes on changing."""
    FREEZE = "freeze"
    """The rows as they were served when it was put."""
    ROLLBACK = "rollback"
    """The rows of an older version."""


@dataclass(frozen=True)
class Rows:
    """The rows that a freeze or a rollback of a whole pair keeps in force."""

    prior: Coefficients
    workloads: Mapping[str, Coefficients]

    @classmethod
    def of(cls, table: CoefficientTable) -> Rows:
        """Every row of a table."""
        return cls(table.prior, dict(table.workloads))


@dataclass(frozen=True)
class Override:
    """One operator's wish for one scope.

    Args:
        scope: workload key, None for the whole pair.
        kind: how it changes what is served.
        reason, actor: why, and who says so.
        created_ms: unix ms by the store's clock.
        revision: of the pair's overrides, as of this one.
        expires_ms: unix ms at which it ends, None for never.
        token: name of the token that it came with, None without one.
        of_version: the version that a rollback brings back.
        coefficients: of a pin, and of a freeze or rollback of one workload.
        shift: in log-odds, of a shift.
        rows: of a freeze or rollback of the whole pair.

    Raises:
        InvalidValue: naming the field and the value.
    """

    scope: Scope
    kind: Kind
    reason: str
    actor: str
    created_ms: int
    revision: int
    expires_ms: int | None = None
    token: str | None = None
    of_version: int | None = None
    coefficients: Coefficients | None = None
    shift: float | None = None
    rows: Rows | None = None

    def __post_init__(self) -> None:
        if self.scope is not None:
            WorkloadKey.parse(self.scope)
        check_text("reason", self.reason, MAX_REASON)
        check_text("actor", self.actor, MAX_ACTOR)
        for name in ("created_ms", "revision"):
            whole(name, getattr(self, name))
        for name in ("expires_ms", "of_version"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.shift is not None:
            check_shift(self.shift)
        whole_pair = self.kind in (Kind.FREEZE, Kind.ROLLBACK) and self.scope is None
        needed = "shift" if self.kind is Kind.SHIFT else "rows" if whole_pair else "coefficients"
        for name in ("coefficients", "shift", "rows"):
            if (getattr(self, name) is not None) != (name == needed):
                raise InvalidValue("kind", self.kind.value, f"an override of this kind and scope has {needed} only")

    def lapsed(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def view(self) -> dict[str, Any]:
        """Plain values for people; the rows of a whole pair are left out."""
        return {
            "scope": self.scope,
            "kind": self.kind.value,
            "coefficients": None if self.coefficients is None else self.coefficients.to_dict(),
            "shift": self.shift,
            "reason": self.reason,
            "actor": self.actor,
            "token": self.token,
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
            "revision": self.revision,
            "of_version": self.of_version,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, nothing left out."""
        rows = self.rows
        if rows is None:
            return self.view()
        workloads = {key: row.to_dict() for key, row in rows.workloads.items()}
        return {**self.view(), "rows": {"prior": rows.prior.to_dict(), "workloads": workloads}}

    @classmethod
    def from_dict(cls, values: Any) -> Override:
        """The inverse of `to_dict`; raises InvalidValue for anything else."""
        try:
            rows = values.get("rows")
            return cls(
                scope=values["scope"],
                kind=Kind(values["kind"]),
                reason=values["reason"],
                actor=values["actor"],
                created_ms=values["created_ms"],
                revision=values["revision"],
                expires_ms=values["expires_ms"],
                token=values["token"],
                of_version=values["of_version"],
                coefficients=_row(values["coefficients"]),
                shift=values["shift"],
                rows=None
                if rows is None
                else Rows(
                    Coefficients.from_dict(rows["prior"]),
                    {str(WorkloadKey.parse(k)): Coefficients.from_dict(row) for k, row in rows["workloads"].items()},
                ),
            )
        except InvalidValue:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidValue("override", values, f"is not understood: {error!r:.100}") from None


Overrides = Mapping[Scope, Override]


def encode_overrides(overrides: Overrides) -> bytes:
    """Canonical JSON of every override of a pair."""
    ordered = sorted(overrides.values(), key=lambda item: item.scope or "")
    return json.dumps([item.to_dict() for item in ordered], separators=(",", ":"), allow_nan=False).encode()


def decode_overrides(body: bytes | None) -> dict[Scope, Override]:
    """The inverse of `encode_overrides`; none for a pair that has no such key.

    Raises:
        InvalidValue: for anything that `encode_overrides` does not write.
    """
    if body is None:
        return {}
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidValue("overrides", body, "is not JSON") from None
    if not isinstance(values, list):
        raise InvalidValue("overrides", body, "must be a list")
    found = {item.scope: item for item in map(Override.from_dict, values)}
    if len(found) != len(values) or len(found) > MAX_WORKLOADS + 1:
        raise InvalidValue("overrides", len(values), f"at most {MAX_WORKLOADS + 1}, one for each scope")
    return found


def in_force(overrides: Overrides, now_ms: int) -> dict[Scope, Override]:
    """Those whose time is not over."""
    return {scope: item for scope, item in overrides.items() if not item.lapsed(now_ms)}


def next_expiry(overrides: Iterable[Override]) -> int | None:
    """The earliest end of any of them, unix ms; None when none ends."""
    return min((item.expires_ms for item in overrides if item.expires_ms is not None), default=None)


def compose(learnt: CoefficientTable, overrides: Overrides, now_ms: int) -> CoefficientTable:
    """What is served: the learnt table under the overrides that are in force at `now_ms`.

    The version and the time of publication are the learnt table's. Of more than 64 rows those of overridden workloads
    stay, and of the others the first in order of their keys: the rest is served the prior row.

    Raises:
        InvalidValue: when stored rows do not fit the learnt table's K or knots.
    """
    standing = in_force(overrides, now_ms)
    whole = standing.pop(None, None)
    prior, rows = learnt.prior, dict(learnt.workloads)
    if whole is not None:
        prior, rows = _whole_pair(whole, learnt)
    own = {key: _over(item, learnt.row(key)) for key, item in standing.items() if key is not None}
    room = MAX_WORKLOADS - len(own)
    rows = dict(sorted((key, row) for key, row in rows.items() if key not in own)[:room]) | own
    return replace(learnt, prior=prior, workloads=rows)


def same_rows(one: CoefficientTable, other: CoefficientTable) -> bool:
    """Whether two tables serve the same numbers, whatever their versions."""
    return replace(one, version=0, published_ms=0).to_json() == replace(other, version=0, published_ms=0).to_json()


def _whole_pair(item: Override, learnt: CoefficientTable) -> tuple[Coefficients, dict[str, Coefficients]]:
    if item.rows is not None:
        return item.rows.prior, dict(item.rows.workloads)
    return _over(item, learnt.prior), {key: _over(item, row) for key, row in learnt.workloads.items()}


def _over(item: Override, learnt: Coefficients) -> Coefficients:
    if item.coefficients is not None:
        return item.coefficients
    moved = np.clip(learnt.intercepts + (item.shift or 0.0), -COEFFICIENT_LIMIT, COEFFICIENT_LIMIT)
    return replace(learnt, intercepts=moved)


def check_text(field: str, value: object, limit: int) -> str:
    """1 to `limit` characters that can be stored and are not all blank, or InvalidValue."""
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise InvalidValue(field, value, f"must be 1 to {limit} characters, not all blank")
    if any((ch < " " and ch not in "\t\n") or "\ud800" <= ch <= "\udfff" for ch in value):
        raise InvalidValue(field, value, "must not hold control characters or halves of characters")
    return value


def check_shift(value: object) -> float:
    """A finite shift in log-odds, or InvalidValue."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_SHIFT <= value <= MAX_SHIFT:
        raise InvalidValue("shift", value, f"must be a number within {MAX_SHIFT:g} of 0", Reason.OUT_OF_BOUNDS)
    return float(value)


def _row(values: Any) -> Coefficients | None:
    return None if values is None else Coefficients.from_dict(values)
