from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import Engine, many, some

from accord.learner.basis import SplineBasis
from accord.learner.directions import COMMON, Directions
from accord.learner.errors import Reason, Refusal
from accord.learner.influence import MAX_ENGINES, Influence
from accord.learner.packing import Packed, pack, unpack
from accord.learner.pair_state import PairState
from accord.learner.state_codec import MAGIC, Learnt, decode_learnt, encode_learnt
from accord.learner.turns import FLOW_MS, LEAST_FLOW, LEAST_LAP, PAUSE_MS, ROUNDS, SILENT_MS, TURNS, heard, speak

TICK = 250
MINUTE_MS = 60_000
NIGHT_MS = 600 * MINUTE_MS
LAPS, QUARTER_MS = int(ROUNDS), int(SILENT_MS)
LABELS = 100.0


class Room:
    """Engines that speak of one workload, and who has a say then."""

    def __init__(self) -> None:
        self.influence, self.now = Influence(Directions(1, SplineBasis(())), 50_000.0, 20_000.0), 1_000_000
        self.influence.reserve(1)

    def tick(self, *engines: str, after_ms: int = TICK, labels: float = LABELS) -> set[str]:
        """Some engines speak in one tick; returns who had spoken in this lap before."""
        self.now += after_ms
        places = self.influence.place(dict.fromkeys(engines, False), self.now)
        said = np.zeros((len(self.influence.engines), 1))
        said[list(places.values())] = labels
        return self._names(speak(self.influence.turns, said, float(self.now)))

    def round(self, engines: Sequence[str], together: bool = False) -> None:
        """Each engine speaks once, in a tick of its own or all in one."""
        for part in [engines] if together else [[engine] for engine in engines]:
            self.tick(*part)

    @property
    def heard(self) -> set[str]:
        """Whoever has a say."""
        return self._names(heard(self.influence.turns))

    @property
    def lap(self) -> float:
        """The lap of whoever spoke last."""
        return float(self.influence.turns[:, 0, 0].max())

    def _names(self, flags: np.ndarray) -> set[str]:
        return {engine for engine, has in zip(self.influence.engines, flags[:, 0], strict=True) if has}


class Told:
    """The rules once more, engine by engine, with every word remembered."""

    def __init__(self) -> None:
        self.lap: dict[str, int] = {}
        self.last: dict[str, float] = {}
        self.words: dict[str, list[tuple[float, float]]] = {}
        self.time, self.now = 0.0, 0

    def tick(self, engines: set[str], after_ms: int, labels: float) -> set[str]:
        """Who had spoken in this lap before."""
        lap = max(self.lap.values(), default=1)
        if self.lap:
            self.time += min(after_ms, PAUSE_MS)
        again = {engine for engine in engines if self.lap.get(engine) == lap}
        for engine in engines:
            self.lap[engine], self.last[engine] = lap, self.time
            self.words.setdefault(engine, []).append((self.time, labels))
        has_say = self.heard
        spoken = [engine for engine in has_say if self.lap[engine] == lap]
        enough = max(LEAST_LAP, len(has_say) / 3)
        if len(spoken) >= enough:
            self.lap.update(dict.fromkeys(engines, lap + 1))
        return set() if len(has_say & engines) >= enough else again

    @property
    def heard(self) -> set[str]:
        """Whoever has a say."""
        last = max(self.lap.values(), default=0)
        left = {
            engine: sum(labels * math.exp((at - self.time) / FLOW_MS) for at, labels in self.words[engine])
            for engine, lap in self.lap.items()
            if lap >= last - ROUNDS and self.last[engine] >= self.time - SILENT_MS
        }
        usual = sorted([0.0, *left.values()], reverse=True)[max(len(left) // 4, 1) :] if left else [0.0]
        return {engine for engine, flow in left.items() if flow >= LEAST_FLOW * usual[0]}


def names(size: int, deployment: int = 0) -> list[str]:
    """Engines of one deployment."""
    return [f"pod-{deployment}-{place}/0" for place in range(size)]


ticks = st.lists(
    st.tuples(
        st.sets(st.integers(0, 20), min_size=1, max_size=6),
        st.sampled_from([TICK, MINUTE_MS, QUARTER_MS, NIGHT_MS]),
        st.sampled_from([1.0, 37.0, 500.0]),
    ),
    min_size=1,
    max_size=60,
)


@many
@given(ticks)
def test_who_has_a_say_follows_from_what_was_said(drawn: list[tuple[set[int], int, float]]) -> None:
    """Laps, clock and flow silence whom the rules name and nobody else, and laps never go back."""
    room, told, lap = Room(), Told(), 0.0
    for speakers, after_ms, labels in drawn:
        spoken = {f"e/{place}" for place in speakers}
        assert room.tick(*sorted(spoken), after_ms=after_ms, labels=labels) == told.tick(spoken, after_ms, labels)
        assert room.heard == told.heard
        assert room.lap >= lap
        lap = room.lap


@many
@given(ticks)
def test_whoever_speaks_as_much_as_the_others_is_heard(drawn: list[tuple[set[int], int, float]]) -> None:
    """Those that spoke last have a say, whatever happened before, where nobody says twenty times as much."""
    room = Room()
    for speakers, after_ms, _ in drawn[:20]:
        spoken = {f"e/{place}" for place in speakers}
        room.tick(*sorted(spoken), after_ms=after_ms)
        assert spoken <= room.heard


@some
@given(st.integers(1, 20), st.integers(0, 40), st.integers(1, 30), st.booleans())
def test_nobody_silences_a_fleet_by_talking(size: int, between: int, rounds: int, together: bool) -> None:
    """Engines that speak once a round keep their say, however often one of them speaks between any two of them."""
    room, engines = Room(), names(size)
    for number in range(rounds):
        for engine in engines:
            room.tick(engine)
            for _ in range(between):
                room.tick("fast/0")
        if together:
            room.round(engines, together=True)
        if number:
            assert room.heard >= set(engines)


def test_one_that_talks_alone_silences_nobody() -> None:
    """A thousand ticks of one engine, one after another, end no lap, and all but the first are said again."""
    room, engines = Room(), names(9)
    room.round(engines)
    lap = room.lap
    again = [room.tick("fast/0") for _ in range(1_000)]
    assert room.heard == {*engines, "fast/0"}
    assert room.lap == lap
    assert again == [set()] + 999 * [{"fast/0"}]


@pytest.mark.parametrize(("size", "ends"), [(3, 3), (5, 3), (9, 3), (10, 4), (30, 10), (64, 22)])
def test_a_lap_is_over_when_a_third_has_spoken(size: int, ends: int) -> None:
    """Three engines and a third of those with a say end a lap, and who ends it has spoken in the next one."""
    room, engines = Room(), names(size)
    room.round(engines, together=True)
    room.tick(engines[0])
    lap = room.lap
    for number, engine in enumerate(engines[1:ends], 2):
        assert room.lap == lap
        assert room.tick(engines[0]) == {engines[0]}
        assert room.tick(engine) == set()
        assert room.lap == lap + (number == ends)
    assert room.tick(engines[0]) == set()
    assert room.tick(engines[ends - 1]) == {engines[ends - 1]}


@pytest.mark.parametrize("size", [5, 10, 20])
def test_a_fleet_that_speaks_in_every_tick_is_heard_in_every_tick(size: int) -> None:
    """Whoever speaks together with a third of the others does not speak on alone, however often; fewer do."""
    room, engines = Room(), names(size)
    for part in (engines, engines[: max(size // 2, 3)], engines[-max(-(-size // 3), 3) :]):
        for _ in range(20):
            assert room.tick(*part) == set()
    few = engines[:2]
    room.tick(*few)
    for _ in range(20):
        assert room.tick(*few) == set(few)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("warm", [12, 30])
@pytest.mark.parametrize(("size", "deployments"), [(5, 1), (5, 8), (10, 3), (20, 8)])
def test_engines_that_are_gone_are_silent_after_some_rounds(
    size: int, deployments: int, warm: int, together: bool
) -> None:
    """However many deployments went before, their names have no say after some rounds of those that live."""
    room = Room()
    for deployment in range(deployments):
        for _ in range(warm):
            room.round(names(size, deployment), together)
    live = names(size, deployments)
    for number in range(LAPS + 1):
        room.round(live, together)
        # beside all that the others said until now a first word may be a trickle
        assert room.heard >= set(live) or number == 0
    assert room.heard == set(live)


@pytest.mark.parametrize("live", [5, 10])
def test_many_short_deployments_are_over_by_the_clock(live: int) -> None:
    """What lives and is no third of all names ends no lap, and silences the rest in a quarter of an hour."""
    room, engines = Room(), names(live, 9)
    for deployment in range(4):
        room.round(names(live, deployment))
    for _ in range(5 * LAPS):
        room.round(engines)
    for _ in range(QUARTER_MS // MINUTE_MS + 1):
        room.tick(*engines, after_ms=MINUTE_MS)
    assert room.heard == set(engines)


@pytest.mark.parametrize("size", [6, 10, 20])
def test_an_engine_that_misses_some_laps_keeps_its_say(size: int) -> None:
    """Whoever was silent for no more than `ROUNDS` laps of the others still speaks against a liar."""
    room, engines = Room(), names(size)
    room.round(engines)
    own, number = room.influence.turns[0, 0, 0], 0
    while room.lap <= own + ROUNDS:
        assert room.heard == set(engines)
        number += 1
        room.tick(engines[1 + number % (size - 1)])
    assert number >= LAPS * LEAST_LAP / 2
    assert room.heard == set(engines[1:])
    room.tick(engines[0])
    assert room.heard == set(engines)


@pytest.mark.parametrize("size", [1, 2])
def test_one_or_two_engines_wait_for_the_clock(size: int) -> None:
    """One or two engines silence those that are gone only when they have spoken alone for a while."""
    room, live = Room(), names(size, 1)
    room.round(names(10))
    for _ in range(10 * LAPS):
        room.round(live)
    assert room.heard == {*names(10), *live}
    for _ in range(QUARTER_MS // MINUTE_MS + 1):
        room.tick(*live, after_ms=MINUTE_MS)
    assert room.heard == set(live)


@pytest.mark.parametrize("after_ms", [TICK, MINUTE_MS, QUARTER_MS, NIGHT_MS])
def test_what_the_clock_silences_takes_a_quarter_of_an_hour_of_talk(after_ms: int) -> None:
    """A pause of everybody is a minute at most: one engine has to speak on for as long, whatever the clock says."""
    room, engines = Room(), names(10)
    room.round(engines, together=True)
    ticks = -(-QUARTER_MS // min(after_ms, int(PAUSE_MS)))
    for _ in range(ticks):
        room.tick(engines[0], after_ms=after_ms)
        assert room.heard == set(engines)
    room.tick(engines[0], after_ms=after_ms)
    assert room.heard == {engines[0]}


@pytest.mark.parametrize("others", [2, 5, 20])
def test_a_trickle_has_no_say(others: int) -> None:
    """An engine with few labels of a workload has no say in it beside two with many; one alone with many takes none."""
    room, engines = Room(), names(others)
    for _ in range(20):
        room.round(engines)
        room.tick("few/0", labels=0.9 * LEAST_FLOW * LABELS)
    assert room.heard == set(engines)
    for _ in range(20):
        room.round(engines)
        room.tick("few/0", labels=1.3 * LEAST_FLOW * LABELS)
    assert room.heard == {*engines, "few/0"}
    for _ in range(20):
        room.tick("fast/0", labels=1e6)
    assert room.heard == {*engines, "few/0", "fast/0"}


def test_each_workload_has_its_own_turns() -> None:
    """Who is silent in one workload has its say in another."""
    turns = np.zeros((4, 2, TURNS))
    labels = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    for number in range(2 * LAPS):
        speak(turns, labels if number else np.ones((4, 2)), 1e6 + TICK * number)
    assert heard(turns).tolist() == [[True, True]] * 3 + [[False, True]]


def test_those_that_make_room_are_the_ones_that_are_gone() -> None:
    """A full table of names gives away the place of who was silent longest, and none of the living loses its say."""
    room = Room()
    for deployment in range(12):
        for _ in range(3):
            room.round(names(10, deployment))
            assert room.heard >= set(names(10, deployment))
    assert len(room.influence.engines) == MAX_ENGINES
    assert set(names(10, 0)).isdisjoint(room.influence.engines)


def unpacked(learnt: Learnt) -> tuple[dict[str, object], Packed]:
    """Header and arrays of a state."""
    return unpack(MAGIC, encode_learnt(learnt), max_bytes=1 << 24)


def folded(engines: list[Engine], ticks: int, at_ms: int = 1_000_000) -> Learnt:
    """A pair to which all engines reported in every tick."""
    learnt = Learnt.new(engines[0].pair, engines[0].k, engines[0].knots)
    for tick in range(ticks):
        learnt.state.fold(at_ms + TICK * tick, [engine.round(20) for engine in engines])
    return learnt


NEW = ("turns", "recent", "parts", "gains", "books", "sketch_records", "sketch_aside")
"""Of engines, what a learner of version 0.1 does not know."""


@pytest.mark.parametrize("without", [("turns", "recent", "parts"), NEW])
def test_a_state_of_an_earlier_learner_is_read_and_everybody_is_heard(without: tuple[str, ...]) -> None:
    """Without turns, newest labels and directions all engines have a say, and those that speak are told apart."""
    engines = [Engine(place, name=name) for place, name in enumerate(names(8))]
    learnt = folded(engines, 3)
    learnt.state.influence.seen_ms[7] -= QUARTER_MS + 1
    meta, arrays = unpacked(learnt)
    records = arrays["engine_records"]
    # what an earlier learner has to find
    assert records.shape == (8, len(engines[0].keys), 1 + COMMON)
    arrays = {name: array for name, array in arrays.items() if name.removeprefix("engine_") not in without}
    again = decode_learnt(pack(MAGIC, meta, arrays)).state
    influence = again.influence
    assert influence.engines == names(8)
    # one was gone for more than a quarter of an hour
    said = records[..., 2] > 0.0
    assert heard(influence.turns).tolist() == (said & (np.arange(8) < 7)[:, None]).tolist()
    assert influence.reporting(0) == np.count_nonzero(records[:7, 0, 0])
    assert np.array_equal(influence.records[..., : 1 + COMMON], records[..., : 1 + COMMON])
    assert not influence.records[..., 1 + COMMON :].any()
    for tick in range(3, 8 + LAPS):
        again.fold(1_000_000 + TICK * (tick + 1), [engine.round(2) for engine in engines[:6]])
    assert heard(influence.turns)[:, 0].tolist() == [True] * 6 + [False] * 2
    assert influence.reporting(0) == np.count_nonzero(influence.records[:6, 0, 0])


def test_turns_and_newest_labels_survive_a_commit() -> None:
    """Another learner goes on with the same turns, to the bit."""
    learnt = folded([Engine(place, name=name) for place, name in enumerate(names(6))], 4)
    data, influence = encode_learnt(learnt), learnt.state.influence
    again = decode_learnt(data)
    assert encode_learnt(again) == data
    assert np.array_equal(again.state.influence.turns, influence.turns)
    # each tick of all is a lap
    assert influence.turns[:, 0, 0].tolist() == [5.0] * 6
    assert influence.turns[:, 0, 1].tolist() == [3.0 * TICK] * 6
    assert influence.turns[:, 0, 2].tolist() == [1_000_000.0 + 3 * TICK] * 6
    assert np.array_equal(again.state.influence.recent, influence.recent)
    assert influence.recent.any(axis=2).all()


@pytest.mark.parametrize("value", [-1.0, 2.0**53, 1e61, np.nan])
def test_turns_that_cannot_be_are_refused(value: float) -> None:
    """A damaged state with impossible laps is not continued from."""
    learnt = folded([Engine(1)], 2)
    learnt.state.influence.turns[0, 0, 0] = value
    with pytest.raises(Refusal) as caught:
        decode_learnt(encode_learnt(learnt))
    assert caught.value.reason is (Reason.NOT_FINITE if np.isnan(value) else Reason.OUT_OF_BOUNDS)


def test_nobody_is_no_fleet() -> None:
    """Before anybody spoke nobody has a say, and the first lap is the first."""
    none = np.zeros((0, 2, TURNS))
    assert heard(none).shape == speak(none, np.zeros((0, 2)), 1e6).shape == (0, 2)
    influence = PairState("target.draft.eagle.greedy.k3-0123abcd", 3, ()).influence
    assert heard(influence.turns).shape == (0, 0)
    turns = np.zeros((3, 1, TURNS))
    assert not heard(turns).any()
    assert not speak(turns, np.array([[LABELS], [0.0], [0.0]]), 1e6).any()
    assert turns[0, 0].tolist() == [1.0, 0.0, 1e6, LABELS]
    assert heard(turns)[:, 0].tolist() == [True, False, False]
