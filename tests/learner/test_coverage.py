"""Standard errors: how often 95% intervals hold the truth. `python -m tests.bench coverage` does 1,000 fits each."""

from __future__ import annotations

import pytest
from tests.bench.coverage import CONCURRENCY, coverage, coverage_with_effects

from accord.learner.request_effect import WORKING_VARIANCE


@pytest.mark.parametrize(("concurrency", "fits"), list(zip(CONCURRENCY, (150, 100, 50), strict=True)))
def test_intervals_hold_the_truth_as_often_as_they_say(concurrency: int, fits: int) -> None:
    """Without request effects, 95% intervals cover between 92% and 97%, within the noise of so few fits (1.5%)."""
    for share in coverage(fits, concurrency, working_variance=0.0):
        assert 0.92 - 0.015 <= share <= 0.97 + 0.015


@pytest.mark.parametrize(("concurrency", "fits"), list(zip(CONCURRENCY, (100, 60, 30), strict=True)))
def test_intervals_shown_of_a_served_pair_hold_the_truth(concurrency: int, fits: int) -> None:
    """The same from evidence weighed as engines weigh it, without request effects and with effects of sd 0.5."""
    for share in coverage(fits, concurrency, working_variance=WORKING_VARIANCE):
        assert 0.92 - 0.02 <= share <= 0.97 + 0.02
    for share in coverage_with_effects(fits, concurrency, working_variance=WORKING_VARIANCE, pairs=3):
        assert 0.92 - 0.03 <= share <= 0.97 + 0.02


def test_request_effects_make_intervals_of_labels_counted_in_full_too_narrow() -> None:
    """With effects of sd 0.5 and every label counted in full, intervals of intercepts hold the truth too rarely."""
    _, intercepts = coverage_with_effects(30, CONCURRENCY[1], working_variance=0.0, pairs=2)
    assert 0.75 < intercepts < 0.92
