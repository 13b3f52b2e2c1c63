from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import lsq_linear
from tests.learner.strategies import many, seeds, some

from accord.learner.basis import Array
from accord.learner.monotone import solve_monotone


def problem(seed: int, n: int, scale: float = 1.0) -> tuple[Array, Array, Array]:
    """A random positive definite H, a right-hand side, and the unconstrained solution."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n + 2))
    H = scale * (root @ root.T + 0.05 * np.eye(n))
    rhs = scale * 3.0 * rng.normal(size=n)
    return H[None], rhs[None], np.linalg.solve(H, rhs)[None]


def value(H: Array, rhs: Array, m: Array) -> float:
    """1/2 m' H m - rhs' m."""
    return float(0.5 * m @ H @ m - rhs @ m)


def brute(H: Array, rhs: Array, size: int) -> Array:
    """The best feasible point over every choice of active constraints, each solved exactly."""
    n, best, found = len(rhs), np.inf, np.zeros(len(rhs))
    D = np.tril(np.ones((n, n)))
    D[size:] = np.eye(n)[size:]
    for count in range(size + 1):
        for active in itertools.combinations(range(size), count):
            C = D[list(active)]
            system = np.block([[H, C.T], [C, np.zeros((count, count))]])
            m = np.linalg.solve(system, np.append(rhs, np.zeros(count)))[:n]
            if np.all(np.cumsum(m[:size]) >= -1e-9) and value(H, rhs, m) < best:
                best, found = value(H, rhs, m), m
    return found


@given(seeds, st.integers(1, 5), st.integers(0, 2))
@some
def test_solution_is_the_best_of_every_active_set(seed: int, size: int, rest: int) -> None:
    """The result is the feasible minimum that trying every set of active constraints finds."""
    H, rhs, start = problem(seed, size + rest)
    m = solve_monotone(H, rhs, start, size)[0]
    np.testing.assert_allclose(m, brute(H[0], rhs[0], size), atol=1e-7)


@given(seeds, st.integers(1, 8), st.integers(1, 3), st.floats(-6.0, 9.0))
@many
def test_solution_meets_scipys_bounded_least_squares(seed: int, size: int, rest: int, scale: float) -> None:
    """At any scale the value is that of scipy's bounded solver in cumulative slopes, and the constraint holds."""
    n = size + rest
    H, rhs, start = problem(seed, n, 10.0**scale)
    m = solve_monotone(H, rhs, start, size)[0]
    assert np.all(np.cumsum(m[:size]) >= -1e-12)
    D = np.eye(n)
    D[np.arange(1, size), np.arange(size - 1)] = -1.0
    root = np.linalg.cholesky(H[0]).T
    low = np.where(np.arange(n) < size, 0.0, -np.inf)
    other = lsq_linear(root @ D, np.linalg.solve(root.T, rhs[0]), (low, np.inf), method="bvls", tol=1e-14).x
    reached, bound = value(H[0], rhs[0], m), value(H[0], rhs[0], D @ other)
    assert reached <= bound + 1e-7 * abs(bound) + 1e-12 * 10.0**scale


def test_feasible_workloads_are_handed_back_untouched() -> None:
    """Only workloads that break the constraint are solved again; the others keep every bit."""
    parts = [problem(seed, 4) for seed in range(30)]
    H, rhs, start = (np.concatenate(p) for p in zip(*parts, strict=True))
    m = solve_monotone(H, rhs, start, 3)
    fine = np.all(np.cumsum(start[:, :3], axis=1) >= 0.0, axis=1)
    assert 0 < fine.sum() < 30
    assert np.array_equal(m[fine], start[fine])
    assert np.all(np.cumsum(m[:, :3], axis=1) >= 0.0)


@pytest.mark.parametrize("rhs", [[-1.0, 0.0], [-1e12, 1e12], [0.0, -1.0], [-1.0, 1.0]])
def test_edges_of_the_constraint_end(rhs: list[float]) -> None:
    """Ties, zeros and enormous pulls end after finitely many steps, without a warning."""
    H, right = np.eye(2)[None], np.array([rhs])
    m = solve_monotone(H, right, right.copy(), 2)[0]
    assert np.all(np.cumsum(m) >= 0.0)
    np.testing.assert_allclose(m, brute(H[0], right[0], 2), rtol=1e-9, atol=1e-9)
