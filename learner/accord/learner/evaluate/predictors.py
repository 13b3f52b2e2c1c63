"""Predictors of acceptance, judged side by side: each predicts a decode step, and only then learns from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from ..accumulator import Accumulator
from ..basis import DEFAULT_KNOTS, FEATURE_LIMIT, Array, SplineBasis, sigmoid
from ..coefficients import COLD_INTERCEPT, COLD_SLOPE, CoefficientTable
from ..irls import LogisticLoss, fit_logistic
from ..local import LocalFit
from ..request_effect import Index
from ..summary import RoundSummary
from .trace import Floats, Ints, Trace
from .vllm_rule import VllmRule

POOLED_KEY = "default:sampled"
"""Under this key stand the coefficients of a predictor that does not tell workloads apart."""

FIRST_ROUNDS = (10, 20, 40)
ROUND_STEPS = 100
"""Decode steps of a round: of the first ones, then of every one."""

BATCH_RIDGE = 1e-6
"""Keeps `batch` finite on separable data; it moves a coefficient that 100 labels speak of by less than 1e-6."""

Line = tuple[Array, Array]
"""Slopes [F] and intercepts [K]."""


class Predictor(Protocol):
    """What is judged. Slots [B] index the trace's workloads, requests [B] its distinct requests."""

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """P(accept) [B, K] from logit(q_max) [B, K]."""
        ...

    def learn(self, features: Floats, slots: Index, requests: Index, accepted: Ints, admitted: Ints) -> None:
        """Takes in the verdict on the same rows: accepted and verified drafts, [B] each."""
        ...

    def coefficients(self) -> dict[str, Line]:
        """The coefficients in force, by workload key."""
        ...


class Fit(Protocol):
    """What learns from the summaries of an engine."""

    def fold(self, summary: RoundSummary) -> None:
        """Adds one summary and refits."""
        ...

    def table(self, version: int) -> CoefficientTable:
        """The coefficients learnt so far, under that version."""
        ...


class Vllm:
    """vLLM's published rule: pooled, one slope, a damped Newton step every 100 steps (`VllmRule`)."""

    def __init__(self, trace: Trace) -> None:
        self._rule = VllmRule(trace.k)

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """See `Predictor`."""
        return self._rule.predict(features)

    def learn(self, features: Floats, slots: Index, requests: Index, accepted: Ints, admitted: Ints) -> None:
        """See `Predictor`."""
        self._rule.observe(features, accepted, admitted)

    def coefficients(self) -> dict[str, Line]:
        """One row, under the pooled key."""
        return {POOLED_KEY: (np.array([self._rule.slope]), self._rule.intercepts)}


class Batch:
    """The floor: a straight line for each workload, fitted by maximum likelihood on the labels that it is judged on."""

    def __init__(self, trace: Trace) -> None:
        self._keys = trace.workloads
        self._slopes = np.full((len(self._keys), 1), COLD_SLOPE)
        self._intercepts = np.full((len(self._keys), trace.k), COLD_INTERCEPT)
        features = np.clip(trace.features.astype(np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)
        labelled, y = trace.labelled, trace.y
        for slot in np.unique(trace.workload):
            row, position = np.nonzero(labelled & (trace.workload == slot)[:, None])
            loss = LogisticLoss(
                SplineBasis(()), trace.k, features[row, position], position, y[row, position], ridge=BATCH_RIDGE
            )
            fit = fit_logistic(loss).require()
            self._slopes[slot], self._intercepts[slot] = fit.slopes, fit.intercepts

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """See `Predictor`."""
        f = np.clip(np.asarray(features, dtype=np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)
        return sigmoid(self._slopes[slots] * f + self._intercepts[slots])

    def learn(self, features: Floats, slots: Index, requests: Index, accepted: Ints, admitted: Ints) -> None:
        """Nothing: it has seen everything."""

    def coefficients(self) -> dict[str, Line]:
        """A row for every workload."""
        return {key: (self._slopes[i], self._intercepts[i]) for i, key in enumerate(self._keys)}


class Accord:
    """The product's own path at fleet size 1: `Accumulator`, a `RoundSummary` per round, `LocalFit`, the table applied.

    Args:
        trace: whose workloads, requests and pair it serves; no label of it is read before its time.
        knots: of the spline basis.
        pooled: one key for all traffic instead of one per workload.
        request_effect: whether predictions include the effect of each request.
        fit: makes the learner from pair, K and knots.
    """

    def __init__(
        self,
        trace: Trace,
        knots: tuple[float, ...] = DEFAULT_KNOTS,
        *,
        pooled: bool = False,
        request_effect: bool = True,
        fit: Callable[[str, int, tuple[float, ...]], Fit] = LocalFit,
    ) -> None:
        self._keys = (POOLED_KEY,) if pooled else trace.workloads
        self._pooled, self._request_effect = pooled, request_effect
        self._pair, self._k, self._knots = trace.pair.id, trace.k, knots
        requests = int(np.unique(trace.request).size)
        self._accumulator = Accumulator(trace.k, SplineBasis(knots), len(self._keys), requests)
        self._fit = fit(self._pair, trace.k, knots)
        self._table = CoefficientTable.cold(self._pair, trace.k, knots)
        self._rounds = self._steps = 0

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """See `Predictor`."""
        if self._request_effect:
            return self._accumulator.predict(features, self._slots(slots), requests)
        return sigmoid(self._accumulator.log_odds(features, self._slots(slots)))

    def learn(self, features: Floats, slots: Index, requests: Index, accepted: Ints, admitted: Ints) -> None:
        """See `Predictor`; at the end of a round refits and applies the result."""
        self._accumulator.observe(features, self._slots(slots), requests, accepted, admitted)
        self._steps += 1
        length = FIRST_ROUNDS[self._rounds] if self._rounds < len(FIRST_ROUNDS) else ROUND_STEPS
        if self._steps == length:
            self._end_round()

    def coefficients(self) -> dict[str, Line]:
        """A row for every key, the prior for one without evidence."""
        rows = {key: self._table.row(key) for key in self._keys}
        return {key: (row.slopes, row.intercepts) for key, row in rows.items()}

    def _slots(self, slots: Index) -> Index:
        return np.zeros_like(slots) if self._pooled else slots

    def _end_round(self) -> None:
        self._rounds += 1
        a = self._accumulator
        moments, sketch = a.drain(), a.drain_sketch()
        seen = np.flatnonzero(moments.n.sum(axis=1) > 0.0)
        summary = RoundSummary(
            pair=self._pair,
            engine="evaluate",
            boot="0" * 16,
            first_seq=self._rounds,
            last_seq=self._rounds,
            version=self._table.version,
            steps=self._steps,
            k=self._k,
            knots=self._knots,
            workloads=tuple(self._keys[i] for i in seen),
            slopes=a.slopes[seen],
            intercepts=a.intercepts[seen],
            moments=moments.take(seen),
            sketch=sketch.take(seen),
        )
        self._steps = 0
        self._fit.fold(summary)
        self._table = self._fit.table(self._rounds)
        a.apply([self._table.row(key) for key in self._keys])


Build = Callable[[Trace, tuple[float, ...]], Predictor]

PREDICTORS: Mapping[str, Build] = {
    "accord": lambda trace, knots: Accord(trace, knots),
    "accord-no-request": lambda trace, knots: Accord(trace, knots, request_effect=False),
    "accord-line": lambda trace, knots: Accord(trace, ()),
    "accord-pooled": lambda trace, knots: Accord(trace, knots, pooled=True),
    "vllm": lambda trace, knots: Vllm(trace),
    "batch": lambda trace, knots: Batch(trace),
}
"""Every predictor by name, in the order they are shown."""
