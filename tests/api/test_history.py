"""Looking back: past versions, who changed what, and rolling back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.api.harness import KNOTS, PAIR, Publisher, RunningApi
from tests.api.test_overrides import BY, PATH, PIN, ROW, WHOLE, WORKLOAD, put, send, served
from tests.api.test_what_if import busy

from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.store import PairKeys, Publication, Store

HISTORY = f"{PATH}/history"


def causes(api: RunningApi, **query: Any) -> list[tuple[int, str]]:
    """Version and cause of every entry of a page."""
    return [(entry["version"], entry["cause"]) for entry in api.get(HISTORY, **query).json()["entries"]]


def test_every_change_is_a_version_with_its_cause(api: RunningApi, publisher: Publisher) -> None:
    """Put, lift and rollback each enter the history with what was done, by whom and why."""
    publisher.publish(code_greedy=0.4)
    put(api, WORKLOAD, PIN)
    send(api, "DELETE", WORKLOAD, BY)
    answer = send(api, "POST", f"{PATH}/rollback", {"version": 2, "hold": False, **BY})
    assert answer.json() == {"version": 4, "of_version": 2, "revision": 3, "override": None}
    assert answer.headers["etag"] == '"3"'
    assert causes(api) == [(4, "rollback"), (3, "lifted"), (2, "override"), (1, "unknown")]
    rollback, lifted, pinned, _ = api.get(HISTORY).json()["entries"]
    assert (rollback["of_version"], rollback["actor"], rollback["scope"]) == (2, "ada", None)
    assert pinned["override"] == lifted["override"]
    assert pinned["override"]["coefficients"] == ROW
    assert list(pinned["moved"]) == ["code:greedy"]
    assert pinned["moved"] == lifted["moved"]
    assert served(api).row("code:greedy").to_dict() == ROW


def test_history_says_how_well_an_override_predicts(api: RunningApi, publisher: Publisher) -> None:
    """A version that an operator made has labels and metrics like any other, and a bad pin is warned about."""
    table = publisher.table(1, code_greedy=0.6)
    publisher.publish(body=busy(table), code_greedy=0.6)
    bad = {"slopes": [0.5, 0.0, 0.0], "intercepts": [2.5] * 3, "request_variance": 0.0}
    for path in (WORKLOAD, WHOLE):
        warning = put(api, path, {**PIN, "coefficients": bad})["warning"]
        assert warning["log_loss_worse_by"] > 3 * warning["noise"] > 0
        assert "code:greedy" in warning["message"]
        assert "8,000 recent labels" in warning["message"]
    good = {**bad, "intercepts": [0.6] * 3}
    assert put(api, WORKLOAD, {**PIN, "coefficients": good})["warning"] is None
    newest, _, first, _ = api.get(HISTORY).json()["entries"]
    assert newest["labels"] == {"code:greedy": 8000}
    assert first["metrics"]["code:greedy"]["log_loss"] > newest["metrics"]["code:greedy"]["log_loss"] > 0


def test_a_state_that_is_not_understood_keeps_nobody_from_acting(api: RunningApi, publisher: Publisher) -> None:
    """Without a readable state an override is put all the same, without a warning and without metrics."""
    publisher.publish(body=b"damaged")
    assert put(api, WORKLOAD, PIN)["warning"] is None
    assert api.get(HISTORY, limit=1).json()["entries"][0]["metrics"] == {}


def test_pages_and_filters(api: RunningApi, publisher: Publisher) -> None:
    """Pages of any size list every entry once; filters by cause and workload keep what concerns them."""
    publisher.publish()
    for number in range(4):
        put(api, f"{PATH}/workloads/w{number}:hot/override", PIN)
    put(api, WHOLE, PIN)
    send(api, "DELETE", f"{PATH}/workloads/w1:hot/override", BY)
    whole = causes(api)
    assert [version for version, _ in whole] == [7, 6, 5, 4, 3, 2, 1]
    for limit in (1, 2, 3, 7):
        seen: list[tuple[int, str]] = []
        query: dict[str, Any] = {}
        while query.get("before", "") is not None:
            page = api.get(HISTORY, limit=limit, **query).json()
            assert len(page["entries"]) <= limit
            seen += [(entry["version"], entry["cause"]) for entry in page["entries"]]
            query = {"before": page["next"]}
        assert seen == whole
    assert causes(api, cause="lifted") == [(7, "lifted")]
    assert [version for version, _ in causes(api, workload="w1:hot")] == [7, 6, 3]
    assert causes(api, workload="w1:hot", cause="lifted") == [(7, "lifted")]
    first = api.get(f"{PATH}/audit", limit=4).json()
    rest = api.get(f"{PATH}/audit", limit=4, before=first["next"]).json()
    assert [entry["revision"] for entry in first["entries"] + rest["entries"]] == [6, 5, 4, 3, 2, 1]
    assert rest["next"] is None


@pytest.mark.parametrize("path", ["history", "audit"])
def test_nothing_is_before_the_first_place(api: RunningApi, publisher: Publisher, path: str) -> None:
    """The page before the lowest id that there can be is an empty one, not an error of the store."""
    put(api, WHOLE, PIN)
    answer = api.get(f"{PATH}/{path}", before="0-0")
    assert (answer.status_code, answer.json()) == (200, {"entries": [], "next": None})


@pytest.mark.parametrize("path", ["history", "audit"])
@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "nan"},
        {"before": ""},
        {"before": "x"},
        {"before": "1-18446744073709551616"},
        {"before": "9" * 5000},
        {"before": "+"},
        {"before": "(1-0"},
    ],
)
def test_bad_pages(api: RunningApi, publisher: Publisher, path: str, query: dict[str, str]) -> None:
    """A page that cannot be is 422 by name."""
    answer = api.get(f"{PATH}/{path}", **query)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, next(iter(query)))


def test_bad_filters(api: RunningApi, publisher: Publisher) -> None:
    """Workloads and causes that do not exist are 422 by name."""
    for query in ({"workload": "code"}, {"cause": "magic"}):
        answer = api.get(HISTORY, **query)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, next(iter(query)))


def test_every_kept_version_comes_back_byte_for_byte(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """`?version=` answers the bytes and the ETag as they were served, wherever in the history the version stands."""
    seen = {0: api.get(f"{PATH}/coefficients")}
    for number in range(1, 8):
        publisher.publish(code_greedy=number / 10)
        seen[number] = api.client.get(f"{PATH}/coefficients", params={"wait": 0})
        if seen[number].headers["accord-version"] != str(number):
            seen[number] = api.get(f"{PATH}/coefficients", version=number)
    publisher.version = 20
    for number in (21, 22):
        publisher.publish(code_greedy=number / 100)
        seen[number] = api.get(f"{PATH}/coefficients", version=number)
    for number, then in seen.items():
        now = api.get(f"{PATH}/coefficients", version=number)
        assert (now.content, now.headers["etag"]) == (then.content, then.headers["etag"])
        assert now.headers["accord-version"] == str(number)
        assert CoefficientTable.from_json(now.content).version == number
        assert now.headers["cache-control"] == "no-cache"
        again = api.get(f"{PATH}/coefficients", etag=now.headers["etag"], version=number)
        assert (again.status_code, again.content) == (304, b"")
    for number in (8, 20, 23, (1 << 53) - 1):
        gone = api.get(f"{PATH}/coefficients", version=number)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "version_unknown")
    store.client.xtrim(PairKeys(PAIR.id).history, maxlen=2, approximate=False)
    assert api.get(f"{PATH}/coefficients", version=7).status_code == 404
    assert api.get(f"{PATH}/coefficients", version=21).content == seen[21].content


def test_as_of(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """`?as_of=` answers what was in force at a moment, in milliseconds or RFC 3339, the cold start before all."""
    key = PairKeys(PAIR.id).history
    for version, at in ((1, 1_700_000_000_000), (2, 1_700_000_000_500), (3, 1_700_000_060_000)):
        body = publisher.table(version, code_greedy=version / 10).to_json()
        fields: dict[Any, Any] = {"version": version, "published_ms": at, "table": body, "entry": "{}"}
        store.client.xadd(key, fields, id=f"{at}-0")
    for as_of, version in (
        ("1699999999999", 0),
        ("0", 0),
        ("1700000000000", 1),
        ("1700000000499", 1),
        ("1700000000500", 2),
        ("9007199254740991", 3),
        (datetime.fromtimestamp(1_700_000_000, UTC).isoformat(), 1),
        ("2023-11-14T22:13:20.5Z", 2),
        ("2023-11-14T23:14:20+01:00", 3),
        ("2023-11-14 23:14:20 01:00", 3),
    ):
        answer = api.get(f"{PATH}/coefficients", as_of=as_of)
        assert answer.headers["accord-version"] == str(version), as_of
        assert answer.headers["cache-control"] == "no-cache"
        if version:
            expected = publisher.table(version, code_greedy=version / 10).to_json()
            assert answer.content == expected
            assert answer.headers["etag"] == Publication(version, expected, b"", 1).etag
    store.client.xtrim(key, maxlen=2, approximate=False)
    gone = api.get(f"{PATH}/coefficients", as_of="1700000000499")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "version_unknown")


@pytest.mark.parametrize(
    "query",
    [
        {"version": "-1"},
        {"version": "1.5"},
        {"version": "nan"},
        {"version": str(1 << 53)},
        {"version": "9" * 5000},
        {"as_of": ""},
        {"as_of": "-1"},
        {"as_of": "1e400"},
        {"as_of": "9" * 30},
        {"as_of": "yesterday"},
        {"as_of": "2023-11-14T22:13:20"},
        {"as_of": "2023-13-14T22:13:20Z"},
        {"as_of": "0000-01-01T00:00:00Z"},
        {"as_of": "1960-01-01T00:00:00Z"},
        {"as_of": "٣٠"},
        {"as_of": "1", "version": "1"},
    ],
)
def test_bad_moments(api: RunningApi, publisher: Publisher, query: dict[str, str]) -> None:
    """Versions and moments that cannot be are 422 by name."""
    answer = api.get(f"{PATH}/coefficients", **query)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, next(iter(query)))


def test_a_held_rollback_stays_under_new_publications(api: RunningApi, publisher: Publisher) -> None:
    """With hold the old rows are an override of kind rollback: for one workload or the pair, until lifted."""
    old = publisher.publish(code_greedy=0.4, chat_warm=0.1)
    publisher.publish(code_greedy=0.9, chat_warm=0.8)
    one = send(api, "POST", f"{PATH}/workloads/code:greedy/rollback", {"version": 1, **BY}, '"0"').json()
    assert (one["version"], one["of_version"], one["revision"]) == (3, 1, 1)
    assert (one["override"]["kind"], one["override"]["of_version"]) == ("rollback", 1)
    assert served(api).row("code:greedy").to_dict() == old.row("code:greedy").to_dict()
    assert served(api).row("chat:warm").intercepts.tolist() == [0.8] * 3
    body = {"version": 1, "hold": True, "expires_in_s": 60, **BY}
    whole = send(api, "POST", f"{PATH}/rollback", body, '"1"').json()
    assert whole["override"]["coefficients"] is None
    assert served(api).row("chat:warm").to_dict() == old.row("chat:warm").to_dict()
    assert send(api, "DELETE", WHOLE, BY, '"2"').json()["version"] == 5
    assert served(api).row("chat:warm").intercepts.tolist() == [0.8] * 3


def test_rollbacks_that_cannot_be(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A version that is gone is 404, one of another shape or under an override 409, a stale revision 412; none acts."""
    publisher.publish(code_greedy=0.4)
    other = CoefficientTable(PAIR.id, 9, Coefficients([0.5], [0.0]), {}, ())
    fields: dict[Any, Any] = {"version": 9, "published_ms": 1, "table": other.to_json(), "entry": "{}"}
    store.client.xadd(PairKeys(PAIR.id).history, fields)
    for path in (f"{PATH}/rollback", f"{PATH}/workloads/code:greedy/rollback"):
        for body, match, status, code in (
            ({"version": 5}, "*", 404, "version_unknown"),
            ({"version": 9}, "*", 409, "conflict"),
            ({"version": 1}, '"4"', 412, "precondition_failed"),
            ({"version": 1}, None, 428, "precondition_required"),
            ({"version": -1}, "*", 422, "value_invalid"),
            ({"version": 1.5}, "*", 422, "value_invalid"),
            ({"version": True}, "*", 422, "value_invalid"),
            ({"version": "1"}, "*", 422, "value_invalid"),
            ({"version": 1, "hold": False, "expires_in_s": 5}, "*", 422, "value_invalid"),
            ({"version": 1, "hold": 1}, "*", 422, "value_invalid"),
        ):
            answer = send(api, "POST", path, {**body, **BY}, match)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (path, body)
    assert len(KNOTS) != len(other.knots)
    assert store.client.exists(PairKeys(PAIR.id).overrides) == 0
    put(api, WHOLE, PIN)
    refused = send(api, "POST", f"{PATH}/rollback", {"version": 1, "hold": False, **BY})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")


def test_no_route_alters_the_audit(api: RunningApi, publisher: Publisher) -> None:
    """The trail and the history are read only."""
    put(api, WORKLOAD, PIN)
    before = api.get(f"{PATH}/audit").content
    for path in (f"{PATH}/audit", HISTORY):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert send(api, method, path, {}).status_code == 405
    assert api.get(f"{PATH}/audit").content == before


def test_spoilt_history_hides_nothing_else(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """An entry that somebody spoilt is shown as unknown; a spoilt audit entry is reported, not guessed at."""
    publisher.publish()
    for entry in ("{", "[]", '{"cause": 5}', '{"moved": [1]}', "[" * 5000):
        fields: dict[Any, Any] = {"version": 2, "published_ms": 1, "table": "", "entry": entry}
        store.client.xadd(PairKeys(PAIR.id).history, fields)
    assert [cause for _, cause in causes(api)] == ["unknown"] * 6
    assert api.get(f"{PATH}/coefficients", version=2).status_code == 500
    for entry in ("{", "[]", json.dumps({"action": 1})):
        store.client.xadd(PairKeys(PAIR.id).audit, {"entry": entry})
        assert api.get(f"{PATH}/audit", limit=1).status_code == 500
