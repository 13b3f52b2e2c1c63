"""Waiting for the next version."""

from __future__ import annotations

import asyncio
import socket
import time

import httpx
import pytest
from tests.api.harness import PAIR, Poll, Publisher, RunningApi
from tests.waiting import until

from accord.api import Settings
from accord.api.tables import Table
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}/coefficients"


def test_woken_by_commit(api: RunningApi, publisher: Publisher) -> None:
    """A poll is answered by the commit, long before its time is over."""
    etag = api.get(PATH).headers["etag"]
    poll = Poll(api, PATH, etag, 60)
    until(lambda: api.services.waiters.count == 1)
    begin = time.monotonic()
    table = publisher.publish()
    answer = poll.result()
    assert time.monotonic() - begin < 2
    assert (answer.status_code, answer.content) == (200, table.to_json())
    assert api.services.waiters.count == 0


def test_timeout(api: RunningApi, publisher: Publisher) -> None:
    """Without a change the poll is answered 304 when its time is over, not sooner."""
    publisher.publish()
    etag = api.get(PATH).headers["etag"]
    begin = time.monotonic()
    answer = api.get(PATH, etag=etag, wait=0.4)
    assert answer.status_code == 304
    assert 0.4 <= time.monotonic() - begin < 3
    assert answer.headers["etag"] == etag
    assert answer.headers["vary"]


@pytest.mark.parametrize("etag", [None, '"0-other"', "junk"])
def test_answers_at_once(api: RunningApi, publisher: Publisher, etag: str | None) -> None:
    """Who does not hold the current table gets it at once, however long it would wait."""
    begin = time.monotonic()
    assert api.get(PATH, etag=etag, wait=60).status_code == 200
    assert time.monotonic() - begin < 2


def test_current_table_among_others(api: RunningApi, publisher: Publisher) -> None:
    """A list that names the current table waits like the tag alone."""
    etag = api.get(PATH).headers["etag"]
    poll = Poll(api, PATH, f'"other", W/{etag}', 60)
    until(lambda: api.services.waiters.count == 1)
    publisher.publish()
    assert poll.result().headers["accord-version"] == "1"


def test_other_pairs_do_not_wake(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A commit of one pair leaves the polls of another waiting."""
    other = Publisher(store, Pair("T", "D", Method.MTP, DraftSampling.GREEDY, 1))
    etag = api.get(PATH).headers["etag"]
    poll = Poll(api, PATH, etag, 1.0)
    until(lambda: api.services.waiters.count == 1)
    other.publish()
    assert poll.result().status_code == 304
    assert poll.seconds >= 1.0


def test_many_waiters_one_read(api: RunningApi, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred polls are answered by one commit with one read of the store."""
    etag = api.get(PATH).headers["etag"]
    reads = []
    read = api.services.tables._read

    async def counted(pair: str) -> Table | None:
        reads.append(pair)
        return await read(pair)

    monkeypatch.setattr(api.services.tables, "_read", counted)

    async def scenario() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=api.url, limits=limits, timeout=90) as client:
            call = [client.get(PATH, params={"wait": 60}, headers={"If-None-Match": etag}) for _ in range(200)]
            polls = [asyncio.create_task(item) for item in call]
            deadline = time.monotonic() + 20
            while api.services.waiters.count < 200 and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(publisher.publish)
            return await asyncio.gather(*polls)

    begin = time.monotonic()
    answers = asyncio.run(scenario())
    assert time.monotonic() - begin < 30
    assert {answer.headers["accord-version"] for answer in answers} == {"1"}
    assert {answer.status_code for answer in answers} == {200}
    assert reads == [PAIR.id]


def test_disconnect_frees_the_waiter(api: RunningApi, publisher: Publisher) -> None:
    """A client that goes away frees its place at once."""
    etag = api.get(PATH).headers["etag"]
    sockets = []
    for _ in range(20):
        sock = socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2])))
        sock.sendall(f"GET {PATH}?wait=60 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {etag}\r\n\r\n".encode())
        sockets.append(sock)
    until(lambda: api.services.waiters.count == 20)
    for sock in sockets:
        sock.close()
    until(lambda: api.services.waiters.count == 0, 2)
    assert not api.services.waiters.has(PAIR.id)


def test_bounded_waiters(store: Store, settings: Settings, publisher: Publisher) -> None:
    """Above the limit a poll is answered 304 at once instead of waiting."""
    with RunningApi(settings.model_copy(update={"max_waiters": 1})) as api:
        etag = api.ready().get(PATH).headers["etag"]
        first = Poll(api, PATH, etag, 60)
        until(lambda: api.services.waiters.count == 1)
        begin = time.monotonic()
        assert api.get(PATH, etag=etag, wait=60).status_code == 304
        assert time.monotonic() - begin < 2
        publisher.publish()
        assert first.result().status_code == 200


def test_longest_wait_setting(store: Store, settings: Settings, publisher: Publisher) -> None:
    """A server may be set to hold polls for less time than clients ask for."""
    with RunningApi(settings.model_copy(update={"max_wait_s": 0.2})) as api:
        etag = api.ready().get(PATH).headers["etag"]
        begin = time.monotonic()
        assert api.get(PATH, etag=etag, wait=60).status_code == 304
        assert time.monotonic() - begin < 3


def test_shutdown_answers_open_polls(store: Store, settings: Settings, publisher: Publisher) -> None:
    """A server that stops answers every open poll 304 and ends within two seconds."""
    with RunningApi(settings) as api:
        etag = api.ready().get(PATH).headers["etag"]
        polls = [Poll(api, PATH, etag, 60) for _ in range(20)]
        until(lambda: api.services.waiters.count == 20)
        begin = time.monotonic()
        api.stop()
        assert time.monotonic() - begin < 2
        assert {poll.result().status_code for poll in polls} == {304}


def test_deleted_pair_ends_the_poll(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A poll for a pair that an operator removed ends 404 when the removal is noticed."""
    etag = api.get(PATH).headers["etag"]
    poll = Poll(api, PATH, etag, 60)
    until(lambda: api.services.waiters.count == 1)
    store.client.hdel("accord:pairs", PAIR.id)
    store.client.publish("accord:changes", f"{PAIR.id} 1")
    assert poll.result().status_code == 404


def test_junk_announcements(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Announcements that nobody of accord writes are ignored."""
    etag = api.get(PATH).headers["etag"]
    poll = Poll(api, PATH, etag, 60)
    until(lambda: api.services.waiters.count == 1)
    for junk in (b"", b"\xff\xfe", b"x", b" ", f"{PAIR.id} -1", f"{PAIR.id} {'9' * 5000}", "{} 1", "nobody 1"):
        store.client.publish("accord:changes", junk)
    publisher.publish()
    assert poll.result().status_code == 200
    assert api.services.subscriber.alive
