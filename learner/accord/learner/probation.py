"""Judges rows on labels that came after they were fitted: large steps before they are served, all of them afterwards.

The guard's own test (`guard.judge`) uses all recent sketches, those that the new row was fitted on included: it refuses
what hurts, but cannot find out what was fitted to corrupt evidence. Two more tests use only sketches that *arrive
after* a row was fixed (prequentially; Dawid 1984), as running sums of the differences of log-loss:

- trial: a step that moves a probability by more than LARGE_STEP, of a well known workload, is a candidate first.
  It is served once the sketches since its nomination have not found it worse than the row in force. An alarm of drift
  replaces the trial where at least five engines have a say, because drift does not hear one alone then (see `astray`);
- probation: what is served is compared, label by label, with the last row that passed. When it proves worse, that row
  comes back as a new version, and the workload's next step needs a trial whatever its size.

A sketch covers the few rounds since the engine's last one, so its first labels may be a little older than the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .basis import Array
from .calibration import Cells, Grid
from .coefficients import Coefficients, CoefficientTable
from .guard import MATERIAL_PROBABILITY, Judgement, Proposal, compared, moved, proposal, verdict
from .outlier import LEAST_ENGINES
from .pair_state import PairState

LARGE_STEP = 0.05
"""In probability, where there is traffic."""

KNOWN_LABELS = 2_000
"""Labels ever learnt after which a large step is suspicious."""

PASSED_LABELS = 2_000.0
"""Labels on which a served row has to hold its own before it becomes the one to return to."""

RETURN_SIGMAS = 5.0
"""Probation looks again after every sketch, so a return needs more than one look's usual 3 standard errors."""

LONGEST_TRIAL = 20_000
"""New labels after which a candidate that no sketch has judged is served: engines send no sketches."""


@dataclass(frozen=True)
class Trial:
    """A row that is compared with the one in force, and the sums so far.

    Attributes:
        row: the candidate, or the last row that passed; since: labels ever learnt when it was fixed.
        labels, total, square: sums over later labels, see `guard.differences`.
    """

    row: Coefficients
    since: int = 0
    labels: float = 0.0
    total: float = 0.0
    square: float = 0.0

    def add(self, sums: tuple[float, float, float]) -> Trial:
        """With more labels."""
        labels, total, square = sums
        return replace(self, labels=self.labels + labels, total=self.total + total, square=self.square + square)

    @property
    def judgement(self) -> Judgement:
        """Of the newer row against the older one."""
        return verdict(self.labels, self.total, self.square)

    def numbers(self) -> Array:
        """Everything, [F + K + 5]."""
        row = self.row
        rest = [row.request_variance, float(self.since), self.labels, self.total, self.square]
        return np.concatenate([row.slopes, row.intercepts, rest])

    @classmethod
    def of(cls, numbers: Array, size: int) -> Trial:
        """The inverse of `numbers`; InvalidValue for a row that cannot be served."""
        variance, since, labels, total, square = numbers[-5:].tolist()
        row = Coefficients(numbers[:size], numbers[size:-5], variance)
        return cls(row, int(since), labels, total, square)


@dataclass
class Probation:
    """Candidates, and the rows to return to, of every workload.

    Attributes:
        trials: workload -> candidate; passed: workload -> the row to return to.
        cautious: workloads that returned, and whose next step needs a trial; returns: workload -> why it returns now.
        excused: workloads whose next step needs none, because several engines' labels speak of a change.
    """

    trials: dict[str, Trial] = field(default_factory=dict)
    passed: dict[str, Trial] = field(default_factory=dict)
    cautious: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    returns: dict[str, dict[str, float]] = field(default_factory=dict)
    _latest: tuple[tuple[int, int], CoefficientTable, Proposal] | None = field(default=None, repr=False, compare=False)

    def watch(self, fresh: Array, state: PairState, served: CoefficientTable) -> None:
        """Adds the sketches [W, K, 64, 3] that a tick brought to every comparison that was fixed before."""
        for index, key in enumerate(state.keys):
            if key not in served.workloads or not fresh[index, ..., 0].any():
                continue
            row, grid = served.workloads[key], Grid.of(fresh[index], state.basis)
            now = grid.at(row.slopes, row.intercepts)
            if key in self.trials:
                trial = self.trials[key]
                self.trials[key] = trial.add(compared(now, grid.at(trial.row.slopes, trial.row.intercepts)))
            if key in self.passed:
                self._hold(key, self.passed[key], grid, now, row)

    def _hold(self, key: str, passed: Trial, grid: Grid, now: Cells, row: Coefficients) -> None:
        passed = passed.add(compared(grid.at(passed.row.slopes, passed.row.intercepts), now))
        self.passed[key], found = passed, passed.judgement
        if found.difference > RETURN_SIGMAS * found.noise:
            self.returns[key] = plain(found)
        elif found.labels >= PASSED_LABELS:
            self.passed[key] = Trial(row)
            self.returns.pop(key, None)

    def changed(self, key: str, engines: int) -> None:
        """After an alarm: what passed before the change is nothing to return to."""
        self.trials.pop(key, None)
        self.passed.pop(key, None)
        self.returns.pop(key, None)
        self.cautious.discard(key)
        if engines >= LEAST_ENGINES:
            self.excused.add(key)

    def propose(self, state: PairState, served: CoefficientTable, *, nominate: bool = False) -> Proposal:
        """The guard's proposal, with candidates kept back and rows returned.

        Args:
            state, served: as for `guard.proposal`.
            nominate: whether new candidates may be fixed now (after a refit).
        """
        found = self._proposal(state, served)
        for index, key in enumerate(state.keys):
            old = served.row(key)
            if key in self.returns and key in self.passed:
                self._return(found, key, old, state, index)
            elif key in found.moved and key in served.workloads:
                self._try(found, key, old, state, index, nominate)
            elif nominate:
                self.trials.pop(key, None)
        return found

    def _proposal(self, state: PairState, served: CoefficientTable) -> Proposal:
        """The guard's own; what follows a refit and what is published from it are the same, and worked out once."""
        at = (state.refits, len(state.keys))
        if self._latest is None or self._latest[0] != at or self._latest[1] is not served:
            self._latest = at, served, proposal(state, served)
        known = self._latest[2]
        return Proposal(dict(known.rows), dict(known.moved), dict(known.held))

    def _return(self, found: Proposal, key: str, old: Coefficients, state: PairState, index: int) -> None:
        found.rows[key] = self.passed[key].row
        change = moved(state.arrays["acceptance"][index], old, found.rows[key], state.basis)
        found.moved[key] = change if change != float("inf") else None
        found.held[key] = self.returns[key]

    def _try(self, found: Proposal, key: str, old: Coefficients, state: PairState, index: int, nominate: bool) -> None:
        change, labels = found.moved[key], int(state.labels[index])
        small = change is None or change <= LARGE_STEP
        if key in self.excused or (key not in self.cautious and (small or labels < KNOWN_LABELS)):
            return
        trial = self.trials.get(key)
        judged = None if trial is None else trial.judgement
        if trial is not None and judged is not None and labels - trial.since <= LONGEST_TRIAL:
            if judged.promoted and judged.noise != float("inf"):
                found.rows[key] = trial.row
                step = moved(state.arrays["acceptance"][index], old, trial.row, state.basis)
                found.moved[key] = step if step != float("inf") else None
                if step <= MATERIAL_PROBABILITY:
                    del found.moved[key]
                return
        elif trial is not None:
            return
        if nominate and (trial is None or (judged is not None and not judged.promoted)):
            self.trials[key] = Trial(found.rows[key], labels)
        found.rows[key] = old
        del found.moved[key]
        found.held[key] = plain(judged or Judgement(False, 0.0, 0.0, 0.0))

    def published(self, before: CoefficientTable, table: CoefficientTable, changed: Mapping[str, Any]) -> None:
        """After a publication: every row that changed is on probation against the last one that passed."""
        for key in changed:
            if key in self.returns:
                self.cautious.add(key)
                self.passed[key] = Trial(table.workloads[key])
            else:
                self.cautious.discard(key)
                self.passed.setdefault(key, Trial(before.workloads.get(key, table.workloads[key])))
            self.trials.pop(key, None)
            self.excused.discard(key)
        self.returns.clear()

    def to_dict(self) -> dict[str, Any]:
        """What is not a number, as plain values in a fixed order; the rest is `arrays`."""
        return {
            "trials": sorted(self.trials),
            "passed": sorted(self.passed),
            "cautious": sorted(self.cautious),
            "excused": sorted(self.excused),
            "returns": dict(sorted(self.returns.items())),
        }

    def arrays(self, k: int, size: int) -> dict[str, Array]:
        """The numbers of every trial, in the order of their keys, [N, F + K + 5] each."""
        return {
            f"probation_{name}": np.array([record[key].numbers() for key in sorted(record)]).reshape(-1, size + k + 5)
            for name, record in (("trials", self.trials), ("passed", self.passed))
        }

    @classmethod
    def of(cls, values: Mapping[str, Any], trials: Array, passed: Array, size: int) -> Probation:
        """The inverse of `to_dict` and `arrays`; raises what malformed values raise."""

        def rows(name: str, numbers: Array) -> dict[str, Trial]:
            return {str(key): Trial.of(row, size) for key, row in zip(values[name], numbers, strict=True)}

        cautious, excused = set(values["cautious"]), set(values["excused"])
        return cls(rows("trials", trials), rows("passed", passed), cautious, excused, dict(values["returns"]))


def plain(found: Judgement) -> dict[str, float]:
    """A judgement as history and views show it; 0 where there were too few labels to tell."""
    noise = found.noise if found.noise != float("inf") else 0.0
    return {"worse_by": found.difference, "noise": noise, "labels": found.labels}
