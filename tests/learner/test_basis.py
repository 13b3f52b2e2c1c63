from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log1p
from tests.learner.strategies import bases, features, knot_lists, many, seeds, some

from accord.learner.basis import FEATURE_LIMIT, MAX_KNOTS, SplineBasis, check_knots, logit, sigmoid, softplus
from accord.learner.errors import InvalidValue


@given(bases, features)
@some
def test_each_entry_is_a_hinge(basis: SplineBasis, f: float) -> None:
    """The basis vector is the feature itself and then its excess over every knot."""
    assert basis.expand(f).tolist() == [f, *(max(f - t, 0.0) for t in basis.knots)]


@given(bases, seeds)
@some
def test_cumulative_slopes_are_the_slopes_between_knots(basis: SplineBasis, seed: int) -> None:
    """Between two knots the line rises with the sum of the slopes up to there."""
    slopes = np.random.default_rng(seed).normal(size=basis.size)
    edges = np.array([-41.0, *basis.knots, 41.0]).clip(-40.0, 40.0)
    for j, total in enumerate(np.cumsum(slopes)):
        low, high = basis.expand(edges[j : j + 2]) @ slopes
        assert high - low == pytest.approx(total * (edges[j + 1] - edges[j]), abs=1e-9)


def test_without_knots_it_is_the_feature_alone() -> None:
    """No knots give the published single-slope model."""
    basis = SplineBasis(())
    assert (basis.size, basis.packed_size) == (1, 1)
    assert basis.expand([[1.0, -2.0]]).tolist() == [[[1.0], [-2.0]]]


def test_features_are_clipped_before_the_hinges() -> None:
    """A feature outside its range counts as the end of the range in every entry."""
    basis = SplineBasis((0.0,))
    assert basis.expand([1e9, -1e9, np.inf]).tolist() == [[40.0, 40.0], [-40.0, 0.0], [40.0, 40.0]]


@given(bases, seeds)
@some
def test_packing_keeps_a_symmetric_matrix(basis: SplineBasis, seed: int) -> None:
    """Packing the upper triangle and unpacking it gives the same symmetric matrices, to the bit."""
    half = np.random.default_rng(seed).normal(size=(2, 3, basis.size, basis.size))
    full = half + np.swapaxes(half, -1, -2)
    rows, cols = basis.triangle
    packed = full[..., rows, cols]
    assert packed.shape[-1] == basis.packed_size
    assert np.array_equal(basis.unpack(packed), full)


@pytest.mark.parametrize(
    "knots", [(1.0, 1.0), (2.0, 1.0), (math.nan,), (math.inf,), (40.0,), (-40.0,), tuple(range(MAX_KNOTS + 1))]
)
def test_refuses_knots_that_are_none(knots: tuple[float, ...]) -> None:
    """Knots that do not rise strictly inside the feature range, or are too many, are named as the fault."""
    with pytest.raises(InvalidValue, match="knots"):
        SplineBasis(knots)


@given(knot_lists)
@some
def test_knots_as_text_and_as_numbers_agree(knots: tuple[float, ...]) -> None:
    """Configuration text gives the same knots as the numbers themselves."""
    assert check_knots(",".join(map(str, knots))) == check_knots(list(knots)) == knots


def test_refuses_knots_that_are_not_numbers() -> None:
    """Text that holds no numbers is refused with the text shown."""
    with pytest.raises(InvalidValue, match="'a,b'"):
        check_knots("a,b")


@given(st.floats(-1e308, 1e308))
@many
def test_sigmoid_is_exact_and_never_overflows(z: float) -> None:
    """The sigmoid agrees with scipy's over the whole range of floats, without a warning."""
    assert sigmoid(z) == pytest.approx(expit(z), rel=1e-14, abs=0.0)


@given(st.floats(-700.0, 700.0))
@many
def test_sigmoid_and_softplus_keep_their_identities(z: float) -> None:
    """sigmoid(z) + sigmoid(-z) = 1, and softplus(z) - softplus(-z) = z."""
    assert float(sigmoid(z) + sigmoid(-z)) == pytest.approx(1.0, abs=1e-15)
    assert float(softplus(z) - softplus(-z)) == pytest.approx(z, rel=1e-14, abs=1e-15)
    if z < 30.0:
        assert float(softplus(z)) == pytest.approx(float(log1p(math.exp(z))), rel=1e-13)


@given(st.floats(-30.0, 30.0))
@many
def test_softplus_has_the_sigmoid_as_derivative(z: float) -> None:
    """The central difference of softplus is the sigmoid."""
    h = 1e-5
    assert float(softplus(z + h) - softplus(z - h)) / (2 * h) == pytest.approx(float(sigmoid(z)), abs=1e-8)


@given(st.floats(1e-300, 0.999))
@many
def test_logit_inverts_the_sigmoid(q: float) -> None:
    """logit(q) is the log-odds of q, clipped to the feature range."""
    f = float(logit(q))
    assert abs(f) <= FEATURE_LIMIT
    if abs(f) < FEATURE_LIMIT:
        assert float(sigmoid(f)) == pytest.approx(q, rel=1e-12)


def test_logit_of_certainty_is_the_end_of_the_range() -> None:
    """0 and 1 give the ends of the feature range, without a warning."""
    assert logit([0.0, 1.0]).tolist() == [-40.0, 40.0]


@given(bases, seeds)
def test_combining_is_the_product_with_the_basis_vectors(basis: SplineBasis, seed: int) -> None:
    """Slopes of several rows times their features, without the vectors between."""
    rng = np.random.default_rng(seed)
    f, slopes = rng.normal(2.0, 4.0, (3, 7)), rng.normal(size=(3, basis.size))
    wanted = np.einsum("nmf,nf->nm", basis.expand(f), slopes)
    np.testing.assert_allclose(basis.combine(f, slopes), wanted, rtol=1e-10, atol=1e-10)
