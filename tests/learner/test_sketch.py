from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, Engine, many, seeds, some

from accord.learner.sketch import BINS, SURVIVAL_BINS, Sketch, feature_bin, survival_bin


@given(st.floats(-40.0, 40.0))
@many
def test_feature_bins_are_a_quarter_wide_with_absorbing_ends(f: float) -> None:
    """The bin of a feature is the quarter it lies in, counted from -4; what lies outside falls into the end bins."""
    place = int(feature_bin(f))
    assert place == min(max(math.floor((f + 4.0) / 0.25), 0), BINS - 1)
    if 0 < place < BINS - 1:
        assert -4.0 + 0.25 * place <= f + 1e-15
        assert f <= -4.0 + 0.25 * (place + 1)


@given(st.floats(0.0, 1.0))
@many
def test_survival_bins_are_a_twentieth_wide(p: float) -> None:
    """The bin of a predicted survival is its twentieth, certainty included."""
    assert int(survival_bin(p)) == min(math.floor(p * 20), SURVIVAL_BINS - 1)


@given(seeds)
@some
def test_sketches_of_parts_add_up_to_the_sketch_of_the_whole(seed: int) -> None:
    """Counts of two halves of the labels are the counts of all of them, exactly."""
    halves, whole = Engine(seed, keys=KEYS[:3]), Engine(seed, keys=KEYS[:3])
    total = Sketch.zeros(3, halves.k)
    for _ in range(2):
        part = halves.round(7).sketch
        assert part is not None
        total.add_at(np.arange(3), part)
    for _ in range(2):
        whole.round(7, sketch=False)
    all_at_once = whole.accumulator.drain_sketch()
    assert np.array_equal(total.acceptance[..., :2], all_at_once.acceptance[..., :2])
    assert np.allclose(total.acceptance, all_at_once.acceptance, rtol=1e-12)
    assert np.allclose(total.survival, all_at_once.survival, rtol=1e-12)


def test_a_row_named_twice_receives_both() -> None:
    """Adding two workloads to the same row keeps both, and taking rows copies them."""
    part = Sketch(np.ones((2, 1, BINS, 3)), np.ones((2, 1, SURVIVAL_BINS, 3)))
    total = Sketch.zeros(2, 1)
    total.add_at(np.array([1, 1]), part)
    assert total.acceptance[:, 0, 0, 0].tolist() == [0.0, 2.0]
    taken = total.take([1])
    taken.survival[:] = 9.0
    assert total.survival[1].max() == 2.0


@given(seeds)
@some
def test_sketch_counts_are_the_moments_counts(seed: int) -> None:
    """Labels and accepted labels of the acceptance sketch are those of the moments, position by position."""
    summary = Engine(seed).round(9)
    assert summary.sketch is not None
    assert np.array_equal(summary.sketch.acceptance[..., 0].sum(axis=2), summary.moments.n)
    assert np.array_equal(summary.sketch.acceptance[..., 1].sum(axis=2), summary.moments.y)
