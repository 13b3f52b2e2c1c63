"""One engine's side on one rank: what happens at a request, at a step, and between two rounds."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from accord.learner.coefficients import CoefficientTable

from ..agent import Agent
from ..rounds import RoundSchedule
from ..slots import WorkloadSlots
from .estimator import AcceptanceEstimator
from .harvest import Harvest, Note
from .ranks import Boundary, Ranks
from .rows import Rows

log = logging.getLogger(__name__)

WARMUP = ("_warmup_", "_v2_mixed_warmup", "_dummy_req_")
"""How vLLM calls the requests that it makes up before it serves."""

JOURNAL = 4096


class Applied(NamedTuple):
    """One entry of the journal: what is in force since a step, and a digest over slots and coefficients."""

    step: int
    version: int
    state: str
    digest: str


class Session:
    """Gives requests to workload slots, counts steps, and at each boundary drains, shares and applies.

    Everything that decides which coefficients are in force follows from the scheduler's output and from what the first
    rank broadcasts, so that it is the same on every rank. Only that rank has an agent and reads the sums.

    Args:
        estimator: of this rank.
        ranks: of the TP group.
        agent: on the first rank, already constructed, started by the caller; None on the others.
        table: in force until the first boundary, the same on all ranks.
        round_steps, sketch_every: the first rank's settings.

    Attributes:
        started: whether requests have come that are not vLLM's own warm-up.
        steps: decode steps since then.
        harvest: rounds on their way to the agent.
        deferred: boundaries at which the device had not yet handed over two earlier rounds.
        errors: kinds of exception that were swallowed.
        journal: the last `JOURNAL` boundaries.
    """

    def __init__(
        self,
        estimator: AcceptanceEstimator,
        ranks: Ranks,
        agent: Agent | None,
        table: CoefficientTable,
        round_steps: tuple[int, ...],
        sketch_every: int,
    ) -> None:
        self.estimator, self.agent = estimator, agent
        self._ranks = ranks
        self._schedule = RoundSchedule(round_steps)
        self._sketch_every = sketch_every
        self._slots = WorkloadSlots(estimator.layout.workloads)
        self._wanted: dict[str, tuple[str, int]] = {}
        self._index: Mapping[str, int] = {}
        self._table, self._rows = table, Rows.of(table)
        self._state, self._version = "starting", table.version
        self._loaded: list[str | None] = []
        self._digest = ""
        self._load()
        self._round_steps = self._rounds = 0
        self.harvest = Harvest(estimator)
        self.started = False
        self.steps = self.deferred = 0
        self.errors: Counter[str] = Counter()
        self.journal: deque[Applied] = deque(maxlen=JOURNAL)
        self.boundary_s = 0.0
        """The longest that a boundary held the decode loop, since the start, seconds."""

    def add(self, requests: Mapping[str, str], index: Mapping[str, int]) -> None:
        """New requests.

        Args:
            requests: their workload keys, in the scheduler's order.
            index: request slots of all live requests; vLLM's own, which it keeps up to date.
        """
        self._index = index
        if not self.started:
            if all(name.startswith(WARMUP) for name in requests):
                # They warm the kernels up, but teach nothing, and get no slot of their own.
                self.estimator.assign([index[name] for name in requests], len(self._slots.keys) - 1)
                return
            self._start()
        rows = self._slots.rows(list(requests.values()))
        self.estimator.assign([index[name] for name in requests], rows)
        for (name, key), row in zip(requests.items(), rows.tolist(), strict=True):
            self._wanted[name] = (key, row)
        if self._slots.keys != self._loaded:
            # Slots without any sums only: all others keep their coefficients until the round is over.
            self._load()

    def step(self) -> None:
        """A decode step has been added to the sums. Raises only what the broadcast between ranks raises."""
        if not self.started:
            return
        self.steps += 1
        self._round_steps += 1
        if self.harvest.pending:
            self._guarded("collect", lambda: self.harvest.collect(self.agent))
        if self._schedule.closes(self.steps):
            began = time.perf_counter()
            self._boundary()
            self.boundary_s = max(self.boundary_s, time.perf_counter() - began)

    def close(self, wait_s: float = 0.5) -> None:
        """Hands over the open round and ends the agent. For a shutdown: it waits."""
        agent, self.agent = self.agent, None
        if agent is None:
            return
        if self._round_steps:
            self.harvest.drain(True, self._note())
        end = time.monotonic() + wait_s
        while self.harvest.pending and time.monotonic() < end:
            self._guarded("collect", lambda: self.harvest.collect(agent))
            time.sleep(0.001)
        agent.stop(4.0 * wait_s)

    def status(self) -> dict[str, Any]:
        """Plain values for the heartbeat, from any thread: what is iterated over is replaced and never changed."""
        return {
            "steps": self.steps,
            "rounds_closed": self.harvest.handed,
            "rounds_deferred": self.deferred,
            "seen": sorted(self.harvest.seen),
            "slots": [key for key in self._loaded if key is not None],
            "boundary_ms": round(self.boundary_s * 1e3, 3),
            "engine_errors": dict(self.errors),
        }

    def _start(self) -> None:
        self.started = True
        # What warm-up summed is thrown away.
        self.harvest.drain(True, None)

    def _boundary(self) -> None:
        with_sketch = bool(self._slots.idle()) or (self._rounds + 1) % self._sketch_every == 0
        own: Boundary | None = None
        if self._ranks.leader:
            own = Boundary(self.steps, False, self._state, self._version, tuple(self._slots.keys), None)
            try:
                own = self._decide(with_sketch, own)
            except Exception as error:  # noqa: BLE001  # the others wait for this broadcast, whatever went wrong here
                self._count("boundary", error)
        boundary = self._ranks.share(own)
        self._guarded("apply", lambda: self._apply(boundary, with_sketch))

    def _decide(self, with_sketch: bool, keep: Boundary) -> Boundary:
        """Drains, and takes what is new; nothing, while the sums cannot be handed over: they are of one theta."""
        if not self.harvest.drain(with_sketch, self._note()):
            self.deferred += 1
            return keep
        # From here on the round is over, whatever the agent says.
        closed = keep._replace(closed=True)
        if self.agent is None:
            return closed
        applied = self.agent.boundary()
        rows = None
        if applied.table is not self._table:
            self._table, rows = applied.table, Rows.of(applied.table)
        return closed._replace(state=applied.state.value, version=applied.version, rows=rows)

    def _apply(self, boundary: Boundary, with_sketch: bool) -> None:
        if boundary.step != self.steps or boundary.keys != tuple(self._slots.keys):
            # It cannot happen while ranks see the same scheduler output; if it does, it must not stay unseen.
            self._count("ranks", RuntimeError(f"the first rank is at step {boundary.step}, this one at {self.steps}"))
        if boundary.closed:
            self._rounds += 1
            self._round_steps = 0
            if with_sketch:
                self._slots.free_idle()
            self._slots.next_round()
            self._place()
            self._state, self._version = boundary.state, boundary.version
            if boundary.rows is not None:
                self._rows = boundary.rows
            if boundary.rows is not None or self._slots.keys != self._loaded:
                self._load()
        self.journal.append(Applied(self.steps, self._version, self._state, self._digest))

    def _place(self) -> None:
        """Marks the slots of live requests as used, and moves those that found none before and can have one now."""
        self._wanted = {name: wanted for name, wanted in self._wanted.items() if name in self._index}
        rows = self._slots.rows([key for key, _ in self._wanted.values()]).tolist()
        moved = [name for (name, (_, before)), row in zip(self._wanted.items(), rows, strict=True) if row != before]
        if moved:
            self._wanted = {name: (key, row) for (name, (key, _)), row in zip(self._wanted.items(), rows, strict=True)}
            slots, workloads = zip(*((self._index[name], self._wanted[name][1]) for name in moved), strict=True)
            self.estimator.assign(slots, workloads, fresh=False)

    def _load(self) -> None:
        keys = list(self._slots.keys)
        self.estimator.load(*self._rows.take(keys))
        self._loaded = keys
        self._digest = self._rows.digest(keys)

    def _note(self) -> Note:
        return Note(self._version, self._round_steps, tuple(self._slots.keys))

    def _guarded(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # the engine's thread: nothing of ours may reach it
            self._count(what, error)

    def _count(self, what: str, error: Exception) -> None:
        kind = f"{what}: {type(error).__name__}"
        if kind not in self.errors:
            log.warning("accord: %s failed, from now on it is only counted: %s", what, error)
        self.errors[kind] += 1
