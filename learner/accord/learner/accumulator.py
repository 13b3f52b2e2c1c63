"""The NumPy reference of what an engine accumulates in a round: the oracle of every faster implementation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .basis import FEATURE_LIMIT, Array, SplineBasis, sigmoid, softplus
from .coefficients import Coefficients
from .moments import Moments
from .request_effect import WORKING_VARIANCE, Index, RequestEffects
from .sketch import Sketch


class Accumulator:
    """Predicts acceptance for the requests of one engine, and sums what their verification teaches.

    Args:
        k: draft positions.
        basis: spline basis of the pair.
        workloads: W, number of workload slots.
        requests: number of request slots.
        working_variance: how labels of one request are weighed as evidence; 0 counts every label in full.

    Attributes:
        moments: `Moments` [W] since the last `drain`.
        sketch: `Sketch` [W] since the last `drain_sketch`.
        effects: R and V of every request slot.
        slopes, intercepts, variance: [W, F], [W, K], [W]: the coefficients in force.

    >>> a = Accumulator(k=2, basis=SplineBasis(()), workloads=1, requests=1)
    >>> slot = request = np.array([0])
    >>> a.observe(np.array([[0.4, 0.4]]), slot, request, accepted=np.array([1]), admitted=np.array([2]))
    >>> a.moments.n.tolist(), a.moments.g1.tolist()
    ([[1.0, 1.0]], [[0.5, -0.5]])
    """

    def __init__(
        self, k: int, basis: SplineBasis, workloads: int, requests: int, working_variance: float = WORKING_VARIANCE
    ) -> None:
        self.k = k
        self.working_variance = working_variance
        self.basis = basis
        self.moments = Moments.zeros(workloads, k, basis)
        self.sketch = Sketch.zeros(workloads, k)
        self.effects = RequestEffects(requests)
        cold = Coefficients.cold(k, basis)
        self.slopes = np.tile(cold.slopes, (workloads, 1))
        self.intercepts = np.tile(cold.intercepts, (workloads, 1))
        self.variance = np.zeros(workloads)

    def apply(self, rows: Sequence[Coefficients]) -> None:
        """Puts one row of coefficients in force for each workload slot. Call it when `moments` is empty."""
        for slot, row in enumerate(rows):
            self.slopes[slot] = row.slopes
            self.intercepts[slot] = row.intercepts
            self.variance[slot] = row.request_variance

    def log_odds(self, features: npt.ArrayLike, slots: Index) -> Array:
        """Features [B, K] of requests in workload slots [B] -> log-odds [B, K] without request effect."""
        x = self.basis.expand(features)
        out: Array = np.einsum("bkf,bf->bk", x, self.slopes[slots]) + self.intercepts[slots]
        return out

    def predict(self, features: npt.ArrayLike, slots: Index, requests: Index) -> Array:
        """P(accept) [B, K], with the effect of each request in request slots [B]."""
        u = self.effects.shift(requests, self.variance[slots])
        return sigmoid(self.log_odds(features, slots) + u[:, None])

    def observe(
        self,
        features: npt.ArrayLike,
        slots: Index,
        requests: Index,
        accepted: npt.ArrayLike,
        admitted: npt.ArrayLike,
    ) -> None:
        """Adds one decode step.

        Args:
            features: [B, K] logit(q_max) of each draft.
            slots, requests: [B] workload slot and request slot; a request appears once in a step.
            accepted: [B] accepted drafts; admitted: [B] verified drafts, accepted <= admitted <= K.
        """
        f: Array = np.clip(np.asarray(features, dtype=np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)
        taken, shown = np.asarray(accepted, dtype=np.int64), np.asarray(admitted, dtype=np.int64)
        position = np.arange(self.k)
        verified = position < shown[:, None]
        labelled = verified & (position <= taken[:, None])
        y = (position < taken[:, None]).astype(np.float64)
        z = self.log_odds(f, slots)
        p = sigmoid(z)
        v: Array = np.where(labelled, p * (1.0 - p), 0.0)
        r: Array = np.where(labelled, y - p, 0.0)

        self._add_loss(slots, requests, z, y, labelled)
        shift = self.effects.shift(requests, self.variance[slots])
        survival: Array = np.cumprod(sigmoid(z + shift[:, None]), axis=1, dtype=np.float64)
        self.sketch.observe(slots, f, survival, taken, labelled, verified)
        weight = self.effects.weight(requests, self.working_variance)[:, None]
        self._add_moments(slots, self.basis.expand(f), weight * v, weight * r, y * labelled, labelled)
        self.effects.update(requests, labelled.sum(axis=1), r.sum(axis=1), v.sum(axis=1))

    def drain(self) -> Moments:
        """Hands out the sums and starts a new round."""
        full, self.moments = self.moments, Moments.zeros(len(self.slopes), self.k, self.basis)
        return full

    def drain_sketch(self) -> Sketch:
        """Hands out the sketches and starts new ones."""
        full, self.sketch = self.sketch, Sketch.zeros(len(self.slopes), self.k)
        return full

    def _add_loss(self, slots: Index, requests: Index, z: Array, y: Array, labelled: npt.NDArray[np.bool_]) -> None:
        shifted = z[:, :, None] + self.effects.shift_grid(requests)[:, None, :]
        loss = softplus(np.where(y[:, :, None] > 0, -shifted, shifted))
        np.add.at(self.moments.loss, slots, np.where(labelled[:, :, None], loss, 0.0).sum(axis=1))

    def _add_moments(
        self, slots: Index, x: Array, v: Array, r: Array, y: Array, labelled: npt.NDArray[np.bool_]
    ) -> None:
        m = self.moments
        rows, cols = self.basis.triangle
        vx = v[:, :, None] * x
        np.add.at(m.A, slots, np.einsum("bkp,bkp->bp", vx[:, :, rows], x[:, :, cols]))
        np.add.at(m.B, slots, vx)
        np.add.at(m.c, slots, v)
        np.add.at(m.g0, slots, np.einsum("bk,bkf->bf", r, x))
        np.add.at(m.g1, slots, r)
        np.add.at(m.n, slots, labelled.astype(np.float64))
        np.add.at(m.y, slots, y)
