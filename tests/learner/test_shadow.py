"""A learner under overrides: what it learns does not change, and what it publishes obeys them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.learner.strategies import KEYS
from tests.learner.test_service import KNOTS, PAIR_ID, stream, taken

from accord.learner.changes import Author, Wish, lift, put, roll_back
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.overrides import Kind, compose, same_rows
from accord.learner.pair_learner import TICK_MS, PairLearner, tick_of
from accord.learner.service.loop import LearnerService
from accord.learner.service.owner import COMPOSED_AGAIN, PairOwner
from accord.learner.service.settings import LearnerSettings
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Lease, OverridesMovedError, PairKeys, PairRecord, Store

BY = Author("ada", "test")
ROW = Coefficients([0.9, 0.0, 0.1], [0.3, 0.2, 0.1])
WISHES = {
    "pin": Wish(Kind.PIN, ROW),
    "shift": Wish(Kind.SHIFT, shift=-0.7),
    "freeze": Wish(Kind.FREEZE),
}


def tell(store: Store, record: PairRecord, what: str, scope: str | None) -> None:
    """An operator does something, if it is possible now."""
    standing = store.standing(record)
    if what in WISHES:
        store.apply(put(standing, scope, WISHES[what], BY))
    elif what == "lift" and scope in standing.overrides:
        store.apply(lift(standing, scope, BY))
    elif what == "rollback":
        old = CoefficientTable.cold(PAIR_ID, 3, KNOTS)
        hold = bool({scope, None} & set(standing.overrides))
        store.apply(roll_back(standing, scope, old, BY, hold=hold))


DEEDS = st.lists(
    st.tuples(
        st.integers(0, 13),
        st.sampled_from([*WISHES, "lift", "rollback"]),
        st.sampled_from([None, *KEYS[:3], "unseen:hot"]),
    ),
    max_size=12,
)


@given(st.integers(0, 1_000), st.integers(1, 6), DEEDS, st.booleans())
@settings(
    max_examples=20, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_what_is_learnt_does_not_depend_on_overrides(
    store: Store, seed: int, read_count: int, deeds: list[tuple[int, str, str | None]], dies: bool
) -> None:
    """Whatever operators do between commits, the state is the one without them, and what is served is composed."""
    store.client.flushall()
    entries = stream(seed)
    record, lease = taken(store)
    for entry_id, body in entries:
        store.append(PAIR_ID, body, entry_id=entry_id)
    end_ms = (tick_of(entries[-1][0]) + 40) * TICK_MS
    owner = PairOwner(store, record, lease)
    for number in range(len(entries) + 2):
        for at, what, scope in deeds:
            if at == number:
                tell(store, record, what, scope)
        owner.step(store.read(PAIR_ID, owner.watermark, read_count), end_ms, read_count)
        if dies:
            owner = PairOwner(store, record, lease)
    whole = PairLearner(Learnt.new(PAIR_ID, 3, KNOTS))
    published = whole.advance(entries, end_ms // TICK_MS)
    assert store.load(PAIR_ID).body == encode_learnt(whole.learnt)
    standing = store.standing(record)
    if published:
        # A rollback without hold stands until the next publication.
        assert same_rows(standing.learnt, whole.learnt.served)
        last = json.loads(store.history(PAIR_ID, 1)[0].entry)
        if last["cause"] != "rollback" or last["override"] is not None:
            expected = compose(standing.learnt, standing.overrides, standing.now_ms)
            assert same_rows(standing.served, expected)
    history = store.history(PAIR_ID, 1000)
    versions = [entry.version for entry in history]
    assert versions == sorted(set(versions), reverse=True)
    times = [entry.published_ms for entry in history]
    assert times == sorted(times, reverse=True)
    for entry in history:
        table = CoefficientTable.from_json(entry.table)
        values = json.loads(entry.entry)
        assert (table.version, table.published_ms) == (entry.version, entry.published_ms)
        assert (values["version"], values["published_ms"]) == (entry.version, entry.published_ms)
    if history:
        assert history[0].version == standing.version
    if not any(what != "lift" for _, what, _ in deeds):
        assert [entry.table for entry in history] == [p.table.to_json() for p in reversed(published)]
        assert [entry.entry for entry in history] == [p.history for p in reversed(published)]


@pytest.fixture
def learning(store: Store) -> tuple[PairRecord, Lease, Callable[[], int]]:
    """A pair that has published, and a function that learns one more summary and publishes what follows."""
    record, lease = taken(store)
    found = stream(5, 12)
    owner = PairOwner(store, record, lease)
    at = [5_000]

    def more() -> int:
        place = len(used)
        used.append(found[place])
        at[0] += 3_000
        store.append(PAIR_ID, found[place][1], entry_id=f"{at[0]}-0")
        return owner.step(store.read(PAIR_ID, owner.watermark, 10), at[0] + 5_000, 10)

    used: list[Any] = []
    assert more()
    return record, lease, more


Learning = tuple[PairRecord, Lease, Callable[[], int]]


def test_a_frozen_pair_gets_no_versions_and_its_learnt_table_follows(store: Store, learning: Learning) -> None:
    """While everything is frozen nothing is published, and a lift serves what was learnt meanwhile."""
    record, _, more = learning
    tell(store, record, "freeze", None)
    frozen = store.standing(record)
    for _ in range(4):
        assert more() == 0
    now = store.standing(record)
    assert (now.version, now.body) == (frozen.version, frozen.body)
    assert not same_rows(now.learnt, now.served)
    assert len(store.history(PAIR_ID, 100)) == frozen.version
    tell(store, record, "lift", None)
    lifted = store.standing(record)
    assert same_rows(lifted.served, now.learnt)
    assert lifted.learnt_body is None
    assert more() == 1
    assert store.standing(record).version > lifted.version


def test_an_operator_who_comes_between_reading_and_committing_is_seen(
    store: Store, learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that lands between a learner's reading and its commit is composed in, and nothing is dropped."""
    record, _, more = learning
    settled, calls = store.settled, []

    def and_then(*args: Any) -> Any:
        standing = settled(*args)
        calls.append(standing.revision)
        if len(calls) == 1:
            tell(store, record, "pin", KEYS[0])
        return standing

    monkeypatch.setattr(store, "settled", and_then)
    assert more() == 1
    assert calls == [0, 1]
    assert store.standing(record).served.row(KEYS[0]).to_dict() == ROW.to_dict()
    monkeypatch.setattr(store, "settled", lambda *args: (settled(*args), tell(store, record, "pin", KEYS[0]))[0])
    before = store.load(PAIR_ID).watermark
    with pytest.raises(OverridesMovedError):
        more()
    assert store.load(PAIR_ID).watermark == before
    assert store.standing(record).revision == 1 + COMPOSED_AGAIN


def test_a_learner_about_to_publish_takes_away_what_is_over(store: Store, learning: Learning) -> None:
    """Without any api, an override ends at the next publication at the latest, and the audit says so."""
    record, _, more = learning
    tell(store, record, "pin", KEYS[0])
    key = PairKeys(PAIR_ID).overrides
    stored = json.loads(store.client.hget(key, "overrides") or b"")
    stored[0]["expires_ms"] = 1
    store.client.hset(key, "overrides", json.dumps(stored))
    assert more() == 1
    assert dict(store.standing(record).overrides) == {}
    newest, expired, *_ = [json.loads(entry.entry) for entry in store.history(PAIR_ID, 10)]
    assert expired["cause"] == "expired"
    assert set(expired["metrics"]) == set(expired["labels"]) == set(newest["labels"])
    assert "overridden" not in newest
    assert store.audit(PAIR_ID, 1)[0].values["action"] == "expire"


def test_history_says_what_was_overridden(store: Store, learning: Learning) -> None:
    """A publication under an override names its scopes; metrics and moves are those of the rows that are served."""
    record, _, more = learning
    tell(store, record, "pin", KEYS[0])
    assert more() == 1
    served = json.loads(store.history(PAIR_ID, 1)[0].entry)
    assert served["overridden"] == [KEYS[0]]
    tables = [CoefficientTable.from_json(entry.table) for entry in store.history(PAIR_ID, 2)]
    assert set(served["moved"]) == {
        key for key, row in tables[0].workloads.items() if row.to_dict() != tables[1].row(key).to_dict()
    }
    assert KEYS[0] not in served["moved"]
    tell(store, record, "lift", KEYS[0])
    lifted = json.loads(store.history(PAIR_ID, 1)[0].entry)
    assert "metrics" not in lifted
    assert more() == 1
    learnt = json.loads(store.history(PAIR_ID, 1)[0].entry)
    assert served["metrics"][KEYS[0]]["log_loss"] > learnt["metrics"][KEYS[0]]["log_loss"]


def test_spoilt_overrides_set_one_pair_aside(store: Store, learning: Learning, server: Any) -> None:
    """Overrides that are not understood stop that pair's learning without losing a byte of its stream."""
    _, lease, _ = learning
    store.release(lease)
    store.client.hset(PairKeys(PAIR_ID).overrides, mapping={"revision": "1", "overrides": "{"})
    store.append(PAIR_ID, stream(6, 1)[0][1])
    watermark = store.load(PAIR_ID).watermark
    service = LearnerService(LearnerSettings(server.url), Store(store.client))
    for _ in range(3):
        service.cycle()
    assert store.load(PAIR_ID).watermark == watermark
    assert store.backlog(PAIR_ID, watermark)[0] == 1
