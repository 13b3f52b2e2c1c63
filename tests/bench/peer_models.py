"""Other ways to predict acceptance, behind the protocol of `accord.learner.evaluate.predictors`.

All see the same features: the spline basis of logit(q_max) over the default knots, and which draft position it is. All
start from the published medians (slope 0.5, intercepts -0.2). `keyed` is one model for each workload, else all traffic
is pooled into one.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import statsmodels.api as sm
from river import linear_model, optim
from sklearn.linear_model import SGDClassifier

from accord.learner.basis import DEFAULT_KNOTS, Array, SplineBasis, sigmoid
from accord.learner.coefficients import COLD_INTERCEPT, COLD_SLOPE
from accord.learner.evaluate.predictors import FIRST_ROUNDS, ROUND_STEPS, Line
from accord.learner.evaluate.trace import Floats, Ints, Trace
from accord.learner.request_effect import Index

POOLED_RATE, KEYED_RATE = 0.01, 0.03
"""Of the constant rates 0.001, 0.003, 0.01, 0.03 and 0.1 those with the least log-loss on the bundled trace."""

WINDOW_LABELS = 10_000
MIN_LABELS = 200
"""Below these, a window's model stays where it is: without a prior, few labels have no finite maximum."""

BASIS = SplineBasis(DEFAULT_KNOTS)


class Peer:
    """Design vectors, and one coefficient vector [F + K] per model; a subclass learns.

    Attributes:
        theta: [models, F + K], slopes first; models: W when keyed, else 1.
    """

    def __init__(self, trace: Trace, *, keyed: bool) -> None:
        self.k, self.keyed = trace.k, keyed
        start = np.concatenate([[COLD_SLOPE], np.zeros(BASIS.size - 1), np.full(trace.k, COLD_INTERCEPT)])
        self.theta: Array = np.tile(start, (len(trace.workloads) if keyed else 1, 1))

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """P(accept) [B, K]."""
        theta = self.theta[self._models(slots)]
        return sigmoid(np.einsum("bkf,bf->bk", BASIS.expand(features), theta[:, : BASIS.size]) + theta[:, BASIS.size :])

    def learn(self, features: Floats, slots: Index, requests: Index, accepted: Ints, admitted: Ints) -> None:
        """Takes in one decode step, as labelled design vectors of each model."""
        position = np.arange(self.k)
        row, k = np.nonzero((position <= accepted[:, None]) & (position < admitted[:, None]))
        y, model = (k < accepted[row]).astype(np.float64), self._models(slots)[row]
        design = np.concatenate([BASIS.expand(features[row, k]), np.eye(self.k)[k]], axis=1)
        for one in np.unique(model):
            self.update(int(one), design[model == one], y[model == one])
        self.end_step()

    def coefficients(self) -> dict[str, Line]:
        """None are shown."""
        return {}

    def update(self, model: int, design: Array, y: Array) -> None:
        """Learns labels [M] with design vectors [M, F + K]."""
        raise NotImplementedError

    def end_step(self) -> None:
        """After each decode step."""

    def _models(self, slots: Index) -> Index:
        return slots if self.keyed else np.zeros_like(slots)


class River(Peer):
    """River's `LogisticRegression`: stochastic gradient descent, label by label."""

    def __init__(self, trace: Trace, *, keyed: bool) -> None:
        super().__init__(trace, keyed=keyed)
        rate = KEYED_RATE if keyed else POOLED_RATE
        self.models = [linear_model.LogisticRegression(optim.SGD(rate), intercept_lr=0.0) for _ in self.theta]
        for model, theta in zip(self.models, self.theta, strict=True):
            model._weights.update(dict(enumerate(theta.tolist())))

    def update(self, model: int, design: Array, y: Array) -> None:
        """See `Peer`; a label's design vector travels as a dictionary of what is not 0."""
        learner = self.models[model]
        for x, label in zip(design.tolist(), y.tolist(), strict=True):
            learner.learn_one({i: value for i, value in enumerate(x) if value}, label)
        self.theta[model] = [learner.weights[i] for i in range(design.shape[1])]


class Sklearn(Peer):
    """scikit-learn's `SGDClassifier.partial_fit`, one call for each step and model."""

    def __init__(self, trace: Trace, *, keyed: bool) -> None:
        super().__init__(trace, keyed=keyed)
        rate = KEYED_RATE if keyed else POOLED_RATE
        self.models = []
        for theta in self.theta:
            model = SGDClassifier(
                loss="log_loss", alpha=1e-6, learning_rate="constant", eta0=rate, fit_intercept=False, shuffle=False
            )
            model.partial_fit(np.zeros((1, len(theta))), [0], classes=[0, 1])
            model.coef_ = theta[None].copy()
            self.models.append(model)

    def update(self, model: int, design: Array, y: Array) -> None:
        """See `Peer`."""
        self.theta[model] = self.models[model].partial_fit(design, y).coef_[0]


class Window(Peer):
    """statsmodels' GLM, refitted at the end of each of accord's rounds on the last labels of each model."""

    def __init__(self, trace: Trace, *, keyed: bool) -> None:
        super().__init__(trace, keyed=keyed)
        self.seen: list[list[tuple[Array, Array]]] = [[] for _ in self.theta]
        self.rounds = self.steps = 0

    def update(self, model: int, design: Array, y: Array) -> None:
        """See `Peer`; labels are kept until the round ends."""
        self.seen[model].append((design, y))

    def end_step(self) -> None:
        """See `Peer`."""
        self.steps += 1
        if self.steps == (*FIRST_ROUNDS, ROUND_STEPS)[min(self.rounds, len(FIRST_ROUNDS))]:
            self.rounds, self.steps = self.rounds + 1, 0
            for model, seen in enumerate(self.seen):
                if seen:
                    self.refit(model, *(np.concatenate(part)[-WINDOW_LABELS:] for part in zip(*seen, strict=True)))

    def refit(self, model: int, design: Array, y: Array) -> None:
        """Maximum likelihood over the window."""
        self.seen[model] = [(design, y)]
        if len(y) < MIN_LABELS:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a position that is always accepted has no finite intercept
            fitted = sm.GLM(y, design, family=sm.families.Binomial()).fit()
        if np.all(np.isfinite(fitted.params)):
            self.theta[model] = fitted.params


class Temperature:
    """One temperature for each position, P = sigmoid(f / T[k]), fitted offline on the first half of the trace."""

    def __init__(self, trace: Trace) -> None:
        half: npt.NDArray[np.bool_] = np.arange(trace.rows) < trace.rows // 2
        self.inverse = np.array([self._fit(trace, trace.labelled[:, k] & half, k) for k in range(trace.k)])

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """P(accept) [B, K]."""
        return sigmoid(features * self.inverse)

    def learn(self, *_: Any) -> None:
        """Nothing."""

    def coefficients(self) -> dict[str, Line]:
        """None are shown."""
        return {}

    @staticmethod
    def _fit(trace: Trace, rows: npt.NDArray[np.bool_], k: int) -> float:
        f, y = trace.features[rows, k].astype(np.float64), trace.y[rows, k].astype(np.float64)
        return float(sm.GLM(y, f[:, None], family=sm.families.Binomial()).fit().params[0]) if len(y) else 1.0
