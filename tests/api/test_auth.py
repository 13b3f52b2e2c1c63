"""Tokens over real HTTP: who gets in, who does not, and how a file of tokens is replaced."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Match, Mount, Route
from tests.api.harness import PAIR, Publisher, RunningApi
from tests.api.tokens import TokenFile, bearer
from tests.waiting import until

from accord.api import Settings, create_app
from accord.api.auth import Principal, Role, TokenFileError
from accord.api.auth.table import LEAST, UndeclaredRouteError, route_path, routes_of
from accord.api.auth.tokens import ROLES, Entry, digest_of
from accord.learner.bounds import MAX_TOKEN_BYTES
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}/coefficients"
VALUES = {"pair": PAIR.id, "key": "code:greedy", "path": "x"}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    """One token of every role."""
    return TokenFile(tmp_path / "tokens")


@pytest.fixture
def guarded(store: Store, settings: Settings, tokens: TokenFile) -> Iterator[RunningApi]:
    """An api that asks for tokens, and whose streams end soon."""
    with RunningApi(settings.model_copy(update={"tokens_file": str(tokens.path), "max_stream_s": 0.1})) as running:
        running.app.state.auth.throttle.longest_s = 0.0
        yield running.ready()


def error(answer: httpx.Response) -> dict[str, Any]:
    """The error in the envelope."""
    found: dict[str, Any] = answer.json()["error"]
    return found


def filled(path: str) -> str:
    """A path template with values."""
    for name, value in VALUES.items():
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    return path


def test_every_route_is_in_the_table(api: RunningApi) -> None:
    """Every route of the application has a least role."""
    assert {route for route in routes_of(api.app) if route not in LEAST} == set()


def test_a_route_outside_the_table_does_not_start(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application with a route that has no least role is not built."""
    monkeypatch.delitem(LEAST, ("GET", "/v1/pairs"))
    with pytest.raises(UndeclaredRouteError, match="GET /v1/pairs has no least role"):
        create_app(settings)


def test_roles(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """On every route a role that suffices gets in, a lesser one is 403, and no token 401 unless the route is open."""
    for method, path in sorted(routes_of(guarded.app)):
        least = LEAST[method, path]
        method = "GET" if method == "*" else method
        anonymous = guarded.client.request(method, filled(path))
        assert (anonymous.status_code == 401) is (least is not Role.OPEN), (method, path)
        for role in ROLES:
            answer = guarded.client.request(method, filled(path), headers=bearer(tokens.tokens[role]))
            if role.covers(least):
                assert answer.status_code not in (401, 403), (method, path, role)
            else:
                assert (answer.status_code, error(answer)["code"]) == (403, "forbidden"), (method, path, role)
                assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def test_head(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """HEAD asks for what GET asks for."""
    assert guarded.client.head(PATH).status_code == 401
    assert guarded.client.head(PATH, headers=bearer(tokens.tokens[Role.ENGINE])).status_code == 200
    assert guarded.client.head("/v1/pairs", headers=bearer(tokens.tokens[Role.ENGINE])).status_code == 403


def test_no_route(guarded: RunningApi, tokens: TokenFile) -> None:
    """What is no route is 404 or 405 for everybody."""
    assert guarded.client.get("/nowhere").status_code == 404
    assert guarded.client.post(PATH).status_code == 405


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"Authorization:"],
        [b"Authorization: Bearer"],
        [b"Authorization: Bearer "],
        [b"Authorization: Bearer wrong"],
        [b"Authorization: Basic b3BzOm9wcw=="],
        [b"Authorization: {engine}"],
        [b"Authorization: Bearer {engine} {engine}"],
        [b"Authorization: Bearer {engine},Bearer {engine}"],
        [b"Authorization: Bearer {engine}", b"Authorization: Bearer {engine}"],
        [b"Authorization: Bearer\t{engine}x"],
        [b"Authorization: Bearer {engine}="],
        [b'Authorization: Bearer "{engine}"'],
        [b"Authorization: Bearer \xc3\xa9\xff\xfe"],
        [b"Authorization: Bearer " + b"A" * 8000],
        [b"Authorization: Bearer " + b"9" * 5000],
        [b"Authorization: " + b"Bearer" * 900],
        [b"X-Authorization: Bearer {engine}"],
        [b"Cookie: Authorization=Bearer {engine}"],
    ],
)
def test_no_usable_token(guarded: RunningApi, tokens: TokenFile, lines: list[bytes]) -> None:
    """Whatever stands in the headers that is no token of ours is 401 with a challenge, and not shown again."""
    token = tokens.tokens[Role.ENGINE].encode()
    sent = b"".join(line.replace(b"{engine}", token) + b"\r\n" for line in lines)
    with socket.create_connection(("127.0.0.1", int(guarded.url.rpartition(":")[2])), timeout=20) as sock:
        sock.sendall(f"GET {PATH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".encode() + sent + b"\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 "), head
    assert b'www-authenticate: Bearer realm="accord"' in head
    assert json.loads(body)["error"]["code"] == "unauthenticated"
    assert token not in answer


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER   {}"])
def test_forms_of_a_good_header(guarded: RunningApi, publisher: Publisher, tokens: TokenFile, form: str) -> None:
    """The scheme is written in any case, with any number of spaces."""
    header = form.format(tokens.tokens[Role.ENGINE])
    assert guarded.client.get(PATH, headers={"Authorization": header}).status_code == 200


def test_token_elsewhere(guarded: RunningApi, tokens: TokenFile) -> None:
    """A token in the query or in a body is none."""
    token = tokens.tokens[Role.OPERATOR]
    for name in ("token", "access_token", "authorization"):
        assert guarded.client.get("/v1/pairs", params={name: token}).status_code == 401
        assert guarded.client.request("GET", "/v1/pairs", data={name: token}).status_code == 401


def test_rotation(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """A token that is added works, and one that is removed stops working, without a restart."""
    fresh = tokens.add("engine-2", Role.ENGINE)
    until(lambda: guarded.client.get(PATH, headers=bearer(fresh)).status_code == 200)
    old = tokens.tokens[Role.ENGINE]
    assert guarded.client.get(PATH, headers=bearer(old)).status_code == 200
    tokens.lines.pop(0)
    tokens.write()
    until(lambda: guarded.client.get(PATH, headers=bearer(old)).status_code == 401)
    assert guarded.client.get(PATH, headers=bearer(fresh)).status_code == 200


def test_changed_role(guarded: RunningApi, tokens: TokenFile) -> None:
    """A token whose line gets another role has that role from then on."""
    token = tokens.tokens[Role.ENGINE]
    assert guarded.client.get("/v1/pairs", headers=bearer(token)).status_code == 403
    tokens.lines[0] = tokens.lines[0].replace(" engine ", " viewer ")
    tokens.write()
    until(lambda: guarded.client.get("/v1/pairs", headers=bearer(token)).status_code == 200)


@pytest.mark.parametrize("damage", ["half", "empty", "gone"])
def test_damaged_file(guarded: RunningApi, tokens: TokenFile, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    """A damaged, empty or missing file leaves the tokens before in force, and logs one line that shows no secret."""
    caplog.set_level(logging.INFO, logger="accord.api")
    good = "\n".join(tokens.lines)
    if damage == "gone":
        tokens.path.unlink()
    else:
        tokens.write(f"# new\n{good[:-9]}" if damage == "half" else "")
    until(lambda: any(record.levelname == "ERROR" for record in caplog.records))
    until(lambda: guarded.app.state.auth.keyring.refresh() is False)
    records = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(records) == 1
    reason = records[0].fields["reason"]
    assert (
        reason
        == {
            "half": "line 4: the hash must be sha256: and 64 hex digits",
            "empty": "no tokens in it",
            "gone": "No such file or directory",
        }[damage]
    )
    assert guarded.client.get("/v1/pairs", headers=bearer(tokens.tokens[Role.VIEWER])).status_code == 200
    tokens.write()
    fresh = tokens.add("late", Role.VIEWER)
    until(lambda: guarded.client.get("/v1/pairs", headers=bearer(fresh)).status_code == 200)


def test_expiry(guarded: RunningApi, tokens: TokenFile) -> None:
    """A token whose time is over is 401, although its line is still there."""
    later, earlier = "2999-01-01T00:00:00Z", "2001-01-01T00:00:00+02:00"
    good, ended = tokens.add("a", Role.VIEWER, later), tokens.add("b", Role.VIEWER, earlier)
    until(lambda: guarded.client.get("/v1/pairs", headers=bearer(good)).status_code == 200)
    answer = guarded.client.get("/v1/pairs", headers=bearer(ended))
    assert (answer.status_code, error(answer)["message"]) == (401, "this token has ended")


def test_a_token_is_refused_before_the_body_is_read(guarded: RunningApi) -> None:
    """Nobody without a token makes the server read a body."""
    answer = guarded.client.request("GET", "/v1/pairs", content=b"{" * 100_000)
    assert answer.status_code == 401


def test_long_poll_is_held(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """A poll with a token is held and answered by a publication."""
    headers = bearer(tokens.tokens[Role.ENGINE])
    etag = guarded.client.get(PATH, headers=headers).headers["etag"]
    answers: list[httpx.Response] = []

    def poll() -> None:
        held = {**headers, "If-None-Match": etag}
        answers.append(httpx.get(f"{guarded.url}{PATH}", params={"wait": 60}, headers=held, timeout=70))

    thread = threading.Thread(target=poll)
    thread.start()
    until(lambda: guarded.services.waiters.count == 1)
    publisher.publish()
    thread.join(30)
    assert answers[0].status_code == 200


def test_a_stream_ends_with_its_token(
    store: Store, settings: Settings, publisher: Publisher, tokens: TokenFile
) -> None:
    """An answer without an end is ended when its token is taken away, and goes on while it is not."""
    kept, lost = bearer(tokens.tokens[Role.OPERATOR]), bearer(tokens.tokens[Role.VIEWER])
    with (
        RunningApi(settings.model_copy(update={"tokens_file": str(tokens.path)})) as api,
        api.ready().client.stream("GET", "/v1/events", headers=kept) as stays,
        api.client.stream("GET", "/v1/events", headers=lost) as ends,
    ):
        assert (stays.status_code, ends.status_code) == (200, 200)
        until(lambda: api.services.streams.count == 2)
        tokens.lines = [line for line in tokens.lines if not line.startswith("viewer-1 ")]
        tokens.write()
        assert not any(line.startswith("event: change") for line in ends.iter_lines())
        # The end reaches the client a moment before the server has put the stream away.
        until(lambda: api.services.streams.count == 1)
        publisher.publish()
        assert any(line.startswith("event: change") for line in stays.iter_lines())


def test_no_entry_without_a_route(api: RunningApi) -> None:
    """The table names no route that is not there."""
    assert set(LEAST) - routes_of(api.app) == set()


def test_under_a_prefix(store: Store, settings: Settings, tokens: TokenFile) -> None:
    """Mounted below another application the same tokens are asked for."""
    inner = create_app(settings.model_copy(update={"tokens_file": str(tokens.path)}))

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(Starlette(routes=[Mount("/accord", app=inner)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://accord.example/accord") as client:
            paths = ("/livez", "/v1/pairs", f"/v1/pairs/{PAIR.id}", PATH)
            return [(await client.get(path)).status_code for path in paths]

    assert asyncio.run(statuses()) == [200, 401, 401, 401]


@pytest.mark.parametrize("root", ["", "/", "/accord", "/accord/", "/v1", "/v1/pairs", "/elsewhere"])
@pytest.mark.parametrize("path", ["/accord", "/accord/v1/pairs", "/accordion/v1", "/v1/pairs", "/v1/pairs/a", "/", ""])
def test_the_guard_and_the_routes_see_one_path(root: str, path: str) -> None:
    """Under every prefix a route is matched by the very path that the guard looks up."""
    scope = {"type": "http", "method": "GET", "path": path, "root_path": root, "headers": []}
    matched, found = Route("/{rest:path}", lambda _: None).matches(scope)
    seen = route_path(scope)
    assert (f"/{found['path_params']['rest']}" == seen) if matched is Match.FULL else not seen.startswith("/")


def test_everybody_without_a_file(api: RunningApi, publisher: Publisher) -> None:
    """Without a token file everybody on this machine is an operator, whatever token is shown."""
    assert api.get("/v1/pairs").status_code == 200
    assert api.client.get("/v1/pairs", headers=bearer("anything")).status_code == 200
    found = api.app.state.auth.identify([])
    assert found.principal == Principal(None, Role.OPERATOR)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8790"}, 200),
        ({"Host": "127.8.8.8"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "accord.localhost"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:8790"}, 403),
        ({"Host": "192.0.2.7"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
    ],
)
def test_names_without_tokens(api: RunningApi, headers: dict[str, str], status: int) -> None:
    """Without tokens a page from elsewhere cannot reach this server through a browser on this machine."""
    assert api.client.get("/v1/pairs", headers=headers).status_code == status


def test_insecure(store: Store, settings: Settings) -> None:
    """Told to be insecure, it answers under every name."""
    with RunningApi(settings.model_copy(update={"insecure": True})) as running:
        assert running.client.get("/v1/pairs", headers={"Host": "api.example"}).status_code == 200


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no tokens in it"),
        ("# only words\n\n", "no tokens in it"),
        ("ops operator\n", "line 1: must be: name role"),
        ("# é\nÖps operator sha256:" + "0" * 64, "line 2: a character that is not ASCII"),
        ("Ops operator sha256:" + "0" * 64, "line 1: the name must match"),
        ("ops king sha256:" + "0" * 64, "line 1: the role must be engine, viewer or operator"),
        ("ops open sha256:" + "0" * 64, "line 1: the role must be"),
        ("ops operator md5:" + "0" * 32, "line 1: the hash must be"),
        ("ops operator sha256:" + "0" * 63, "line 1: the hash must be"),
        ("ops operator sha256:" + "0" * 64 + " until=2030", "line 1: the end must be"),
        ("ops operator sha256:" + "0" * 64 + " not_after=2030-01-01", "line 1: the end must be"),
        ("ops operator sha256:" + "0" * 64 + " not_after=2030-01-01T00:00:00", "line 1: the end must be"),
        ("a viewer sha256:" + "0" * 64 + "\nb viewer sha256:" + "0" * 64, "line 2: the token of line 1 once more"),
        ("a viewer sha256:" + "0" * 64 + "\na operator sha256:" + "1" * 64, "line 2: this name has another role"),
        ("accord_secret-token-pasted-by-mistake", "line 1: must be: name role"),
        ("x" * (2 << 20), "more than 1048576 bytes"),
    ],
)
def test_refused_file(settings: Settings, tmp_path: Path, text: str, why: str) -> None:
    """A file that cannot be used is refused at the start, with its line and without what stands there."""
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(TokenFileError) as caught:
        create_app(settings.model_copy(update={"tokens_file": str(path)}))
    assert str(caught.value).startswith(f"ACCORD_API_TOKENS_FILE = {str(path)!r}: {why}")
    assert "secret" not in str(caught.value)
    assert "0" * 32 not in str(caught.value)


def test_missing_file(settings: Settings, tmp_path: Path) -> None:
    """A file that is not there is refused at the start."""
    with pytest.raises(TokenFileError, match="No such file or directory"):
        create_app(settings.model_copy(update={"tokens_file": str(tmp_path / "none")}))


def test_the_longest_token(guarded: RunningApi, publisher: Publisher, tokens: TokenFile) -> None:
    """A token may be as long as clients take it to be, whatever stands before it in the header."""
    for size, status in ((MAX_TOKEN_BYTES, 200), (MAX_TOKEN_BYTES + 1, 401)):
        token = "t" * size
        tokens.lines.append(Entry(Principal(f"long-{size}", Role.ENGINE), digest_of(token.encode())).line())
        tokens.write()
        until(lambda: len(guarded.app.state.auth.keyring.tokens.entries) == len(tokens.lines))
        assert guarded.client.get(PATH, headers=bearer(token)).status_code == status, size
