"""The puller against a real api and against servers that lie."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.api.harness import Publisher, RunningApi
from tests.hooks.harness import KNOTS, PAIR, RawServer, reply, serving, table
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.api import Settings
from accord.hooks import puller as module
from accord.hooks.credentials import Credentials
from accord.hooks.judge import Judge
from accord.hooks.puller import Puller
from accord.learner.coefficients import CoefficientTable
from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import Reason, Refusal
from accord.learner.store import Store

GOOD = table(3).to_json()
OK = ("Content-Type: application/json", 'ETag: "three"')


class Heard:
    """Remembers what a puller reports."""

    def __init__(self) -> None:
        self.tables: list[CoefficientTable] = []
        self.answers = 0
        self.failures: list[tuple[float, float, str]] = []
        self.refusals: list[Refusal] = []

    def on_table(self, table: CoefficientTable) -> None:
        """One more."""
        self.tables.append(table)

    def on_answer(self, now: float) -> None:
        """One more."""
        self.answers += 1

    def on_failure(self, now: float, since: float, reason: str) -> None:
        """One more."""
        self.failures.append((now, since, reason))

    def on_refusal(self, refusal: Refusal) -> None:
        """One more."""
        self.refusals.append(refusal)


@contextmanager
def pulling(
    url: str, wait_s: float = 0.2, grace_s: float = 5.0, token: str | None = None
) -> Iterator[tuple[Puller, Heard]]:
    """A puller that runs, and must end when told to."""
    heard = Heard()
    puller = Puller(url, Credentials(token), "host/0", Judge(PAIR.id, PAIR.k, KNOTS), heard, wait_s, grace_s=grace_s)
    puller.start()
    try:
        yield puller, heard
    finally:
        assert puller.stop(10.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, so that several polls fit into a test."""
    monkeypatch.setattr(module, "PAUSE_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.02)


@pytest.fixture
def api(store: Store, server: EmbeddedServer) -> Iterator[RunningApi]:
    """The real api."""
    with RunningApi(Settings(redis_url=server.url)) as running:
        yield running.ready()


@pytest.fixture
def publisher(store: Store) -> Publisher:
    """Who publishes for the pair."""
    return Publisher(store, PAIR, KNOTS)


def test_every_publication_arrives(api: RunningApi, publisher: Publisher) -> None:
    """Versions arrive one after the other, each by a poll that was waiting for it."""
    with pulling(api.url, wait_s=20.0) as (_, heard):
        until(lambda: heard.answers)
        assert heard.tables == []
        for count in range(1, 4):
            published = publisher.publish(code_greedy=0.1 * count)
            until(lambda want=count: len(heard.tables) == want)
            assert heard.tables[-1].digest == published.digest
        until(lambda: api.services.waiters.count == 1)
    assert heard.failures == []


def test_stop_ends_a_poll_that_waits(api: RunningApi, publisher: Publisher) -> None:
    """Stopping does not wait for the server to answer."""
    publisher.publish()
    with pulling(api.url, wait_s=50.0) as (puller, heard):
        until(lambda: heard.tables and api.services.waiters.count == 1)
        begin = time.monotonic()
        assert puller.stop(20.0)
        assert time.monotonic() - begin < 10.0
    assert heard.failures == []


def test_unchanged_is_an_answer(api: RunningApi, publisher: Publisher) -> None:
    """A 304 counts as an answer and brings no table."""
    publisher.publish()
    with pulling(api.url, wait_s=0.1) as (_, heard):
        until(lambda: heard.answers >= 4)
    assert len(heard.tables) == 1


@pytest.mark.usefixtures("quick")
def test_outage_and_return(api: RunningApi, publisher: Publisher) -> None:
    """A cut network is reported, and the first poll after it brings what was published meanwhile."""
    publisher.publish()
    port = int(api.url.rsplit(":", 1)[1])
    with TcpProxy("127.0.0.1", port) as proxy, pulling(f"http://127.0.0.1:{proxy.port}", 5.0) as (_, heard):
        until(lambda: heard.tables)
        proxy.cut()
        until(lambda: len(heard.failures) >= 2)
        publisher.publish(code_greedy=0.9)
        proxy.restore()
        until(lambda: len(heard.tables) == 2)


@pytest.mark.usefixtures("quick")
def test_lost_store_is_no_answer(store: Store, server: EmbeddedServer, publisher: Publisher) -> None:
    """A service without its store still serves its last table, but does not count as one that answers."""
    publisher.publish()
    with (
        TcpProxy("127.0.0.1", server.port) as proxy,
        RunningApi(Settings(redis_url=proxy.url)) as api,
        pulling(api.ready().url, 0.2) as (_, heard),
    ):
        until(lambda: heard.answers)
        proxy.cut()
        until(lambda: any("lost its store" in reason for _, _, reason in heard.failures))
        answers = heard.answers
        proxy.restore()
        until(lambda: heard.answers > answers)
    assert len(heard.tables) == 1


def test_unknown_pair_is_a_failure(api: RunningApi) -> None:
    """A pair that nobody registered is no answer, until somebody does."""
    with pulling(api.url) as (_, heard):
        until(lambda: heard.failures)
    assert "HTTP 404" in heard.failures[0][2]
    assert heard.answers == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (reply("200 OK", b"garbage", *OK), Reason.SCHEMA),
        (reply("200 OK", GOOD.replace(b"0.6", b"NaN"), *OK), Reason.NOT_FINITE),
        (reply("200 OK", GOOD.replace(b"[0.6,", b"[-0.6,"), *OK), Reason.OUT_OF_BOUNDS),
        (reply("200 OK", CoefficientTable.cold(PAIR.id, 5, KNOTS).to_json(), *OK), Reason.SHAPE),
        (reply("200 OK", CoefficientTable.cold(PAIR.id, 3, (1.0,)).to_json(), *OK), Reason.KNOTS),
        (reply("200 OK", CoefficientTable.cold("other", 3, KNOTS).to_json(), *OK), Reason.WRONG_PAIR),
        (reply("200 OK", GOOD, "Content-Encoding: gzip", *OK), Reason.SCHEMA),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", Reason.SIZE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999999999\r\n\r\n", None),
    ],
)
def test_lies_are_refused(payload: bytes, reason: Reason | None) -> None:
    """A body that cannot be verified is refused with its kind, again and again, and no table comes of it."""
    with RawServer(serving(payload)) as liar, pulling(liar.url) as (_, heard):
        until(lambda: len(heard.failures) >= 3)
    assert heard.tables == []
    assert heard.answers == 0
    assert reason is None or {refusal.reason for refusal in heard.refusals} == {reason}


def test_endless_body_is_cut_off() -> None:
    """A body without a declared length is read up to the limit of a table and no further."""
    sent = 0

    def pour(client: socket.socket, request: bytes) -> None:
        nonlocal sent
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1600):
            client.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            sent += 0x10000

    with RawServer(pour) as liar, pulling(liar.url) as (_, heard):
        until(lambda: heard.refusals)
    assert heard.refusals[0].reason is Reason.SIZE
    assert sent < 50_000_000


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_slow_drip_is_overdue(head: bytes) -> None:
    """A server that sends a byte now and then, in its headers or its body, is given up after the whole time."""

    def drip(client: socket.socket, request: bytes) -> None:
        client.sendall(head)
        while not liar.ending.wait(0.05):
            client.sendall(b" ")

    with RawServer(drip) as liar, pulling(liar.url, 0.2, grace_s=0.3) as (_, heard):
        until(lambda: heard.failures)
        now, since, reason = heard.failures[0]
        assert "OverdueError" in reason
        assert now - since >= 0.4


def test_silence_counts_from_the_start_of_the_poll() -> None:
    """A server that accepts and says nothing is given up, and was silent since the poll began."""
    with RawServer(lambda client, request: liar.ending.wait() and None) as liar:
        begin = time.monotonic()
        with pulling(liar.url, 0.2, grace_s=0.3) as (_, heard):
            until(lambda: heard.failures)
            now, since, _ = heard.failures[0]
            assert begin <= since <= now - 0.4


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "payload",
    [
        reply("500 Oops"),
        reply("302 Found", b"", "Location: /x"),
        reply("304 Not Modified"),
        b"",
        b"\0",
    ],
)
def test_no_answer_at_all(payload: bytes) -> None:
    """Errors, redirects, a 304 to no condition, and closed connections are failures, however often."""
    with RawServer(serving(payload)) as liar, pulling(liar.url) as (_, heard):
        until(lambda: len(heard.failures) >= 4)
    assert heard.tables == []
    assert heard.answers == 0


def test_old_version_is_refused() -> None:
    """A server that goes back to an older version is refused as stale, and the newer stays."""
    bodies = iter([table(5).to_json(), table(4).to_json(), table(4).to_json()])

    def backwards(client: socket.socket, request: bytes) -> None:
        client.sendall(reply("200 OK", next(bodies, GOOD), 'ETag: "x"'))

    with RawServer(backwards) as liar, pulling(liar.url) as (_, heard):
        until(lambda: heard.refusals)
    assert [item.version for item in heard.tables] == [5]
    assert heard.refusals[0].reason is Reason.STALE


@pytest.mark.parametrize("status", [reply("200 OK", GOOD, *OK), reply("200 OK", GOOD)])
def test_no_hot_loop(status: bytes) -> None:
    """A server that answers at once whatever it is asked is polled about once a second."""
    with RawServer(serving(status)) as liar, pulling(liar.url, 20.0) as (_, heard):
        until(lambda: heard.answers >= 2)
        begin, before = time.monotonic(), len(liar.requests)
        until(lambda: time.monotonic() - begin > 1.5)
        assert len(liar.requests) - before <= 4


def test_request() -> None:
    """A poll carries the token, the condition and the wait, and asks for no compression."""
    with (
        RawServer(serving(reply("200 OK", GOOD, *OK))) as liar,
        pulling(liar.url, 5.0, token="s3cret"),
    ):
        until(lambda: len(liar.requests) >= 2)
    request = liar.requests[1].decode().lower()
    assert request.startswith(f"get /v1/pairs/{PAIR.id}/coefficients?wait=")
    assert "authorization: bearer s3cret" in request
    assert 'if-none-match: "three"' in request
    assert "accept-encoding: identity" in request
    assert "if-none-match" not in liar.requests[0].decode().lower()
