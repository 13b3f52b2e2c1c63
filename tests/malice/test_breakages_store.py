"""What somebody with rights in Redis breaks under a running service: it goes on, or says why not."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.api.harness import PAIR as API_PAIR
from tests.api.harness import Publisher, RunningApi
from tests.hooks.harness import KNOTS as ENGINE_KNOTS
from tests.hooks.harness import PAIR as ENGINE_PAIR
from tests.hooks.harness import parts
from tests.learner.strategies import Engine
from tests.learner.test_service import PAIR_ID, stream, taken
from tests.malice.stage import PAIR, Stage, staged
from tests.waiting import until

from accord.api import Settings
from accord.hooks.agent import Agent
from accord.hooks.settings import AgentSettings
from accord.learner.changes import Author, Wish, put
from accord.learner.embedded import EmbeddedServer
from accord.learner.logs import fields_of
from accord.learner.overrides import Kind
from accord.learner.pair_learner import TICK_MS, tick_of
from accord.learner.service.loop import LearnerService
from accord.learner.service.owner import PairOwner
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import (
    LEARNERS,
    PAIRS,
    Lease,
    PairKeys,
    PairRecord,
    Store,
    StoreError,
    StoreUnavailableError,
    connect,
)
from accord.learner.wire import encode

KEYS = PairKeys(PAIR.id)
LAST_ID = "18446744073709551615-18446744073709551615"
"""Behind it a stream takes nothing, ever."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One service for all breakages, one after the other: each must leave it working."""
    with staged(tmp_path_factory.mktemp("breakages"), engines=2, warm=3) as running:
        yield running


def told(stage: Stage, since: int) -> list[dict[str, Any]]:
    """What the learner has logged since its log was so long."""
    return [json.loads(line) for line in stage.learner.log.read_text()[since:].splitlines() if line.startswith("{")]


def events(stage: Stage, since: int) -> set[str]:
    """The first words of these lines."""
    return {line["event"] for line in told(stage, since)}


def learns_on(stage: Stage) -> None:
    """Another round is learnt, and what it taught is served."""
    stage.rounds(1)
    stage.settled()
    assert stage.api.get("/readyz").status_code == 200


def length(stage: Stage) -> int:
    """Of the learner's log."""
    return len(stage.learner.log.read_text())


@pytest.mark.parametrize("part", ["state", "coefficients", "rounds", "history", "lease"])
def test_one_key_of_a_pair_is_deleted(stage: Stage, part: str) -> None:
    """The pair learns on and its versions grow; a lost state is told as such."""
    before, mark = stage.served().version, length(stage)
    stage.store.client.delete(getattr(KEYS, part))
    learns_on(stage)
    assert stage.served().version >= before
    assert ("store went back" in events(stage, mark)) == (part == "state")
    assert all("traceback" not in line for line in told(stage, mark))


def test_a_backup_is_restored_under_a_running_learner(stage: Stage) -> None:
    """All keys of a pair become those of before: told as such and counted, and learning goes on from there."""
    client = stage.store.client
    learns_on(stage)
    backup = {key: client.dump(key) for key in client.scan_iter(f"accord:{{{PAIR.id}}}:*")}
    for _ in range(2):
        learns_on(stage)
    known, rewinds, mark = stage.store.load(PAIR.id).watermark, stage.counters()["rewinds"], length(stage)
    with client.pipeline() as pipe:
        for key, value in backup.items():
            pipe.restore(key, 0, value, replace=True)
        pipe.execute()
    learns_on(stage)
    assert stage.counters()["rewinds"] == rewinds + 1
    line = next(line for line in told(stage, mark) if line["event"] == "store went back")
    assert line["committed"] == known


def test_scripts_and_connections_go(stage: Stage) -> None:
    """SCRIPT FLUSH, CLIENT KILL and a stream under another name lose nothing that was acknowledged and learnt."""
    before = stage.counters()["summaries"]
    for act in (
        lambda: stage.store.client.script_flush(),
        lambda: stage.store.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
        lambda: stage.store.client.rename(KEYS.rounds, "elsewhere"),
    ):
        act()
        learns_on(stage)
    assert stage.counters()["summaries"] == before + 3 * len(stage.engines)


@pytest.mark.parametrize("arguments", [("MAXLEN", "0"), ()], ids=["trimmed", "kept"])
def test_an_engine_uses_up_the_ids_of_a_stream(stage: Stage, arguments: tuple[str, ...]) -> None:
    """Redis takes no more summaries then; the owner opens the stream again, and engines send what they have kept."""
    mark = length(stage)
    stage.store.client.execute_command("XADD", KEYS.rounds, *arguments, LAST_ID, "d", "x")
    if arguments:
        with pytest.raises(StoreError, match="exhausted the last possible ID"):
            stage.rounds(1)
        # It looks once a minute, and when it takes a pair.
        stage.store.client.delete(KEYS.lease)
    opened = {"stream opened again", "entries brought back"}
    until(lambda: opened & events(stage, mark), what="nobody opened it")
    learns_on(stage)


def test_coefficients_are_evicted_while_traffic_rests(stage: Stage) -> None:
    """What was learnt is published again under a new version: an engine that starts is not served a cold start."""
    learns_on(stage)
    before, mark = stage.served(), length(stage)
    stage.store.client.delete(KEYS.coefficients)
    with RunningApi(Settings(redis_url=stage.api.services.settings.redis_url)) as fresh:
        address = f"/v1/pairs/{PAIR.id}/coefficients"
        assert fresh.get(address).json()["version"] == 0
        stage.store.client.delete(KEYS.lease)
        until(lambda: fresh.get(address).json()["version"] == before.version + 1)
        assert fresh.get(address).json()["workloads"] == json.loads(before.to_json())["workloads"]
        newest = fresh.get(f"/v1/pairs/{PAIR.id}/history", limit=1).json()["entries"][0]
    assert newest["cause"] == "restored"
    assert "coefficients were lost" in events(stage, mark)
    learns_on(stage)


def owned(store: Store) -> tuple[PairOwner, PairRecord, Lease, int]:
    """An owner with a learnt pair, and the end of its stream."""
    record, lease = taken(store)
    entries = stream(1)
    for entry_id, body in entries:
        store.append(PAIR_ID, body, entry_id=entry_id)
    return PairOwner(store, record, lease), record, lease, (tick_of(entries[-1][0]) + 40) * TICK_MS


def test_a_history_that_takes_nothing(store: Store) -> None:
    """A commit whose history cannot be written writes nothing at all, and the next owner goes on as if never tried."""
    owner, record, lease, end_ms = owned(store)
    keys = PairKeys(PAIR_ID)
    store.client.execute_command("XADD", keys.history, LAST_ID, "version", "0")
    before = store.load(PAIR_ID), store.client.xlen(keys.rounds)
    with pytest.raises(StoreError, match="exhausted the last possible ID"):
        owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    assert (store.load(PAIR_ID), store.client.xlen(keys.rounds)) == before
    store.client.delete(keys.history)
    owner = PairOwner(store, record, lease)
    assert owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000) > 0
    assert store.client.xlen(keys.rounds) == 0


def test_a_lost_table_keeps_its_overrides_end(store: Store) -> None:
    """What is published in place of lost coefficients holds the overrides, and when the first of them ends."""
    owner, record, _, end_ms = owned(store)
    owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    store.apply(put(store.standing(record), None, Wish(Kind.SHIFT, shift=-0.5, expires_in_s=60.0), Author("a", "b")))
    keys = PairKeys(PAIR_ID)
    wanted = store.client.hmget(keys.coefficients, "expires_ms", "version")
    served = store.coefficients(PAIR_ID)
    store.client.delete(keys.coefficients)
    assert owner.step([], end_ms, 1_000) == 1
    again = store.coefficients(PAIR_ID)
    assert served is not None
    assert again is not None
    assert json.loads(again.body)["workloads"] == json.loads(served.body)["workloads"]
    assert store.client.hmget(keys.coefficients, "expires_ms", "version") == [wanted[0], b"%d" % (int(wanted[1]) + 1)]
    # The next look is a minute away.
    store.client.delete(keys.coefficients)
    assert owner.step([], end_ms, 1_000) == 0
    owner.repair.next_s = 0.0
    assert owner.step([], end_ms, 1_000) == 1


def test_coefficients_and_history_are_lost_again_while_traffic_rests(store: Store) -> None:
    """Every loss is mended, also when what is published again is the same to the byte as after the loss before."""
    owner, _, _, end_ms = owned(store)
    owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    keys, state = PairKeys(PAIR_ID), store.load(PAIR_ID).body
    for _ in range(3):
        store.client.delete(keys.coefficients, keys.history)
        owner.repair.next_s = 0.0
        assert owner.step([], end_ms, 1_000) == 1
        assert store.is_served(PAIR_ID)
    assert store.load(PAIR_ID).body == state


def test_an_owner_ends_right_after_it_published_a_lost_table_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the override in it is known all the same."""
    owner, record, lease, end_ms = owned(store)
    owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    store.apply(put(store.standing(record), None, Wish(Kind.SHIFT, shift=-0.5, expires_in_s=60.0), Author("a", "b")))
    key = PairKeys(PAIR_ID).coefficients
    expires = store.client.hget(key, "expires_ms")
    store.client.delete(key)

    def commit(*arguments: Any) -> None:
        Store.commit(store, *arguments)
        raise StoreUnavailableError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(store, "commit", commit)
        with pytest.raises(StoreUnavailableError):
            owner.step([], end_ms, 1_000)
    assert PairOwner(store, record, lease).step([], end_ms, 1_000) == 0
    assert store.client.hget(key, "expires_ms") == expires


@pytest.mark.parametrize("version", ["abc", "-1", str(2**53 - 1), str(2**53)])
def test_coefficients_are_lost_beside_a_history_without_versions(store: Store, version: str) -> None:
    """They are published again all the same, and learning does not end."""
    owner, _, _, end_ms = owned(store)
    owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    keys, served = PairKeys(PAIR_ID), store.coefficients(PAIR_ID)
    store.client.xadd(keys.history, {"version": version})
    store.client.delete(keys.coefficients)
    assert owner.step([], end_ms, 1_000) == 1
    assert store.coefficients(PAIR_ID) == served


@pytest.mark.parametrize("far", [True, False], ids=["in the future", "in a tick that is learnt"])
def test_an_entry_of_many_fields_takes_nothing_with_it(store: Store, far: bool) -> None:
    """Entries get new ids although one among them has more fields than a script can pass on; only that is refused."""
    owner, _, _, end_ms = owned(store)
    keys, fields = PairKeys(PAIR_ID), {f"f{number}": "" for number in range(10_000)}
    if not far:
        owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    else:
        store.client.delete(keys.rounds)
    first_ms = end_ms + 3_600_000 if far else int(owner.watermark.partition("-")[0])
    store.client.xadd(keys.rounds, fields, id=f"{first_ms}-999")
    bodies = [encode(Engine(2, pair=PAIR_ID, name="other").round(5)) for _ in range(3)]
    for number, body in enumerate(bodies, start=1_000):
        store.append(PAIR_ID, body, entry_id=f"{first_ms}-{number}")
    owner.step(store.read(PAIR_ID, owner.watermark, 1_000), end_ms, 1_000)
    found = store.read(PAIR_ID, owner.watermark, 1_000)
    assert [body for _, body in found] == [b"", *bodies]
    assert {int(entry_id.partition("-")[0]) for entry_id, _ in found} != {first_ms}


@pytest.mark.parametrize("expires", ["32503680000000", "soon"], ids=["in the year 3000", "no number"])
def test_a_lease_that_nobody_granted(store: Store, expires: str) -> None:
    """Its holder cannot commit with an end that is none, and after ten minutes at most somebody else takes the pair."""
    record, lease = taken(store, "gone")
    key = PairKeys(record.pair.id).lease
    ten_minutes_ago = store.clock_ms(record.pair.id) - 600_001
    store.client.hset(key, mapping={"expires_ms": expires, "granted_ms": ten_minutes_ago})
    if expires == "soon":
        assert not store.renew(lease, 1_000)
        assert store.lease_holder(record.pair.id) is None
    found = store.acquire(record.pair.id, "next", 1_000)
    assert found is not None
    assert found.fence == lease.fence + 1


@contextmanager
def learning(store: Store, server: EmbeddedServer) -> Iterator[LearnerService]:
    """A learner in a thread."""
    own = Store(connect(server.url, role="learner"))
    service = LearnerService(LearnerSettings(redis_url=server.url, lease_ms=900), own)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(20.0)
        assert not thread.is_alive()


def lines(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    """Log records of an event."""
    return [record for record in caplog.records if record.getMessage() == name]


@pytest.mark.parametrize("key", [PAIRS, LEARNERS])
def test_a_key_of_all_pairs_has_another_type(
    store: Store, server: EmbeddedServer, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    """A running learner says what Redis says, waits, and goes on once the key is right again."""
    caplog.set_level(logging.INFO)
    taken(store)
    with learning(store, server):
        until(lambda: lines(caplog, "store reached"))
        right = store.client.dump(key)
        store.client.delete(key)
        store.client.set(key, "x")
        until(lambda: lines(caplog, "store lost"))
        assert "WRONGTYPE" in fields_of(lines(caplog, "store lost")[0])["reason"]
        store.client.restore(key, 0, right, replace=True)
        until(lambda: len(lines(caplog, "store reached")) == 2)


def test_a_pairs_key_has_another_type(store: Store, server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    """The pair is set aside with one line that says what Redis says; nothing of it is a traceback."""
    caplog.set_level(logging.INFO)
    record = store.register(owned(store)[1].pair, (0.0, 2.0))
    store.client.delete(PairKeys(PAIR_ID).lease)
    store.client.set(PairKeys(PAIR_ID).history, "x")
    with learning(store, server):
        until(lambda: lines(caplog, "cannot learn"))
    [line] = lines(caplog, "cannot learn")
    assert line.exc_info is None or line.exc_info is False or line.exc_info[0] is None
    assert (fields_of(line)["pair"], "WRONGTYPE" in fields_of(line)["reason"]) == (record.pair.id, True)
    assert store.client.xlen(PairKeys(PAIR_ID).rounds) > 0
    store.client.delete(PairKeys(PAIR_ID).history)


def test_a_database_that_the_server_does_not_have(
    server: EmbeddedServer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The learner ends and names the address; the API answers that the store refuses, and its log says why."""
    wrong = server.url.removesuffix("/0") + "/17"
    with pytest.raises(StoreError, match=rf"{wrong}: ResponseError: DB index is out of range"):
        LearnerService(LearnerSettings(redis_url=wrong)).run()
    caplog.clear()
    with RunningApi(Settings(redis_url=wrong)) as api:
        for _ in range(3):
            answer = api.get("/v1/pairs")
            assert answer.status_code == 500
            message = answer.json()["error"]["message"]
            assert message == "the store refuses this for a reason that is in the server's log"
    [line] = lines(caplog, "store failed")
    assert "DB index is out of range" in fields_of(line)["reason"]


def test_the_api_is_pointed_at_a_replica(
    server: EmbeddedServer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Coefficients are served; what it cannot do is refused as such, and its log names the replica's refusal once."""
    Publisher(store).publish()
    with EmbeddedServer(options=["--replicaof", "127.0.0.1", str(server.port)]) as replica:
        with Store(connect(replica.url, role="test")) as copy:
            until(lambda: copy.client.info("replication")["master_link_status"] == "up")
        with RunningApi(Settings(redis_url=replica.url)) as api:
            address = f"/v1/pairs/{API_PAIR.id}"
            assert api.get(f"{address}/coefficients").json()["version"] == 1
            body = {"kind": "shift", "shift": 0.1, "reason": "r", "actor": "a"}
            for _ in range(2):
                answer = api.client.put(f"{address}/override", json=body, headers={"If-Match": "*"})
                assert answer.status_code == 503
                assert "for a reason that is in the server's log" in answer.json()["error"]["message"]
    [line] = lines(caplog, "store failed")
    assert "read only replica" in fields_of(line)["reason"]


def test_rights_are_taken_from_an_engine_under_way(server: EmbeddedServer, store: Store) -> None:
    """Its heartbeat names the right that is missing; what it measures meanwhile is kept, and sent once it may."""
    admin = store.client
    admin.execute_command("ACL", "SETUSER", "engine-x", "on", ">secret", "~*", "&*", "+@all")
    url = server.url.replace("redis://", "redis://engine-x:secret@")
    agent = Agent(ENGINE_PAIR, AgentSettings(redis_url=url, knots=ENGINE_KNOTS, engine="host/0", heartbeat_s=0.1))
    agent.start()
    try:
        agent.put(parts(0))
        assert agent.flush(10.0)
        admin.execute_command("ACL", "SETUSER", "engine-x", "-xadd")
        agent.put(parts(1))
        until(lambda: "'xadd' command" in str(json.loads(store.engines(ENGINE_PAIR.id)["host/0"])["publisher_error"]))
        assert agent.status()["labels"]["lost"] == 0
        admin.execute_command("ACL", "SETUSER", "engine-x", "+xadd")
        assert agent.flush(20.0)
        status = agent.status()
        assert status["labels"]["sent"] == status["labels"]["put"] > 0
    finally:
        assert agent.stop()
        admin.execute_command("ACL", "DELUSER", "engine-x")
