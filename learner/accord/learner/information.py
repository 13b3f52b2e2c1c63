"""The information form of what a pair has learnt: a quadratic log-likelihood that fades with new labels."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .basis import Array, SplineBasis
from .moments import Moments


@dataclass
class Information:
    """sum over the evidence of  -1/2 theta' H theta + e' theta, for W workloads, theta = (s [F], b [K]).

    Attributes:
        A: [W, F (F + 1) / 2] packed; B: [W, K, F]; c: [W, K]: the arrowhead Hessian H.
        e0: [W, F]; e1: [W, K]: gradient + H theta at the theta of each summary.
    """

    A: Array
    B: Array
    c: Array
    e0: Array
    e1: Array

    @classmethod
    def zeros(cls, workloads: int, k: int, basis: SplineBasis) -> Information:
        """No evidence."""
        w, f = workloads, basis.size
        return cls(np.zeros((w, basis.packed_size)), np.zeros((w, k, f)), np.zeros((w, k)), *_zeros(w, f, k))

    @classmethod
    def of(cls, moments: Moments, e0: Array, e1: Array) -> Information:
        """From a summary's sums and its information form."""
        return cls(moments.A, moments.B, moments.c, e0, e1)

    def arrays(self) -> dict[str, Array]:
        """Every array by name, in a fixed order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def scale(self, factor: Array) -> None:
        """Multiplies the evidence of each workload by factor [W]."""
        for array in self.arrays().values():
            array *= factor.reshape(-1, *(1,) * (array.ndim - 1))

    def recentre(self, basis: SplineBasis, slopes: Array, intercepts: Array) -> None:
        """Keeps the precision and moves the optimum to these coefficients: e = H theta."""
        A = basis.unpack(self.A)
        self.e0[:] = np.einsum("wij,wj->wi", A, slopes) + np.einsum("wkf,wk->wf", self.B, intercepts)
        self.e1[:] = np.einsum("wkf,wf->wk", self.B, slopes) + self.c * intercepts


def _zeros(w: int, f: int, k: int) -> tuple[Array, Array]:
    return np.zeros((w, f)), np.zeros((w, k))
