"""Event streams over real connections."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.harness import PAIR, Publisher, RunningApi
from tests.api.tokens import TokenFile, bearer
from tests.waiting import until

from accord.api import Settings
from accord.api.auth.roles import Role
from accord.api.streams import MAX_PENDING, Stream
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store

Event = tuple[str, dict[str, Any]]


class Listener:
    """An open stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._lines = response.iter_lines()

    def next(self) -> Event | None:
        """The next event, or None at the end of the stream."""
        name = ""
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
        return None


@contextmanager
def listening(api: RunningApi, **query: str) -> Iterator[Listener]:
    """A stream that has said that the feed is alive."""
    with httpx.stream("GET", f"{api.url}/v1/events", params=query, timeout=20.0) as response:
        assert response.status_code == 200
        listener = Listener(response)
        assert listener.next() == ("feed", {"alive": True})
        yield listener


@contextmanager
def running(settings: Settings) -> Iterator[RunningApi]:
    """Another api, ready."""
    with RunningApi(settings) as api:
        yield api.ready()


def test_change_arrives(api: RunningApi, publisher: Publisher) -> None:
    """Whoever listens hears of a publication, and is answered with it when they ask."""
    with listening(api) as listener:
        assert listener.response.headers["content-type"].startswith("text/event-stream")
        assert listener.response.headers["cache-control"] == "no-store"
        for _ in range(3):
            table = publisher.publish()
            assert listener.next() == ("change", {"pair": PAIR.id, "version": table.version})
            assert api.get(f"/v1/pairs/{PAIR.id}/coefficients").json()["version"] == table.version


def test_one_pair(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A stream of one pair says nothing of others."""
    with listening(api, pair=PAIR.id) as listener:
        store.client.publish("accord:changes", "another 3")
        publisher.publish()
        assert listener.next() == ("change", {"pair": PAIR.id, "version": 1})


@pytest.mark.parametrize("pair", ["", "UPPER", "a b", "é", "x" * 129, "a\r\nevent: change"])
def test_pair_invalid(api: RunningApi, pair: str) -> None:
    """A pair id that cannot be one is refused in the envelope."""
    answer = api.get("/v1/events", pair=pair)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "pair"


def test_streams_are_bounded(server: EmbeddedServer, store: Store) -> None:
    """One stream more than allowed is refused with 503 and Retry-After; a place that becomes free is given again."""
    with running(Settings(redis_url=server.url, max_streams=2)) as api:
        with listening(api), listening(api):
            answer = api.get("/v1/events")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_streams")
            assert answer.headers["retry-after"] == "1"
        until(lambda: api.services.streams.count == 0)
        with listening(api):
            pass


def test_disconnect_is_noticed(api: RunningApi) -> None:
    """A client that goes leaves nothing behind, also when nothing happens that it could be told."""
    with listening(api):
        assert api.services.streams.count == 1
    until(lambda: api.services.streams.count == 0)


def test_heartbeat(api: RunningApi, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet stream carries comments."""
    monkeypatch.setattr("accord.api.streams.HEARTBEAT_S", 0.02)
    with listening(api) as listener:
        threading.Timer(0.5, publisher.publish).start()
        assert listener.next() == ("change", {"pair": PAIR.id, "version": 1})
        assert listener.comments >= 3


def test_stop_ends_streams(server: EmbeddedServer, store: Store) -> None:
    """A server that stops ends its streams in order, and at once."""
    with running(Settings(redis_url=server.url)) as api, listening(api) as listener:
        begin = time.monotonic()
        stopping = threading.Thread(target=api.stop)
        stopping.start()
        assert listener.next() is None
        stopping.join(20)
        # Well before the server would cut off whoever is still being answered.
        assert time.monotonic() - begin < 0.9


def test_end_by_age(server: EmbeddedServer, store: Store) -> None:
    """A stream ends in order after its longest time, so that tokens are looked at again."""
    with running(Settings(redis_url=server.url, max_stream_s=0.3)) as api, listening(api) as listener:
        assert listener.next() is None
        until(lambda: api.services.streams.count == 0)


def test_end_by_revocation(server: EmbeddedServer, store: Store, tmp_path: Path) -> None:
    """A stream whose token is taken away ends in order, and another one is not opened."""
    file = TokenFile(tmp_path / "tokens")
    headers = bearer(file.tokens[Role.VIEWER])
    with running(Settings(redis_url=server.url, tokens_file=str(file.path))) as api:
        with httpx.stream("GET", f"{api.url}/v1/events", headers=headers, timeout=20.0) as response:
            listener = Listener(response)
            assert listener.next() == ("feed", {"alive": True})
            file.lines = [line for line in file.lines if "viewer-1" not in line]
            file.write()
            assert listener.next() is None
        assert api.client.get("/v1/events", headers=headers).status_code == 401
        until(lambda: api.services.streams.count == 0)


def test_whoami_with_a_token(server: EmbeddedServer, store: Store, tmp_path: Path) -> None:
    """A token's name and role are told to whoever holds it."""
    file = TokenFile(tmp_path / "tokens")
    with running(Settings(redis_url=server.url, tokens_file=str(file.path))) as api:
        for role, token in file.tokens.items():
            answer = api.client.get("/v1/whoami", headers=bearer(token))
            assert answer.json() == {"name": f"{role.value}-1", "role": role.value}
        assert api.get("/v1/whoami").status_code == 401


def test_head(api: RunningApi) -> None:
    """HEAD is answered with the headers, and does not wait for the stream's end."""
    answer = api.client.head("/v1/events")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    until(lambda: api.services.streams.count == 0)


def test_store_lost_and_back(server: EmbeddedServer, store: Store) -> None:
    """Listeners are told when announcements stop, and when they are back, as then anything may have changed."""
    with EmbeddedServer() as own:
        settings = Settings(redis_url=own.url)
        with running(settings) as api, listening(api) as listener:
            own.kill()
            assert listener.next() == ("feed", {"alive": False})
            own.start()
            assert listener.next() == ("feed", {"alive": True})


def test_slow_client(api: RunningApi, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes nothing costs one pending version a pair, and is cut off after a while."""
    monkeypatch.setattr("accord.api.event_stream.SEND_WITHIN_S", 1.0)
    host, port = api.url.removeprefix("http://").split(":")
    # Connections inherit it; with the usual buffers of megabytes the test would take minutes.
    api._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: api.services.streams.count == 1)
        (stream,) = api.services.streams._open
        version = 0
        deadline = time.monotonic() + 60
        while api.services.streams.count:
            assert time.monotonic() < deadline
            pipe = store.client.pipeline(transaction=False)
            for _ in range(500):
                version += 1
                pipe.publish("accord:changes", f"pair-{version % 50} {version}")
            pipe.execute()
            assert len(stream.pending) <= 50


def test_pending_is_bounded() -> None:
    """Changes of more pairs than a stream may have pending become one word: anything may have changed."""
    stream = Stream(None, True)
    assert stream._take() == [b'event: feed\ndata: {"alive":true}\n\n']
    for i in range(MAX_PENDING):
        stream.changed(f"pair-{i}", 1)
        stream.changed(f"pair-{i}", 2)
    assert len(stream.pending) == MAX_PENDING
    stream.changed("one-more", 1)
    assert stream._take() == [b'event: feed\ndata: {"alive":true}\n\n']
    assert stream.pending == {}


def test_whoami(api: RunningApi) -> None:
    """Without tokens everybody is a nameless operator."""
    assert api.get("/v1/whoami").json() == {"name": None, "role": "operator"}
