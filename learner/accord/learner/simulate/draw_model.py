"""Acceptance given the token drawn: a second logistic regression, learnt beside the first.

A drawn token x is accepted with probability min(1, p(x) / q(x)), so q(x) says much that q_max does not. The log-odds
are those of the first model plus a correction that is linear in a spline of logit(q_max) and a spline of log q(x):

    logit P(accept | q_max, q) = z + theta_w . (1, x(logit q_max), x'(log q))

theta is fitted once for all traffic and then for each workload w, shrunk to the common one. Evidence is kept in the
information form H = sum v x x', e = g + H theta, and fades with new labels as the first model's does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..basis import Array, SplineBasis, sigmoid
from ..pair import DraftSampling, Pair
from ..pair_state import MEMORY_LABELS
from ..request_effect import Index
from ..workload import TemperatureClass, WorkloadKey

LOG_Q_FLOOR = -15.0
"""log q is clipped from below: a token this unlikely is hardly ever drawn, and float32 can store q = 0."""

_FEATURE = SplineBasis()
_LOG_Q = SplineBasis((-6.0, -4.0, -2.0, -1.0))
SIZE = 1 + _FEATURE.size + _LOG_Q.size

COMMON_RIDGE = 1.0
"""Prior precision of the common correction around none."""

WORKLOAD_RIDGE = 20.0
"""Prior precision of a workload's correction around the common one; 5 and 100 do as well on recorded traces."""


class DrawModel:
    """Turns P(accept | q_max) into P(accept | q_max, token drawn).

    Where the drafter takes the most likely token, the draw is known from the prefix and tells nothing: there the first
    model's probability is returned unchanged.

    Args:
        pair: whose drafts; workloads: W keys `label:class`.

    Attributes:
        theta: float64 [W, SIZE], the corrections in force; 0 at the start and for greedy drafts.

    >>> from accord.learner.pair import Method
    >>> pair = Pair("big", "small", Method.EAGLE, DraftSampling.PROBABILISTIC, 1)
    >>> model = DrawModel(pair, ["chat:sampled"])
    >>> model.predict(np.array([[0.5]]), np.array([[1.0]]), np.array([[0.7]]), np.array([0]))
    array([[0.5]])
    """

    def __init__(self, pair: Pair, workloads: Sequence[str]) -> None:
        greedy = [WorkloadKey.parse(key).temperature_class is TemperatureClass.GREEDY for key in workloads]
        self._draws = ~np.array(greedy) & (pair.draft_sampling is not DraftSampling.GREEDY)
        w = len(workloads)
        self.theta = np.zeros((w, SIZE))
        self._information, self._target = np.zeros((w, SIZE, SIZE)), np.zeros((w, SIZE))
        self._clear()

    def predict(self, probability: Array, features: npt.ArrayLike, q: npt.ArrayLike, slots: Index) -> Array:
        """P(accept | q_max, token drawn) [B, K].

        Args:
            probability: [B, K] P(accept | q_max); features: [B, K] logit(q_max); q: [B, K] draft probability of the
                token drawn; slots: [B] workload slots.
        """
        return self._predict(probability, expand(features, q), slots)

    def observe(
        self,
        probability: Array,
        features: npt.ArrayLike,
        q: npt.ArrayLike,
        slots: Index,
        accepted: npt.NDArray[np.int64],
        admitted: npt.NDArray[np.int64],
    ) -> None:
        """Adds the verdict on the same drafts: accepted and verified drafts, [B] each."""
        x = expand(features, q)
        position = np.arange(probability.shape[1])
        verified = (position < admitted[:, None]) & self._draws[slots][:, None]
        labelled = verified & (position <= accepted[:, None])
        p = self._predict(probability, x, slots)
        v: Array = np.where(labelled, p * (1.0 - p), 0.0)
        r: Array = np.where(labelled, (position < accepted[:, None]) - p, 0.0)
        np.add.at(self._new_information, slots, np.matmul(x.transpose(0, 2, 1), v[:, :, None] * x))
        np.add.at(self._gradient, slots, np.einsum("bk,bki->bi", r, x))
        np.add.at(self._labels, slots, labelled.sum(axis=1))

    def refit(self) -> None:
        """Takes in what was observed since the last refit: fades, adds, solves."""
        kept = np.exp(-self._labels / MEMORY_LABELS)
        self._information = kept[:, None, None] * self._information + self._new_information
        moved = np.einsum("wij,wj->wi", self._new_information, self.theta)
        self._target = kept[:, None] * self._target + self._gradient + moved
        self._clear()
        eye = np.eye(SIZE)
        common = np.linalg.solve(self._information.sum(axis=0) + COMMON_RIDGE * eye, self._target.sum(axis=0))
        system, target = self._information + WORKLOAD_RIDGE * eye, self._target + WORKLOAD_RIDGE * common
        self.theta = np.where(self._draws[:, None], np.linalg.solve(system, target[:, :, None])[:, :, 0], 0.0)

    def _predict(self, probability: Array, x: Array, slots: Index) -> Array:
        bounded = np.clip(probability, np.finfo(np.float64).eps, 1.0 - np.finfo(np.float64).eps)
        z = np.log(bounded) - np.log1p(-bounded) + np.einsum("bki,bi->bk", x, self.theta[slots])
        return np.where(self._draws[slots][:, None], sigmoid(z), probability)

    def _clear(self) -> None:
        self._new_information, self._gradient = np.zeros_like(self._information), np.zeros_like(self._target)
        self._labels = np.zeros(len(self.theta))


def expand(features: npt.ArrayLike, q: npt.ArrayLike) -> Array:
    """What a correction is linear in, [B, K, SIZE]: 1, the spline of the feature, the spline of log q."""
    f = np.asarray(features, dtype=np.float64)
    log_q = np.log(np.maximum(np.asarray(q, dtype=np.float64), np.exp(LOG_Q_FLOOR)))
    return np.concatenate([np.ones((*f.shape, 1)), _FEATURE.expand(f), _LOG_Q.expand(log_q)], axis=-1)
