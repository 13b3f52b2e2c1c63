"""Rounds of a simulated fleet: real evidence of the bundled trace, under every engine's own name and numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode

KNOTS = (0.0, 2.0, 4.0)
STEPS, SKETCH_EVERY = 100, 5
"""As engines are set up: decode steps of a round, and rounds from one sketch to the next."""


@dataclass
class Rounds:
    """Encoded rounds of many engines.

    Every engine repeats the same few rounds of evidence, taken at the cold coefficients, from another place on.

    Args:
        pair: whose rounds; the evidence is the bundled trace's, whatever the pair's name.
        engines: how many; they speak in turn.
        requests: decoded side by side in one engine.
    """

    engines: int
    requests: int = 16
    name: str = "bench"
    different: int = 40
    trace: Trace = field(default_factory=lambda: Trace.bundled())

    def __post_init__(self) -> None:
        k = self.trace.pair.k
        self.pair = Pair(f"target-{self.name}", "draft", Method.DRAFT_MODEL, DraftSampling.PROBABILISTIC, k)
        self.pool = evidence(self.trace, self.pair.id, self.different)
        # As engines that have been there for a while: every fifth round brings a sketch.
        self._seq = [SKETCH_EVERY] * self.engines
        self._turn = 0

    def summary(self) -> RoundSummary:
        """The next engine's next round."""
        engine = self._turn % self.engines
        self._turn += 1
        self._seq[engine] += 1
        seq = self._seq[engine]
        # Every engine is elsewhere in the trace, and in its group of rounds that one sketch shows.
        ahead = seq - 1 + engine * (SKETCH_EVERY + 1)
        place = ahead % len(self.pool)
        plain, full = self.pool[place]
        ends_group = place % SKETCH_EVERY == SKETCH_EVERY - 1
        name, boot = f"host-{engine // 8}/{engine % 8}", f"{engine:016x}"
        return replace(full if ends_group else plain, engine=name, boot=boot, first_seq=seq, last_seq=seq)

    def take(self, count: int) -> Iterator[bytes]:
        """The next so many rounds, encoded."""
        return (encode(self.summary()) for _ in range(count))


def evidence(trace: Trace, pair: str, count: int) -> Sequence[tuple[RoundSummary, RoundSummary]]:
    """Rounds of one engine that replays the trace: each without a sketch, and with that of five rounds."""
    keys, basis = tuple(trace.workloads), SplineBasis(KNOTS)
    accumulator = Accumulator(trace.pair.k, basis, len(keys), int(trace.request.max()) + 1)
    batches, at, made = list(trace.steps()), 0, []
    while len(made) < count:
        sketch = None
        for _ in range(SKETCH_EVERY):
            for _ in range(STEPS):
                rows = batches[at % len(batches)]
                at += 1
                accumulator.observe(
                    trace.features[rows],
                    trace.workload[rows].astype(np.intp),
                    trace.request[rows].astype(np.intp),
                    trace.accepted[rows],
                    np.full(len(trace.accepted[rows]), trace.pair.k),
                )
            full = accumulator.drain()
            used = np.flatnonzero(full.n.sum(axis=1) > 0)
            plain = RoundSummary(
                pair, "engine", "0" * 16, 1, 1, 0, STEPS, trace.pair.k, KNOTS, tuple(keys[i] for i in used),
                accumulator.slopes[used], accumulator.intercepts[used], full.take(used),
            )  # fmt: skip
            made.append(plain)
        sketch = accumulator.drain_sketch()
        for place in range(len(made) - SKETCH_EVERY, len(made)):
            plain = made[place]
            index = np.array([keys.index(key) for key in plain.workloads], dtype=np.intp)
            made[place] = (plain, replace(plain, sketch=sketch.take(index)))  # type: ignore[call-overload]
    return made  # type: ignore[return-value]


def load_note() -> str:
    """The machine's load, for every figure that depends on it."""
    one, five, _ = os.getloadavg()
    return f"{os.cpu_count()} cores, load {one:.1f} (1 min) {five:.1f} (5 min)"
