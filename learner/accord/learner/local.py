"""The refit of one engine by itself: the learner's own state, with no store and no clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from .coefficients import MAX_WORKLOADS, CoefficientTable
from .errors import Refusal
from .guard import proposal
from .pair_state import PairState
from .refit import FitStatus
from .summary import RoundSummary


class LocalFit:
    """Learns from one engine's summaries, one refit each, under the learner's guard.

    Args:
        pair: pair id; k, knots: as everywhere.
    """

    def __init__(self, pair: str, k: int, knots: tuple[float, ...]) -> None:
        self.state = PairState(pair, k, knots, river=False)
        self.refused = 0
        self._in_force = CoefficientTable.cold(pair, k, knots)
        self._rebased: CoefficientTable | None = None
        self._news = False

    def fold(self, summary: RoundSummary) -> None:
        """Adds one summary and refits, without workloads beyond the room of a pair; one with no others is counted."""
        try:
            summary = self.state.fitting(summary)
        except Refusal:
            self.refused += 1
            return
        self.state.fold(0, [summary])
        self._news = True

    def table(self, version: int) -> CoefficientTable:
        """The coefficients learnt so far, under the caller's version.

        Rows and prior of the table that it was rebased on stay where this engine has no evidence of its own, and a
        refit that did not converge changes nothing.
        """
        if self._news and self.state.status is FitStatus.CONVERGED:
            fitted, rows = self.state.table(version), proposal(self.state, self._in_force).rows
            prior = fitted.prior
            if self._rebased is not None:
                prior = self._rebased.prior
                others = (item for item in self._rebased.workloads.items() if item[0] not in rows)
                rows |= dict(islice(others, MAX_WORKLOADS - len(rows)))
            self._in_force = replace(fitted, workloads=rows, prior=prior)
            self._news = False
        return replace(self._in_force, version=version)

    def rebase(self, table: CoefficientTable) -> None:
        """Starts anew from a table, as firmly as this engine's own evidence holds; see `PairState.rebase`."""
        self.state.rebase(table)
        self._in_force = self._rebased = table
        self._news = False
