"""The list of pairs, one pair, and one workload."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import pytest
from tests.api.harness import KNOTS, PAIR, Publisher, RunningApi
from tests.waiting import until

from accord.api.engine_status import SILENT_MS, STATES
from accord.api.models import Calibration
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}"


def learnt(table: CoefficientTable) -> bytes:
    """The bytes of a state with one known workload, `code:greedy`, of 40 labels, 30 of them accepted."""
    found = Learnt.new(PAIR.id, PAIR.k, KNOTS)
    found.served = table
    state = found.state
    state.reserve(["code:greedy"])
    state.labels[0], state.event_ms[0] = 40, 1_700_000_000_123
    state.arrays["acceptance"][0, 0, 20] = (40.0, 30.0, 40.0)
    state.arrays["survival"][0, 0, 13] = (40.0, 27.0, 30.0)
    state.arrays["slope_errors"][0] = 0.25
    return encode_learnt(found)


def test_empty_list(api: RunningApi) -> None:
    """Without a pair the list is empty."""
    assert api.get("/v1/pairs").json() == {"pairs": [], "unreadable": [], "next": None}


def test_list(api: RunningApi, publisher: Publisher) -> None:
    """The list shows identity, knots, version and how many workloads have rows, and follows publications."""
    cold = api.get("/v1/pairs").json()["pairs"][0]
    assert (cold["version"], cold["published_ms"], cold["workloads"]) == (0, 0, 0)
    for rows in ({"code_greedy": 0.1}, {"code_greedy": 0.1, "chat_warm": 0.2}):
        publisher.publish(**rows)
        item = api.get("/v1/pairs").json()["pairs"][0]
        assert item["id"] == PAIR.id
        assert item["identity"] == PAIR.to_dict()
        assert item["knots"] == list(KNOTS)
        assert item["registered_ms"] > 0
        assert (item["version"], item["workloads"]) == (publisher.version, len(rows))
        assert item["published_ms"] == 1_700_000_000_000


def test_pages(api: RunningApi, store: Store) -> None:
    """Pages of any size list every pair once, in the order of the ids."""
    for number in range(7):
        store.register(Pair(f"t{number}", "d", Method.EAGLE, DraftSampling.GREEDY, 2), ())
    whole = [item["id"] for item in api.get("/v1/pairs").json()["pairs"]]
    assert whole == sorted(whole)
    assert len(whole) == 7
    for limit in (1, 3, 7):
        seen, after = [], ""
        while after is not None:
            page = api.get("/v1/pairs", limit=limit, after=after).json()
            assert len(page["pairs"]) <= limit
            seen += [item["id"] for item in page["pairs"]]
            after = page["next"]
        assert seen == whole


def test_cold_detail(api: RunningApi, publisher: Publisher) -> None:
    """A pair that learnt nothing shows its identity, no engines, no workloads and no lag."""
    detail = api.get(PATH).json()
    assert detail["identity"] == PAIR.to_dict()
    assert (detail["version"], detail["committed_ms"], detail["watermark"]) == (0, 0, "0-0")
    assert detail["lag"] == {"entries": 0, "ms": 0}
    assert (detail["engines"], detail["workloads"], detail["labels"]) == ([], [], 0)
    assert (detail["fit_status"], detail["pair_effects"]) == (None, None)
    assert detail["counters"]["summaries"] == 0


def test_engines(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Every engine is listed with what it runs and when it last reported, whatever it may have written."""
    now = store.clock_ms(PAIR.id)
    store.heartbeat(PAIR.id, "b", json.dumps({"version": 3, "time_ms": now - 5000, "mode": "fleet"}).encode())
    for name, junk in (("a", b"\xff"), ("c", b'{"version":-1,"time_ms":1e99,"x":NaN}'), ("d", b"[]"), ("é", b"{")):
        store.heartbeat(PAIR.id, name, junk)
    engines = {item["engine"]: item for item in api.get(PATH).json()["engines"]}
    assert list(engines) == ["a", "b", "c", "d", "é"]
    assert engines["b"]["version"] == 3
    assert engines["b"]["seen_ms"] == now - 5000
    assert 5000 <= engines["b"]["silent_ms"] < 60_000
    assert engines["b"]["status"]["mode"] == "fleet"
    for name in ("a", "c", "d", "é"):
        assert (engines[name]["version"], engines[name]["seen_ms"], engines[name]["silent_ms"]) == (None, None, None)
    assert {item["state"] for item in engines.values()} == {"unknown"}


@pytest.mark.parametrize(
    ("status", "age_ms", "state"),
    [
        *(({"state": state}, 0, state) for state in STATES),
        ({"state": "fleet", "stopped": True}, 2 * SILENT_MS, "stopped"),
        ({"state": "fleet", "stopped": "yes"}, 0, "fleet"),
        ({"state": "fleet"}, 2 * SILENT_MS, "silent"),
        ({"state": "fleet", "time_ms": None}, 0, "unknown"),
        ({"state": "FLEET"}, 0, "unknown"),
        ({"state": ["fleet"]}, 0, "unknown"),
        ({}, 0, "unknown"),
    ],
)
def test_the_state_of_an_engine(
    api: RunningApi, publisher: Publisher, store: Store, status: dict[str, Any], age_ms: int, state: str
) -> None:
    """The api says in which state an engine is, for all who show it: its own word while that is fresh and known."""
    body = {"time_ms": store.clock_ms(PAIR.id) - age_ms, **status}
    store.heartbeat(PAIR.id, "a", json.dumps(body).encode())
    assert [item["state"] for item in api.get(PATH).json()["engines"]] == [state]


def test_lag(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """The lag counts the entries behind the watermark, and how long the oldest has waited."""
    now = store.clock_ms(PAIR.id)
    for back in (3000, 2000, 1000):
        store.append(PAIR.id, b"x", entry_id=f"{now - back}-0")
    lag = api.get(PATH).json()["lag"]
    assert lag["entries"] == 3
    assert 3000 <= lag["ms"] < 60_000


def test_learnt_detail(api: RunningApi, publisher: Publisher) -> None:
    """What the learner committed is shown with the pair."""
    table = publisher.table(1, code_greedy=0.3)
    publisher.publish(body=learnt(table), code_greedy=0.3)
    detail = api.get(PATH).json()
    assert detail["labels"] == 40
    assert detail["committed_ms"] > 0
    assert [item["workload"] for item in detail["workloads"]] == ["code:greedy"]
    assert 0 < detail["workloads"][0]["log_loss"] < 1
    assert len(detail["pair_effects"]["slopes"]) == 1 + len(KNOTS)


def test_workload(api: RunningApi, publisher: Publisher) -> None:
    """A known workload shows its row, errors, labels and calibration."""
    table = publisher.table(1, code_greedy=0.3)
    publisher.publish(body=learnt(table), code_greedy=0.3)
    view = api.get(f"{PATH}/workloads/code:greedy").json()
    assert (view["workload"], view["prior"], view["version"], view["labels"]) == ("code:greedy", False, 1, 40)
    assert view["coefficients"] == table.row("code:greedy").to_dict()
    assert view["standard_errors"]["slopes"] == [0.25] * 3
    assert view["event_time_ms"] == 1_700_000_000_123
    calibration = view["calibration"]
    assert (calibration["labels"], calibration["accepted"]) == (40, 30)
    assert calibration["reliability"][0]["accepted"] == 0.75
    assert calibration["survival"][0]["realised"] == 0.75
    assert [item["position"] for item in calibration["positions"]] == [0, 1, 2]
    assert calibration["positions"][1]["accepted"] is None


@pytest.mark.parametrize("state", [None, "known"])
def test_unknown_workload(api: RunningApi, publisher: Publisher, state: str | None) -> None:
    """A workload that the pair has not seen answers the prior row, marked, with no labels."""
    table = publisher.publish(body=learnt(publisher.table(1)) if state else None)
    view = api.get(f"{PATH}/workloads/never.seen:hot").json()
    assert (view["prior"], view["labels"], view["version"]) == (True, 0, 1)
    assert view["coefficients"] == table.prior.to_dict()
    assert view["calibration"] == Calibration(labels=0, accepted=0).model_dump()


def test_cold_workload(api: RunningApi, publisher: Publisher) -> None:
    """Before the first publication every workload answers the cold start."""
    view = api.get(f"{PATH}/workloads/code:greedy").json()
    assert view["version"] == 0
    assert view["coefficients"] == CoefficientTable.cold(PAIR.id, PAIR.k, KNOTS).prior.to_dict()
    Coefficients.from_dict(view["coefficients"])


def test_numbers_that_json_cannot_hold() -> None:
    """A metric that is not finite is answered as null, not as an error."""
    for number in (math.nan, math.inf, -math.inf):
        assert Calibration.model_validate({"labels": 1.0, "ece": number}).ece is None


def test_unknown_pair(api: RunningApi) -> None:
    """A pair and a workload of a pair that nobody registered are 404."""
    for path in ("/v1/pairs/nobody", "/v1/pairs/nobody/workloads/code:greedy"):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pair_unknown")


def test_damaged_state(api: RunningApi, publisher: Publisher) -> None:
    """A state that no learner wrote is 500 in the envelope, and the coefficients are served all the same."""
    publisher.publish(body=b"junk")
    for path in (PATH, f"{PATH}/workloads/code:greedy"):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "store_failed")
    assert api.get(f"{PATH}/coefficients").status_code == 200


def test_decoding_holds_up_nobody(api: RunningApi, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a large state is decoded the api answers others."""
    publisher.publish(body=learnt(publisher.table(1)))

    def slow(body: bytes, key: str, in_force: bytes) -> None:
        time.sleep(1.0)

    monkeypatch.setattr("accord.learner.views.workload_view", slow)
    thread = threading.Thread(target=lambda: api.get(f"{PATH}/workloads/code:greedy"))
    thread.start()
    until(lambda: api.services.learnt._decoding._value < 2)
    begin = time.monotonic()
    assert api.get(f"{PATH}/coefficients").status_code == 200
    assert time.monotonic() - begin < 0.5
    thread.join()
