"""Changes of operators, applied by the real store."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.learner.test_store_commit import dump
from tests.proxy import TcpProxy

from accord.learner.changes import (
    Author,
    Change,
    ChangeRefusedError,
    OverrideUnknownError,
    Standing,
    Wish,
    lapse,
    lift,
    put,
    roll_back,
)
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.errors import InvalidValue
from accord.learner.overrides import Kind
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import (
    CHANGES,
    Commit,
    Lease,
    OverridesMovedError,
    PairKeys,
    PairRecord,
    Publication,
    Retention,
    Store,
    StoreCorruptError,
    StoreError,
    StoreUnavailableError,
    VersionError,
    connect,
)

PAIR = Pair("t", "d", Method.EAGLE, DraftSampling.GREEDY, 2)
KEYS = PairKeys(PAIR.id)
KNOTS = (0.0,)
BY = Author("ada", "incident 12", "laptop", "operator")
ROW = Coefficients([0.7, 0.1], [-0.1, -0.2], 0.05)
PIN = Wish(Kind.PIN, ROW)
SHIFT = Wish(Kind.SHIFT, shift=-0.5)


@pytest.fixture
def record(store: Store) -> PairRecord:
    """A registered pair."""
    return store.register(PAIR, KNOTS)


@pytest.fixture
def lease(store: Store) -> Lease:
    """Its lease."""
    taken = store.acquire(PAIR.id, "one", 60_000)
    assert taken is not None
    return taken


def table(version: int, level: float = 0.0) -> CoefficientTable:
    """A table with one workload."""
    rows = {"code:greedy": Coefficients([0.5, 0.0], [level, level])}
    return CoefficientTable(PAIR.id, version, Coefficients([0.5, 0.0], [-0.2, -0.2]), rows, KNOTS, version)


def publish(store: Store, lease: Lease, version: int, **values: Any) -> Commit:
    """A commit of the learner."""
    mark = store.load(PAIR.id).watermark
    publication = Publication(version, table(version, version / 10).to_json(), b'{"cause":"refit"}', version)
    commit = Commit(mark, mark, b"body %d" % version, b"", b"", version, [publication], **values)
    store.commit(lease, commit)
    return commit


def ends(store: Store) -> int | None:
    """When the first override in force ends, as an api reads it with the table."""
    found = store.client.hget(KEYS.coefficients, "expires_ms")
    return None if found is None else int(found)


def served(store: Store) -> CoefficientTable:
    """What is in force."""
    found = store.coefficients(PAIR.id)
    assert found is not None
    return CoefficientTable.from_json(found.body)


def refused(store: Store, change: Change, kind: type[StoreError]) -> None:
    """Asserts that a change is refused and no key changes."""
    before = dump(store)
    with pytest.raises(kind):
        store.apply(change)
    assert dump(store) == before


def test_a_change_writes_everything_together(store: Store, record: PairRecord, lease: Lease) -> None:
    """Overrides, coefficients, history, audit and notice agree, and the learnt table stays beside what is served."""
    publish(store, lease, 1)
    client: Any = store.client
    with client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(CHANGES)
        while not channel.subscribed or channel.get_message(timeout=0.05) is not None:
            pass
        change = put(store.standing(record), "code:greedy", replace(PIN, expires_in_s=60), BY)
        store.apply(change)
        message = None
        while message is None:
            message = channel.get_message(timeout=5.0)
    assert message["data"] == f"{PAIR.id} 2".encode()
    standing = store.standing(record)
    assert (standing.version, standing.revision) == (2, 1)
    assert standing.served.row("code:greedy").to_dict() == ROW.to_dict()
    assert standing.learnt.to_json() == table(1, 0.1).to_json()
    assert ends(store) == standing.overrides["code:greedy"].expires_ms
    assert 0 <= standing.now_ms - standing.overrides["code:greedy"].created_ms < 60_000
    newest, first = store.history(PAIR.id, 10)
    assert (newest.version, first.version) == (2, 1)
    assert newest.table == change.table.to_json()
    assert json.loads(newest.entry)["cause"] == "override"
    (entry,) = store.audit(PAIR.id, 10)
    assert entry.values["actor"] == "ada"
    assert (entry.values["version_before"], entry.values["version_after"], entry.values["revision"]) == (1, 2, 1)
    assert (entry.values["token"], entry.values["role"], entry.values["before"]) == ("laptop", "operator", None)
    assert entry.values["after"]["coefficients"] == ROW.to_dict()
    store.apply(lift(store.standing(record), "code:greedy", BY))
    after = store.standing(record)
    assert (after.learnt_body, ends(store), dict(after.overrides)) == (None, None, {})
    assert served(store).row("code:greedy").to_dict() == table(1, 0.1).row("code:greedy").to_dict()


def test_a_change_applies_onto_what_it_was_worked_out_from(store: Store, record: PairRecord, lease: Lease) -> None:
    """Another operator's change, and another publication, are told apart, and neither is overwritten."""
    publish(store, lease, 1)
    standing = store.standing(record)
    store.apply(put(standing, None, SHIFT, BY))
    refused(store, put(standing, "code:greedy", PIN, BY), OverridesMovedError)
    refused(store, put(standing, None, SHIFT, BY), OverridesMovedError)
    standing = store.standing(record)
    publish(store, lease, 3, revision=1)
    refused(store, lift(standing, None, BY), VersionError)
    store.apply(lift(store.standing(record), None, BY))
    assert [entry.version for entry in store.history(PAIR.id, 10)] == [4, 3, 2, 1]


@pytest.mark.parametrize("key", [KEYS.coefficients, KEYS.overrides, KEYS.history, KEYS.audit])
def test_a_key_of_a_wrong_type_writes_nothing(store: Store, record: PairRecord, key: str) -> None:
    """A key that somebody overwrote stops a change before its first write."""
    change = put(store.standing(record), None, SHIFT, BY)
    store.client.set(key, "spoilt")
    refused(store, change, StoreError)


def test_a_repeated_change_is_a_success(store: Store, record: PairRecord, lease: Lease) -> None:
    """A change that is sent twice is applied once, also when others came in between."""
    publish(store, lease, 1)
    first = put(store.standing(record), None, SHIFT, BY)
    store.apply(first)
    after = dump(store)
    store.apply(first)
    assert dump(store) == after
    store.apply(put(store.standing(record), "code:greedy", PIN, BY))
    publish(store, lease, 5, revision=2)
    after = dump(store)
    store.apply(first)
    assert dump(store) == after
    assert len(store.audit(PAIR.id, 10)) == 2


def test_a_lost_reply_is_recovered_by_the_client(store: Store, record: PairRecord, proxy: TcpProxy) -> None:
    """When the reply to a change is lost the client sends it again, and it is in force and in the audit once."""
    with Store(connect(proxy.url)) as far:
        far.apply(put(far.standing(record), None, SHIFT, BY))
        change = put(far.standing(record), None, PIN, BY)
        proxy.drop_replies(1)
        far.apply(change)
        assert proxy.dropped_replies == 1
    assert [entry.values["revision"] for entry in store.audit(PAIR.id, 10)] == [2, 1]


def test_a_change_that_was_never_heard_of_happened_once_or_not(
    store: Store, record: PairRecord, proxy: TcpProxy
) -> None:
    """When every reply is lost nothing is half done, and sending the change again ends with one entry."""
    with Store(connect(proxy.url)) as far:
        change = put(far.standing(record), None, SHIFT, BY)
        proxy.drop_replies(1000)
        with pytest.raises(StoreUnavailableError):
            far.apply(change)
        proxy.drop_replies(0)
    counts = {store.client.xlen(KEYS.audit), store.client.xlen(KEYS.history), store.standing(record).revision}
    assert counts in ({0}, {1})
    store.apply(change)
    assert len(store.audit(PAIR.id, 10)) == len(store.history(PAIR.id, 10)) == 1


def test_of_many_writers_one_wins_each_revision(store: Store, record: PairRecord) -> None:
    """Threads that change the same pair lose nothing: every applied change has a revision and a version of its own."""
    done: list[int] = []
    lock = threading.Lock()

    def work(name: str) -> None:
        for number in range(40):
            change = put(store.standing(record), f"w{number % 8}:hot", SHIFT, replace(BY, actor=name))
            try:
                store.apply(change)
            except OverridesMovedError:
                continue
            with lock:
                done.append(change.revision)

    threads = [threading.Thread(target=work, args=(f"op {i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(1, len(done) + 1))
    assert store.standing(record).revision == len(done)
    assert [entry.values["revision"] for entry in store.audit(PAIR.id, 1000)] == sorted(done, reverse=True)
    assert [entry.version for entry in store.history(PAIR.id, 1000)] == sorted(done, reverse=True)


def test_a_learner_that_missed_a_change_is_refused(store: Store, record: PairRecord, lease: Lease) -> None:
    """A commit composed under an older revision writes nothing; one that publishes nothing does not care."""
    publish(store, lease, 1, revision=0)
    store.apply(put(store.standing(record), None, SHIFT, BY))
    before = dump(store)
    with pytest.raises(OverridesMovedError):
        publish(store, lease, 9, revision=0)
    assert dump(store) == before
    mark = store.load(PAIR.id).watermark
    store.commit(lease, Commit(mark, mark, b"more", b"", b"", 1))
    publish(store, lease, 9, revision=1)


def test_a_commit_sets_leaves_and_drops_the_learnt_table(store: Store, record: PairRecord, lease: Lease) -> None:
    """The learner's own table stands beside what is served exactly while they differ."""
    for learnt, expected in ((b"", None), (b"own", b"own"), (None, b"own"), (b"other", b"other"), (b"", None)):
        version = store.standing(record).version + 1
        publish(store, lease, version, learnt=learnt)
        found = store.coefficients(PAIR.id)
        assert found is not None
        assert found.learnt == expected
    mark = store.load(PAIR.id).watermark
    store.commit(lease, Commit(mark, mark, b"x", b"", b"", 9, [], revision=0, learnt=b"only"))
    assert store.standing(record).learnt_body == b"only"
    assert store.standing(record).version == 5


def test_overrides_lapse_in_order_once(store: Store, record: PairRecord, lease: Lease) -> None:
    """Settling takes away what is over, earliest first, with one audit entry each, and leaves the rest."""
    publish(store, lease, 1)
    for scope, seconds in (("code:greedy", 20.0), ("chat:hot", 10.0), (None, None)):
        store.apply(put(store.standing(record), scope, replace(SHIFT, expires_in_s=seconds), BY))
    assert lapse(store.standing(record)) is None
    body = store.client.hget(KEYS.overrides, "overrides")
    assert body is not None
    values = json.loads(body)
    for item in values:
        if item["expires_ms"] is not None:
            item["expires_ms"] -= 60_000
    store.client.hset(KEYS.overrides, "overrides", json.dumps(values))
    threads = [threading.Thread(target=store.settled, args=(record,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settled = store.settled(record)
    assert list(settled.overrides) == [None]
    assert (settled.revision, ends(store)) == (5, None)
    entries = [(entry.values["action"], entry.values["scope"]) for entry in store.audit(PAIR.id, 10)]
    puts = [("put", None), ("put", "chat:hot"), ("put", "code:greedy")]
    assert entries == [("expire", "code:greedy"), ("expire", "chat:hot"), *puts]
    assert store.audit(PAIR.id, 1)[0].values["actor"] == "accord"
    assert store.audit(PAIR.id, 1)[0].values["before"]["actor"] == "ada"


@pytest.mark.parametrize("value", ["", "{}", "[[]]", "\x00"])
def test_spoilt_overrides_are_a_typed_error(store: Store, record: PairRecord, value: str) -> None:
    """Overrides that somebody wrote over are StoreCorruptError, and no change goes through."""
    store.client.hset(KEYS.overrides, "overrides", value)
    with pytest.raises(StoreCorruptError):
        store.standing(record)


@pytest.mark.parametrize(("field", "value"), [("body", "{}"), ("learnt", "no table")])
def test_spoilt_tables_are_a_typed_error(
    store: Store, record: PairRecord, lease: Lease, field: str, value: str
) -> None:
    """A table that is not understood stops the lapse of an override, and says so."""
    publish(store, lease, 1)
    store.apply(put(store.standing(record), None, replace(SHIFT, expires_in_s=1.0), BY))
    store.client.hset(KEYS.coefficients, field, value)
    body = json.loads(store.client.hget(KEYS.overrides, "overrides") or b"")
    body[0]["expires_ms"] = 1
    store.client.hset(KEYS.overrides, "overrides", json.dumps(body))
    with pytest.raises(StoreCorruptError):
        store.settled(record)


def ids(store: Store) -> list[int]:
    """Versions in the history, newest first."""
    return [entry.version for entry in store.history(PAIR.id, 1000)]


def test_history_is_kept_by_count(store: Store, record: PairRecord, lease: Lease) -> None:
    """A commit leaves exactly as many entries as the retention says."""
    for version in range(1, 9):
        mark = store.load(PAIR.id).watermark
        publication = Publication(version, b"t", b"{}", version)
        store.commit(lease, Commit(mark, mark, None, b"", b"", version, [publication]), Retention(3))
    assert ids(store) == [8, 7, 6]


def test_history_is_kept_by_age_and_what_is_in_force_stays(store: Store, record: PairRecord, lease: Lease) -> None:
    """Entries older than the retention go at the next commit, but never the newest."""
    now = store.clock_ms(PAIR.id)
    for version, age in ((1, 100_000), (2, 90_000), (3, 5_000)):
        fields: dict[Any, Any] = {"version": version, "published_ms": 1, "table": "t", "entry": "{}"}
        store.client.xadd(KEYS.history, fields, id=f"{now - age}-0")
    commit = Commit("0-0", "0-0", b"x", b"", b"", 3)
    store.commit(lease, commit, Retention(100, 95_000))
    assert ids(store) == [3, 2]
    store.commit(lease, replace(commit, body=b"y"), Retention(100, 1_000))
    assert ids(store) == [3]


def test_a_rollback_brings_rows_back(store: Store, record: PairRecord, lease: Lease) -> None:
    """With hold the old rows stay under new publications; without, they are served once and nothing is overridden."""
    publish(store, lease, 1)
    publish(store, lease, 2)
    old = table(1, 0.1)
    change = roll_back(store.standing(record), None, old, BY, hold=False)
    store.apply(change)
    assert served(store).row("code:greedy").to_dict() == old.row("code:greedy").to_dict()
    assert (change.override, store.standing(record).learnt.version) == (None, 2)
    with pytest.raises(InvalidValue, match="expires_in_s"):
        roll_back(store.standing(record), None, old, BY, hold=False, expires_in_s=5.0)
    store.apply(roll_back(store.standing(record), "code:greedy", old, BY, hold=True, expires_in_s=5.0))
    standing = store.standing(record)
    assert standing.overrides["code:greedy"].of_version == 1
    for scope in ("code:greedy",):
        with pytest.raises(ChangeRefusedError, match="lift it first"):
            roll_back(standing, scope, old, BY, hold=False)
    store.apply(roll_back(standing, None, old, BY, hold=False))
    whole = roll_back(store.standing(record), None, old, BY, hold=True)
    store.apply(whole)
    for other in (None, "chat:hot"):
        with pytest.raises(ChangeRefusedError, match="the whole pair"):
            roll_back(store.standing(record), other, old, BY, hold=False)
    assert [entry.values["action"] for entry in store.audit(PAIR.id, 10)] == ["rollback"] * 4
    assert [entry.values["of_version"] for entry in store.audit(PAIR.id, 10)] == [1] * 4


def test_an_old_version_of_another_shape_is_refused() -> None:
    """A version with another K, or other knots, cannot come back."""
    standing = Standing(PAIR.id, 2, KNOTS)
    for k, knots in ((3, KNOTS), (2, ()), (2, (1.0,))):
        with pytest.raises(ChangeRefusedError, match="knots"):
            roll_back(standing, None, CoefficientTable.cold(PAIR.id, k, knots), BY, hold=True)


def test_what_cannot_be_put_is_named() -> None:
    """Coefficients of another shape, an end out of bounds, and a missing row, name their field; so does a lift."""
    standing = Standing(PAIR.id, 2, KNOTS)
    for wish, field in (
        (Wish(Kind.PIN, Coefficients([0.5], [0.0, 0.0])), "coefficients.slopes"),
        (Wish(Kind.PIN, Coefficients([0.5, 0.0], [0.0])), "coefficients.intercepts"),
        (Wish(Kind.PIN), "coefficients"),
        (Wish(Kind.SHIFT), "kind"),
        (replace(SHIFT, expires_in_s=0.9), "expires_in_s"),
        (replace(SHIFT, expires_in_s=float("nan")), "expires_in_s"),
        (replace(SHIFT, expires_in_s=31_536_001.0), "expires_in_s"),
        (replace(SHIFT, expires_in_s=True), "expires_in_s"),
    ):
        with pytest.raises(InvalidValue) as caught:
            put(standing, None, wish, BY)
        assert caught.value.field == field
    with pytest.raises(OverrideUnknownError):
        lift(standing, None, BY)
