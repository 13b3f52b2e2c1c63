"""The engine's own refits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.hooks.harness import IDENTITY, KNOTS, PAIR, Clock, parts, table
from tests.waiting import until

from accord.hooks import fitter as module
from accord.hooks.fitter import Fitter
from accord.hooks.outbox import Outbox
from accord.learner.errors import AccordError
from accord.learner.local import LocalFit
from accord.learner.summary import RoundSummary


class Switch:
    """Whether own tables are wanted."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self) -> bool:
        """Now."""
        return self.on


def numbered(count: int) -> list[RoundSummary]:
    """Summaries of one boot, in order."""
    outbox = Outbox(IDENTITY, 1000)
    stamped = [outbox.put(parts(seed, requests=40)) for seed in range(count)]
    return [item for item in stamped if item is not None]


def make(on: bool) -> tuple[Fitter, Switch, Clock]:
    """A fitter without its thread."""
    switch, clock = Switch(on), Clock()
    return Fitter(PAIR.id, PAIR.k, KNOTS, switch, clock), switch, clock


def test_follows_at_once_while_wanted() -> None:
    """While own tables are wanted, every turn folds what was offered, as the learner's code would."""
    fitter, _, _ = make(True)
    fit = LocalFit(PAIR.id, PAIR.k, KNOTS)
    for item in numbered(5):
        fitter.offer(item)
        fitter.tick()
        fit.fold(item)
    assert fitter.table is not None
    assert fitter.table.digest == fit.table(0).digest
    assert fitter.refits == 5


def test_no_own_table_while_the_service_answers() -> None:
    """While the service answers there is no own table, and refits are rare."""
    fitter, _, clock = make(False)
    for item in numbered(20):
        fitter.offer(item)
        fitter.tick()
    assert (fitter.table, fitter.refits) == (None, 0)
    clock.pass_by(10.0)
    fitter.tick()
    assert (fitter.table, fitter.refits) == (None, 1)


def test_switch_starts_from_the_served_table() -> None:
    """Own refits start at the last served coefficients, under its version, and go on from there."""
    fitter, switch, _ = make(False)
    rounds = numbered(30)
    for item in rounds[:20]:
        fitter.offer(item)
    served = table(7, level=0.8)
    fitter.offer(served)
    fitter.tick()
    switch.on = True
    fitter.tick()
    assert fitter.table is not None
    assert fitter.table.version == 7
    start = served.row("code:greedy").intercepts
    np.testing.assert_array_equal(fitter.table.row("code:greedy").intercepts, start)
    fitter.offer(rounds[20])
    fitter.tick()
    alone = LocalFit(PAIR.id, PAIR.k, KNOTS)
    for item in rounds[:21]:
        alone.fold(item)
    moved, own = (t.row("code:greedy").intercepts for t in (fitter.table, alone.table(0)))
    assert 0.0 < np.abs(moved - start).max() < 0.5 * np.abs(own - start).max()
    switch.on = False
    fitter.tick()
    assert fitter.table is None


def test_gap_in_the_rounds() -> None:
    """A round that was lost in between costs itself only."""
    fitter, _, _ = make(True)
    rounds = numbered(4)
    for item in (rounds[0], rounds[2], rounds[3]):
        fitter.offer(item)
    fitter.tick()
    assert fitter.table is not None
    assert (fitter.refits, fitter.failures) == (2, 0)


def test_failure_starts_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A refit that fails is counted, keeps the last own table, and later evidence starts a new fit."""
    fitter, _, _ = make(True)
    rounds = numbered(3)
    fitter.offer(rounds[0])
    fitter.tick()
    before = fitter.table

    def fail(self: LocalFit, summary: Any) -> None:
        raise AccordError("no")

    with monkeypatch.context() as patch:
        patch.setattr(module.LocalFit, "fold", fail)
        fitter.offer(rounds[1])
        fitter.tick()
    assert (fitter.table, fitter.failures) == (before, 1)
    assert "own refit failed" in caplog.text
    fitter.offer(rounds[2])
    fitter.tick()
    assert fitter.table is not before
    assert fitter.failures == 1


def test_bounded_inbox() -> None:
    """A fitter that does not get to run holds a bounded number of rounds."""
    fitter, _, _ = make(True)
    item = numbered(1)[0]
    for _ in range(2000):
        fitter.offer(item)
    assert len(fitter._inbox) == module.MAX_WAITING


def test_thread() -> None:
    """On its own thread, an offered round soon becomes an own table."""
    fitter, _, _ = make(True)
    fitter.start()
    fitter.offer(numbered(1)[0])
    until(lambda: fitter.refits == 1 and fitter.table is not None)
    assert fitter.stop(10.0)
