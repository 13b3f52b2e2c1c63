"""The short way to the coefficients says what the long way says."""

from __future__ import annotations

import pytest
from tests.api.harness import PAIR, Publisher, RunningApi, until

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
