"""What an attacker with N invented engine names moves: the limit of every rule that goes by names.

`python -m tests.malice.names`: ten honest engines, and names that flip labels, or send extreme sums.
"""

from __future__ import annotations

import numpy as np
from tests.learner.fleet import Fleet, Traffic
from tests.learner.test_influence import extreme

from accord.learner.basis import Array
from accord.learner.summary import RoundSummary

HONEST = 10


def served(names: int, kind: str) -> Array:
    """What the fleet is served after 40 rounds, with so many names of one attacker in it for the last twenty."""
    fleet = Fleet(HONEST + names, 16, 0)

    def alter(index: int, summary: RoundSummary) -> RoundSummary | None:
        if index < HONEST:
            return summary
        # The names are new: nothing was heard of them while the honest ones reported for the first time.
        return None if warming else summary if kind == "flipped" else extreme(kind, summary)

    warming = True
    fleet.alter = alter
    fleet.run(Traffic(), 20)
    warming = False
    for engine in fleet.engines[HONEST:]:
        engine.flip = 0.2
    fleet.run(Traffic(), 20)
    return fleet.probabilities()


def main() -> None:
    """Prints the largest change of a served probability for each number of names."""
    for kind in ("flipped", "coefficients"):
        alone = served(0, kind)
        for names in (1, 2, 3, 5, 10, 20):
            moved = float(np.abs(served(names, kind) - alone).max())
            print(f"{kind}: {names} names beside {HONEST} honest engines move a served probability by {moved:.4f}")


if __name__ == "__main__":
    main()
