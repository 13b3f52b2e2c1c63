"""A stand-in engine: replays a recorded trace through the real engine side, at a chosen pace."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from accord.learner.basis import Array
from accord.learner.evaluate.trace import Trace

from ..engine import EngineSide

_MEASURED = 20_000

Observer = Callable[[Trace, npt.NDArray[np.intp], Array], None]


@dataclass(frozen=True)
class Mix:
    """Which part of a trace an engine carries, and in which order.

    Args:
        workloads: keys to keep, all when empty.
        seed: None keeps the recorded batches; a number draws another order of the same requests, at the same
            concurrency, so that engines of one fleet carry different mixtures.
    """

    workloads: tuple[str, ...] = ()
    seed: int | None = None

    def batches(self, trace: Trace) -> list[npt.NDArray[np.intp]]:
        """Row indices of every decode step, into `select(trace)`."""
        chosen = self.select(trace)
        recorded = [np.arange(rows.start, rows.stop) for rows in chosen.steps()]
        if self.seed is None or not recorded:
            return recorded
        return _shuffled(chosen, max(len(rows) for rows in recorded), np.random.default_rng(self.seed))

    def select(self, trace: Trace) -> Trace:
        """The rows of the chosen workloads; raises InvalidValue for a key that the trace does not have."""
        return trace.select(self.workloads) if self.workloads else trace


def _shuffled(trace: Trace, concurrency: int, rng: np.random.Generator) -> list[npt.NDArray[np.intp]]:
    order = np.argsort(trace.request, kind="stable")
    edges = np.flatnonzero(np.diff(trace.request[order])) + 1
    requests = np.split(order, edges)
    waiting = deque(requests[i] for i in rng.permutation(len(requests)))
    live: list[deque[int]] = []
    batches = []
    while waiting or live:
        while waiting and len(live) < concurrency:
            live.append(deque(waiting.popleft().tolist()))
        batches.append(np.array([rows.popleft() for rows in live], dtype=np.intp))
        live = [rows for rows in live if rows]
    return batches


class ReplayEngine:
    """Feeds a trace to an engine side, one batch a decode step, with everything verified.

    Args:
        side: its agent is started and stopped by the caller.
        trace: whose drafts; its K is the agent's. The part that `mix` chose is kept as `trace`.
        mix: which part of it.
        rate: decode steps a second; None runs as fast as it goes.
        loop: whether to start again at the end, under new request ids.
        observer: gets every step's rows of `trace` and what was predicted for them [B, K], outside the measured time.

    Attributes:
        times: seconds of the newest steps: predict, step and finish, as an engine would call them.
    """

    def __init__(
        self,
        side: EngineSide,
        trace: Trace,
        mix: Mix | None = None,
        rate: float | None = None,
        loop: bool = False,
        observer: Observer | None = None,
    ) -> None:
        mix = mix or Mix()
        self._side, self._rate, self._loop, self._observer = side, rate, loop, observer
        self.trace = self._trace = mix.select(trace)
        self._batches = mix.batches(trace)
        self._last = _last_batches(self._trace, self._batches)
        self.times: deque[float] = deque(maxlen=_MEASURED)
        self.late = 0
        """Steps that began later than their pace asked for."""

    def run(self, steps: int | None = None, stop: threading.Event | None = None) -> int:
        """Runs until the trace is over, `steps` were made, or `stop` is set; returns the steps made."""
        stop = stop or threading.Event()
        made = 0
        due = time.perf_counter()
        for lap, batch in self._sequence():
            if stop.is_set() or (steps is not None and made >= steps):
                break
            self._step(lap, batch)
            made += 1
            if self._rate is not None:
                due += 1.0 / self._rate
                early = due - time.perf_counter()
                if early > 0.0:
                    stop.wait(early)
                else:
                    self.late += 1
        return made

    def close(self) -> None:
        """Hands over the round that is still open; call it before the agent is stopped."""
        self._side.close()

    def measured(self) -> dict[str, float]:
        """Milliseconds of the newest steps: p50, p99 and max; zeros before the first."""
        times = np.array(self.times) if self.times else np.zeros(1)
        p50, p99 = np.percentile(times, (50, 99))
        return {"p50_ms": 1e3 * float(p50), "p99_ms": 1e3 * float(p99), "max_ms": 1e3 * float(times.max())}

    def status(self) -> dict[str, Any]:
        """The engine side's status with this engine's own times."""
        return {**self._side.status(), "step": self.measured(), "late": self.late}

    def _sequence(self) -> Iterator[tuple[int, int]]:
        lap = 0
        while self._batches:
            yield from ((lap, batch) for batch in range(len(self._batches)))
            if not self._loop:
                return
            lap += 1

    def _step(self, lap: int, batch: int) -> None:
        rows = self._batches[batch]
        features, accepted = self._trace.features[rows], self._trace.accepted[rows]
        keys = [self._trace.workloads[i] for i in self._trace.workload[rows]]
        requests: Sequence[tuple[int, int]] = [(lap, int(i)) for i in self._trace.request[rows]]
        started = time.perf_counter()
        predicted = self._side.predict(features, keys, requests)
        self._side.step(features, keys, requests, accepted, np.full(len(rows), self._trace.k))
        self._side.finish([(lap, i) for i in self._last[batch]])
        self.times.append(time.perf_counter() - started)
        if self._observer is not None:
            self._observer(self._trace, rows, predicted)


def _last_batches(trace: Trace, batches: Sequence[npt.NDArray[np.intp]]) -> list[list[int]]:
    """The requests whose last row is in each batch."""
    last: dict[int, int] = {}
    for place, rows in enumerate(batches):
        last.update(dict.fromkeys(trace.request[rows].tolist(), place))
    found: list[list[int]] = [[] for _ in batches]
    for request, place in last.items():
        found[place].append(request)
    return found
