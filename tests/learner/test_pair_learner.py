from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import KEYS, PAIR, Engine, few, some, with_moments

from accord.learner import pair_learner
from accord.learner.basis import Array
from accord.learner.coefficients import Coefficients
from accord.learner.counters import Counters
from accord.learner.pair_learner import (
    DECODED_AT_ONCE,
    MAX_LINEAGE,
    PUBLISH_EVERY_MS,
    TICK_MS,
    Entry,
    PairLearner,
    Published,
    tick_of,
)
from accord.learner.sequences import Sequences
from accord.learner.sketch import Sketch
from accord.learner.state_codec import Learnt, decode_learnt, encode_learnt
from accord.learner.summary import RoundSummary
from accord.learner.wire import encode

K, KNOTS = 3, (0.0, 2.0)


def learner() -> PairLearner:
    """A learner of a pair that nobody has seen."""
    return PairLearner(Learnt.new(PAIR, K, KNOTS))


def resumed(one: PairLearner) -> PairLearner:
    """Another learner that takes over from committed bytes."""
    return PairLearner(
        decode_learnt(encode_learnt(one.learnt)),
        Sequences.decode(one.sequences.encode()),
        Counters.decode(one.counters.encode()),
        one.watermark,
    )


def outcome(one: PairLearner, published: list[Published]) -> tuple[object, ...]:
    """Everything that a learner leaves behind."""
    versions = [(p.table.version, p.table.published_ms, p.table.to_json(), p.history) for p in published]
    return encode_learnt(one.learnt), one.sequences.encode(), one.counters.encode(), one.watermark, versions


@cache
def pool() -> tuple[bytes, ...]:
    """Rounds of three engines, in an order in which each engine's rounds follow each other."""
    engines = [Engine(i, name=f"host-{i}/0", keys=KEYS[i : i + 2], requests=16) for i in range(3)]
    return tuple(encode(engines[i % 3].round(6 + i)) for i in range(18))


@st.composite
def streams(draw: st.DrawFn, size: int = 14) -> list[Entry]:
    """Streams with several entries a tick, silences, duplicates, gaps and garbage."""
    entries, ms, seq = [], draw(st.integers(1, 3_000)), 0
    place = 0
    for _ in range(draw(st.integers(1, size))):
        gap = draw(st.sampled_from([0, 0, 60, 250, 700, 1_800, 9_000]))
        ms, seq = (ms + gap, 0) if gap else (ms, seq + 1)
        kind = draw(st.sampled_from(["next", "next", "next", "next", "skip", "again", "garbage"]))
        if kind == "garbage":
            body = draw(st.binary(max_size=8))
        elif kind == "again":
            body = pool()[draw(st.integers(0, len(pool()) - 1))]
        else:
            place += 1 + (kind == "skip")
            body = pool()[min(place, len(pool()) - 1)]
        entries.append((f"{ms}-{seq}", body))
    return entries


def advance(one: PairLearner, entries: list[Entry], schedule: list[int], *, hand_over: bool) -> tuple[object, ...]:
    """Advances over the schedule of closed ticks, each call with the entries that lie in newly closed ticks."""
    published, done = [], 0
    for closed in schedule:
        ready = [entry for entry in entries[done:] if tick_of(entry[0]) < closed]
        published += one.advance(ready, closed)
        done += len(ready)
        if hand_over:
            one = resumed(one)
    assert done == len(entries)
    return outcome(one, published)


@given(streams(), st.data(), st.booleans())
@some
def test_any_split_gives_the_same_state_and_publications(
    entries: list[Entry], data: st.DataObject, hand_over: bool
) -> None:
    """However the stream is cut into calls, and whoever takes over between them, everything is the same to the bit."""
    end = tick_of(entries[-1][0]) + 40
    first = tick_of(entries[0][0])
    cuts = data.draw(st.lists(st.integers(first, end), max_size=8))
    whole = advance(learner(), entries, [end], hand_over=False)
    every_tick = sorted(set(cuts) | {tick_of(entry[0]) + 1 for entry in entries} | {end})
    assert advance(learner(), entries, [*sorted(cuts), end], hand_over=hand_over) == whole
    assert advance(learner(), entries, every_tick, hand_over=hand_over) == whole


@given(streams())
@few
def test_publications_are_spaced_numbered_and_real(entries: list[Entry]) -> None:
    """Versions count up by one, lie at least the interval apart and at the end of a tick, and each has a cause."""
    one = learner()
    published = one.advance(entries, tick_of(entries[-1][0]) + 40)
    tables = [p.table for p in published]
    assert [t.version for t in tables] == list(range(1, len(tables) + 1))
    times = [0, *(t.published_ms for t in tables)]
    assert all(later - earlier >= PUBLISH_EVERY_MS for earlier, later in pairwise(times))
    assert all(t.published_ms % TICK_MS == 0 for t in tables)
    for p in published:
        history = json.loads(p.history)
        assert history["moved"]
        assert history["version"] == p.table.version
        assert history["published_ms"] == p.table.published_ms
    assert one.learnt.served is (tables[-1] if tables else one.learnt.served)


@given(streams(), st.integers(1, 3))
@few
def test_duplicates_change_nothing_but_counters(entries: list[Entry], times: int) -> None:
    """A stream in which every entry arrives again in its own tick teaches the same, and each repeat is counted."""
    repeated = []
    for i, (entry_id, body) in enumerate(entries):
        ms = entry_id.partition("-")[0]
        repeated += [(f"{ms}-{i * 10 + n}", body) for n in range(times + 1)]
    end = tick_of(entries[-1][0]) + 40
    one, other = learner(), learner()
    first, second = one.advance(entries, end), other.advance(repeated, end)
    assert encode_learnt(one.learnt) == encode_learnt(other.learnt)
    assert one.sequences.encode() == other.sequences.encode()
    assert [p.table.to_json() for p in first] == [p.table.to_json() for p in second]
    refused = sum(other.counters.refused.values())
    assert refused == sum(one.counters.refused.values()) * (times + 1) + one.counters.summaries * times
    assert other.counters.labels == one.counters.labels


@given(streams())
@few
def test_counts_add_up(entries: list[Entry]) -> None:
    """Every entry is learnt or refused, labels learnt are the labels counted, and the watermark is the last entry."""
    one = learner()
    one.advance(entries, tick_of(entries[-1][0]) + 1)
    counters = one.counters
    assert counters.summaries + sum(counters.refused.values()) == len(entries)
    assert counters.labels == one.learnt.state.labels.sum()
    assert one.watermark == entries[-1][0]
    assert sum(counters.fits.values()) == one.learnt.state.refits


def test_refused_entries_do_not_stop_the_stream() -> None:
    """Garbage, another pair's and another basis' evidence are counted, and what follows is learnt."""
    good = Engine(1)
    entries = [
        ("1000-0", b"garbage"),
        ("1000-1", encode(Engine(1, pair="other").round(3))),
        ("1000-2", encode(Engine(1, knots=()).round(3))),
        ("1000-3", encode(Engine(1, k=5).round(3))),
        ("1000-4", encode(good.round(3))),
        ("1000-5", encode(good.round(3))),
    ]
    one = learner()
    one.advance(entries, 5)
    assert one.counters.refused == {"schema": 1, "wrong_pair": 1, "knots": 1, "shape": 1}
    assert one.counters.last_refusal["entry"] == "1000-3"
    assert one.counters.summaries == 2


def test_only_refused_entries_leave_the_state_alone() -> None:
    """A tick without admitted evidence moves the watermark and refits nothing."""
    one = learner()
    before = encode_learnt(one.learnt)
    assert one.advance([("1000-0", b"?"), ("1000-1", b"?")], 5) == []
    assert encode_learnt(one.learnt) == before
    assert one.watermark == "1000-1"


def test_engines_of_one_tick_share_the_room_for_workloads() -> None:
    """Twelve engines that each name six new workloads get five or six of the 64 places, and the rest is counted."""
    one = learner()
    keys = [f"w{i}:hot" for i in range(72)]
    entries = [
        (f"1000-{i}", encode(Engine(i, name=f"e/{i}", keys=tuple(keys[i * 6 : i * 6 + 6])).round(2))) for i in range(12)
    ]
    one.advance(entries, 5)
    assert len(one.learnt.state.keys) == 64
    assert sorted(Counter(one.learnt.holders.values()).values()) == [5] * 8 + [6] * 4
    assert one.counters.refused == {}
    assert (one.counters.summaries, one.counters.overflowed > 0, one.counters.displaced) == (12, True, 0)


def test_known_workloads_are_learnt_beside_those_without_room() -> None:
    """A pair that is full goes on learning what it knows; the labels that it has no room for are counted."""
    one = learner()
    full = [f"w{i:02}:hot" for i in range(64)]
    one.learnt.state.reserve(full)
    engine = Engine(3, keys=(full[0], "late:hot"))
    sent = engine.round(20)
    one.advance([("1000-0", encode(sent))], 10)
    known, late = (float(sent.moments.n[row].sum()) for row in (0, 1))
    assert late > 0
    assert one.learnt.state.labels.sum() == one.counters.labels == known
    assert (one.counters.overflowed, one.counters.summaries, one.counters.refused) == (late, 1, {})
    assert one.counters.last_refusal["reason"] == "workloads"
    assert one.counters.last_refusal["entry"] == "1000-0"


def test_a_waiting_publication_is_made_without_new_entries() -> None:
    """A change that came too soon after the last publication goes out when the interval is over, as of that tick."""
    engine, one = Engine(1, requests=20), learner()
    (first,) = one.advance([("10000-0", encode(engine.round(20)))], 41)
    assert first.table.published_ms == 10_250
    assert one.idle_until_tick is None
    assert one.advance([("10300-0", encode(engine.round(20)))], 42) == []
    due = one.idle_until_tick
    assert due == 11_250 // TICK_MS - 1
    assert one.advance([], due) == []
    (second,) = one.advance([], due + 1)
    assert second.table.published_ms == first.table.published_ms + PUBLISH_EVERY_MS
    assert one.advance([], due + 1_000) == []
    assert one.idle_until_tick is None


def test_what_does_not_move_is_not_published() -> None:
    """Evidence that changes no probability where there is traffic leaves the version as it is."""
    engine, one = Engine(1, requests=20), learner()
    one.advance([("10000-0", encode(engine.round(20)))], 41)
    nothing = engine.round(0)
    before = one.learnt.served.version
    one.advance([("20000-0", encode(nothing))], 200)
    # the refit of the same evidence may still move the variances: only a material change is published
    published = one.learnt.served.version - before
    assert published <= 1
    for i in range(12):
        one.advance([(f"{30_000 + 2_000 * i}-0", encode(engine.round(0)))], 130 + 8 * i)
    settled = one.learnt.served.version
    one.advance([("90000-0", encode(engine.round(0)))], 1_000)
    assert one.learnt.served.version == settled


def lying(engine: Engine, sketch: Sketch | None, shift: float) -> RoundSummary:
    """A round whose gradients say that acceptance is far off from what its sketch shows."""
    summary = engine.round(30)
    m = summary.moments
    limit = 0.9 * m.n
    g1: Array = np.clip(m.g1 + shift * m.c, -limit, limit)
    return with_moments(summary, g1=g1)


def test_the_guard_holds_back_a_corrupted_fit_and_lets_it_go() -> None:
    """Evidence that contradicts the sketch is not served, visibly, until honest evidence has mended the fit."""
    engine, one = Engine(3, keys=KEYS[:1], requests=40), learner()
    ms = 10_000
    for _ in range(4):
        one.advance([(f"{ms}-0", encode(engine.round(40)))], ms // TICK_MS + 1)
        engine.apply([one.learnt.served.row(KEYS[0])])
        ms += 2_000
    good = one.learnt.served.row(KEYS[0])
    one.advance([(f"{ms}-0", encode(lying(engine, None, -9.0)))], ms // TICK_MS + 1)
    assert KEYS[0] in one.learnt.held
    assert one.counters.guarded == 1
    assert one.learnt.served.row(KEYS[0]).to_dict() == good.to_dict()
    assert not np.allclose(one.learnt.state.row(0).intercepts, good.intercepts, atol=0.3)
    for _ in range(200):
        ms += 2_000
        one.advance([(f"{ms}-0", encode(engine.round(40)))], ms // TICK_MS + 1)
        engine.apply([one.learnt.served.row(KEYS[0])])
        if KEYS[0] not in one.learnt.held:
            break
    assert KEYS[0] not in one.learnt.held
    truth, f = engine.truth[0], np.full(K, 2.0)
    served = one.learnt.served.row(KEYS[0])
    np.testing.assert_allclose(served.probability(engine.basis, f), truth.probability(engine.basis, f), atol=0.1)


def test_history_tells_where_a_version_came_from() -> None:
    """A version's history names the rounds of each engine learnt since the version before, labels and metrics."""
    a, b, one = Engine(1, name="a/0", requests=20), Engine(2, name="b/0", requests=20), learner()
    entries = [("10000-0", encode(a.round(20))), ("10000-1", encode(a.round(20))), ("10000-2", encode(b.round(20)))]
    (first,) = one.advance(entries, 41)
    history = json.loads(first.history)
    assert history["lineage"] == {"a/0": [a.boot, 1, 2], "b/0": [b.boot, 1, 1]}
    assert set(history["labels"]) == set(history["metrics"]) == set(first.table.workloads)
    later = one.advance([("20000-0", encode(a.round(20)))], 200)
    assert json.loads(later[0].history)["lineage"] == {"a/0": [a.boot, 3, 3]}


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_extreme_but_admitted_evidence_does_not_stop_the_stream(sign: float) -> None:
    """Gradients without curvature, which saturated engines send, are learnt within what can be served."""
    engine, one = Engine(1, keys=KEYS[:1]), learner()
    zero = replace(engine.round(10), steps=1_000)
    m = zero.moments
    n = np.full_like(m.n, 1e6)
    summary = with_moments(zero, A=0 * m.A, B=0 * m.B, c=0 * m.c, n=n, y=0 * m.y, g1=sign * n, g0=sign * 1e7 + 0 * m.g0)
    for i in range(3):
        published = one.advance(
            [(f"{10_000 + 2_000 * i}-0", encode(summary if i == 0 else engine.round(10)))], 50 + 8 * i
        )
        assert all(isinstance(p.table.row(KEYS[0]), Coefficients) for p in published)
    assert one.counters.refused == {}
    encode_learnt(decode_learnt(encode_learnt(one.learnt)))


def test_evidence_that_breaks_the_fit_is_counted_and_not_published() -> None:
    """Curvature that no labels have, small enough to pass the checks, ends as a counted fit without a publication."""
    engine, one = Engine(1, keys=KEYS[:1], requests=40), learner()
    one.advance([("10000-0", encode(engine.round(40)))], 41)
    version = one.learnt.served.version
    bad = replace(engine.round(5), steps=100_000)
    m = bad.moments
    n = np.full_like(m.n, 1e9)
    c = 0.25 * n
    B = c[:, :, None] * np.array([2.0, 2.0, 0.0])
    A = np.einsum("wki,wkj->wij", B, B / c[:, :, None]) * (1.0 - 5e-4)
    rows, cols = engine.basis.triangle
    one.advance([("20000-0", encode(with_moments(bad, n=n, c=c, B=B, A=A[:, rows, cols])))], 200)
    assert one.counters.fits.get("indefinite") == 1
    assert one.learnt.served.version == version
    assert not one.learnt.due


def test_history_names_a_bounded_number_of_engines() -> None:
    """However many names sign summaries, a version's history lists 1,024 of them, and counts what others sent."""
    one = learner()
    summary = Engine(1).round(2)
    one.learnt.served = replace(one.learnt.served, published_ms=1_000_000)
    for tick in range(2):
        names = [f"e/{tick}-{i}" for i in range(700)]
        entries = [(f"{1000 + 250 * tick}-{i}", encode(replace(summary, engine=name))) for i, name in enumerate(names)]
        one.advance(entries, 5 + tick)
    assert len(one.learnt.lineage) == MAX_LINEAGE
    assert one.learnt.unlisted == 1_400 - MAX_LINEAGE
    assert decode_learnt(encode_learnt(one.learnt)).unlisted == one.learnt.unlisted


def test_a_tick_that_is_too_large_is_folded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a tick is lost when its summaries are larger than a learner should hold at once."""
    made = [Engine(i, name=f"e/{i}", requests=4).round(4) for i in range(4 * DECODED_AT_ONCE)]
    entries = [(f"1000-{i}", encode(summary)) for i, summary in enumerate(made)]
    whole, parts = learner(), learner()
    whole.advance(entries, 10)
    assert whole.counters.fits == {"converged": 1}
    monkeypatch.setattr(pair_learner, "MAX_FOLD_BYTES", 1)
    parts.advance(entries, 10)
    assert parts.counters.fits == {"converged": 4}
    assert parts.counters.labels == whole.counters.labels == sum(summary.labels for summary in made)
    assert (parts.watermark, parts.sequences) == (whole.watermark, whole.sequences)
    for key in parts.learnt.state.keys:
        near, far = parts.learnt.served.row(key), whole.learnt.served.row(key)
        assert np.abs(near.intercepts - far.intercepts).max() < 0.2
