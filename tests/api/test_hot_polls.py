"""The short way to the coefficients says what the long way says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.api.harness import PAIR, Poll, Publisher, RunningApi
from tests.api.test_metrics import scrape
from tests.api.tokens import TokenFile, bearer
from tests.waiting import until

from accord.api import Settings
from accord.api.auth import Role
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}/coefficients"


@pytest.mark.parametrize("held", [None, "mine", '"other"', "*", 'W/"x", "y"', "not a tag"])
def test_both_ways_answer_the_same(api: RunningApi, publisher: Publisher, held: str | None) -> None:
    """A GET without a query, which takes the short way, gets status, headers and bytes of the long one."""
    publisher.publish()
    until(lambda: api.get(PATH).headers["accord-version"] == "1")
    etag = api.get(PATH).headers["etag"] if held == "mine" else held
    short, long = api.get(PATH, etag), api.get(PATH, etag, wait="0e0")
    assert (short.status_code, short.content) == (long.status_code, long.content)
    drop = {"date"}
    assert {k: v for k, v in short.headers.items() if k not in drop} == {
        k: v for k, v in long.headers.items() if k not in drop
    }
    head = api.client.head(PATH, headers={} if etag is None else {"If-None-Match": etag})
    assert (head.status_code, head.content) == (short.status_code, b"")


def test_the_short_way_follows_every_publication(api: RunningApi, publisher: Publisher) -> None:
    """A new version is answered as soon as the feed has told of it, and the old tag gets the new body."""
    publisher.publish()
    until(lambda: api.get(PATH).headers["accord-version"] == "1")
    etag = api.get(PATH).headers["etag"]
    table = publisher.publish()
    until(lambda: api.get(PATH, etag).status_code == 200)
    assert api.get(PATH, etag).content == table.to_json()


def test_a_method_or_path_that_nobody_serves_passes_on(api: RunningApi, publisher: Publisher) -> None:
    """Only GET of exactly this path is answered here: the rest gets its 404, 405 or 422."""
    publisher.publish()
    assert api.client.post(PATH).status_code == 405
    assert api.get(PATH + "/").status_code == 404
    assert api.get("/v1/pairs/UPPER/coefficients").status_code == 422


class LongWay:
    """Counts what passes the short way."""

    def __init__(self, api: RunningApi) -> None:
        self.requests = 0
        self._app: ASGIApp = api.app.polls._app
        api.app.polls._app = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        self.requests += 1
        await self._app(scope, receive, send)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    """One token of every role."""
    return TokenFile(tmp_path / "tokens")


@pytest.fixture
def guarded(store: Store, settings: Settings, tokens: TokenFile) -> Iterator[RunningApi]:
    """An api that asks for tokens."""
    with RunningApi(settings.model_copy(update={"tokens_file": str(tokens.path)})) as running:
        yield running.ready()


def hot(api: RunningApi, publisher: Publisher, headers: dict[str, str]) -> str:
    """Returns once the pair's first table is in memory and current; its tag."""
    publisher.publish()
    until(lambda: api.client.get(PATH, headers=headers).headers.get("accord-version") == "1")
    until(lambda: api.services.tables.stale == 0)
    return str(api.client.get(PATH, headers=headers).headers["etag"])


def test_a_plain_poll_takes_the_short_way(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """Every role is answered here, with and without a tag."""
    etag = hot(guarded, publisher, bearer(tokens.tokens[Role.ENGINE]))
    long = LongWay(guarded)
    for role, token in tokens.tokens.items():
        assert guarded.client.get(PATH, headers=bearer(token)).status_code == 200, role
        held = {**bearer(token), "If-None-Match": etag}
        assert guarded.client.get(PATH, headers=held).status_code == 304, role
        assert guarded.client.get(f"{PATH}?wait=0.05", headers=held).status_code == 304, role
    assert long.requests == 0


def test_refusals_take_the_long_way(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """Nobody is let in here whom the guard refuses: without a token, with a wrong, ended, doubled or removed one."""
    engine = tokens.tokens[Role.ENGINE]
    ended = tokens.add("late", Role.ENGINE, "2001-01-01T00:00:00Z")
    removed = tokens.add("removed", Role.ENGINE)
    until(lambda: guarded.client.get(PATH, headers=bearer(removed)).status_code != 401)
    hot(guarded, publisher, bearer(engine))
    assert guarded.client.get(PATH, headers=bearer(removed)).status_code == 200
    tokens.lines.pop()
    tokens.write()
    until(lambda: guarded.client.get(PATH, headers=bearer(removed)).status_code == 401)
    for lines in ([], [("Authorization", "Bearer accord_x")], [("Authorization", f"Bearer {ended}")],
                  [("Authorization", f"Bearer {engine}")] * 2, [("Authorization", f"Basic {engine}")]):  # fmt: skip
        answer = guarded.client.get(PATH, headers=lines)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated"), lines
        assert answer.headers["www-authenticate"]
    assert guarded.client.get(PATH, headers=bearer(engine)).status_code == 200


def test_what_a_poll_does_not_have_takes_the_long_way(api: RunningApi, publisher: Publisher) -> None:
    """A body, headers over the limits, one twice, another method or a query with more in it pass on."""
    etag = hot(api, publisher, {})
    long = LongWay(api)
    many = {f"x-{i}": "y" for i in range(120)}
    assert api.client.get(PATH, headers=many).status_code == 431
    assert api.client.get(PATH, headers={"x": "y" * (17 << 10)}).status_code == 431
    assert api.client.request("GET", PATH, content=b"x" * (2 << 20)).status_code == 413
    assert api.client.request("GET", PATH, content=b"x").status_code == 200
    assert api.client.get(PATH, headers=[("If-None-Match", '"a"'), ("If-None-Match", etag)]).status_code == 304
    assert api.client.head(PATH).status_code == 200
    assert api.get(PATH, wait="61").status_code == 422
    assert api.get(PATH, version="1").status_code == 200
    assert api.client.get(PATH, headers={"Host": "elsewhere.example"}).status_code == 403
    assert long.requests == 9


def test_both_ways_are_counted(api: RunningApi, publisher: Publisher) -> None:
    """Each request counts once, by its status, whichever way it took."""
    etag = hot(api, publisher, {})

    def counts() -> dict[str, float]:
        found = scrape(api)
        name = 'method="GET",route="/v1/pairs/{pair}/coefficients"'
        return {
            **{s: found.get(f'accord_api_requests_total{{{name},status="{s}"}}', 0.0) for s in ("200", "304")},
            "timed": found[f"accord_api_request_duration_seconds_count{{{name}}}"],
        }

    before = counts()
    for wait in (None, "0e0"):
        api.get(PATH, **({} if wait is None else {"wait": wait}))
        api.get(PATH, etag, **({} if wait is None else {"wait": wait}))
    api.get(PATH, etag, wait="0.05")
    after = counts()
    assert {key: after[key] - before[key] for key in after} == {"200": 2.0, "304": 3.0, "timed": 5.0}


def test_another_table_under_the_same_version(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """After a restored backup, a table that has an old one's version is the one that is served."""
    etag = hot(api, publisher, {})
    table = publisher.table(1, chat_hot=-0.7)
    key = f"accord:{{{PAIR.id}}}:coefficients"
    store.client.hset(key, mapping={"body": table.to_json(), "etag": f'"1-{table.digest}"'})
    store.client.publish("accord:changes", f"{PAIR.id} 1")
    until(lambda: api.get(PATH).content == table.to_json())
    long = LongWay(api)
    answer = api.get(PATH, etag)
    assert (answer.status_code, answer.content) == (200, table.to_json())
    assert api.get(PATH, answer.headers["etag"]).status_code == 304
    assert long.requests == 0


def test_a_fault_while_a_poll_waits(
    api: RunningApi, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is 500 in the envelope, counted, tells nothing, and stands in the log."""
    etag = hot(api, publisher, {})

    async def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(api.services.waiters, "hold", broken)
    answer = api.get(PATH, etag, wait="5")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in answer.text
    # The line comes after the answer.
    until(lambda: any(record.exc_info and "a secret" in str(record.exc_info[1]) for record in caplog.records))
    name = 'method="GET",route="/v1/pairs/{pair}/coefficients",status="500"'
    assert scrape(api)[f"accord_api_requests_total{{{name}}}"] == 1.0


def test_a_client_that_goes_leaves_no_waiter(api: RunningApi, publisher: Publisher) -> None:
    """A poll of the short way ends when its client goes, and others keep waiting."""
    etag = hot(api, publisher, {})
    poll = Poll(api, PATH, etag, 60)
    with socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2])), timeout=20) as sock:
        head = f"GET {PATH}?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: {etag}\r\n\r\n"
        sock.sendall(head.encode())
        until(lambda: api.services.waiters.count == 2)
    until(lambda: api.services.waiters.count == 1)
    publisher.publish()
    assert poll.result().status_code == 200
