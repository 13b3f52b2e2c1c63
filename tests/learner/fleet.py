"""A fleet of engines on synthetic traffic with known truth, and a learner that serves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.learner.strategies import PAIR

from accord.learner.accumulator import Accumulator
from accord.learner.basis import Array, SplineBasis, sigmoid
from accord.learner.pair_learner import TICK_MS, PairLearner, Published
from accord.learner.state_codec import Learnt
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode

K, KNOTS = 4, (0.0, 2.0, 4.0)
KEYS = ("code:greedy", "chat:sampled", "chat:warm")
LEVELS = (0.4, -0.3, 0.0)
SKETCH_EVERY = 5
PROBES = np.linspace(-1.0, 6.0, 8)


@dataclass
class Traffic:
    """The truth of a moment: slope [W], level [W], shares [W] of the requests, sd of the request effect."""

    slope: Sequence[float] = (0.5, 0.55, 0.5)
    level: Sequence[float] = LEVELS
    share: Sequence[float] = (1.0, 1.0, 1.0)
    effect: float = 0.0
    length: float = 40.0

    def log_odds(self, features: Array, workload: np.ndarray) -> Array:
        """True log-odds of features [B, K] in workloads [B], without request effect."""
        slope, level = np.array(self.slope)[workload], np.array(self.level)[workload]
        out: Array = slope[:, None] * features + level[:, None] - 0.05 * np.arange(features.shape[1])
        return out


@dataclass
class SyntheticEngine:
    """One engine: requests come, decode a geometric number of steps, and go."""

    name: str
    seed: int
    requests: int = 16
    seq: int = 0
    flip: float = 0.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.accumulator = Accumulator(K, SplineBasis(KNOTS), len(KEYS), self.requests)
        self.workload = np.zeros(self.requests, dtype=np.intp)
        self.effect = np.zeros(self.requests)
        self.fresh = True

    def round(self, traffic: Traffic, steps: int) -> RoundSummary:
        """Decodes some steps and sums them up."""
        rng, a = self.rng, self.accumulator
        share = np.array(traffic.share) / sum(traffic.share)
        slots = np.arange(self.requests)
        for _ in range(steps):
            new = slots[self.fresh | (rng.random(self.requests) < 1.0 / traffic.length)]
            self.fresh = False
            a.effects.reset(new)
            self.workload[new] = rng.choice(len(KEYS), size=len(new), p=share)
            self.effect[new] = rng.normal(0.0, 1.0, len(new)) * traffic.effect
            sure = rng.random((self.requests, K)) < 0.5
            f = np.where(sure, rng.normal(5.0, 2.0, sure.shape), rng.normal(0.5, 1.2, sure.shape)).clip(-3.0, 12.0)
            accept = rng.random(f.shape) < sigmoid(traffic.log_odds(f, self.workload) + self.effect[:, None])
            # drawn always, so that an engine with a fault sees the same traffic as one without
            accept ^= rng.random(f.shape) < self.flip
            accepted = np.cumprod(accept, axis=1).sum(axis=1)
            a.observe(f, self.workload, slots, accepted, np.full(self.requests, K))
        self.seq += 1
        sketch = a.drain_sketch() if self.seq % SKETCH_EVERY == 0 or self.seq <= 3 else None
        boot = f"{self.seed:016x}"
        return RoundSummary(
            PAIR, self.name, boot, self.seq, self.seq, 0, steps, K, KNOTS, KEYS,
            a.slopes.copy(), a.intercepts.copy(), a.drain(), sketch,
        )  # fmt: skip


@dataclass
class Fleet:
    """Engines whose rounds end one after another, and a learner that folds each in a tick of its own.

    Attributes:
        learner: may be replaced between rounds; published: every publication so far.
        alter: changes a summary on its way, given (engine index, summary).
    """

    size: int = 1
    requests: int = 16
    seed: int = 0
    alter: Callable[[int, RoundSummary], RoundSummary | None] | None = None
    learner: PairLearner = field(init=False)
    published: list[Published] = field(default_factory=list)
    tick: int = 40

    def __post_init__(self) -> None:
        self.learner = PairLearner(Learnt.new(PAIR, K, KNOTS))
        self.engines = [SyntheticEngine(f"host-{i}/0", 1000 * self.seed + i, self.requests) for i in range(self.size)]

    def run(self, traffic: Traffic, rounds: int, steps: int = 20) -> None:
        """Every engine ends so many rounds, and applies what is served before each."""
        for _ in range(rounds):
            for index in range(len(self.engines)):
                self.speak(index, traffic, steps)

    def speak(self, index: int, traffic: Traffic, steps: int = 20) -> None:
        """One engine applies what is served and ends a round, in a tick of its own."""
        engine, table = self.engines[index], self.learner.learnt.served
        engine.accumulator.apply([table.row(key) for key in KEYS])
        summary: RoundSummary | None = engine.round(traffic, steps)
        if self.alter is not None and summary is not None:
            summary = self.alter(index, summary)
        self.tick += 4
        entries = [] if summary is None else [(f"{self.tick * TICK_MS}-0", encode(summary))]
        self.published += self.learner.advance(entries, self.tick + 1)

    def probabilities(self) -> Array:
        """What is served for every workload at some features, [W, K, probes]."""
        table, basis = self.learner.learnt.served, SplineBasis(KNOTS)
        rows = [table.row(key) for key in KEYS]
        return np.stack([sigmoid((basis.expand(PROBES) @ r.slopes)[None] + r.intercepts[:, None]) for r in rows])

    @property
    def alarms(self) -> list[int]:
        """How often each workload's memory was shortened."""
        return self.learner.learnt.state.alarms.tolist()
