from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from tests.learner.fleet import KEYS, Fleet, K, Traffic
from tests.learner.strategies import with_moments

from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.guard import MIN_JUDGED_LABELS
from accord.learner.probation import LONGEST_TRIAL, Probation, Trial
from accord.learner.summary import RoundSummary


def taught(seed: int = 0) -> Fleet:
    """One engine whose workloads are known well."""
    fleet = Fleet(1, 64, seed)
    fleet.run(Traffic(), 16)
    return fleet


def off(fleet: Fleet, level: float) -> CoefficientTable:
    """The served table with every intercept moved."""
    served = fleet.learner.learnt.served
    rows = {key: replace(row, intercepts=row.intercepts + level) for key, row in served.workloads.items()}
    return replace(served, workloads=rows)


def test_a_large_step_waits_for_later_sketches() -> None:
    """A fit far from what is served is a candidate first, served when sketches since then do not speak against it."""
    fleet = taught()
    learnt = fleet.learner.learnt
    learnt.served = off(fleet, 0.8)
    # no drift may excuse the step
    learnt.probation = Probation()
    first = learnt.probation.propose(learnt.state, learnt.served, nominate=True)
    assert not first.moved
    assert set(learnt.probation.trials) == set(KEYS)
    assert all(first.rows[key] is learnt.served.row(key) for key in KEYS)
    again = learnt.probation.propose(learnt.state, learnt.served, nominate=True)
    assert not again.moved
    learnt.probation.watch(learnt.state.arrays["acceptance"], learnt.state, learnt.served)
    assert all(trial.labels >= MIN_JUDGED_LABELS for trial in learnt.probation.trials.values())
    last = learnt.probation.propose(learnt.state, learnt.served, nominate=True)
    assert set(last.moved) == set(KEYS)
    assert all(last.rows[key] is learnt.probation.trials[key].row for key in KEYS)


def test_a_candidate_that_later_labels_contradict_is_replaced() -> None:
    """A trial that proves worse is given up for the current fit, and the served row stays meanwhile."""
    fleet = taught()
    learnt = fleet.learner.learnt
    learnt.served = off(fleet, 0.8)
    worse = off(fleet, 1.6).workloads
    learnt.probation = Probation({key: Trial(worse[key], 0) for key in KEYS})
    learnt.probation.watch(learnt.state.arrays["acceptance"], learnt.state, learnt.served)
    assert not any(trial.judgement.promoted for trial in learnt.probation.trials.values())
    # candidates are young: they are not excused by age
    young = int(learnt.state.labels.min()) - LONGEST_TRIAL + 1
    learnt.probation.trials = {k: replace(t, since=max(young, 0)) for k, t in learnt.probation.trials.items()}
    found = learnt.probation.propose(learnt.state, learnt.served, nominate=True)
    for key in KEYS:
        if learnt.state.labels[learnt.state.keys.index(key)] - max(young, 0) <= LONGEST_TRIAL:
            assert found.rows[key] is learnt.served.row(key)
            assert found.held[key]["worse_by"] > 0.0
            assert learnt.probation.trials[key].row is not worse[key]


def test_an_alarm_excuses_only_where_several_engines_report() -> None:
    """After drift five engines need no trial, fewer do."""
    probation = Probation()
    probation.changed("a:hot", 5)
    probation.changed("b:hot", 4)
    assert probation.excused == {"a:hot"}


def test_what_proves_worse_than_before_comes_back_as_a_new_version() -> None:
    """A served row that later sketches find worse than the last good one is returned, counted, and told in history."""
    fleet = taught()
    one = fleet.learner
    good = dict(one.learnt.served.workloads)
    one.learnt.served = off(fleet, -1.0)
    one.learnt.probation.passed = {key: Trial(good[key]) for key in KEYS}
    bad, state = one.learnt.served.workloads, one.learnt.state
    slopes, intercepts = (np.stack([getattr(bad[key], n) for key in state.keys]) for n in ("slopes", "intercepts"))
    state.information.recentre(state.basis, slopes, intercepts)
    state.refit()

    def without_gradients(index: int, summary: RoundSummary) -> RoundSummary:
        m = summary.moments
        return with_moments(summary, g0=0.0 * m.g0, g1=0.0 * m.g1)

    # evidence that agrees with the bad row, and sketches that do not
    fleet.alter = without_gradients
    before = len(fleet.published)
    fleet.run(Traffic(), 6)
    told = [json.loads(p.history) for p in fleet.published[before:]]
    returned = [entry for entry in told if entry["cause"] == "returned"]
    assert returned
    assert set(returned[0]["returned"]) <= set(KEYS)
    assert all(why["worse_by"] > 5.0 * why["noise"] for why in returned[0]["returned"].values())
    assert one.counters.returned >= len(returned[0]["returned"])
    key = next(iter(returned[0]["returned"]))
    table = next(p.table for p in fleet.published if p.table.version == returned[0]["version"])
    assert table.workloads[key].to_dict() == good[key].to_dict()


def test_a_steady_fleet_returns_nothing() -> None:
    """Over many publications of honest evidence no row comes back."""
    for seed in range(3):
        fleet = Fleet(3, 16, seed)
        fleet.run(Traffic(effect=0.5), 40)
        assert fleet.learner.counters.returned == 0


def test_a_trial_survives_its_numbers() -> None:
    """Every bit of a trial comes back."""
    row = Coefficients(np.array([0.5, 0.1, -0.2, 0.0]), np.arange(K) / 3.0, 0.1)
    trial = Trial(row, 17, 1.0 / 3.0, 2.0 / 3.0, 1e-9)
    again = Trial.of(trial.numbers(), SplineBasis((0.0, 2.0, 4.0)).size)
    assert again.numbers().tobytes() == trial.numbers().tobytes()
    assert again.since == 17
