"""The product's own processes with its longest lapses shortened: `python -m tests.soak.shortened learner`.

What is forgotten after a day would only have grown in two hours. Here it is forgotten after minutes, so that a soak
reaches the state that a service is in after days.
"""

from __future__ import annotations

import sys

from accord.learner import room, sequences
from accord.learner.cli import main
from accord.learner.store import operators

FORGET_AFTER_S = 1200
"""Instead of a day: boots in the sequences, and heartbeats, of engines that are gone."""

IDLE_S = 600
"""Instead of an hour: workloads without traffic make room."""

MAX_AUDIT = 100
"""Instead of 10,000 changes of operators."""


def shorten() -> None:
    """Before anything copies these values."""
    sequences.FORGET_AFTER_MS = 1000 * FORGET_AFTER_S
    room.IDLE_MS = 1000 * IDLE_S
    operators.MAX_AUDIT = MAX_AUDIT


if __name__ == "__main__":
    if "accord.learner.service.heartbeats" in sys.modules:
        raise RuntimeError("heartbeats have already copied how long they are kept")
    shorten()
    main(sys.argv[1:])
