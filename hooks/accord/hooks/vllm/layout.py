"""How the sums, the sketches and the coefficients lie in flat float32 buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accord.learner.basis import Array, SplineBasis
from accord.learner.moments import GRID, Moments
from accord.learner.sketch import BINS, CHANNELS, SURVIVAL_BINS, Sketch

Flat = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """Sizes and offsets for W workload slots, K positions and a spline basis.

    The device keeps one row of S sums for each workload and position: A packed, B, c, g0, g1, n, y, and the loss under
    each variance of the grid. A, g0 and the losses of a workload are summed over its positions on the host. Behind the
    sums lie the acceptance and the survival sketch, so that one copy takes all.

    Args:
        workloads: W.
        k: K.
        basis: of the pair.

    >>> Layout(1, 7, SplineBasis(())).row, Layout(1, 7, SplineBasis((0.0, 2.0, 4.0))).row
    (13, 28)
    """

    workloads: int
    k: int
    basis: SplineBasis

    @property
    def row(self) -> int:
        """S, the sums of one workload and position: F (F + 1) / 2 + 2 F + 4 + G."""
        return self.basis.packed_size + 2 * self.basis.size + 4 + GRID

    @property
    def sums(self) -> int:
        """Floats of all sums."""
        return self.workloads * self.k * self.row

    @property
    def acceptance(self) -> int:
        """Floats of the acceptance sketch."""
        return self.workloads * self.k * BINS * CHANNELS

    @property
    def survival(self) -> int:
        """Floats of the survival sketch."""
        return self.workloads * self.k * SURVIVAL_BINS * CHANNELS

    @property
    def total(self) -> int:
        """Floats of sums and sketches."""
        return self.sums + self.acceptance + self.survival

    @property
    def theta_row(self) -> int:
        """Floats of one workload's coefficients: F slopes, K intercepts, the request-effect variance."""
        return self.basis.size + self.k + 1

    def moments(self, flat: Flat) -> Moments:
        """The first `sums` floats of a drained buffer as `Moments`, float64."""
        rows = flat[: self.sums].reshape(self.workloads, self.k, self.row).astype(np.float64)
        f, p = self.basis.size, self.basis.packed_size
        A, B, c, g0, g1, n, y, loss = np.split(rows, np.cumsum([p, f, 1, f, 1, 1, 1]), axis=2)
        return Moments(
            A=A.sum(axis=1),
            B=B.copy(),
            c=c[..., 0].copy(),
            g0=g0.sum(axis=1),
            g1=g1[..., 0].copy(),
            n=n[..., 0].copy(),
            y=y[..., 0].copy(),
            loss=loss.sum(axis=1),
        )

    def sketch(self, flat: Flat) -> Sketch:
        """The sketches in a buffer of `total` floats, float64."""
        middle = self.sums + self.acceptance
        acceptance, survival = flat[self.sums : middle], flat[middle : self.total]
        return Sketch(
            acceptance.reshape(self.workloads, self.k, BINS, CHANNELS).astype(np.float64),
            survival.reshape(self.workloads, self.k, SURVIVAL_BINS, CHANNELS).astype(np.float64),
        )

    def theta(self, slopes: Array, intercepts: Array, variance: Array) -> Flat:
        """Coefficients [W, F], [W, K], [W] as rows of one float32 array [W, F + K + 1]."""
        return np.concatenate([slopes, intercepts, variance[:, None]], axis=1).astype(np.float32)
