"""Builders of random but reproducible evidence, and hypothesis strategies over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from accord.learner.accumulator import Accumulator
from accord.learner.basis import Array, SplineBasis, sigmoid
from accord.learner.coefficients import Coefficients
from accord.learner.information import Information
from accord.learner.moments import Moments
from accord.learner.summary import RoundSummary
from accord.learner.workload import TemperatureClass

PAIR = "target.draft.eagle.greedy.k3-0123abcd"
BOOT = "00000000000000aa"
KEYS = tuple(f"{label}:{kind.value}" for label in ("code", "chat", "default") for kind in TemperatureClass)

few = settings(max_examples=15, deadline=None, derandomize=True, database=None)
some = settings(max_examples=50, deadline=None, derandomize=True, database=None)
many = settings(max_examples=300, deadline=None, derandomize=True, database=None)

seeds = st.integers(0, 2**32 - 1)
knot_lists = st.lists(st.integers(-12, 24).map(lambda n: n / 4), unique=True, max_size=7).map(
    lambda t: tuple(sorted(t))
)
bases = knot_lists.map(SplineBasis)
features = st.floats(-40.0, 40.0)


def ascending(rng: np.random.Generator, size: int, scale: float = 0.6) -> Array:
    """Slopes [F] whose cumulative sums are >= 0, some of them exactly 0."""
    total = np.maximum(rng.normal(0.4, scale, size), 0.0)
    return np.diff(total, prepend=0.0)


def row(rng: np.random.Generator, k: int, basis: SplineBasis, variance: float = 0.0) -> Coefficients:
    """Plausible coefficients of one workload."""
    return Coefficients(ascending(rng, basis.size), rng.normal(-0.2, 0.6, k), variance)


@dataclass(frozen=True)
class Step:
    """One decode step of an engine, with the arguments of `Accumulator.observe`."""

    features: Array
    slots: np.ndarray
    requests: np.ndarray
    accepted: np.ndarray
    admitted: np.ndarray

    @property
    def arguments(self) -> tuple[np.ndarray, ...]:
        """In the order of `observe`."""
        return self.features, self.slots, self.requests, self.accepted, self.admitted


def random_step(
    rng: np.random.Generator, k: int, workloads: int, requests: int, truth: Sequence[Coefficients], basis: SplineBasis
) -> Step:
    """Some of the requests, trimmed at random, verified against the truth."""
    taken = rng.permutation(requests)[: rng.integers(1, requests + 1)]
    slots = taken % workloads
    f = np.clip(rng.normal(2.0, 3.0, (len(taken), k)), -40.0, 40.0)
    f[rng.random(f.shape) < 0.02] = 40.0
    z = np.stack([truth[w].log_odds(basis, line) for w, line in zip(slots, f, strict=True)])
    admitted = rng.integers(0, k + 1, len(taken))
    accepted = np.minimum(np.cumprod(rng.random(f.shape) < sigmoid(z), axis=1).sum(axis=1), admitted)
    return Step(f, slots, taken, accepted, admitted)


@dataclass
class Engine:
    """An engine that sends summaries of labels drawn from a truth of its own.

    Attributes:
        accumulator: with the coefficients in force.
        seq: of the last round sent.
    """

    seed: int
    k: int = 3
    knots: tuple[float, ...] = (0.0, 2.0)
    keys: tuple[str, ...] = KEYS[:2]
    name: str = "host-1/0"
    boot: str = BOOT
    requests: int = 6
    pair: str = PAIR
    seq: int = 0
    accumulator: Accumulator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.basis = SplineBasis(self.knots)
        self.accumulator = Accumulator(self.k, self.basis, len(self.keys), self.requests)
        self.truth = [row(self.rng, self.k, self.basis) for _ in self.keys]

    def apply(self, rows: Sequence[Coefficients]) -> None:
        """Puts coefficients in force between rounds."""
        self.accumulator.apply(rows)

    def apply_random(self) -> None:
        """Puts random plausible coefficients in force."""
        self.apply([row(self.rng, self.k, self.basis, 0.1) for _ in self.keys])

    def round(self, steps: int = 12, *, sketch: bool = True, version: int = 0) -> RoundSummary:
        """One more round."""
        for _ in range(steps):
            step = random_step(self.rng, self.k, len(self.keys), self.requests, self.truth, self.basis)
            self.accumulator.observe(*step.arguments)
        self.seq += 1
        a = self.accumulator
        return RoundSummary(
            pair=self.pair,
            engine=self.name,
            boot=self.boot,
            first_seq=self.seq,
            last_seq=self.seq,
            version=version,
            steps=steps,
            k=self.k,
            knots=self.knots,
            workloads=self.keys,
            slopes=a.slopes.copy(),
            intercepts=a.intercepts.copy(),
            moments=a.drain(),
            sketch=a.drain_sketch() if sketch else None,
        )


def as_float32(summary: RoundSummary) -> RoundSummary:
    """The summary as a device would have summed it: every sum rounded to float32."""
    rounded = {name: a.astype(np.float32).astype(np.float64) for name, a in summary.moments.arrays().items()}
    return replace(summary, moments=Moments(**rounded))


def with_moments(summary: RoundSummary, **changes: Array) -> RoundSummary:
    """The summary with some of its sums replaced."""
    return replace(summary, moments=replace(summary.moments, **changes))


@st.composite
def engines(draw: st.DrawFn, max_k: int = 5, max_workloads: int = 4) -> Engine:
    """Engines of any small shape."""
    keys = tuple(draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=max_workloads, unique=True)))
    return Engine(draw(seeds), draw(st.integers(1, max_k)), draw(knot_lists), keys, requests=draw(st.integers(1, 9)))


def dense_hessian(moments: Moments, basis: SplineBasis, w: int) -> Array:
    """The arrowhead Hessian [F + K, F + K] of one workload, slopes first."""
    A, B, c = basis.unpack(moments.A)[w], moments.B[w], moments.c[w]
    return np.block([[A, B.T], [B, np.diag(c)]])


def random_information(
    rng: np.random.Generator, workloads: int, k: int, basis: SplineBasis, labels: int = 400, spread: float = 0.5
) -> Information:
    """Evidence about hierarchical truths: exact quadratics around the truth, with noise of the right covariance."""
    info = Information.zeros(workloads, k, basis)
    rows, cols = basis.triangle
    shape = rng.normal(0.0, 0.3, k)
    for w in range(workloads):
        truth = np.append(ascending(rng, basis.size, 0.2), rng.normal(-0.2, spread) + shape + rng.normal(0, 0.15, k))
        f = rng.normal(2.0, 3.0, labels)
        position = rng.integers(0, k, labels)
        design = np.concatenate([basis.expand(f), np.eye(k)[position]], axis=1)
        p = sigmoid(design @ truth)
        H = design.T @ (design * (p * (1.0 - p))[:, None])
        g = design.T @ ((rng.random(labels) < p) - p)
        e, size = H @ truth + g, basis.size
        info.A[w] = H[rows, cols]
        info.B[w], info.c[w] = H[size:, :size], np.diag(H)[size:]
        info.e0[w], info.e1[w] = e[:size], e[size:]
    return info
