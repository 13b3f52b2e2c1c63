from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import Engine, many, some

from accord.learner.influence import MAX_ENGINES, Influence
from accord.learner.packing import pack, unpack
from accord.learner.pair_state import PairState
from accord.learner.state_codec import MAGIC, Learnt, decode_learnt, encode_learnt
from accord.learner.turns import ROUNDS, SILENT_MS, heard, next_turn

TICK = 250
MINUTE_MS = 60_000
NIGHT_MS = 600 * MINUTE_MS


class Room:
    """Engines that speak, and who has a say then."""

    def __init__(self) -> None:
        self.influence, self.now = Influence(50_000.0, 20_000.0), 1_000_000

    def tick(self, *engines: str, after_ms: int = TICK) -> None:
        """Some engines speak in one tick."""
        self.now += after_ms
        self.influence.place(dict.fromkeys(engines, False), self.now)

    def round(self, engines: Sequence[str], together: bool = False) -> None:
        """Each engine speaks once, in a tick of its own or all in one."""
        for part in [engines] if together else [[engine] for engine in engines]:
            self.tick(*part)

    @property
    def heard(self) -> set[str]:
        """Whoever has a say."""
        flags = self.influence.heard()[:, 0]
        return {engine for engine, has in zip(self.influence.engines, flags, strict=True) if has}


def names(size: int, deployment: int = 0) -> list[str]:
    """Engines of one deployment."""
    return [f"pod-{deployment}-{place}/0" for place in range(size)]


ticks = st.lists(
    st.tuples(
        st.sets(st.integers(0, 80), min_size=1, max_size=6), st.sampled_from([TICK, MINUTE_MS, SILENT_MS, NIGHT_MS])
    ),
    min_size=1,
    max_size=60,
)


@many
@given(ticks)
def test_whoever_speaks_is_heard(drawn: list[tuple[set[int], int]]) -> None:
    """Those that spoke last have a say, whatever happened before, and turns never go back."""
    room, turn = Room(), 0
    for speakers, after_ms in drawn:
        spoken = {f"e/{place}" for place in speakers}
        room.tick(*sorted(spoken), after_ms=after_ms)
        assert spoken <= room.heard
        assert int(room.influence.turn.max()) >= turn
        turn = int(room.influence.turn.max())


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
    """A thousand ticks of one engine, one after another, add a single turn."""
    room, engines = Room(), names(9)
    room.round(engines)
    for _ in range(1_000):
        room.tick("fast/0")
    assert room.heard == {*engines, "fast/0"}
    assert int(room.influence.turn.max()) == 10


@some
@given(st.integers(5, 20), st.integers(1, 8), st.integers(1, 3 * ROUNDS), st.booleans())
def test_engines_that_are_gone_are_silent_after_some_rounds(
    size: int, deployments: int, warm: int, together: bool
) -> None:
    """However many deployments went before, their names have no say after `ROUNDS` rounds of those that live."""
    room = Room()
    for deployment in range(deployments):
        for _ in range(warm):
            room.round(names(size, deployment), together)
    live = names(size, deployments)
    for _ in range(ROUNDS + 1):
        room.round(live, together)
        assert room.heard >= set(live)
    assert room.heard == set(live)


@pytest.mark.parametrize("size", [6, 10, 20])
def test_an_engine_that_misses_some_rounds_keeps_its_say(size: int) -> None:
    """Whoever was silent for fewer than `ROUNDS` rounds of the others still speaks against a liar."""
    room, engines = Room(), names(size)
    room.round(engines)
    for _ in range(ROUNDS - 1):
        room.round(engines[1:])
        assert room.heard == set(engines)
    for _ in range(3):
        room.round(engines[1:])
    assert room.heard == set(engines[1:])
    room.tick(engines[0])
    assert room.heard == set(engines)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_few_engines_wait_for_the_clock(size: int) -> None:
    """Fewer than five engines silence those that are gone at the latest when they have spoken alone for a while."""
    room, live = Room(), names(size, 1)
    room.round(names(10))
    for _ in range(ROUNDS):
        room.round(live)
    assert room.heard == {*names(10), *live}
    for _ in range(SILENT_MS // MINUTE_MS + 1):
        room.tick(*live, after_ms=MINUTE_MS)
    assert room.heard == set(live)


def test_what_the_clock_silences_takes_a_quarter_of_an_hour() -> None:
    """A pair in which nobody speaks for so long is still known by all its engines when the first one speaks again."""
    room, engines = Room(), names(10)
    room.round(engines, together=True)
    room.tick(engines[0], after_ms=SILENT_MS)
    assert room.heard == set(engines)


def test_those_that_make_room_are_the_ones_that_are_gone() -> None:
    """A full table of names gives away the place of who was silent longest, and none of the living loses its say."""
    room = Room()
    for deployment in range(12):
        for _ in range(3):
            room.round(names(10, deployment))
            assert room.heard >= set(names(10, deployment))
    assert len(room.influence.engines) == MAX_ENGINES
    assert set(names(10, 0)).isdisjoint(room.influence.engines)


def without(data: bytes, *left_out: str) -> bytes:
    """The bytes of a state of a learner that did not have some arrays yet."""
    meta, arrays = unpack(MAGIC, data, max_bytes=1 << 24)
    return pack(MAGIC, meta, {name: array for name, array in arrays.items() if name not in left_out})


def test_a_state_of_an_earlier_learner_is_read_and_everybody_is_heard() -> None:
    """Without turns and newest labels all engines have a say, none is astray, and those that speak are told apart."""
    engines = [Engine(place, name=name) for place, name in enumerate(names(8))]
    learnt = Learnt.new(engines[0].pair, engines[0].k, engines[0].knots)
    for tick in range(3):
        learnt.state.fold(TICK * (tick + 1), [engine.round(20) for engine in engines])
    again = decode_learnt(without(encode_learnt(learnt), "engine_turn", "engine_recent")).state
    assert again.influence.engines == names(8)
    assert again.influence.heard().all()
    assert not again.influence.turn.any()
    assert not again.influence.recent.any()
    assert again.influence.reporting(0) == 8
    for tick in range(3, 6 + ROUNDS):
        again.fold(TICK * (tick + 1), [engine.round(2) for engine in engines[:6]])
    assert again.influence.heard()[:, 0].tolist() == [True] * 6 + [False] * 2
    assert again.influence.reporting(0) == 6


def test_turns_and_newest_labels_survive_a_commit() -> None:
    """Another learner goes on with the same turns, to the bit."""
    engines = [Engine(place, name=name) for place, name in enumerate(names(6))]
    learnt = Learnt.new(engines[0].pair, engines[0].k, engines[0].knots)
    for tick in range(4):
        learnt.state.fold(TICK * (tick + 1), [engine.round(20) for engine in engines])
    data = encode_learnt(learnt)
    again = decode_learnt(data)
    assert encode_learnt(again) == data
    assert again.state.influence.turn.tolist() == learnt.state.influence.turn.tolist() == [24] * 6
    assert np.array_equal(again.state.influence.recent, learnt.state.influence.recent)
    assert again.state.influence.recent[..., 2].all()


def test_nobody_is_no_fleet() -> None:
    """Before anybody spoke nobody has a say, and the first turn is the number of those that speak first."""
    none = np.zeros(0, dtype=np.int64)
    assert heard(none, none).tolist() == []
    assert PairState("target.draft.eagle.greedy.k3-0123abcd", 3, ()).influence.heard().shape == (0, 1)
    assert next_turn(np.zeros(3, dtype=np.int64), np.array([0])) == 1
    assert next_turn(np.zeros(3, dtype=np.int64), np.array([0, 2])) == 2
