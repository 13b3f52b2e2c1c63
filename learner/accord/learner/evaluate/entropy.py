"""An experiment: the entropy of the draft distribution as a second feature beside logit(q_max).

Like q_max it depends on the prefix only, never on the token drawn, so that trimming by it keeps speculative decoding
lossless. The predictor is `Accord`'s own path with one more column in the basis; nothing of it is served.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..accumulator import Accumulator
from ..basis import DEFAULT_KNOTS, FEATURE_LIMIT, Array, SplineBasis
from ..coefficients import CoefficientTable
from ..errors import InvalidValue
from ..pair_state import PairState
from ..request_effect import Index
from ..summary import RoundSummary
from .predictors import Accord
from .trace import Floats, Ints, Trace

ENTROPY = "accord-entropy"

CENTRE = 3.0
"""Nats; about the mean of recorded drafts, so that intercepts keep their meaning and their prior."""

_COLUMN = np.nextafter(FEATURE_LIMIT, 0.0).item()
"""Stands for the entropy among the knots: a hinge here would be empty, and its slope has a hinge's prior, around 0."""


@dataclass(frozen=True)
class EntropyBasis(SplineBasis):
    """x(f) followed by CENTRE - entropy: as many columns as a spline with one more knot.

    Args:
        knots: of the spline, and `_COLUMN` last.
        entropy: what belongs to the features that come next, written by `Entropy`.
    """

    entropy: list[Array] = field(default_factory=list, compare=False)

    def expand(self, features: npt.ArrayLike) -> Array:
        """Features [B, K] -> [B, K, F + 1]."""
        x = super().expand(features)
        x[..., -1] = CENTRE - self.entropy[0]
        return x


class Unguarded:
    """The learner's state without its guard, whose sketch holds no entropy to judge with."""

    def __init__(self, pair: str, k: int, knots: tuple[float, ...]) -> None:
        self.state = PairState(pair, k, knots)

    def fold(self, summary: RoundSummary) -> None:
        """Adds one summary and refits."""
        self.state.fold(0, [summary])

    def table(self, version: int) -> CoefficientTable:
        """The coefficients learnt so far."""
        return self.state.table(version)


class Entropy(Accord):
    """`Accord` with the entropy as one more slope, in nats^-1; positive where sure drafts are accepted more often.

    Raises:
        InvalidValue: when the trace has no entropy.
    """

    def __init__(self, trace: Trace, knots: tuple[float, ...] = DEFAULT_KNOTS) -> None:
        if trace.entropy is None:
            raise InvalidValue("features", "entropy", "the trace has none")
        super().__init__(trace, (*knots, _COLUMN), fit=Unguarded)
        self._entropy, self._row = trace.entropy, 0
        self._basis = EntropyBasis((*knots, _COLUMN))
        self._accumulator = Accumulator(trace.k, self._basis, len(self._keys), int(np.unique(trace.request).size))

    def predict(self, features: Floats, slots: Index, requests: Index) -> Array:
        """See `Predictor`; steps come in the order of the trace."""
        self._basis.entropy[:] = [self._entropy[self._row : self._row + len(features)].astype(np.float64)]
        return super().predict(features, slots, requests)

    def learn(self, features: Floats, slots: Index, requests: Index, accepted: Ints, admitted: Ints) -> None:
        """See `Predictor`."""
        super().learn(features, slots, requests, accepted, admitted)
        self._row += len(features)
