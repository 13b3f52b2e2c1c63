# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator"
"""The formulas that several kernels share, as Triton device functions.

Values are float32. A coefficient row is laid out as slopes [F], intercepts [K], request-effect variance; the constants
buffer as knots [F - 1], then the variance grid.
"""

import triton
import triton.language as tl


@triton.jit
def basis_value(f, constants, j: tl.constexpr):
    """x_j(f): f itself for j = 0, else the hinge max(f - t_j, 0)."""
    return f if j == 0 else tl.maximum(f - tl.load(constants + j - 1), 0.0)


@triton.jit
def log_odds(theta, constants, f, k, F: tl.constexpr):
    """s . x(f) + b[k] for the coefficient row (or rows, one a lane) at `theta`, without request effect."""
    z = tl.load(theta + F + k)
    for j in tl.static_range(F):
        z += tl.load(theta + j) * basis_value(f, constants, j)
    return z


@triton.jit
def shift(residual, curvature, variance):
    """u = R / (V + 1 / s2), written so that s2 = 0 gives 0."""
    return variance * residual / (variance * curvature + 1.0)


@triton.jit
def both_sigmoids(z):
    """(sigmoid(z), sigmoid(-z)), each with full relative precision and without overflow."""
    small = tl.exp(-tl.abs(z))
    large_half = 1.0 / (1.0 + small)
    small_half = small * large_half
    return tl.where(z >= 0.0, large_half, small_half), tl.where(z >= 0.0, small_half, large_half)


@triton.jit
def softplus(z):
    """log(1 + exp(z)) without overflow."""
    return tl.maximum(z, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(z)))
