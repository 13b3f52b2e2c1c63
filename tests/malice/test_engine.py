"""An engine with valid credentials sends what it likes: refused, capped or set aside, counted, and nobody is misled."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.api.cli import Cli
from tests.learner.fleet import KEYS, KNOTS, SyntheticEngine, Traffic
from tests.learner.strategies import Engine, with_moments
from tests.learner.test_influence import extreme
from tests.malice.stage import EVIL, MOST, PAIR, Stage, staged
from tests.waiting import until

from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import PAIRS, PairKeys, PairRecord
from accord.learner.store.registry import MAX_ENGINES, MAX_STATUS_BYTES
from accord.learner.summary import RoundSummary
from accord.learner.wire import MAX_WIRE_BYTES, encode

LONG = pytest.mark.skipif(not os.environ.get("MALICE_LONG"), reason="minutes: make malice")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One service for all attacks, one after the other."""
    with staged(tmp_path_factory.mktemp("malice")) as running:
        yield running


@pytest.fixture(autouse=True)
def _marked(stage: Stage) -> None:
    """Every attack is measured from what was known when it began."""
    stage.mark()


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Refusals by reason that came in between."""
    was = before["refused"]
    return {reason: n - was.get(reason, 0) for reason, n in after["refused"].items() if n > was.get(reason, 0)}


def harmless(stage: Stage, name: str) -> None:
    """Two more honest rounds, and the honest engines are served what they alone would be."""
    stage.rounds(2)
    stage.settled()
    moved = stage.moved()
    print(f"{name}: served probabilities differ by {moved:.4f}")
    assert moved < MOST


EXTREMES = ["gradients", "curvature", "coefficients", "losses", "sketch burst", "sketch burst positions cooked"]


@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_sums(stage: Stage, kind: str) -> None:
    """Sums at the edge of what is possible are capped or set aside, and told by the api and by metrics."""
    before = stage.counters()
    for _ in range(10):
        stage.bad(encode(stage.evil(extreme(kind, stage.sample()))))
    harmless(stage, kind)
    after = stage.counters()
    line = next(line for line in stage.detail()["influence"] if line["engine"] == EVIL)
    counted = after["aside"] + after["sketches_aside"] - before["aside"] - before["sketches_aside"]
    assert counted > 0 or kind in ("curvature", "losses")
    if kind in ("gradients", "coefficients"):
        assert line["set_aside"] > 0
        assert stage.metric("accord_learner_labels_set_aside_total", pair=PAIR.id) >= after["aside"]


def test_replays(stage: Stage) -> None:
    """Bytes again, other content under old numbers, another order, overlaps: each is refused and counted."""
    before, rng = stage.counters(), np.random.default_rng(0)
    old = [payload for _, payload in stage.honest]
    for place in rng.permutation(len(old))[:60]:
        stage.bad(old[place])
    own = stage.evil(stage.sample())
    stage.bad(encode(own))
    stage.bad(encode(with_moments(own, y=0.0 * own.moments.y)))
    stage.bad(encode(replace(own, last_seq=own.last_seq + 3)))
    harmless(stage, "replays")
    assert grown(before, stage.counters()) == {"duplicate": 61, "overlap": 1}
    assert stage.metric("accord_learner_summaries_refused_total", reason="duplicate") >= 61


def test_another_engines_name(stage: Stage) -> None:
    """Under another's name with another boot: that engine may be set aside but loses no round, and it is told."""
    before = stage.counters()
    seq = stage.evil_seq
    for _ in range(5):
        forged = stage.evil(extreme("gradients", stage.sample()), engine="host-0/0")
        stage.bad(encode(forged))
        stage.rounds()
    stage.settled()
    after = stage.counters()
    assert after["summaries"] - before["summaries"] == 5 + 5 * len(stage.engines)
    assert after["shared"] > before["shared"]
    assert after["last_shared"]["engine"] == "host-0/0"
    assert len(after["last_shared"]["boot"]) == 8
    harmless(stage, "another name")
    mine = [line["set_aside"] for line in stage.detail()["influence"] if line["engine"] == "host-0/0"]
    print(f"labels set aside under the stolen name: {mine}; forged summaries: {stage.evil_seq - seq}")


def test_numbers_of_the_future(stage: Stage) -> None:
    """With another's boot guessed, numbers that it cannot have reached are refused, and its next rounds are learnt."""
    before = stage.counters()
    good = stage.sample()
    last = stage.engines[1].seq
    for first, until_ in ((last + 1, 1 << 52), (1 << 52, 1 << 52), (last + 2, last + 50_000_000)):
        stage.bad(encode(replace(good, engine="host-1/0", boot=f"{1:016x}", first_seq=first, last_seq=until_)))
    harmless(stage, "future numbers")
    after = stage.counters()
    assert grown(before, after) == {"out_of_bounds": 3}
    assert after["summaries"] - before["summaries"] == 2 * len(stage.engines)


def test_boots_are_not_told_whole(stage: Stage) -> None:
    """Nobody reads from the api by which boot an engine signs."""
    stage.store.heartbeat(PAIR.id, "host-1/0", json.dumps({"boot": "0123456789abcdef", "time_ms": 1}).encode())
    entries = stage.api.get(f"/v1/pairs/{PAIR.id}/history", limit=100).json()["entries"]
    boots = {rounds[0] for entry in entries for rounds in entry["lineage"].values()}
    assert boots
    assert {len(boot) for boot in boots} == {8}
    told = next(engine for engine in stage.detail()["engines"] if engine["engine"] == "host-1/0")
    assert told["status"]["boot"] == "01234567"


def name_workloads(stage: Stage, summaries: int, start: int = 0) -> None:
    """The attacker names 64 new workloads in each of so many summaries."""
    shape = Engine(5, k=4, knots=KNOTS, keys=tuple(f"x{i}:hot" for i in range(64)), requests=64).round(2, sketch=False)
    for number in range(start, start + summaries):
        keys = tuple(f"x{number}-{i}:hot" for i in range(64))
        stage.bad(encode(stage.evil(replace(shape, workloads=keys))))


def test_endless_workloads(stage: Stage) -> None:
    """A new workload with every label: the attacker gets what is left, the others keep theirs and get new ones."""
    learner, redis, before = stage.learner_mb(), stage.redis_mb(), stage.counters()
    name_workloads(stage, 60)
    stage.settled()
    fresh = SyntheticEngine("host-2/0", 62)
    for _ in range(3):
        summary = fresh.round(Traffic(), 10)
        stage.good(replace(summary, pair=PAIR.id, workloads=("fresh:hot", *KEYS[1:])))
    harmless(stage, "3,840 workloads")
    detail = stage.detail()
    known = {item["workload"] for item in detail["workloads"]}
    assert {*KEYS, "fresh:hot"} <= known
    assert len(known) == 64
    assert detail["counters"]["displaced"] > before["displaced"]
    assert detail["counters"]["overflowed"] > before["overflowed"]
    print(f"3,840 workloads: learner {stage.learner_mb() - learner:+.0f} MB, store {stage.redis_mb() - redis:+.1f} MB")
    assert stage.redis_mb() - redis < 20.0


def nonsense(good: RoundSummary) -> dict[str, tuple[str, bytes]]:
    """Reason -> what ends with it."""
    nan, tiny = good.moments.n.copy(), good.moments.y.copy()
    nan[0, 0], tiny[0, 0] = np.nan, np.inf
    cells = (good.sketch.acceptance if good.sketch else np.zeros(1)).copy()
    cells.flat[0] = 1e-300
    return {
        "nan": ("not_finite", encode(with_moments(good, n=nan))),
        "infinite": ("not_finite", encode(with_moments(good, y=tiny))),
        "denormal count": ("out_of_bounds", encode(with_moments(good, n=good.moments.n + 5e-324 + 0.5))),
        "negative": ("out_of_bounds", encode(with_moments(good, y=-1.0 - good.moments.y))),
        "more accepted than there were": ("inconsistent", encode(with_moments(good, y=2.0 * good.moments.n + 1.0))),
        "another pair": ("wrong_pair", encode(replace(good, pair="another.pair"))),
        "knots": ("knots", encode(Engine(1, k=4, knots=(0.0, 2.0, 5.0), keys=KEYS, pair=PAIR.id).round(3))),
        "positions": ("shape", encode(Engine(1, k=5, knots=KNOTS, keys=KEYS, pair=PAIR.id).round(3))),
        "bytes": ("schema", b"\x07" * 100),
        "nothing": ("schema", b""),
        "long": ("size", bytes(MAX_WIRE_BYTES + 1)),
    }


def test_nonsense(stage: Stage) -> None:
    """Wrong numbers, shapes, pairs and sizes, and entries under other field names, are refused by their reason."""
    before, expected = stage.counters(), dict[str, int]()
    for reason, payload in nonsense(stage.evil(stage.sample())).values():
        stage.bad(payload)
        expected[reason] = expected.get(reason, 0) + 1
    rounds, client = PairKeys(PAIR.id).rounds, stage.store.client
    for _ in range(3):
        client.xadd(rounds, {b"x": bytes(8 << 20), b"D": b"d"})
        client.xadd(rounds, {b"d": bytes(16 << 20)})
        stage.last = client.xadd(rounds, {f"f{i}": b"" for i in range(1_000)}).decode()
    expected["schema"] += 6
    expected["size"] += 3
    harmless(stage, "nonsense")
    assert grown(before, stage.counters()) == expected
    assert stage.counters()["last_refusal"]["reason"] in expected


def flood(stage: Stage, count: int) -> set[bytes]:
    """Heartbeats of the honest engines, endless and hostile ones, and so many names; returns the honest names."""
    key, client = PairKeys(PAIR.id).engines, stage.store.client
    now = stage.store.clock_ms(PAIR.id)
    honest = {f"host-{i}/0": json.dumps({"time_ms": now, "state": "fleet", "version": 1}) for i in range(10)}
    client.hset(key, mapping={HOSTILE: json.dumps({"state": HOSTILE}), "x/long": b"{" + bytes(32 << 20)})
    beat = json.dumps({"time_ms": now + 10**6})
    with client.pipeline(transaction=False) as pipe:
        for start in range(0, count, 1_000):
            pipe.hset(key, mapping={f"x/{number}": beat for number in range(start, start + 1_000)})
        pipe.execute()
    client.hset(key, mapping=honest)
    return {name.encode() for name in honest}


HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e"


def test_heartbeats(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Heartbeats under 20,000 names, endless ones, hostile text: what is shown is bounded, and text."""
    detail = dict[str, Any]()

    def seen() -> bool:
        flood(stage, 20_000)
        detail.update(stage.detail())
        # The learner may have swept them in between.
        return bool(detail["engines_known"] > MAX_ENGINES)

    until(seen, what="names that are not known")
    code, out, _ = Cli(capsys, stage.api.url)("engines", PAIR.id)
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert len(detail["engines"]) <= MAX_ENGINES
    assert max(len(json.dumps(engine)) for engine in detail["engines"]) < MAX_STATUS_BYTES
    assert stage.api.get("/metrics").status_code == 200
    harmless(stage, "heartbeats")


@LONG
def test_heartbeats_are_swept(stage: Stage) -> None:
    """Of 100,000 heartbeats the learner leaves a bounded number, and none that no engine writes."""
    key, client = PairKeys(PAIR.id).engines, stage.store.client
    honest = flood(stage, 100_000)
    until(lambda: client.hlen(key) <= MAX_ENGINES, 300.0, what="heartbeats are not swept")
    left = set(client.hkeys(key))
    assert honest <= left
    assert not {HOSTILE.encode(), b"x/long"} & left
    harmless(stage, "100,000 heartbeats")


def registered(count: int) -> dict[str, bytes]:
    """Records of pairs whose ids come before all others, as an engine may write them."""
    records = {}
    for number in range(count):
        pair = Pair(f"0/{number}", "d", Method.EAGLE, DraftSampling.GREEDY, 1 + number % 64)
        records[pair.id] = PairRecord(pair, (), 0).to_json()
    return records


def crowd(stage: Stage, count: int) -> None:
    """Registers many pairs, and looks whether anybody suffers."""
    client, before = stage.store.client, stage.learner_mb()
    records = registered(count)
    names = list(records)
    with client.pipeline(transaction=False) as pipe:
        for start in range(0, count, 5_000):
            pipe.hset(PAIRS, mapping={name: records[name] for name in names[start : start + 5_000]})
        pipe.hset(PAIRS, "<b>\x1b", b"x" * (1 << 20))
        pipe.execute()
    try:
        harmless(stage, f"{count} pairs")
        listed = stage.api.get("/v1/pairs", limit=100).json()
        assert len(listed["pairs"]) + len(listed["unreadable"]) == 100
        assert stage.api.get("/v1/pairs", limit=100, after=PAIR.id[:-1]).json()["pairs"][0]["id"] == PAIR.id
        text = stage.api.get("/metrics").text
        assert f'pair="{PAIR.id}"' in text
        assert stage.metric("accord_learner_labels_learnt_total", pair=PAIR.id) > 0
        print(f"{count} pairs: learner {stage.learner_mb() - before:+.0f} MB")
        assert stage.learner_mb() - before < 100.0 + 0.005 * count
    finally:
        client.hdel(PAIRS, *names, "<b>\x1b")


def test_a_crowded_register(stage: Stage) -> None:
    """Thousands of registered pairs that nobody feeds cost the pair that is in use nothing."""
    crowd(stage, 20_000)


@LONG
@pytest.mark.timeout(900)
def test_a_very_crowded_register(stage: Stage) -> None:
    """A hundred thousand of them as well."""
    crowd(stage, 100_000)


@LONG
@pytest.mark.timeout(3_600)
def test_a_million_workloads(stage: Stage) -> None:
    """A million names of workloads leave learner and store as large as a few thousand do."""
    learner, redis = stage.learner_mb(), stage.redis_mb()
    for part in range(62):
        name_workloads(stage, 250, 100 + 250 * part)
        stage.settled()
    harmless(stage, "992,000 workloads")
    print(
        f"992,000 workloads: learner {stage.learner_mb() - learner:+.0f} MB, store {stage.redis_mb() - redis:+.1f} MB"
    )
    assert stage.learner_mb() - learner < 100.0
    assert stage.redis_mb() - redis < 20.0


def test_ids_of_the_future(stage: Stage) -> None:
    """Entries with ids of the year 2100 are brought back to now, and what follows them is learnt."""
    before = stage.counters()
    stage.store.client.xadd(PairKeys(PAIR.id).rounds, {b"d": b"\x07"}, id="4102444800000-0")
    for _ in range(2):
        stage.rounds()
    until(lambda: stage.counters()["summaries"] >= before["summaries"] + 20, what="honest rounds are held up")
    assert grown(before, stage.counters()) == {"schema": 1}
    assert stage.counters()["labels"] > before["labels"]
