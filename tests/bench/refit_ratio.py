"""The refit against one dense solve of the same system, and how it grows: ratios only, no absolute times."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from accord.learner.basis import Array, SplineBasis
from accord.learner.hierarchy import Hierarchy
from accord.learner.information import Information
from accord.learner.refit import _System, refit

REPEATS = 30


def evidence(workloads: int, k: int, basis: SplineBasis, seed: int = 0) -> Information:
    """Positive definite evidence of a few thousand labels for each workload."""
    rng, (rows, cols) = np.random.default_rng(seed), basis.triangle
    info = Information.zeros(workloads, k, basis)
    for w in range(workloads):
        f, position = rng.normal(2.0, 3.0, 2_000), rng.integers(0, k, 2_000)
        design = np.concatenate([basis.expand(f), np.eye(k)[position]], axis=1)
        H = 0.2 * design.T @ design
        truth = np.append(np.full(basis.size, 0.2), rng.normal(-0.2, 0.5, k))
        e = H @ truth + np.linalg.cholesky(H) @ rng.normal(size=len(H))  # a score's covariance is its information
        info.A[w], info.B[w] = H[: basis.size, : basis.size][rows, cols], H[basis.size :, : basis.size]
        info.c[w], info.e0[w], info.e1[w] = np.diag(H)[basis.size :], e[: basis.size], e[basis.size :]
    return info


def dense(info: Information, basis: SplineBasis) -> tuple[Array, Array]:
    """The joint system of every slope, level, intercept, the shape and the pair's mean, with unit prior precisions."""
    (w, k), f = info.c.shape, basis.size
    own = f + 1 + k
    n = w * own + f + 1 + k
    Q, e, A = np.eye(n), np.zeros(n), basis.unpack(info.A)
    pair, shape = np.arange(n - k - f - 1, n - k), np.arange(n - k, n)
    for i in range(w):
        m = i * own + np.arange(f + 1)
        b = i * own + f + 1 + np.arange(k)
        Q[np.ix_(m[:f], m[:f])] += A[i]
        Q[np.ix_(b, m[:f])] += info.B[i]
        Q[np.ix_(m[:f], b)] += info.B[i].T
        Q[b, b] += info.c[i]
        for one, other in ((m, pair), (b, np.full(k, m[f])), (b, shape)):
            Q[one, other] -= 1.0
            Q[other, one] -= 1.0
        e[m[:f]], e[b] = info.e0[i], info.e1[i]
    Q[np.arange(n), np.arange(n)] += w * k
    return Q, e


def seconds(*works: Callable[[], object]) -> list[float]:
    """The least of several timings of each, taken in turns, so that a busy machine disturbs all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS):
        for work, mine in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            mine.append(time.perf_counter() - start)
    return [min(mine) for mine in times]


def refit_seconds(workloads: int, k: int, basis: SplineBasis) -> float:
    """One refit from the cold start."""
    info, cold = evidence(workloads, k, basis), Hierarchy.cold(k, basis)
    return seconds(lambda: refit(info, cold, basis))[0]


def main() -> None:
    """Prints how a refit compares with one dense solve of the same system, and how it grows with W and K."""
    basis = SplineBasis((0.0, 2.0, 4.0))
    info = evidence(32, 15, basis)
    Q, e = dense(info, basis)
    cold = Hierarchy.cold(15, basis)
    sweeps = refit(info, cold, basis).sweeps
    solve, ours, theirs, inverse = seconds(
        lambda: _System(info, cold, basis).solve(),
        lambda: refit(info, cold, basis),
        lambda: np.linalg.solve(Q, e),
        lambda: np.linalg.inv(Q),
    )
    print(f"W = 32, K = 15, F = 4: {len(e)} unknowns, {sweeps} sweeps")
    print(f"its solve / dense solve {solve / theirs:.3f}   (1 / {theirs / solve:.1f})")
    for name, other in (("dense solve", theirs), ("dense inverse, which standard errors would need", inverse)):
        print(f"one refit with errors and variances / {name:46s} {ours / other:6.3f}   (1 / {other / ours:.1f})")
    base = refit_seconds(16, 8, basis)
    for name, sizes in (("W", [(16 * n, 8) for n in (2, 4, 8)]), ("K", [(16, 8 * n) for n in (2, 4, 8)])):
        grown = [refit_seconds(w, k, basis) / base for w, k in sizes]
        shown = ", ".join(f"x{2 << i}: {ratio:.2f}" for i, ratio in enumerate(grown))
        print(f"growth with {name} from W = 16, K = 8 (linear is the factor itself or less)   {shown}")


if __name__ == "__main__":
    main()
