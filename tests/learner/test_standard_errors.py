from __future__ import annotations

import numpy as np
import pytest

from accord.learner.basis import SplineBasis
from accord.learner.hierarchy import Hierarchy
from accord.learner.request_effect import DISCOUNT, WORKING_VARIANCE, RequestEffects
from accord.learner.standard_errors import Evidence, corrected, mean_weights, request_share

LINE = SplineBasis(())
SLOPES, INTERCEPTS = np.array([0.02]), np.full(3, 0.1)


def evidence(labels: float = 20_000.0, weight: float = 0.7, variance: float = 0.0) -> Evidence:
    """Of labels with v = 0.15, weighed so much."""
    return Evidence(labels, weight * 0.15 * labels, 0.15, variance, 1e9)


def test_mean_weights_are_those_that_engines_give() -> None:
    """The means over a request's first labels are the means of an engine's own weights, label after label."""
    effects, slot, given = RequestEffects(1), np.array([0]), []
    for _ in range(50):
        given.append(float(effects.weight(slot, WORKING_VARIANCE)[0]))
        effects.update(slot, np.array([1]), np.array([0.0]), np.array([0.15]))
    first, square = mean_weights(0.15)
    assert DISCOUNT < 1.0
    assert first[:50] == pytest.approx(np.cumsum(given) / np.arange(1, 51))
    assert square[:50] == pytest.approx(np.cumsum(np.square(given)) / np.arange(1, 51))


@pytest.mark.parametrize("labels", [1, 7, 40, 300])
def test_the_mean_weight_says_how_many_labels_a_request_has(labels: int) -> None:
    """What a mean weight is turned into is the number of labels that gives this weight."""
    first, _ = mean_weights(0.2)
    assert request_share(float(first[labels - 1]), 0.2)[0] == labels


def test_without_request_effects_weighed_labels_tell_more_than_their_weights_say() -> None:
    """Standard errors of a well-known workload shrink by the root of sum w^2 v / sum w v, and never below that."""
    slopes, intercepts = corrected(SLOPES, INTERCEPTS, Hierarchy.cold(3, LINE), evidence())
    _, ratio = request_share(0.7, 0.15)
    assert np.all((slopes < SLOPES) & (slopes >= SLOPES * ratio**0.5))
    assert np.all((intercepts < INTERCEPTS) & (intercepts >= INTERCEPTS * ratio**0.5))


def test_request_effects_widen_intercepts_by_the_number_of_requests() -> None:
    """With effects intercepts are known less well, the less the fewer requests there were; slopes are as before."""
    cold = Hierarchy.cold(3, LINE)
    plain, few, many = (
        corrected(SLOPES, INTERCEPTS, cold, evidence(n, variance=s2))
        for n, s2 in ((2e4, 0.0), (2e4, 0.25), (2e5, 0.25))
    )
    assert np.all(few[1] > many[1])
    assert np.all(many[1] > plain[1])
    for other in (few, many):
        assert other[0] == pytest.approx(plain[0])


def test_what_no_label_speaks_of_keeps_its_error() -> None:
    """At the prior's own width, and where there are no labels or no sketch, standard errors come back as they were."""
    cold = Hierarchy.cold(3, LINE)
    prior = np.sqrt(np.full(3, cold.level_variance + cold.intercept_variance))
    assert corrected(SLOPES, prior, cold, evidence(variance=0.25))[1] == pytest.approx(prior)
    for empty in (Evidence(0.0, 0.0, 0.0, 0.2, 0.0), Evidence(100.0, 15.0, 0.0, 0.2, 100.0)):
        assert corrected(SLOPES, INTERCEPTS, cold, empty)[1] is INTERCEPTS
