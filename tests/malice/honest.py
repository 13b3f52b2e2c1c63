"""What the rules against liars cost an honest fleet: `python -m tests.malice.honest`.

Ten engines, the truth known; the error of served probabilities after a change of the traffic, with the rules of
`astray` and `turns` for who is heard, over that without them. Rounds at equal and unequal rates, with and without
effects.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from tests.learner.fleet import LEVELS, PROBES, Fleet, K, Traffic

from accord.learner import astray, influence
from accord.learner.basis import Array, sigmoid

SIZE, ROUNDS, SEEDS = 10, 30, 2
CHANGES = {
    "level": Traffic(level=tuple(level - 0.8 for level in LEVELS)),
    "small": Traffic(level=tuple(level - 0.25 for level in LEVELS)),
    "slope": Traffic(slope=(0.3, 0.35, 0.3)),
    "one": Traffic(level=(LEVELS[0] - 0.8, *LEVELS[1:])),
}
"""Of all workloads, of all a little, of all in slope, of one workload."""

FLEETS = {"equal": (0.0, 20, 0.0), "effects": (0.7, 5, 0.0), "unequal": (0.0, 10, 1.0)}
"""Standard deviation of the request effect, steps of a round, spread of the logarithm of the rates."""


def truth(traffic: Traffic) -> Array:
    """True probabilities [W, K, probes]."""
    offsets = -0.05 * np.arange(K)[:, None]
    return np.stack([sigmoid(s * PROBES + b + offsets) for s, b in zip(traffic.slope, traffic.level, strict=True)])


def error(change: str, fleet: str, seed: int) -> float:
    """Mean absolute error of what is served over the rounds after a change."""
    effect, steps, spread = FLEETS[fleet]
    made, rng = Fleet(SIZE, 16, seed), np.random.default_rng(seed + 99)
    every = np.maximum(np.rint(np.exp(np.abs(rng.normal(0.0, spread, SIZE)))), 1.0).astype(int)
    found = []
    for number in range(2 * ROUNDS):
        traffic = replace(CHANGES[change] if number >= ROUNDS else Traffic(), effect=effect)
        for index, pause in enumerate(every):
            if number % pause == 0:
                made.speak(index, traffic, steps)
        if number >= ROUNDS:
            found.append(np.abs(made.probabilities() - truth(traffic)).mean())
    return float(np.mean(found))


def main() -> None:
    """Prints a ratio for each change and fleet, and their geometric mean."""
    ratios = []
    speak = influence.speak
    for change, fleet in itertools.product(CHANGES, FLEETS):
        ruled = [error(change, fleet, seed) for seed in range(SEEDS)]
        with (
            patch.object(astray, "contrary", lambda recent, known, usable: np.zeros_like(usable)),
            patch.object(influence, "speak", lambda *told: np.zeros_like(speak(*told))),
        ):
            free = [error(change, fleet, seed) for seed in range(SEEDS)]
        ratios.append(np.mean(ruled) / np.mean(free))
        print(
            f"{change}, {fleet}: error {np.mean(ruled):.4f} with, {np.mean(free):.4f} without: {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"geometric mean: {np.exp(np.mean(np.log(ratios))):.3f}")


if __name__ == "__main__":
    main()
