"""A fixed stream of summaries from several engines, and what an uninterrupted learner makes of it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from accord.learner.accumulator import Accumulator
from accord.learner.basis import SplineBasis
from accord.learner.evaluate.trace import Trace
from accord.learner.pair_learner import TICK_MS, Entry, PairLearner, Published
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode

KNOTS = (0.0, 2.0, 4.0)
BASE_MS = 1_700_000_000_000


def summaries(trace: Trace, engines: int, rounds: int, steps: int) -> list[RoundSummary]:
    """`rounds` rounds of each engine, every engine replaying its own stretch of the trace at cold coefficients."""
    keys, basis = tuple(trace.workloads), SplineBasis(KNOTS)
    batches = list(trace.steps())
    made = []
    for engine in range(engines):
        accumulator = Accumulator(trace.pair.k, basis, len(keys), int(trace.request.max()) + 1)
        at = engine * len(batches) // engines
        for seq in range(1, rounds + 1):
            for _ in range(steps):
                rows = batches[at % len(batches)]
                at += 1
                accumulator.observe(
                    trace.features[rows],
                    trace.workload[rows].astype(np.intp),
                    trace.request[rows].astype(np.intp),
                    trace.accepted[rows],
                    np.full(len(trace.accepted[rows]), trace.pair.k),
                )
            made.append(_summary(trace, accumulator, engine, seq, steps, keys))
    return sorted(made, key=lambda s: (s.first_seq, s.engine))


def _summary(
    trace: Trace, accumulator: Accumulator, engine: int, seq: int, steps: int, keys: tuple[str, ...]
) -> RoundSummary:
    full = accumulator.drain()
    sketch = accumulator.drain_sketch() if seq % 5 == 0 else None
    rows = np.arange(len(keys)) if sketch is not None else np.flatnonzero(full.n.sum(axis=1) > 0)
    return RoundSummary(
        trace.pair.id, f"host-{engine}/0", f"{engine:016x}", seq, seq, 0, steps, trace.pair.k, KNOTS,
        tuple(keys[i] for i in rows), accumulator.slopes[rows], accumulator.intercepts[rows], full.take(rows), sketch,
    )  # fmt: skip


def ticks(made: list[RoundSummary], seed: int, duplicates: float = 0.0) -> list[list[Entry]]:
    """Lays summaries out over ticks, one to four in each, some ticks empty; a share of them arrives twice or later."""
    rng = random.Random(seed)
    laid: list[list[Entry]] = []
    tick, again, rest = BASE_MS // TICK_MS, list[bytes](), list(made)
    while rest or again:
        tick += rng.choice((1, 1, 1, 2, 9))
        count = rng.randint(1, 4)
        batch, rest = [encode(s) for s in rest[:count]], rest[count:]
        late, again = again, [payload for payload in batch if rng.random() < duplicates]
        batch = [copy for payload in batch for copy in [payload] * (2 if rng.random() < duplicates else 1)] + late
        laid.append([(f"{tick * TICK_MS + i}-0", payload) for i, payload in enumerate(batch)])
    return laid


@dataclass
class Outcome:
    """What a learner ends with."""

    body: bytes
    sequences: bytes
    published: list[Published]
    labels: int


def uninterrupted(trace: Trace, entries: list[Entry]) -> Outcome:
    """The stream through one learner that nothing ever happens to."""
    learner = PairLearner(Learnt.new(trace.pair.id, trace.pair.k, KNOTS))
    published = learner.advance(entries, 1 << 50)
    return Outcome(encode_learnt(learner.learnt), learner.sequences.encode(), published, learner.counters.labels)
