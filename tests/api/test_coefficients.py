"""The coefficients route without waiting."""

from __future__ import annotations

import httpx
import pytest
from tests.api.harness import KNOTS, PAIR, Publisher, RunningApi
from tests.waiting import until

from accord.learner.coefficients import CoefficientTable
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}/coefficients"


def test_cold(api: RunningApi, publisher: Publisher) -> None:
    """A registered pair without a publication answers version 0, the cold start, with an ETag that stays."""
    first, second = api.get(PATH), api.get(PATH)
    assert first.status_code == 200
    assert first.content == CoefficientTable.cold(PAIR.id, PAIR.k, KNOTS).to_json()
    assert first.headers["etag"] == second.headers["etag"]
    assert first.headers["accord-version"] == "0"
    assert api.get(PATH, etag=first.headers["etag"]).status_code == 304


def test_verbatim(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """The published bytes are served as they are, under the ETag that the commit stored."""
    table = publisher.publish(code_greedy=0.25, chat_warm=-0.75)
    answer = api.get(PATH)
    published = store.coefficients(PAIR.id)
    assert published is not None
    assert answer.content == table.to_json() == published.body
    assert answer.headers["etag"] == published.etag
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["accord-version"] == "1"
    assert "accord-stale" not in answer.headers
    assert CoefficientTable.from_json(answer.content).digest == table.digest


def test_not_modified_keeps_headers(api: RunningApi, publisher: Publisher) -> None:
    """A 304 has no body and keeps ETag, Vary and Cache-Control."""
    publisher.publish()
    full = api.get(PATH)
    answer = api.get(PATH, etag=full.headers["etag"])
    assert answer.status_code == 304
    assert answer.content == b""
    for name in ("etag", "vary", "cache-control", "accord-version"):
        assert answer.headers[name] == full.headers[name]
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ("{etag}", 304),
        ("W/{etag}", 304),
        ('"other", {etag}', 304),
        ('"a,b" ,W/"c",,{etag}', 304),
        ("*", 304),
        ('"other"', 200),
        ("", 200),
        ("unquoted", 200),
        ('{etag} "no comma"', 200),
        ("*, {etag}", 200),
    ],
)
def test_if_none_match(api: RunningApi, publisher: Publisher, form: str, status: int) -> None:
    """If-None-Match may be a list, weak, or `*`; whatever does not follow the grammar matches nothing."""
    publisher.publish()
    etag = api.get(PATH).headers["etag"]
    assert api.get(PATH, etag=form.format(etag=etag)).status_code == status


def test_several_header_lines(api: RunningApi, publisher: Publisher) -> None:
    """Several If-None-Match lines are one list."""
    etag = api.get(PATH).headers["etag"]
    answer = api.client.get(PATH, headers=[("If-None-Match", '"x"'), ("If-None-Match", etag)])
    assert answer.status_code == 304


def test_change_is_served(api: RunningApi, publisher: Publisher) -> None:
    """A commit is served to whoever asks next, and the old ETag no longer matches."""
    publisher.publish()
    old = api.get(PATH).headers["etag"]
    publisher.publish()
    until(lambda: api.get(PATH).headers["accord-version"] == "2")
    assert api.get(PATH, etag=old).status_code == 200


def test_cached(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Asking again and again reads the store once."""
    publisher.publish()
    api.get(PATH)
    store.client.config_resetstat()
    for _ in range(20):
        assert api.get(PATH).status_code == 200
    assert "cmdstat_hmget" not in store.client.info("commandstats")


@pytest.mark.parametrize("path", [PATH, "/livez", "/readyz", "/v1/pairs", "/openapi.json", "/nowhere"])
def test_head(api: RunningApi, publisher: Publisher, path: str) -> None:
    """HEAD answers what GET would, without the body."""
    get, head = api.get(path), api.client.head(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    assert head.headers["content-length"] == str(len(get.content))
    assert head.headers.get("etag") == get.headers.get("etag")


def test_head_not_modified(api: RunningApi, publisher: Publisher) -> None:
    """HEAD honours If-None-Match."""
    etag = api.client.head(PATH).headers["etag"]
    assert api.client.head(PATH, headers={"If-None-Match": etag}).status_code == 304


def test_unknown_pair(api: RunningApi, publisher: Publisher) -> None:
    """An unregistered pair is 404, also with `wait`, and takes no room in memory."""
    path = "/v1/pairs/nobody.k3-00000000/coefficients"
    answer = api.get(path, etag='"x"', wait=30)
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "code": "pair_unknown",
        "message": "no engine has registered this pair",
        "field": "pair",
        "value": "nobody.k3-00000000",
    }
    assert len(api.services.tables) == 0


def test_registered_later(api: RunningApi, store: Store) -> None:
    """A pair that was unknown is served as soon as an engine registers it."""
    assert api.get(PATH).status_code == 404
    Publisher(store)
    assert api.get(PATH).status_code == 200


def test_security_headers(api: RunningApi, publisher: Publisher) -> None:
    """Every answer forbids sniffing; what is no table must not be stored."""
    answers: list[httpx.Response] = [api.get(path) for path in (PATH, "/livez", "/v1/pairs", "/nowhere")]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert [answer.headers["cache-control"] for answer in answers] == ["no-cache", "no-store", "no-store", "no-store"]
