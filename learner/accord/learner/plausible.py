"""What is checked of sums before they are believed: that some set of labels could have left them behind.

Everything is judged row by row, a row being one workload of one summary, so that the rows of many summaries can be
judged at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .basis import FEATURE_LIMIT, Array, SplineBasis
from .coefficients import COEFFICIENT_LIMIT
from .errors import Reason, Refusal
from .moments import Moments
from .sketch import Sketch

MAX_ROUND_STEPS = 100_000
MAX_REQUESTS = 16_384
"""Requests that one engine can have in a decode step."""
MAX_LABELS = 1 << 40
ROUNDING = 1e-4
"""Relative slack of every inequality: engines sum in float32."""


@dataclass(frozen=True)
class Sums:
    """Rows of sums.

    Attributes:
        basis: of all of them.
        slopes, intercepts: [R, F], [R, K], at which they were taken.
        moments: of R rows.
        most: [R], labels that a position can have at most; rounds: [R], how many are summed.
    """

    basis: SplineBasis
    slopes: Array
    intercepts: Array
    moments: Moments
    most: Array
    rounds: Array


def most_labels(steps: int, rounds: int) -> int:
    """How many labels a position can have: a request gives it one a step.

    Raises:
        Refusal: out_of_bounds, for more steps than the rounds can hold.
    """
    if steps > rounds * MAX_ROUND_STEPS:
        raise Refusal(Reason.OUT_OF_BOUNDS, f"{steps} steps in {rounds} rounds")
    return min(steps * MAX_REQUESTS, MAX_LABELS)


def check_sums(sums: Sums) -> None:
    """Refuses sums that no set of labels can leave behind.

    n and y are counts, y <= n, c <= n / 4 (p (1 - p) has its maximum there), |g1| <= n, features within their range,
    and A - sum_k B[k] B[k]' / c[k] positive semi-definite (Cauchy-Schwarz, position by position). A merged summary's
    gradient is exact to second order only, so its bound is wider.

    Raises:
        Refusal: out_of_bounds or inconsistent, when one row is.
    """
    m = sums.moments
    for name in ("slopes", "intercepts"):
        _within(name, getattr(sums, name), COEFFICIENT_LIMIT)
    if np.any(np.cumsum(sums.slopes, axis=1) < -1e-6):
        raise Refusal(Reason.OUT_OF_BOUNDS, "slopes fall with the feature")
    for name in ("n", "y", "c", "loss"):
        if np.any(getattr(m, name) < 0.0):
            raise Refusal(Reason.OUT_OF_BOUNDS, f"{name} has a negative entry")
    if np.any(m.n != np.rint(m.n)):
        raise Refusal(Reason.OUT_OF_BOUNDS, "n must hold counts")
    over = m.n > sums.most[:, None]
    if np.any(over):
        raise Refusal(Reason.OUT_OF_BOUNDS, f"{m.n[over][0]:.6g} labels; at most {sums.most[over.any(axis=1)][0]:.6g}")
    limit = m.n * (1.0 + ROUNDING) + ROUNDING
    widest = 2.0 * FEATURE_LIMIT
    gradient = np.where(sums.rounds == 1.0, 1.0, 8.0)[:, None]
    _below("y", m.y, limit)
    _below("c", m.c, 0.25 * limit)
    steepest = COEFFICIENT_LIMIT * (widest * sums.basis.size + 2.0)
    _below("loss", m.loss, steepest * limit.sum(axis=1)[:, None])
    _below("g1", np.abs(m.g1), gradient * limit)
    _below("B", np.abs(m.B), widest * m.c[:, :, None] * (1.0 + ROUNDING) + ROUNDING)
    _below("A", np.abs(m.A), widest**2 * m.c.sum(axis=1)[:, None] * (1.0 + ROUNDING) + ROUNDING)
    _below("g0", np.abs(m.g0), gradient * widest * limit.sum(axis=1)[:, None])
    _check_curvature(sums)


def _check_curvature(sums: Sums) -> None:
    m, A = sums.moments, sums.basis.unpack(sums.moments.A)
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.divide(m.B, m.c[:, :, None], out=np.zeros_like(m.B), where=m.c[:, :, None] > 0.0)
        rest: Array = A - m.B.swapaxes(1, 2) @ share
    if not np.all(np.isfinite(rest)):
        raise Refusal(Reason.INCONSISTENT, "B is too large for c")
    slack = 10.0 * ROUNDING * np.einsum("wii->w", A) + ROUNDING
    # Eigenvalues are dear, and nearly every matrix is clear without them.
    unclear = ~_is_positive(rest, 0.5 * slack)
    if np.any(unclear) and np.any(np.linalg.eigvalsh(rest[unclear])[:, 0] < -slack[unclear]):
        raise Refusal(Reason.INCONSISTENT, "A, B and c break Cauchy-Schwarz")


def _is_positive(matrices: Array, shift: Array) -> npt.NDArray[np.bool_]:
    """For which of [R, F, F], each with its shift [R] added to the diagonal, elimination meets only pivots > 0."""
    size = matrices.shape[1]
    left = matrices + shift[:, None, None] * np.eye(size)
    positive = np.ones(len(left), dtype=np.bool_)
    for j in range(size):
        pivot = left[:, j, j]
        positive &= pivot > 0.0
        if j + 1 < size:
            column = left[:, j + 1 :, j]
            scaled = column / np.where(positive, pivot, 1.0)[:, None]
            left[:, j + 1 :, j + 1 :] -= scaled[:, :, None] * column[:, None, :]
    return positive


def check_sketch(sketch: Sketch) -> None:
    """Refuses sketches that no set of labels can leave behind.

    Raises:
        Refusal: out_of_bounds or inconsistent, when one row is.
    """
    for name, cells in (("acceptance", sketch.acceptance), ("survival", sketch.survival)):
        total, first, second = cells[..., 0], cells[..., 1], cells[..., 2]
        if np.any(total < 0.0) or np.any(total > MAX_LABELS):
            raise Refusal(Reason.OUT_OF_BOUNDS, f"{name} holds what cannot be a count")
        # A fraction of a label has room for a sum that no label has: of 1e-300 labels the mean feature may be 1e296.
        counts = (total, first) if name == "acceptance" else (total, second)
        if any(np.any(values != np.rint(values)) for values in counts):
            raise Refusal(Reason.OUT_OF_BOUNDS, f"{name} must hold counts")
        slack = total * (1.0 + ROUNDING) + ROUNDING
        _below(f"{name} sum", np.abs(first), slack)
        _below(f"{name} sum", np.abs(second), slack * (FEATURE_LIMIT if name == "acceptance" else 1.0))
        if np.any(first < 0.0) or (name == "survival" and np.any(second < 0.0)):
            raise Refusal(Reason.OUT_OF_BOUNDS, f"{name} has a negative sum")


def _within(name: str, values: Array, bound: float) -> None:
    if np.any(np.abs(values) > bound):
        raise Refusal(Reason.OUT_OF_BOUNDS, f"{name} reaches {np.abs(values).max():.6g}; at most {bound}")


def _below(name: str, values: Array, bound: Array) -> None:
    if np.any(values > bound):
        raise Refusal(Reason.INCONSISTENT, f"{name} exceeds what its counts allow")
