"""How often 95% intervals of slopes and intercepts hold the truth: `python -m tests.bench coverage` (minutes).

Each simulated pair has five workloads, their coefficients drawn from the hierarchy that the refit assumes. Labels are
fitted to convergence: accumulated at the coefficients of the last refit, refitted, three times over.

With request effects the fit aims at no single request, but at what a request of unknown effect does on average: flatter
than the conditional truth, and at late positions, which only easy requests reach, higher. That target has no closed
form; it is what the same fit finds on very many requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from accord.learner.accumulator import Accumulator
from accord.learner.basis import Array, SplineBasis
from accord.learner.coefficients import Coefficients
from accord.learner.evaluate.synthetic import Source, synthetic
from accord.learner.evaluate.trace import Trace
from accord.learner.hierarchy import INTERCEPT_VARIANCE, LEVEL_VARIANCE, SLOPE_VARIANCE, Hierarchy
from accord.learner.information import Information
from accord.learner.moments import Moments
from accord.learner.refit import Fit, refit
from accord.learner.request_effect import WORKING_VARIANCE
from accord.learner.standard_errors import Evidence, corrected
from accord.learner.variance_choice import expected_variance

BASIS = SplineBasis(())
KEYS = ("chat:sampled", "chat:warm", "code:greedy", "docs:sampled", "math:sampled")
K, STEPS, PASSES = 7, 40, 3
NORMAL_95 = 1.959964
CONCURRENCY = (5, 20, 80)
"""Requests at a time over 40 steps: about 100, 400 and 1,600 labels for each workload."""

WIDE = 2000
"""The same where the target of a fit is looked for."""


@dataclass(frozen=True)
class Truth:
    """Slopes [W, 1] and intercepts [W, K] of a pair's workloads."""

    slopes: Array
    intercepts: Array

    @classmethod
    def drawn(cls, seed: int) -> Truth:
        """Workloads around a pair that is itself drawn, near the published medians."""
        rng, w = np.random.default_rng((seed, 1)), len(KEYS)
        slopes = rng.normal(0.5, 0.1) + rng.normal(0.0, SLOPE_VARIANCE**0.5, (w, 1))
        level = rng.normal(0.1, 0.3) + rng.normal(0.0, LEVEL_VARIANCE**0.5, (w, 1))
        shape = rng.normal(0.0, 0.2, K)
        own = rng.normal(0.0, INTERCEPT_VARIANCE**0.5, (w, K))
        return cls(np.maximum(slopes, 0.05), level + shape - shape.mean() + own)

    def trace(self, concurrency: int, seed: int, variance: float) -> Trace:
        """Labels of that many requests at a time."""
        lines = zip(KEYS, self.slopes, self.intercepts, strict=True)
        sources = [Source(key, Coefficients(s, b, variance)) for key, s, b in lines]
        return synthetic(sources, k=K, concurrency=concurrency, steps=STEPS, seed=seed).trace


def fit(trace: Trace, working_variance: float) -> Fit:
    """Everything a trace says, refitted to convergence; evidence is weighed as engines weigh it."""
    hierarchy, w = Hierarchy.cold(K, BASIS), len(trace.workloads)
    slopes, intercepts = np.tile(hierarchy.slopes, (w, 1)), np.tile(hierarchy.intercepts, (w, 1))
    steps = list(trace.steps()) if working_variance else [slice(0, trace.rows)]
    requests = trace.request if working_variance else np.arange(trace.rows)
    for _ in range(PASSES):
        engine = Accumulator(K, BASIS, w, int(requests.max()) + 1, working_variance)
        engine.slopes[:], engine.intercepts[:] = slopes, intercepts
        for rows in steps:
            shown = np.full(len(trace.accepted[rows]), K)
            engine.observe(trace.features[rows], trace.workload[rows], requests[rows], trace.accepted[rows], shown)
        moments = engine.drain()
        e = moments.gradient_at(BASIS, slopes, intercepts, np.zeros_like(slopes), np.zeros_like(intercepts))
        found = refit(Information.of(moments, *e), hierarchy, BASIS)
        hierarchy, slopes, intercepts = found.hierarchy, found.slopes, found.intercepts
    return found if not working_variance else served_errors(found, moments, engine.drain_sketch().acceptance)


def served_errors(found: Fit, moments: Moments, acceptance: Array) -> Fit:
    """The fit with standard errors as they are shown of a served pair."""
    slope_errors, intercept_errors = found.slope_errors.copy(), found.intercept_errors.copy()
    for i, variance in enumerate(expected_variance(moments.loss)):
        row = Coefficients(found.slopes[i], found.intercepts[i], float(variance))
        evidence = Evidence.of(moments.n, moments.c, i, acceptance[i], row, BASIS)
        slope_errors[i], intercept_errors[i] = corrected(
            slope_errors[i], intercept_errors[i], found.hierarchy, evidence
        )
    return replace(found, slope_errors=slope_errors, intercept_errors=intercept_errors)


def covered(found: Fit, target: Truth) -> tuple[float, float]:
    """Shares of the slopes, and of the intercepts, that lie within their 95% interval."""
    slopes = np.abs(found.slopes - target.slopes) <= NORMAL_95 * found.slope_errors
    intercepts = np.abs(found.intercepts - target.intercepts) <= NORMAL_95 * found.intercept_errors
    return float(slopes.mean()), float(intercepts.mean())


def coverage(fits: int, concurrency: int, *, working_variance: float) -> tuple[float, float]:
    """Mean coverage of slopes and intercepts over simulated pairs without request effects."""
    shares = []
    for seed in range(fits):
        truth = Truth.drawn(seed)
        shares.append(covered(fit(truth.trace(concurrency, seed, 0.0), working_variance), truth))
    slopes, intercepts = np.mean(shares, axis=0)
    return float(slopes), float(intercepts)


def coverage_with_effects(
    fits: int, concurrency: int, *, working_variance: float, variance: float = 0.25, pairs: int = 5
) -> tuple[float, float]:
    """The same with request effects, over a few pairs whose targets are found once each."""
    shares = []
    for pair in range(pairs):
        truth = Truth.drawn(pair)
        wide = fit(truth.trace(WIDE, 10**6 + pair, variance), working_variance)
        target = Truth(wide.slopes, wide.intercepts)
        for seed in range(fits // pairs):
            trace = truth.trace(concurrency, pairs * seed + pair, variance)
            shares.append(covered(fit(trace, working_variance), target))
    slopes, intercepts = np.mean(shares, axis=0)
    return float(slopes), float(intercepts)


def main(arguments: list[str] | None = None) -> None:
    """Prints the coverage over 1,000 fits, or as many as `--fits=N` says."""
    fits = int(arguments[0].partition("=")[2]) if arguments else 1000
    print("| request effects, sd | labels of one request | requests at a time | slopes | intercepts |")
    print("|---|---|---|---|---|")
    for variance in (0.0, 0.25):
        for working, name in ((0.0, "counted in full"), (WORKING_VARIANCE, "weighed, as served")):
            for concurrency in CONCURRENCY:
                run = coverage_with_effects if variance else coverage
                slopes, intercepts = run(fits, concurrency, working_variance=working)
                print(f"| {variance**0.5:g} | {name} | {concurrency} | {slopes:.1%} | {intercepts:.1%} |", flush=True)


if __name__ == "__main__":
    main()
