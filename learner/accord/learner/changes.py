"""An operator's change of one pair, worked out before anything is written: from what stands to what follows.

The store applies a `Change` in one step, and only onto the revision and the version that it was worked out from. So two
operators never overwrite each other, and a publication of the learner in between is seen, not lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .basis import DEFAULT_KNOTS
from .coefficients import MAX_WORKLOADS, Coefficients, CoefficientTable
from .errors import AccordError, InvalidValue
from .guard import moved
from .overrides import (
    MAX_EXPIRES_S,
    Kind,
    Override,
    Rows,
    Scope,
    compose,
    decode_overrides,
    encode_overrides,
    in_force,
    next_expiry,
    same_rows,
)
from .sketch import BINS, CHANNELS

OURSELVES = "accord"
"""The actor of what happens by itself: an override whose time is over."""


class OverrideUnknownError(AccordError):
    """There is no override for this scope."""


class ChangeRefusedError(AccordError):
    """The change contradicts what stands; the message says how."""


@dataclass(frozen=True)
class Author:
    """Who changes something, and why; token and role are those of the request, None without any."""

    actor: str
    reason: str
    token: str | None = None
    role: str | None = None


@dataclass(frozen=True)
class Wish:
    """What an operator asks for.

    Args:
        kind: pin, shift or freeze.
        coefficients: of a pin.
        shift: of a shift.
        expires_in_s: seconds, 1 to a year; None for no end.
    """

    kind: Kind
    coefficients: Coefficients | None = None
    shift: float | None = None
    expires_in_s: float | None = None


@dataclass(frozen=True)
class Standing:
    """What the store holds of a pair's coefficients and overrides, read in one step.

    Args:
        pair_id, k, knots: identity.
        now_ms: the store's clock.
        version, published_ms: of what is served; 0 before the first publication.
        body: what is served, None before the first publication.
        learnt_body: the learner's own newest table, None while it serves the same rows.
        revision: of the overrides; grows with every change of an operator.
        stored: the overrides' bytes.

    The decoded properties raise Refusal or InvalidValue for bytes that accord does not write.
    """

    pair_id: str
    k: int
    knots: tuple[float, ...] = DEFAULT_KNOTS
    now_ms: int = 0
    version: int = 0
    published_ms: int = 0
    body: bytes | None = None
    learnt_body: bytes | None = None
    revision: int = 0
    stored: bytes | None = None

    @cached_property
    def served(self) -> CoefficientTable:
        """The table in force; the cold start before the first publication."""
        if self.body is None:
            return CoefficientTable.cold(self.pair_id, self.k, self.knots)
        return CoefficientTable.from_json(self.body)

    @cached_property
    def learnt(self) -> CoefficientTable:
        """The learner's own newest table."""
        return self.served if self.learnt_body is None else CoefficientTable.from_json(self.learnt_body)

    @cached_property
    def overrides(self) -> Mapping[Scope, Override]:
        """Every stored override, lapsed ones included, by scope."""
        return decode_overrides(self.stored)

    @property
    def due(self) -> Override | None:
        """The override whose time was over first, None while none is."""
        over = [item for item in self.overrides.values() if item.lapsed(self.now_ms)]
        return min(over, key=lambda item: (item.expires_ms or 0, item.scope or ""), default=None)


@dataclass(frozen=True)
class Change:
    """What is written, and onto what.

    Args:
        pair_id: whose.
        id: new for every change; a repeated command is recognised by it.
        expected_revision, expected_version: what it was worked out from.
        revision: after it.
        overrides: every override after it, encoded.
        expires_ms: the earliest end of one of them.
        table: what is served after it.
        learnt: the learner's own table.
        history, audit: the entries, plain values.
        override: the one that was put; None when one was lifted, or nothing is held.
    """

    pair_id: str
    id: str
    expected_revision: int
    expected_version: int
    revision: int
    overrides: bytes
    expires_ms: int | None
    table: CoefficientTable
    learnt: CoefficientTable
    history: Mapping[str, Any]
    audit: Mapping[str, Any]
    override: Override | None = None

    @property
    def learnt_body(self) -> bytes:
        """The learner's own table as it is stored; b"" when it is what is served."""
        return b"" if same_rows(self.learnt, self.table) else self.learnt.to_json()


def put(standing: Standing, scope: Scope, wish: Wish, author: Author) -> Change:
    """Puts an override over a scope, in place of the one before.

    Raises:
        InvalidValue: for coefficients that do not fit the pair, or any bound.
        ChangeRefusedError: when there are as many scopes as there may be.
    """
    item = Override(
        scope=scope,
        kind=wish.kind,
        reason=author.reason,
        actor=author.actor,
        created_ms=standing.now_ms,
        revision=standing.revision + 1,
        expires_ms=_end(standing, wish.expires_in_s),
        token=author.token,
        **_content(standing, scope, wish),
    )
    return _held(standing, "put", "override", item, author)


def lift(standing: Standing, scope: Scope, author: Author) -> Change:
    """Takes an override away; the learnt rows return.

    Raises:
        OverrideUnknownError: when the scope has none.
    """
    if scope not in standing.overrides:
        raise OverrideUnknownError(f"there is no override for {scope or 'the whole pair'}")
    return _gone(standing, "delete", "lifted", standing.overrides[scope], author)


def lapse(standing: Standing) -> Change | None:
    """Takes away the override whose time was over first; None while none is over."""
    due = standing.due
    return None if due is None else _gone(standing, "expire", "expired", due, Author(OURSELVES, "its time was over"))


def roll_back(
    standing: Standing,
    scope: Scope,
    old: CoefficientTable,
    author: Author,
    *,
    hold: bool,
    expires_in_s: float | None = None,
) -> Change:
    """Publishes the rows of an old version as a new one.

    Args:
        standing: what stands.
        scope: a workload, None for the whole pair.
        old: the old version.
        author: who, and why.
        hold: keep the rows in force as an override; otherwise the next publication replaces them, a learnt one or that
            of another override.
        expires_in_s: when a held one ends.

    Raises:
        ChangeRefusedError: when the old version has another K or other knots, or, without hold, when an override is in
            force for the scope.
    """
    if (old.k, old.knots) != (standing.learnt.k, standing.learnt.knots):
        raise ChangeRefusedError(
            f"version {old.version} has K = {old.k} and knots {list(old.knots)}; "
            f"the pair has K = {standing.learnt.k} and knots {list(standing.learnt.knots)}"
        )
    if hold:
        item = Override(
            scope=scope,
            kind=Kind.ROLLBACK,
            reason=author.reason,
            actor=author.actor,
            created_ms=standing.now_ms,
            revision=standing.revision + 1,
            expires_ms=_end(standing, expires_in_s),
            token=author.token,
            of_version=old.version,
            **_kept(scope, old),
        )
        return _held(standing, "rollback", "rollback", item, author)
    if expires_in_s is not None:
        raise InvalidValue("expires_in_s", expires_in_s, "belongs to a rollback that is held")
    blocking = in_force(standing.overrides, standing.now_ms).keys() & {scope, None}
    if blocking:
        where = "the whole pair" if None in blocking else str(scope)
        raise ChangeRefusedError(f"an override is in force for {where}: lift it first, or hold the rollback")
    if scope is None:
        table = compose(old, standing.overrides, standing.now_ms)
    else:
        rows = {**standing.served.workloads, scope: old.row(scope)}
        _room(len(rows))
        table = replace(standing.served, workloads=rows)
    return _change(
        standing, "rollback", "rollback", scope, dict(standing.overrides), table, author, of_version=old.version
    )


def _held(standing: Standing, action: str, cause: str, item: Override, author: Author) -> Change:
    after = {**standing.overrides, item.scope: item}
    _room(len({*standing.learnt.workloads, *(key for key in after if key is not None)}))
    table = compose(standing.learnt, after, standing.now_ms)
    before = standing.overrides.get(item.scope)
    return _change(
        standing, action, cause, item.scope, after, table, author, before=before, now=item, of_version=item.of_version
    )


def _gone(standing: Standing, action: str, cause: str, item: Override, author: Author) -> Change:
    after = {scope: other for scope, other in standing.overrides.items() if scope != item.scope}
    table = compose(standing.learnt, after, standing.now_ms)
    return _change(standing, action, cause, item.scope, after, table, author, before=item)


def _change(
    standing: Standing,
    action: str,
    cause: str,
    scope: Scope,
    after: Mapping[Scope, Override],
    table: CoefficientTable,
    author: Author,
    *,
    before: Override | None = None,
    now: Override | None = None,
    of_version: int | None = None,
) -> Change:
    version, revision = standing.version + 1, standing.revision + 1
    at_ms = max(standing.now_ms, standing.published_ms)
    table = replace(table, version=version, published_ms=at_ms)
    shown = now or before
    history = {
        "cause": cause,
        "version": version,
        "published_ms": at_ms,
        "moved": moved_rows(standing.served, table),
        "scope": scope,
        "override": None if shown is None else shown.view(),
        "of_version": of_version,
        "actor": author.actor,
        "reason": author.reason,
    }
    audit = {
        "action": action,
        "scope": scope,
        "actor": author.actor,
        "token": author.token,
        "role": author.role,
        "reason": author.reason,
        "before": None if before is None else before.view(),
        "after": None if now is None else now.view(),
        "of_version": of_version,
        "version_before": standing.version,
        "version_after": version,
        "revision": revision,
    }
    return Change(
        pair_id=standing.pair_id,
        id=secrets.token_hex(16),
        expected_revision=standing.revision,
        expected_version=standing.version,
        revision=revision,
        overrides=encode_overrides(after),
        expires_ms=next_expiry(after.values()),
        table=table,
        learnt=standing.learnt,
        history=history,
        audit=audit,
        override=now,
    )


def _content(standing: Standing, scope: Scope, wish: Wish) -> dict[str, Any]:
    if wish.kind is Kind.SHIFT:
        return {"shift": wish.shift}
    if wish.kind is Kind.FREEZE:
        return _kept(scope, standing.served)
    row, fits = wish.coefficients, standing.learnt.prior
    if row is None:
        raise InvalidValue("coefficients", None, "a pin needs coefficients")
    for name in ("slopes", "intercepts"):
        found, wanted = len(getattr(row, name)), len(getattr(fits, name))
        if found != wanted:
            raise InvalidValue(f"coefficients.{name}", getattr(row, name).tolist(), f"must have {wanted} values")
    return {"coefficients": row}


def _kept(scope: Scope, table: CoefficientTable) -> dict[str, Any]:
    return {"rows": Rows.of(table)} if scope is None else {"coefficients": table.row(scope)}


def _room(rows: int) -> None:
    if rows > MAX_WORKLOADS:
        raise ChangeRefusedError(f"the pair would have rows for {rows} workloads; at most {MAX_WORKLOADS}")


def _end(standing: Standing, expires_in_s: float | None) -> int | None:
    if expires_in_s is None:
        return None
    number = isinstance(expires_in_s, int | float) and not isinstance(expires_in_s, bool)
    if not number or not 1.0 <= expires_in_s <= MAX_EXPIRES_S:
        raise InvalidValue("expires_in_s", expires_in_s, f"must be a number of seconds from 1 to {MAX_EXPIRES_S}")
    return standing.now_ms + round(expires_in_s * 1000.0)


def moved_rows(old: CoefficientTable, new: CoefficientTable) -> dict[str, float | None]:
    """Workload -> the largest change of probability over plausible drafts; None when the request effect changed."""
    unseen = np.zeros((new.k, BINS, CHANNELS))
    changes = {key: moved(unseen, old.row(key), new.row(key), new.basis) for key in {**old.workloads, **new.workloads}}
    return {key: by if np.isfinite(by) else None for key, by in sorted(changes.items()) if by > 0.0}
