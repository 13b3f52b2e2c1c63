"""Whatever goes wrong ends in the envelope."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.api.harness import PAIR, Publisher, RunningApi

from accord.api import Settings
from accord.api.errors import ErrorEnvelope
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}/coefficients"
DIGITS = "9" * 5000


def error(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer that must carry one and nothing else."""
    body = json.loads(answer.text, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
    assert list(body) == ["error"]
    assert set(body["error"]) <= {"code", "message", "field", "value"}
    ErrorEnvelope.model_validate(body)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "Traceback" not in answer.text
    assert len(answer.content) < 1000
    found: dict[str, Any] = body["error"]
    return found


@pytest.mark.parametrize(
    "wait", ["nan", "NaN", "inf", "-inf", "1e400", "-1", "-0.001", "60.5", DIGITS, "1,5", "ten", "", "é", "٣٠ ", "0x10"]
)
def test_bad_wait(api: RunningApi, publisher: Publisher, wait: str) -> None:
    """A wait that is no number from 0 to 60 is 422 and says which field has which value."""
    answer = api.get(PATH, wait=wait)
    assert answer.status_code == 422
    found = error(answer)
    assert (found["code"], found["field"]) == ("value_invalid", "wait")
    assert found["value"] == wait or found["value"].endswith("...")


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "1.5", "nan", DIGITS, f"-{DIGITS}", ""])
def test_bad_limit(api: RunningApi, limit: str) -> None:
    """A page size that is no whole number from 1 to 1000 is 422."""
    answer = api.get("/v1/pairs", limit=limit)
    assert answer.status_code == 422
    assert error(answer)["field"] == "limit"


@pytest.mark.parametrize("pair", ["a{b}", "{}", "A", "é", "-a", "a" * 129, "a b", "a:b", "%25", "%00", "a%0Ab", "%ff"])
def test_bad_pair_id(api: RunningApi, pair: str) -> None:
    """A malformed pair id is 422 on every route of a pair."""
    for rest in ("", "/coefficients", "/workloads/code:greedy"):
        answer = api.get(f"/v1/pairs/{pair}{rest}")
        assert answer.status_code == 422
        assert error(answer)["field"] == "pair"


@pytest.mark.parametrize("key", ["code", "code:", "code:tepid", "Code:greedy", ":greedy", "é:warm", "a:greedy:b"])
def test_bad_workload(api: RunningApi, publisher: Publisher, key: str) -> None:
    """A malformed workload key is 422."""
    answer = api.get(f"/v1/pairs/{PAIR.id}/workloads/{key}")
    assert answer.status_code == 422
    assert error(answer)["field"] == "key"


@pytest.mark.parametrize("path", ["/v1", "/nowhere", "/v1/pairs/", "/v1/pairs/a%2Fb", "/docs", "//livez"])
def test_no_such_route(api: RunningApi, path: str) -> None:
    """A path that is no route is 404, never a redirect."""
    # Spelt out, or the client would take //livez for a host.
    answer = api.client.get(f"{api.url}{path}")
    assert (answer.status_code, error(answer)["code"]) == (404, "route_unknown")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_wrong_method(api: RunningApi, method: str) -> None:
    """A method that a route does not have is 405 and names those that it has."""
    answer = api.client.request(method, PATH)
    assert (answer.status_code, error(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.fixture
def small(store: Store, settings: Settings) -> Iterator[RunningApi]:
    """An api that takes bodies of 1024 bytes at most."""
    with RunningApi(settings.model_copy(update={"max_body_bytes": 1024})) as running:
        yield running.ready()


def test_declared_body_too_large(small: RunningApi) -> None:
    """A body that declares more bytes than allowed is 413, wherever it goes."""
    for path in ("/livez", "/nowhere"):
        answer = small.client.request("GET", path, content=b"x" * 2000)
        assert (answer.status_code, error(answer)["code"]) == (413, "body_too_large")
    assert small.client.request("GET", "/livez", content=b"x" * 1024).status_code == 200


def test_absurd_content_length(small: RunningApi) -> None:
    """A declared length of many digits is refused without being converted."""
    port = int(small.url.rpartition(":")[2])
    for digits in ("9" * 19, "9" * 100):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(f"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: {digits}\r\n\r\n".encode())
            assert re.match(rb"HTTP/1.1 4(00|13) ", sock.recv(4096))


@pytest.mark.parametrize("wait", ["60", "6e1"])
def test_streamed_body_too_large(small: RunningApi, publisher: Publisher, wait: str) -> None:
    """A body without a declared length is 413 as soon as it has grown too large, also under both kinds of long-poll."""
    etag = small.get(PATH).headers["etag"]
    chunks = (b"x" * 500 for _ in range(10))
    answer = small.client.request("GET", f"{PATH}?wait={wait}", content=chunks, headers={"If-None-Match": etag})
    assert (answer.status_code, error(answer)["code"]) == (413, "body_too_large")
    assert small.services.waiters.count == 0


def test_internal(api: RunningApi, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the server is 500 in the envelope and tells nothing of it."""

    async def broken(pair: str) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(api.services.tables, "get", broken)
    answer = api.get(PATH)
    assert (answer.status_code, error(answer)["code"]) == (500, "internal")
    assert "secret" not in answer.text


def test_damaged_store(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """What the store holds and nobody of accord has written is 500 in the envelope, and leaves other pairs alone."""
    store.client.hset("accord:pairs", "broken", b"\xff{")
    store.client.hset(f"accord:{{{PAIR.id}}}:coefficients", mapping={"version": "x", "body": "y", "etag": "z"})
    for path in ("/v1/pairs/broken/coefficients", "/v1/pairs/broken", PATH):
        answer = api.get(path)
        assert (answer.status_code, error(answer)["code"]) == (500, "store_failed")
    store.client.delete(f"accord:{{{PAIR.id}}}:coefficients")
    listing = api.get("/v1/pairs").json()
    assert listing["unreadable"] == ["broken"]
    assert [item["id"] for item in listing["pairs"]] == [PAIR.id]


def test_wrong_type_in_store(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A key of the wrong type is 500 in the envelope."""
    store.client.set(f"accord:{{{PAIR.id}}}:coefficients", "text")
    for path in (PATH, "/v1/pairs"):
        answer = api.get(path)
        assert (answer.status_code, error(answer)["code"]) == (500, "store_failed")
    store.client.flushall()
