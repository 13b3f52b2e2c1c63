from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from accord.learner.outlier import (
    LEAST_ENGINES,
    MAD_TO_SIGMA,
    MINORITY,
    OUTLIER_SIGMAS,
    Estimates,
    Flags,
    median_of_others,
    outliers,
)

Array = npt.NDArray[np.float64]

VALUES = st.one_of(st.integers(-3, 3).map(float), st.floats(-5.0, 5.0), st.sampled_from([50.0, -50.0]))


@st.composite
def columns(draw: st.DrawFn, count: int = 1) -> tuple[list[Array], Array, Flags]:
    """Values of some estimates, one precision for all, and who is known, [E, C]."""
    shape = draw(st.tuples(st.integers(1, 14), st.integers(1, 4)))
    values = [draw(arrays(np.float64, shape, elements=VALUES)) for _ in range(count)]
    known = draw(arrays(np.bool_, shape, elements=st.sampled_from([True, True, True, False])))
    return values, draw(arrays(np.float64, shape, elements=st.sampled_from([1.0, 100.0, 1e4]))), known


def one_by_one(estimates: Sequence[Estimates], known: Flags, scatter: float, column: int) -> list[bool]:
    """Who deviates in a column, engine after engine."""

    def others(j: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(known[:, column] & (np.arange(len(known)) != j))

    def outlying(j: int) -> bool:
        if len(others(j)) < LEAST_ENGINES - 1:
            return False
        for one in estimates:
            centre = float(np.median(one.value[others(j), column]))
            spread = MAD_TO_SIGMA * float(np.median(np.abs(one.value[others(j), column] - centre)))
            noise = float(np.sqrt(scatter / one.precision[j, column] + spread**2))
            if abs(float(one.value[j, column]) - centre) > max(OUTLIER_SIGMAS * noise, one.least):
                return True
        return False

    found = [outlying(j) for j in range(len(known))]
    judged = [{*others(j).tolist(), j} for j in range(len(known))]
    return [
        found[j] and sum(found[i] for i in judged[j]) <= max(MINORITY * len(judged[j]), 1.0) for j in range(len(known))
    ]


@settings(deadline=None)
@given(columns())
def test_the_median_of_others_is_that_of_the_column_without_the_value(drawn: tuple[list[Array], Array, Flags]) -> None:
    """Leaving each value out of its column one by one gives the same medians, also with ties and unknown values."""
    (values,), _, known = drawn
    found = median_of_others(values, known)
    for j, column in np.ndindex(values.shape):
        left = known[:, column].copy()
        left[j] = False
        assert found[j, column] == (np.median(values[left, column]) if left.any() else 0.0)


@settings(deadline=None)
@given(columns(2), st.sampled_from([1.0, 4.0]))
def test_judging_everybody_at_once_is_judging_one_after_the_other(
    drawn: tuple[list[Array], Array, Flags], scatter: float
) -> None:
    """All engines and columns together give the verdicts and deviations that each gets alone."""
    values, precision, known = drawn
    estimates = [Estimates(value, precision, least) for value, least in zip(values, (0.1, 0.5), strict=True)]
    found, off = outliers(estimates, known, np.full(known.shape[1], scatter))
    assert found.T.tolist() == [one_by_one(estimates, known, scatter, column) for column in range(known.shape[1])]
    for value, deviation in zip(values, off, strict=True):
        assert deviation.tolist() == (value - median_of_others(value, known)).tolist()


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_ends_nothing(strange: float) -> None:
    """Among estimates one that is not finite is no reason to hang or to set the finite ones aside."""
    values = np.array([[0.0], [0.1], [strange], [-0.1], [0.05], [0.0]])
    with np.errstate(invalid="ignore"):
        found, _ = outliers([Estimates(values, np.full((6, 1), 100.0), 0.1)], np.ones((6, 1), dtype=np.bool_), 1.0)
    assert not found[[0, 1, 3, 4, 5]].any()
