from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accord.learner.basis import Array, sigmoid
from accord.learner.coefficients import Coefficients
from accord.learner.evaluate.predictors import Accord, Predictor, Vllm
from accord.learner.evaluate.prequential import replay
from accord.learner.evaluate.synthetic import Source, Synthetic, synthetic
from accord.learner.evaluate.trace import Trace

K, WINDOW = 7, 50
LEVELS, SLOPES = (-0.3, -0.1, 0.1, 0.35, 0.6), (0.45, 0.5, 0.55, 0.6, 0.5)


def half(jump: float, variance: float, concurrency: int, steps: int, seed: int) -> Synthetic:
    """Five workloads whose intercepts are moved by so much."""
    sources = [
        Source(f"w{i}:sampled", Coefficients(np.array([slope]), np.full(K, level + jump), variance))
        for i, (level, slope) in enumerate(zip(LEVELS, SLOPES, strict=True))
    ]
    return synthetic(sources, k=K, concurrency=concurrency, steps=steps, seed=seed)


def joined(first: Synthetic, second: Synthetic) -> tuple[Trace, Array]:
    """One engine's life out of two, and its true log-odds."""
    a, b = first.trace, second.trace
    trace = replace(
        a,
        features=np.concatenate([a.features, b.features]),
        accepted=np.concatenate([a.accepted, b.accepted]),
        workload=np.concatenate([a.workload, b.workload]),
        request=np.concatenate([a.request, b.request + a.request.max() + 1]),
        step=np.concatenate([a.step, b.step + a.step.max() + 1]),
    )
    return trace, np.concatenate([first.log_odds, second.log_odds])


def regret(trace: Trace, log_odds: Array, predicted: Array) -> Array:
    """Mean divergence from the truth in nats a label, for windows of 50 steps."""
    p, q = sigmoid(log_odds), np.clip(predicted, 1e-9, 1.0 - 1e-9)
    divergence = p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q))
    window, labelled = trace.step // WINDOW, trace.labelled
    sums = np.bincount(window, weights=(divergence * labelled).sum(axis=1))
    return sums / np.bincount(window, weights=labelled.sum(axis=1))


@pytest.mark.parametrize("variance", [0.0, 0.25])
@pytest.mark.parametrize("seed", [1, 2])
def test_an_engine_by_itself_recovers_from_a_jump_no_later_than_the_published_rule(seed: int, variance: float) -> None:
    """After all intercepts jump by 0.5, regret falls to the published rule's level in no more labels than its own."""
    before = 500
    trace, log_odds = joined(half(0.0, variance, 64, before, 2 * seed), half(0.5, variance, 64, 500, 2 * seed + 1))
    predictors: dict[str, Predictor] = {"accord": Accord(trace), "vllm": Vllm(trace)}
    found = {name: regret(trace, log_odds, p)[before // WINDOW :] for name, p in replay(trace, predictors).items()}
    level = 1.25 * found["vllm"][5:].mean()
    recovered = {name: int(np.argmax(values < level)) for name, values in found.items()}
    assert recovered["accord"] <= recovered["vllm"]
    assert found["accord"][5:].mean() < 0.5 * found["vllm"][5:].mean()
