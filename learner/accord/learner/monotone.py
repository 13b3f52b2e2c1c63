"""Keeps acceptance from falling with confidence: cumulative slopes >= 0, by a small active set."""

from __future__ import annotations

import numpy as np

from .basis import Array

_SLACK = 1e-12


def solve_monotone(H: Array, rhs: Array, start: Array, size: int) -> Array:
    """Minimises 1/2 m' H m - rhs' m with every cumulative sum of the first `size` entries of m >= 0.

    Args:
        H: [W, N, N] symmetric positive definite.
        rhs: [W, N].
        start: [W, N], the unconstrained solutions.
        size: F, the number of slopes at the head of m.

    Workloads that meet the constraint are handed back untouched; the others, rare and at most 8 slopes wide, are solved
    one by one in the variables u = cumulative slopes, where the constraint is a sign and the primal active-set method
    for non-negative least squares (Lawson and Hanson 1974, chapter 23) ends after finitely many steps.
    """
    broken = np.flatnonzero(np.any(np.cumsum(start[:, :size], axis=1) < -_SLACK, axis=1))
    if not len(broken):
        return start
    solution = start.copy()
    n = H.shape[-1]
    D = np.eye(n)  # m = D u: slopes are the differences of their cumulative sums
    D[np.arange(1, size), np.arange(size - 1)] = -1.0
    for w in broken:
        solution[w] = D @ _nonnegative(D.T @ H[w] @ D, D.T @ rhs[w], size)
        # exact zeros may come back as -1e-17 from the product
        total = np.maximum(np.cumsum(solution[w, :size]), 0.0)
        solution[w, :size] = np.diff(total, prepend=0.0)
    return solution


def _nonnegative(H: Array, rhs: Array, size: int) -> Array:
    """min 1/2 u' H u - rhs' u with u[:size] >= 0, the rest free."""
    n = len(rhs)
    free = np.ones(n, dtype=bool)
    free[:size] = False
    u = np.zeros(n)
    u[free] = np.linalg.solve(H[np.ix_(free, free)], rhs[free])
    scale = float(np.abs(rhs).max()) + 1.0
    for _ in range(8 * size):
        gain = np.where(free, -np.inf, rhs - H @ u)
        enter = int(np.argmax(gain))
        if gain[enter] <= 1e-12 * scale:
            break
        free[enter] = True
        while True:
            trial = np.zeros(n)
            trial[free] = np.linalg.solve(H[np.ix_(free, free)], rhs[free])
            bad = free & (np.arange(n) < size) & (trial <= 0.0)
            if not np.any(bad):
                u = trial
                break
            fall = u - trial
            ratio = np.where(bad & (fall > 0.0), u / np.where(fall > 0.0, fall, 1.0), np.where(bad, 0.0, np.inf))
            u = u + float(ratio.min()) * (trial - u)
            # the first to reach 0 leaves even when rounding keeps it a hair above: that is what ends the loop
            free &= ~(bad & ((u <= _SLACK) | (ratio <= ratio.min())))
            u[~free] = 0.0
    return u
