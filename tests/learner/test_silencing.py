from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.learner.fleet import KEYS, LEVELS, Traffic
from tests.learner.test_lone_liar import LIAR, again
from tests.learner.test_turns import MINUTE_MS, QUARTER_MS, Room, names

from accord.learner.pair_learner import TICK_MS
from accord.learner.turns import ROUNDS
from accord.learner.wire import encode

OTHER = 7


@pytest.mark.parametrize("talkers", [1, 2, 3])
def test_a_few_that_take_turns_silence_nobody(talkers: int) -> None:
    """Up to three names that speak on and on, one after the other, leave a fleet of ten its say."""
    room, engines = Room(), names(10)
    room.round(engines)
    for number in range(1_000):
        room.tick(f"fast-{number % talkers}/0")
    assert room.heard >= set(engines)


@pytest.mark.parametrize(("engines", "loud"), [(5, 1), (8, 2), (10, 2), (20, 5)])
def test_a_few_that_say_much_silence_nobody(engines: int, loud: int) -> None:
    """A quarter of all names with a million labels a tick does not make trickles of what the others say."""
    room, honest = Room(), names(engines)
    for _ in range(20):
        for place in range(loud):
            room.tick(f"loud-{place}/0", labels=1e6)
        room.round(honest)
    assert room.heard >= set(honest)


def test_what_a_fleet_sees_in_the_same_ticks_is_alarmed() -> None:
    """Ten engines whose rounds all end together are heard by drift, tick after tick."""
    fleet = again(10)
    for number in range(8):
        traffic = Traffic() if number < 6 else Traffic(level=tuple(level - 1.0 for level in LEVELS))
        table, entries = fleet.learner.learnt.served, []
        fleet.tick += 40
        for place, engine in enumerate(fleet.engines):
            engine.accumulator.apply([table.row(key) for key in KEYS])
            entries.append((f"{fleet.tick * TICK_MS}-{place}", encode(engine.round(traffic, 20))))
        fleet.learner.advance(entries, fleet.tick + 1)
        assert number > 5 or fleet.alarms == [0] * len(KEYS)
    assert min(fleet.alarms) >= 1


@pytest.mark.parametrize("live", [2, 5, 10])
def test_turns_go_on_after_a_tick_of_all(live: int) -> None:
    """Engines that once spoke all in one tick silence those that are gone by speaking in ticks of their own.

    Where they are no third of all those names the clock does.
    """
    room, engines = Room(), names(live, 9)
    for deployment in range(3):
        for _ in range(15):
            room.round(names(10, deployment))
    room.round(engines, together=True)
    for _ in range(5 * int(ROUNDS)):
        room.round(engines)
    for _ in range(QUARTER_MS // MINUTE_MS + 1 if live < 5 else 0):
        room.tick(*engines, after_ms=MINUTE_MS)
    assert room.heard == set(engines)


def test_whoever_speaks_first_after_a_night_is_not_alone() -> None:
    """A fleet that was silent together keeps its say together."""
    room, engines = Room(), names(10)
    room.round(engines)
    room.tick(engines[0], after_ms=600 * MINUTE_MS)
    room.tick(engines[0])
    assert room.heard == set(engines)


@pytest.mark.parametrize("quiet_ms", [0, QUARTER_MS + 60_000])
@pytest.mark.parametrize("others", [(), (OTHER,)])
def test_a_liar_that_waits_for_the_others_to_be_silent_moves_nobody(quiet_ms: int, others: tuple[int, ...]) -> None:
    """Alone in the morning, or in turns with one busy engine, a patient liar moves nobody by a hundredth."""
    fleet = again(10)
    for _ in range(30):
        for index in (LIAR, *others):
            fleet.speak(index, Traffic(), 2)
    fleet.tick += quiet_ms // TICK_MS
    before = fleet.probabilities()
    fleet.engines[LIAR].flip = 0.5
    for _ in range(6):
        fleet.speak(LIAR, Traffic())
        assert np.abs(fleet.probabilities() - before).max() < 0.01
    assert fleet.alarms == [0] * len(KEYS)


@pytest.mark.parametrize(("off", "steps"), list(itertools.product((0.15, 0.19, 0.25), (25, 60))))
def test_one_that_is_a_little_off_causes_no_alarm(off: float, steps: int) -> None:
    """What contradicts the fit only a little, sixteen rounds on end, is still one engine and not the traffic."""
    fleet = again(10, 1)
    for _ in range(16):
        fleet.speak(LIAR, Traffic(level=tuple(level - off for level in LEVELS)), steps)
    assert fleet.alarms == [0] * len(KEYS)
