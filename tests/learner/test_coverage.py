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


def test_weighing_the_labels_of_a_request_errs_on_the_safe_side() -> None:
    """Without request effects, intervals from evidence weighed as engines weigh it are a little too wide."""
    for share in coverage(50, CONCURRENCY[1], working_variance=WORKING_VARIANCE):
        assert 0.94 <= share <= 0.99


def test_weighing_helps_where_labels_of_a_request_resemble_each_other() -> None:
    """With effects of sd 0.5 intervals of intercepts are too narrow, and less so with weighed evidence."""
    run = {w: coverage_with_effects(30, CONCURRENCY[1], working_variance=w, pairs=2) for w in (0.0, WORKING_VARIANCE)}
    (_, full), (_, weighed) = run[0.0], run[WORKING_VARIANCE]
    assert 0.8 < full < 0.93
    assert weighed >= full + 0.015
