from __future__ import annotations

from collections import Counter
from dataclasses import replace
from zlib import crc32

from tests.learner.strategies import PAIR, Engine

from accord.learner.coefficients import MAX_WORKLOADS
from accord.learner.pair_learner import Entry, PairLearner
from accord.learner.room import IDLE_MS, forget, make_room
from accord.learner.state_codec import Learnt, decode_learnt, encode_learnt
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode

NOW_MS = 10_000
HONEST = ("code:greedy", "chat:warm", "chat:sampled")


def named(engine: str, *keys: str, seed: int = 1) -> RoundSummary:
    """A round of an engine that has just started, with these workloads."""
    return Engine(seed, name=engine, keys=keys, boot=f"{seed:08x}{crc32(repr((engine, keys)).encode()):08x}").round(3)


def many(engine: str, count: int, start: int = 0) -> RoundSummary:
    """A round with so many workloads of its own."""
    return named(engine, *(f"{engine[0]}{number}:hot" for number in range(start, start + count)))


def fresh() -> Learnt:
    """A pair that nobody has seen."""
    return Learnt.new(PAIR, 3, (0.0, 2.0))


def learn(learnt: Learnt, now_ms: int, *summaries: RoundSummary) -> list[str]:
    """Makes room, and takes the summaries in as far as there is."""
    gone = make_room(learnt, summaries, now_ms)
    fit = []
    for summary in summaries:
        rows = [
            row
            for row, key in enumerate(summary.workloads)
            if key in learnt.state.keys or len(learnt.state.keys) < MAX_WORKLOADS
        ]
        part = summary.only(rows)
        learnt.state.reserve(part.workloads)
        fit.append(part)
    learnt.state.fold(now_ms, fit)
    return gone


def test_one_engine_does_not_keep_the_others_out() -> None:
    """An engine that took every place gives one up for each new workload of an engine that has none of its own."""
    learnt = fresh()
    learn(learnt, NOW_MS, many("x", MAX_WORKLOADS))
    assert len(learnt.state.keys) == MAX_WORKLOADS
    gone = learn(learnt, NOW_MS, named("honest/0", *HONEST))
    assert len(gone) == len(HONEST)
    assert set(HONEST) <= set(learnt.state.keys)
    assert Counter(learnt.holders.values()) == {"x": MAX_WORKLOADS - 3, "honest/0": 3}


def test_an_engine_displaces_only_its_own() -> None:
    """A million names of one engine leave every other engine's workloads where they are."""
    learnt = fresh()
    learn(learnt, NOW_MS, named("honest/0", *HONEST), named("honest/1", "own:hot"))
    for start in range(0, 6_400, MAX_WORKLOADS):
        learn(learnt, NOW_MS + start, many("x", MAX_WORKLOADS, start))
    assert {*HONEST, "own:hot"} <= set(learnt.state.keys)
    assert len(learnt.state.keys) == MAX_WORKLOADS


def test_what_two_engines_report_is_everybodys() -> None:
    """A workload that a second engine reported is not displaced, whatever it counted as before."""
    learnt = fresh()
    learn(learnt, NOW_MS, many("x", MAX_WORKLOADS), named("honest/0", "x1:hot", "x2:hot"))
    learn(learnt, NOW_MS, *(named(f"honest/{i}", f"own{i}:hot") for i in range(40)))
    assert {"x1:hot", "x2:hot"} <= set(learnt.state.keys)
    assert learnt.holders["x1:hot"] == ""


def test_engines_that_share_alike_displace_nobody() -> None:
    """Sixty-five engines with one workload each: the last finds no room, however often it asks."""
    learnt = fresh()
    learn(learnt, NOW_MS, *(named(f"e/{i}", f"w{i}:hot") for i in range(MAX_WORKLOADS)))
    before = list(learnt.state.keys)
    for _ in range(3):
        assert learn(learnt, NOW_MS, named("late/0", "late:hot")) == []
    assert learnt.state.keys == before


def test_silence_makes_room() -> None:
    """A full pair gives the place of the workload that was silent longest, once that is an hour."""
    learnt = fresh()
    learn(learnt, NOW_MS, *(named(f"e/{i}", f"w{i}:hot") for i in range(MAX_WORKLOADS)))
    later = NOW_MS + IDLE_MS
    learn(learnt, later, *(named(f"e/{i}", f"w{i}:hot", seed=2) for i in range(MAX_WORKLOADS) if i != 7))
    assert learn(learnt, later, named("late/0", "late:hot")) == []
    assert learn(learnt, later + 1, named("late/0", "late:hot")) == ["w7:hot"]
    assert "late:hot" in learnt.state.keys


def test_nothing_is_left_of_what_was_forgotten() -> None:
    """Forgetting a workload leaves a state that can be stored, with every other workload as it was."""
    learner = PairLearner(fresh())
    engines = [Engine(i, name=f"e/{i}", keys=HONEST, requests=20) for i in range(5)]
    for tick in range(40, 60):
        learner.advance([(f"{tick * 250}-{i}", encode(e.round(20))) for i, e in enumerate(engines)], tick + 1)
    learnt = learner.learnt
    rows = {key: learnt.state.row(i) for i, key in enumerate(learnt.state.keys)}
    forget(learnt, "chat:warm")
    again = decode_learnt(encode_learnt(learnt))
    assert again.state.keys == ["code:greedy", "chat:sampled"]
    assert b"chat:warm" not in encode_learnt(replace(learnt, served=fresh().served, lineage={}, aside={}))
    for i, key in enumerate(again.state.keys):
        assert again.state.row(i).to_dict() == rows[key].to_dict()
    assert again.state.drift.ring.shape[0] == 3
    assert again.state.influence.records.shape[1] == 2


def test_a_restart_changes_nothing() -> None:
    """A learner that is replaced after every tick, also between displacements, ends with the same bytes."""
    ticks = []
    for tick in range(40, 52):
        summaries = [many("x", 40, 7 * tick)]
        if tick > 44:
            summaries += [many("y", 40, 5 * tick), named("honest/0", *HONEST, seed=tick)]
        ticks.append([(f"{tick * 250}-{i}", encode(one)) for i, one in enumerate(summaries)])
    whole, parts = PairLearner(fresh()), PairLearner(fresh())
    entries: list[Entry] = [entry for tick in ticks for entry in tick]
    whole.advance(entries, 60)
    for number, found in enumerate(ticks, start=41):
        parts.advance(found, number)
        parts = PairLearner(decode_learnt(encode_learnt(parts.learnt)), parts.sequences, parts.counters)
    parts.advance([], 60)
    assert encode_learnt(parts.learnt) == encode_learnt(whole.learnt)
    assert whole.counters.displaced > 0
    assert set(HONEST) <= set(whole.learnt.state.keys)
