"""What the learner knows, turned into plain values off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from accord.learner import views
from accord.learner.advice import Cost, advise_state, best_by_batch
from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.costs import EngineCosts
from accord.learner.effects import Effects, effects
from accord.learner.errors import Refusal
from accord.learner.pair import Pair
from accord.learner.state_codec import decode_learnt
from accord.learner.store.errors import StoreCorruptError
from accord.learner.what_if import assess_state

T = TypeVar("T")

CONCURRENT_VIEWS = 2
"""A state can be megabytes; decoding more of them at a time would only take memory."""


class Learnt:
    """Decodes learnt states in threads, so that no long-poll waits for the arithmetic."""

    def __init__(self) -> None:
        self._decoding = asyncio.Semaphore(CONCURRENT_VIEWS)

    async def pair(self, body: bytes | None, counters: bytes | None, served: bytes | None = None) -> dict[str, Any]:
        """Counters and workloads of a pair, judged by the table in force.

        Raises:
            StoreCorruptError: when the state is not what a learner writes.
        """
        return await self._decoded(lambda: views.pair_view(body, counters, served))

    async def workload(self, body: bytes, key: str, served: bytes | None = None) -> dict[str, Any] | None:
        """Everything about a workload by the table in force, None when the pair has not seen it.

        Raises:
            StoreCorruptError: when the state is not what a learner writes.
        """
        return await self._decoded(lambda: views.workload_view(body, key, served))

    async def table(self, body: bytes) -> CoefficientTable:
        """A served table.

        Raises:
            StoreCorruptError: when it is not what a learner writes.
        """
        return await self._decoded(lambda: CoefficientTable.from_json(body))

    async def what_if(
        self, body: bytes | None, key: str, proposed: Coefficients, in_force: Coefficients, basis: SplineBasis
    ) -> dict[str, Any]:
        """Proposed coefficients on a workload's recent labels, see `accord.learner.what_if`.

        Raises:
            StoreCorruptError: when the state is not what a learner writes.
        """
        return await self._decoded(lambda: assess_state(body, key, proposed, in_force, basis).to_dict())

    async def effects(self, body: bytes, learnt: CoefficientTable, table: CoefficientTable) -> Effects:
        """What a table means for recent traffic, against the learnt one; see `accord.learner.effects`.

        Raises:
            StoreCorruptError: when the state is not what a learner writes, or another K's.
        """

        def judge() -> Effects:
            state = decode_learnt(body).state
            if (state.k, state.knots) != (table.k, table.knots):
                raise ValueError(f"K = {state.k} and knots {state.knots}")
            return effects(state, learnt, table)

        return await self._decoded(judge)

    async def advice(
        self, body: bytes | None, key: str, pair: Pair, cost: Cost | None, tables: EngineCosts | None
    ) -> dict[str, Any]:
        """Whether speculation pays for a workload, see `accord.learner.advice`; the tables add the best K by batch.

        Raises:
            StoreCorruptError: when the state is not what a learner writes.
        """

        def decide() -> dict[str, Any]:
            found = advise_state(body, key, pair.k, cost)
            by_batch = [] if tables is None else best_by_batch(found, tables, pair.method)
            return {**found.to_dict(), "by_batch": by_batch}

        return await self._decoded(decide)

    async def _decoded(self, decode: Callable[[], T]) -> T:
        async with self._decoding:
            try:
                return await asyncio.to_thread(decode)
            except (Refusal, ValueError) as error:
                raise StoreCorruptError(f"learnt state: {error}") from None
