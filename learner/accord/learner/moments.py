"""The sums that one round of decoding leaves behind: Hessian, gradient and counts of a logistic regression.

With p = sigmoid(s . x + b[k]) at the coefficients in force, v = w p (1 - p) and r = w (y - p), w <= 1 the weight of a
label among those of its request (see `request_effect`), over the labelled drafts of a workload: A = sum v x x' over all
positions; per position B = sum v x, c = sum v, g1 = sum r, n, y; g0 = sum r x. That is the arrowhead Hessian and the
gradient of the weighted log-likelihood in (s, b) (McCullagh and Nelder 1989, section 4.4).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from .basis import Array, SplineBasis
from .request_effect import VARIANCE_GRID

GRID = len(VARIANCE_GRID)


@dataclass
class Moments:
    """Sums of W workloads, float64; all of them add up at equal coefficients.

    Attributes:
        A: [W, F (F + 1) / 2], packed upper triangle of sum v x x'.
        B: [W, K, F], sum v x.
        c: [W, K], sum v.
        g0: [W, F], sum r x.
        g1: [W, K], sum r.
        n: [W, K], labels.
        y: [W, K], accepted labels.
        loss: [W, G], log-loss in nats summed over all labels, under each variance of the request-effect grid.
    """

    A: Array
    B: Array
    c: Array
    g0: Array
    g1: Array
    n: Array
    y: Array
    loss: Array

    @classmethod
    def zeros(cls, workloads: int, k: int, basis: SplineBasis) -> Moments:
        """Empty sums."""
        shapes = cls.shapes(workloads, k, basis)
        return cls(**{name: np.zeros(shape) for name, shape in shapes.items()})

    @staticmethod
    def shapes(workloads: int, k: int, basis: SplineBasis) -> dict[str, tuple[int, ...]]:
        """The shape of every array, by name."""
        w, f = workloads, basis.size
        return {
            "A": (w, basis.packed_size),
            "B": (w, k, f),
            "c": (w, k),
            "g0": (w, f),
            "g1": (w, k),
            "n": (w, k),
            "y": (w, k),
            "loss": (w, GRID),
        }

    def arrays(self) -> dict[str, Array]:
        """Every array by name, in a fixed order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def take(self, rows: npt.ArrayLike) -> Moments:
        """The sums of some workloads, as copies."""
        index = np.asarray(rows, dtype=np.intp)
        return Moments(**{name: array[index] for name, array in self.arrays().items()})

    def add_at(self, rows: npt.NDArray[np.intp], other: Moments) -> None:
        """Adds other's workload i to row rows[i]; a row may be named more than once."""
        for name, array in self.arrays().items():
            np.add.at(array, rows, getattr(other, name))

    def gradient_at(
        self, basis: SplineBasis, slopes: Array, intercepts: Array, new_slopes: Array, new_intercepts: Array
    ) -> tuple[Array, Array]:
        """The gradient that these sums imply at other coefficients, exact to second order.

        g(new) = g(old) - H (new - old), with H the arrowhead Hessian: slopes [W, F], intercepts [W, K].
        """
        ds, db = new_slopes - slopes, new_intercepts - intercepts
        A = basis.unpack(self.A)
        g0 = self.g0 - np.einsum("wij,wj->wi", A, ds) - np.einsum("wkf,wk->wf", self.B, db)
        g1 = self.g1 - np.einsum("wkf,wf->wk", self.B, ds) - self.c * db
        return g0, g1
