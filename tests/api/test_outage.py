"""The api while the store is away, and after it came back."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.api.harness import PAIR, Poll, Publisher, RunningApi
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.api import Settings
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect

PATH = f"/v1/pairs/{PAIR.id}/coefficients"


@pytest.fixture
def far_api(store: Store, proxy: TcpProxy) -> Iterator[RunningApi]:
    """An api that reaches the store through a proxy."""
    with RunningApi(Settings(redis_url=proxy.url)) as running:
        yield running.ready()


def test_missed_message(far_api: RunningApi, publisher: Publisher, proxy: TcpProxy) -> None:
    """A version that was announced while the feed was cut answers the open poll once the feed is back."""
    etag = far_api.get(PATH).headers["etag"]
    poll = Poll(far_api, PATH, etag, 60)
    until(lambda: far_api.services.waiters.count == 1)
    proxy.cut()
    until(lambda: not far_api.services.subscriber.alive)
    table = publisher.publish()
    assert poll.answer is None
    proxy.restore()
    answer = poll.result()
    assert answer.content == table.to_json()
    assert poll.seconds < 30
    assert "accord-stale" not in answer.headers


def test_missed_message_without_waiter(far_api: RunningApi, publisher: Publisher, proxy: TcpProxy) -> None:
    """A version that was announced while the feed was cut is served to whoever asks after it is back."""
    far_api.get(PATH)
    proxy.cut()
    until(lambda: not far_api.services.subscriber.alive)
    publisher.publish()
    proxy.restore()
    until(lambda: "accord-stale" not in far_api.get(PATH).headers)
    assert far_api.get(PATH).headers["accord-version"] == "1"


def test_stale(far_api: RunningApi, publisher: Publisher, proxy: TcpProxy) -> None:
    """While the store is away the last table is served at once and marked, also as a 304."""
    table = publisher.publish()
    etag = far_api.get(PATH).headers["etag"]
    proxy.cut()
    until(lambda: not far_api.services.subscriber.alive)
    for _ in range(5):
        begin = time.monotonic()
        answer = far_api.get(PATH)
        assert time.monotonic() - begin < 1
        assert (answer.status_code, answer.content) == (200, table.to_json())
        assert answer.headers["accord-stale"] == "true"
    unchanged = far_api.get(PATH, etag=etag)
    assert (unchanged.status_code, unchanged.headers["accord-stale"]) == (304, "true")
    assert far_api.get(PATH, etag=etag, wait=0.2).status_code == 304
    proxy.restore()
    until(lambda: "accord-stale" not in far_api.get(PATH).headers)


def test_nothing_cached(far_api: RunningApi, publisher: Publisher, proxy: TcpProxy) -> None:
    """What was not read before the store went away is 503 in the envelope, and served when it is back."""
    proxy.cut()
    for path in (PATH, "/v1/pairs", f"/v1/pairs/{PAIR.id}", f"/v1/pairs/{PAIR.id}/workloads/code:greedy"):
        answer = far_api.get(path)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "store_unavailable"
        assert answer.headers["retry-after"] == "1"
        assert "127.0.0.1" not in answer.text
    proxy.restore()
    until(lambda: far_api.get(PATH).status_code == 200)


def test_hanging_store() -> None:
    """A store that accepts connections and says nothing is noticed, and what is known is served at once meanwhile."""
    with EmbeddedServer() as own, Store(connect(own.url)) as store:
        Publisher(store)
        with RunningApi(Settings(redis_url=own.url)) as api:
            api.ready().get(PATH)
            os.kill(own.pid, signal.SIGSTOP)
            try:
                until(lambda: not api.services.subscriber.alive)
                begin = time.monotonic()
                assert api.get(PATH).headers["accord-stale"] == "true"
                assert time.monotonic() - begin < 1
                assert api.get("/v1/pairs").status_code == 503
                assert api.get("/readyz").status_code == 503
                assert time.monotonic() - begin < 10
            finally:
                os.kill(own.pid, signal.SIGCONT)
            until(lambda: "accord-stale" not in api.get(PATH).headers)


def test_lost_reply(far_api: RunningApi, publisher: Publisher, proxy: TcpProxy) -> None:
    """A poll is answered although the read after its announcement failed at first."""
    etag = far_api.get(PATH).headers["etag"]
    poll = Poll(far_api, PATH, etag, 60)
    until(lambda: far_api.services.waiters.count == 1)
    # The announcement itself, then every reconnection and read for a while.
    proxy.drop_replies(6)
    publisher.publish()
    assert poll.result().headers["accord-version"] == "1"


def test_readiness(far_api: RunningApi, proxy: TcpProxy) -> None:
    """Readiness follows the store, liveness does not."""
    assert far_api.get("/readyz").status_code == 200
    proxy.cut()
    until(lambda: far_api.get("/readyz").status_code == 503)
    assert far_api.get("/readyz").json()["error"]["code"] in ("not_ready", "store_unavailable")
    assert far_api.get("/livez").status_code == 200
    proxy.restore()
    until(lambda: far_api.get("/readyz").status_code == 200)


def test_one_line_a_change(far_api: RunningApi, proxy: TcpProxy, caplog: pytest.LogCaptureFixture) -> None:
    """A store that goes and comes back is logged once each, however often it is tried."""
    caplog.set_level(logging.INFO, "accord.api")
    proxy.cut()
    until(lambda: far_api.services.subscriber._failures >= 4)
    proxy.restore()
    until(lambda: far_api.services.subscriber.alive)
    until(lambda: len(caplog.records) >= 2)
    assert [record.getMessage() for record in caplog.records] == ["store lost", "store reached"]


def test_store_restart() -> None:
    """A restarted store is found again, with what was published in between."""
    with EmbeddedServer() as own, Store(connect(own.url)) as store:
        publisher = Publisher(store)
        publisher.publish()
        with RunningApi(Settings(redis_url=own.url)) as api:
            etag = api.ready().get(PATH).headers["etag"]
            poll = Poll(api, PATH, etag, 60)
            until(lambda: api.services.waiters.count == 1)
            own.restart()
            table = publisher.publish()
            assert poll.result().content == table.to_json()
            until(lambda: api.get("/readyz").status_code == 200)


def test_starts_before_the_store(free_port: int) -> None:
    """An api that starts before its store answers 503 until the store is there."""
    with RunningApi(Settings(redis_url=f"redis://127.0.0.1:{free_port}/0")) as api:
        assert api.get("/livez").status_code == 200
        assert api.get("/readyz").status_code == 503
        assert api.get(PATH).status_code == 503
        with EmbeddedServer(port=free_port) as own, Store(connect(own.url)) as store:
            publisher = Publisher(store)
            publisher.publish()
            until(lambda: api.get("/readyz").status_code == 200)
            assert api.get(PATH).headers["accord-version"] == "1"
