from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import bases, features, seeds, some

from accord.learner.basis import Array, SplineBasis, sigmoid
from accord.learner.directions import (
    COMMON,
    LEAST_LEVEL,
    LEAST_PART,
    LEAST_SLOPE,
    Directions,
    level_of,
    slope_of,
)
from accord.learner.drift import residual_gradient
from accord.learner.information import Information

ks = st.integers(1, 6)


def evidence(rng: np.random.Generator, k: int, basis: SplineBasis, items: int, labels: int) -> tuple[Array, ...]:
    """Features [N, L, K], residuals r and curvatures v of labels of some items."""
    f = rng.uniform(-8.0, 12.0, (items, labels, k))
    p = sigmoid(rng.normal(0.0, 1.5, f.shape))
    return f, (rng.random(f.shape) < p) - p, p * (1.0 - p)


def summed(basis: SplineBasis, f: Array, r: Array, v: Array) -> tuple[Array, Array, Information]:
    """Gradients and information of labels [N, L, K], as the learner has them."""
    x = basis.expand(f)
    rows, cols = basis.triangle
    A = np.einsum("nlk,nlki,nlkj->nij", v, x, x)[:, rows, cols]
    g0, g1 = np.einsum("nlk,nlkf->nf", r, x), r.sum(axis=1)
    return g0, g1, Information(A, np.einsum("nlk,nlkf->nkf", v, x), v.sum(axis=1), g0, g1)


def tents(knots: tuple[float, ...], f: Array) -> Array:
    """t of each stretch [M, ...] at features, written down otherwise: 1 at its knot, 0 at the others, flat outside."""
    if len(knots) < 2:
        return np.zeros((0, *f.shape))
    return np.stack([np.interp(f, knots, row) for row in np.eye(len(knots))])


def combined(directions: Directions, basis: SplineBasis, f: Array) -> Array:
    """t of each stretch [M, ...] from its combination of (1, f, hinges)."""
    x = np.concatenate([np.ones((*f.shape, 1)), basis.expand(f)], axis=-1)
    return np.moveaxis(x @ directions.stretches.T, -1, 0)


@some
@given(bases, st.lists(features, min_size=1, max_size=20))
def test_stretches_are_a_partition_of_unity(basis: SplineBasis, drawn: list[float]) -> None:
    """At every feature the stretches add up to 1, each is 1 at its knot and stays what it is beyond the ends."""
    f, directions = np.array(drawn), Directions(2, basis)
    t = combined(directions, basis, f)
    assert len(t) == (len(basis.knots) if len(basis.knots) > 1 else 0)
    np.testing.assert_allclose(t, tents(basis.knots, f), atol=1e-9)
    if len(t):
        np.testing.assert_allclose(t.sum(axis=0), 1.0, atol=1e-9)
        np.testing.assert_allclose(combined(directions, basis, np.array(basis.knots)), np.eye(len(t)), atol=1e-9)


@some
@given(seeds, ks, bases)
def test_sums_are_those_over_labels(seed: int, k: int, basis: SplineBasis) -> None:
    """Every number of every direction is the sum over labels that its name says, though none of them is at hand."""
    rng, directions = np.random.default_rng(seed), Directions(k, basis)
    f, r, v = evidence(rng, k, basis, 3, 11)
    sums = directions.sums(*summed(basis, f, r, v))
    t = tents(basis.knots, f)
    over = (1, 2)
    common = [(r, v, r * f, v * f, v * f * f)[place].sum(axis=over) for place in range(COMMON)]
    parts = [*np.moveaxis(r.sum(axis=1), 1, 0), *(r * t).sum(axis=(2, 3))]
    widths = [*np.moveaxis(v.sum(axis=1), 1, 0), *(v * t * t).sum(axis=(2, 3))]
    wanted = np.stack([*common, *parts, *widths], axis=1)
    assert sums.shape == wanted.shape == (3, directions.width)
    assert directions.width == COMMON + 2 * directions.parts
    np.testing.assert_allclose(sums, wanted, rtol=1e-6, atol=1e-6 * (1.0 + np.abs(wanted).max()))


@some
@given(seeds, ks, bases, st.floats(-3.0, 3.0))
def test_sums_are_linear_in_the_evidence(seed: int, k: int, basis: SplineBasis, factor: float) -> None:
    """Of two summaries together, one of them so many times, they are the sums of each, so that they may be added."""
    rng, directions = np.random.default_rng(seed), Directions(k, basis)
    one, other = (summed(basis, *evidence(rng, k, basis, 1, 7)) for _ in range(2))
    names = one[2].arrays()
    both = Information(**{name: names[name] + factor * other[2].arrays()[name] for name in names})
    sums = directions.sums(one[0] + factor * other[0], one[1] + factor * other[1], both)
    apart = directions.sums(*one) + factor * directions.sums(*other)
    np.testing.assert_allclose(sums, apart, rtol=1e-9, atol=1e-9 * (1.0 + np.abs(apart).max()))


@pytest.mark.parametrize("knots", [(), (1.0,)])
def test_fewer_than_two_knots_part_nothing(knots: tuple[float, ...]) -> None:
    """Without a stretch between two knots only level, slope and positions are compared."""
    directions = Directions(3, SplineBasis(knots))
    assert directions.stretches.shape == (0, 2 + len(knots))
    assert (directions.parts, directions.width) == (3, COMMON + 6)
    assert len(list(directions.estimates(np.ones((2, directions.width))))) == 2 + 3


def test_of_sketches_there_are_level_and_slope() -> None:
    """Sums that hold no parts give the two estimates that need none; all have their own least widths."""
    directions = Directions(2, SplineBasis((0.0, 2.0, 4.0)))
    assert [one.least for one in directions.estimates(np.ones((3, 1, COMMON)))] == [LEAST_LEVEL, LEAST_SLOPE]
    every = list(directions.estimates(np.ones((3, 1, directions.width))))
    assert [one.least for one in every] == [LEAST_LEVEL, LEAST_SLOPE, *[LEAST_PART] * 5]
    assert all(one.value.shape == one.precision.shape == (3, 1) for one in every)


@pytest.mark.parametrize("knots", [(), (0.0, 2.0, 4.0), tuple(float(t) for t in range(-3, 4))])
def test_what_is_missing_or_negative_is_no_precision(knots: tuple[float, ...]) -> None:
    """Empty and impossible sums estimate finite numbers: no curvature counts as that of one label and a prior."""
    directions = Directions(2, SplineBasis(knots))
    for sums in (np.zeros(directions.width), np.full(directions.width, -5.0), np.full(directions.width, 1e12)):
        if sums[1] >= 0.0:
            for one in directions.estimates(sums):
                assert np.isfinite(one.value)
                assert one.precision >= 1.0


K, KNOTS = 4, (0.0, 2.0, 4.0)
OFF, LABELS = 0.01, 40_000


def estimated(error: str) -> list[float]:
    """Every estimate of expected sums of labels whose log-odds are off by `OFF` in one direction."""
    rng, basis = np.random.default_rng(5), SplineBasis(KNOTS)
    directions = Directions(K, basis)
    f = rng.uniform(-3.0, 7.0, (1, LABELS, K))
    slopes, intercepts = np.array([[0.5, -0.1, 0.0, 0.1]]), np.array([[-0.3, -0.4, -0.5, -0.6]])
    p = sigmoid(basis.expand(f) @ slopes[0] + intercepts)
    kind, _, number = error.partition(" ")
    place = int(number or 0)
    off = {
        "level": np.ones_like(f),
        "slope": f - 2.0,
        "position": np.broadcast_to(np.arange(K) == place, f.shape),
        "stretch": tents(KNOTS, f)[place % len(KNOTS)],
    }[kind]
    truth = sigmoid(basis.expand(f) @ slopes[0] + intercepts + OFF * off)
    g0, g1, information = summed(basis, f, truth - p, p * (1.0 - p))
    A = basis.unpack(information.A)
    information.e0 = g0 + np.einsum("nij,nj->ni", A, slopes) + np.einsum("nkf,nk->nf", information.B, intercepts)
    information.e1 = g1 + np.einsum("nkf,nf->nk", information.B, slopes) + information.c * intercepts
    sums = directions.sums(*residual_gradient(information, basis, slopes, intercepts), information)
    return [float(one.value[0]) for one in directions.estimates(sums)]


def test_a_common_offset_is_found_as_level_in_every_position() -> None:
    """What is off everywhere is off by as much in level and in each position, and in no slope."""
    level, slope, *parts = estimated("level")
    assert level == pytest.approx(OFF, rel=0.05)
    assert abs(slope) < 0.1 * OFF
    assert parts[:K] == pytest.approx([OFF] * K, rel=0.05)


@pytest.mark.parametrize("place", range(K))
def test_an_offset_at_one_position_is_found_there(place: int) -> None:
    """One position's estimate shows its error in full, the others' none, and the level its share."""
    level, _, *parts = estimated(f"position {place}")
    assert parts[:K] == pytest.approx([OFF if at == place else 0.0 for at in range(K)], abs=0.05 * OFF)
    assert level == pytest.approx(OFF / K, rel=0.2)


@pytest.mark.parametrize("place", range(len(KNOTS)))
def test_an_offset_in_one_stretch_is_found_there(place: int) -> None:
    """A stretch's estimate shows an error of its own shape in full, and is the largest of all estimates."""
    level, _, *parts = estimated(f"stretch {place}")
    assert parts[K + place] == pytest.approx(OFF, rel=0.05)
    assert max(parts) == parts[K + place]
    assert level < 0.7 * parts[K + place]


def test_a_wrong_slope_is_found_as_slope() -> None:
    """What is off in slope alone is off by as much in the slope's estimate."""
    _, slope, *_ = estimated("slope")
    assert slope == pytest.approx(OFF, rel=0.05)


@some
@given(seeds)
def test_level_and_slope_are_least_squares(seed: int) -> None:
    """Level and slope are what a weighted regression of r / v on (1, f) gives, but for the prior."""
    rng = np.random.default_rng(seed)
    f, r, v = rng.uniform(-4.0, 4.0, 200), rng.normal(0.0, 1.0, 200), rng.uniform(50.0, 250.0, 200)
    sums = np.array([r.sum(), v.sum(), (r * f).sum(), (v * f).sum(), (v * f * f).sum()])
    x = np.stack([np.ones(200), f], axis=1)
    both = np.linalg.solve((x * v[:, None]).T @ x, x.T @ r)
    assert slope_of(sums)[0] == pytest.approx(both[1], rel=1e-3, abs=1e-6)
    assert level_of(sums)[0] == pytest.approx(r.sum() / v.sum(), rel=1e-3)


@some
@given(bases)
def test_one_error_of_a_fit_at_most_is_without_a_direction(basis: SplineBasis) -> None:
    """Constant, slope and stretches span all that (1, f, hinges) can be but for one combination of the outer slopes."""
    shapes = np.concatenate([np.eye(2, 1 + basis.size), Directions(2, basis).stretches])
    assert np.linalg.matrix_rank(shapes, tol=1e-9) >= basis.size
