"""The refit of one engine by itself: the learner's own state, with no store and no clock."""

from __future__ import annotations

from .coefficients import CoefficientTable
from .errors import Refusal
from .pair_state import PairState
from .summary import RoundSummary


class LocalFit:
    """Learns from one engine's summaries, one refit each.

    Args:
        pair: pair id; k, knots: as everywhere.
    """

    def __init__(self, pair: str, k: int, knots: tuple[float, ...]) -> None:
        self.state = PairState(pair, k, knots)
        self.refused = 0

    def fold(self, summary: RoundSummary) -> None:
        """Adds one summary and refits; one with too many workloads is counted and left out."""
        try:
            self.state.room_for(summary)
        except Refusal:
            self.refused += 1
            return
        self.state.fold(0, [summary])

    def table(self, version: int) -> CoefficientTable:
        """The coefficients learnt so far, under the caller's version."""
        return self.state.table(version)

    def rebase(self, table: CoefficientTable) -> None:
        """Starts anew from a table, as firmly as this engine's own evidence holds; see `PairState.rebase`."""
        self.state.rebase(table)
