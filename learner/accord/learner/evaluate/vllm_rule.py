"""The published rule that vLLM's online acceptance estimator follows, written anew from its description and source.

All traffic is pooled into one model, P(accept) = sigmoid(w f + b[k]). Over a window of 100 decode steps the labels'
information (an arrowhead: a = sum v f^2 over all positions; bk = sum v f, ck = sum v per position) and score
(g0 = sum r f over all, gk = sum r per position) are summed at the predictions made at draft time. Then one Newton step:

    ridge 1e-3 on a and on every ck, but not on the score (it damps steps, and shrinks nothing towards 0)
    dw  = (g0 - sum bk gk / ck) / (a - sum bk^2 / ck), times n / (n + 50) with n the labels of all positions,
          and 0 when it is not finite or would make the slope negative
    dbk = (gk - bk dw) / ck, with the damped dw, times nk / (nk + 50) with nk the labels of position k

and every sum starts again from zero: nothing of earlier windows is kept but the coefficients.

Read in vllm-project/vllm, vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py: the revision of commit 322dc44b and
the later one whose feature is logit(q_max); both take the same step. Those start from slope 0 and intercepts 1.5; slope
0.5 and intercepts -0.2, used here, are what releases 0.30 to 0.33 start from, and the kinder choice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..basis import FEATURE_LIMIT, Array, sigmoid
from ..coefficients import COLD_INTERCEPT, COLD_SLOPE

INTERVAL = 100
DAMPING = 50.0
RIDGE = 1e-3


class VllmRule:
    """One slope and K intercepts, pooled over all traffic.

    Args:
        k: draft positions.

    Attributes:
        slope: w; intercepts: float64 [K].

    >>> rule = VllmRule(k=1)
    >>> for _ in range(100):
    ...     rule.observe(np.array([[2.0]]), accepted=np.array([1]), admitted=np.array([1]))
    >>> bool(rule.slope > 0.5)
    True
    """

    def __init__(self, k: int) -> None:
        self.slope = COLD_SLOPE
        self.intercepts = np.full(k, COLD_INTERCEPT)
        self._position = np.arange(k)
        self._steps = 0
        self._clear()

    def predict(self, features: npt.ArrayLike) -> Array:
        """P(accept) [B, K] from logit(q_max) [B, K]."""
        f = np.clip(np.asarray(features, dtype=np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)
        return sigmoid(self.slope * f + self.intercepts)

    def observe(self, features: npt.ArrayLike, accepted: npt.ArrayLike, admitted: npt.ArrayLike) -> None:
        """Adds one decode step; every 100th refits.

        Args:
            features: [B, K] logit(q_max); accepted, admitted: [B] accepted and verified drafts.
        """
        f = np.clip(np.asarray(features, dtype=np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)
        taken, shown = np.asarray(accepted)[:, None], np.asarray(admitted)[:, None]
        labelled = (self._position <= taken) & (self._position < shown)
        p = sigmoid(self.slope * f + self.intercepts)
        v, r = np.where(labelled, p * (1.0 - p), 0.0), np.where(labelled, (self._position < taken) - p, 0.0)
        self._a += float((v * f * f).sum())
        self._g0 += float((r * f).sum())
        self._b += (v * f).sum(axis=0)
        self._c += v.sum(axis=0)
        self._g1 += r.sum(axis=0)
        self._n += labelled.sum(axis=0)
        self._steps += 1
        if self._steps % INTERVAL == 0:
            self._refit()

    def _clear(self) -> None:
        k = len(self.intercepts)
        self._a = self._g0 = 0.0
        self._b, self._c, self._g1, self._n = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)

    def _refit(self) -> None:
        a, b, c, n = self._a + RIDGE, self._b, self._c + RIDGE, self._n
        step = (self._g0 - float((b * self._g1 / c).sum())) / (a - float((b * b / c).sum()))
        step *= float(n.sum()) / (float(n.sum()) + DAMPING)
        if not (np.isfinite(step) and self.slope + step >= 0.0):
            step = 0.0
        self.slope += step
        self.intercepts = self.intercepts + (self._g1 - b * step) / c * n / (n + DAMPING)
        self._clear()
