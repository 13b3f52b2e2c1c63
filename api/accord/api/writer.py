"""What the api changes in the store for operators, and what ends by itself when its time is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from accord.learner.changes import Change, Standing, lapse
from accord.learner.effects import Effects, explained
from accord.learner.store import scripts
from accord.learner.store.base import Command
from accord.learner.store.errors import (
    OverridesMovedError,
    StoreError,
    StoreUnavailableError,
    VersionError,
    translated,
)
from accord.learner.store.keys import PairKeys
from accord.learner.store.operators import (
    MAX_LAPSES,
    ask_apply,
    ask_standing,
    check_tables,
    read_apply,
    read_standing,
)
from accord.learner.store.records import PairRecord

from .errors import ConflictError, PairUnknownError, PreconditionFailedError
from .etag import IfMatch
from .learnt import Learnt
from .logs import event
from .source import Source
from .tables import Table

T = TypeVar("T")

TRIES = 10
"""How often a change is worked out again because the learner published meanwhile: at most once a second."""

FAILED_LAPSE_S = 5.0
"""When to look again at an override that could not be taken away."""


class Writer:
    """Applies operators' changes, one step each.

    Args:
        client: redis.asyncio client, standalone or cluster, answering bytes.
        source: reads the rest.
        learnt: says what a change means for recent traffic.
    """

    def __init__(self, client: Any, source: Source, learnt: Learnt) -> None:
        self._client = client
        self._source = source
        self._learnt = learnt

    async def settled(self, pair_id: str) -> Standing:
        """What stands once every override whose time is over has been taken away.

        Raises:
            PairUnknownError: when no engine has registered the pair.
            StoreError: when the store is away, or holds what is not understood.
        """
        record = await self._source.record(pair_id)
        if record is None:
            raise PairUnknownError(pair_id)
        for _ in range(MAX_LAPSES):
            standing = await self._standing(record)
            if standing.due is None:
                return standing
            change = await asyncio.to_thread(_planned, lapse, standing)
            assert change is not None
            change, _ = await self._judged(change)
            try:
                await self._apply(change)
            except (OverridesMovedError, VersionError):
                # Another api, or the learner, was there first: it wrote the entry.
                continue
            event("override expired", pair=pair_id, version=change.table.version, revision=change.revision)
        raise StoreError(f"pair {pair_id}: overrides lapse faster than they can be taken away")

    async def change(
        self, pair_id: str, expected: IfMatch, plan: Callable[[Standing], Change]
    ) -> tuple[Change, Effects]:
        """Applies what `plan` makes of what stands, and says what it means for recent traffic.

        When the learner publishes in between, the plan is asked again.

        Raises:
            PairUnknownError: when no engine has registered the pair.
            PreconditionFailedError: when the overrides are not at the expected revision.
            ConflictError: when the pair changes faster than the plan can be applied.
            StoreError: when the store is away; the change may have been applied then.
        """
        for _ in range(TRIES):
            standing = await self.settled(pair_id)
            etag = revision_tag(standing.revision)
            if not expected.matches(etag):
                raise PreconditionFailedError(
                    f"the pair's overrides are at revision {standing.revision}: read them again",
                    field="If-Match",
                    headers={"ETag": etag},
                )
            change, found = await self._judged(await asyncio.to_thread(_planned, plan, standing))
            try:
                await self._apply(change)
            except (OverridesMovedError, VersionError):
                continue
            return change, found
        raise ConflictError("the pair changes faster than this could be applied; nothing was changed")

    async def table(self, pair_id: str) -> Table | None:
        """The table in force, without overrides whose time is over; None for an unknown pair."""
        table = await self._source.table(pair_id)
        for _ in range(2):
            if table is None or table.expires_ms is None:
                return table
            left_ms = table.expires_ms - await self._clock_ms(pair_id)
            if left_ms > 0:
                return replace(table, lapses_in_s=left_ms / 1000.0)
            try:
                await self.settled(pair_id)
            except StoreUnavailableError:
                raise
            except (StoreError, PairUnknownError) as error:
                # Whatever is wrong with the overrides, engines need coefficients.
                event("override stays", level=logging.ERROR, pair=pair_id, reason=str(error))
                break
            table = await self._source.table(pair_id)
        return None if table is None else replace(table, lapses_in_s=FAILED_LAPSE_S)

    async def _judged(self, change: Change) -> tuple[Change, Effects]:
        try:
            body = await self._source.state_body(change.pair_id)
            found = Effects() if body is None else await self._learnt.effects(body, change.learnt, change.table)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            # A state that is not understood must not keep an operator from acting.
            event("change not judged", level=logging.ERROR, pair=change.pair_id, reason=str(error))
            found = Effects()
        return explained(change, found), found

    async def _standing(self, record: PairRecord) -> Standing:
        return read_standing(record, await self._run(ask_standing(record.pair.id)))

    async def _apply(self, change: Change) -> None:
        read_apply(change, await self._run(ask_apply(change)))

    async def _clock_ms(self, pair_id: str) -> int:
        return int(await self._run((scripts.CLOCK, [PairKeys(pair_id).coefficients], [])))

    async def _run(self, command: Command) -> Any:
        script, keys, args = command
        with translated():
            return await self._client.eval(script, len(keys), *keys, *args)


def revision_tag(revision: int) -> str:
    """The ETag of a pair's overrides."""
    return f'"{revision}"'


def _planned(plan: Callable[[Standing], T], standing: Standing) -> T:
    return plan(check_tables(standing))
