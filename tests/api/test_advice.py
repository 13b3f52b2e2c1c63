"""Advice and cost tables over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.api.harness import KNOTS, PAIR, Publisher, RunningApi

from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Store

PATH = f"/v1/pairs/{PAIR.id}"
ADVICE = f"{PATH}/workloads/code:greedy/advice"
COSTS = {"draft_ms_by_requests": [[1, 0.3], [64, 0.6]], "verify_ms_by_tokens": [[8, 9.0], [64, 10.0], [256, 30.0]]}


def busy() -> bytes:
    """A state whose workload accepts 80%, 75% and 50%."""
    found = Learnt.new(PAIR.id, PAIR.k, KNOTS)
    found.state.reserve(["code:greedy"])
    for j, (n, y) in enumerate(((5000, 4000), (4000, 3000), (3000, 1500))):
        found.state.arrays["acceptance"][0, j, 20] = (n, y, n)
    return encode_learnt(found)


def beat(store: Store, engine: str, costs: Any, time_ms: int = 1_700_000_000_000) -> None:
    """One heartbeat."""
    store.heartbeat(PAIR.id, engine, json.dumps({"version": 1, "time_ms": time_ms, "costs": costs}).encode())


def test_advice_without_costs(api: RunningApi, publisher: Publisher) -> None:
    """Acceptance, lengths and tokens are told; which K pays best is not, and a note says what would tell."""
    publisher.publish(body=busy())
    found = api.get(ADVICE).json()
    assert found["acceptance"] == pytest.approx([0.8, 0.6, 0.3])
    assert found["conditional"] == pytest.approx([0.8, 0.75, 0.5])
    assert found["tokens_per_step"] == pytest.approx([1.0, 1.8, 2.4, 2.7])
    assert found["mean_accepted_length"] == pytest.approx(1.7)
    assert (found["cost_source"], found["tokens_per_cost"], found["best_k"]) == ("none", None, None)
    assert found["verdict"] == "helps"
    assert found["notes"] == ["no engine has reported cost tables; give draft_ratio to compare K"]


def test_advice_with_a_ratio(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A ratio that the user gives wins over an engine's tables."""
    publisher.publish(body=busy())
    beat(store, "a", COSTS)
    found = api.get(ADVICE, draft_ratio=0.4).json()
    assert (found["cost_source"], found["best_k"], found["by_batch"]) == ("ratio", 2, [])
    assert found["tokens_per_cost"] == pytest.approx([1.0, 1.8 / 1.4, 2.4 / 1.8, 2.7 / 2.2])
    assert found["verdict"] == "helps"


def test_advice_with_an_engine(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """The engine that reported last is asked, or the one that is named; the batch decides what a step costs."""
    publisher.publish(body=busy())
    beat(store, "b", COSTS, 1_700_000_000_500)
    beat(store, "a", {**COSTS, "verify_ms_by_tokens": [[64, 1.0]]})
    found = api.get(ADVICE).json()
    assert found["cost_source"] == "engine:b"
    # One request: 4 tokens are padded to 8, so all three drafts cost their drafting only.
    assert found["tokens_per_cost"] == pytest.approx([1 / 9, 1.8 / 9.1, 2.4 / 9.2, 2.7 / 9.3])
    assert found["best_k"] == 3
    crowded = api.get(ADVICE, batch=64).json()
    assert crowded["best_k"] == 0
    assert [row["batch"] for row in found["by_batch"]] == [1, 2, 4, 8, 16, 32, 64]
    assert found["by_batch"][-1]["best_k"] == 0
    assert api.get(ADVICE, engine="a").json()["cost_source"] == "engine:a"
    assert any("extrapolated" in note for note in api.get(ADVICE, batch=1000).json()["notes"])


def test_unknown_engine(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """An engine that is named must have usable tables; otherwise the answer says why it has none."""
    beat(store, "bad", {"draft_ms_by_requests": [[1, 1.0]], "verify_ms_by_tokens": "x"})
    for name, why in (("nobody", "no engine of this name"), ("bad", "costs.verify_ms_by_tokens")):
        answer = api.get(ADVICE, engine=name)
        assert answer.status_code == 422
        assert answer.json()["error"]["field"] == "engine"
        assert why in answer.json()["error"]["message"]


def test_advice_without_labels(api: RunningApi, publisher: Publisher) -> None:
    """A workload that nobody has seen has no figures and no verdict."""
    for body in (None, busy()):
        publisher.publish(body=body)
        found = api.get(f"{PATH}/workloads/never:hot/advice", draft_ratio=0.1).json()
        assert (found["verdict"], found["labels"], found["acceptance"]) == ("unknown", 0, [None] * 3)
        assert found["tokens_per_step"] == [None] * 4


@pytest.mark.parametrize(
    "query",
    [{"draft_ratio": v} for v in ("nan", "inf", "1e400", "-1", "101", "x")]
    + [{"batch": v} for v in ("0", "-1", "16385", "1.5", "9" * 5000, "x")]
    + [{"engine": "e" * 257}],
    ids=lambda query: str(query)[:24],
)
def test_bounds(api: RunningApi, publisher: Publisher, query: dict[str, str]) -> None:
    """Every number is bounded, and the field that is not is named."""
    answer = api.get(ADVICE, **query)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == next(iter(query))


def test_costs(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Every engine's tables are shown with their dead spots; engines without tables are not listed."""
    beat(store, "a", COSTS, 1_700_000_000_123)
    beat(store, "b", None)
    found = api.get(f"{PATH}/costs").json()
    assert (found["refused"], found["next"]) == ([], None)
    (engine,) = found["engines"]
    assert (engine["engine"], engine["seen_ms"]) == ("a", 1_700_000_000_123)
    assert (engine["draft"], engine["verify"]) == ([[1, 0.3], [64, 0.6]], COSTS["verify_ms_by_tokens"])
    spots = {(spot["table"], spot["kind"]): spot for spot in engine["dead_spots"]}
    jump = spots["verify", "jump"]
    assert (jump["tokens_from"], jump["tokens_to"]) == (65, 172)
    assert "stay at 64 or go beyond 172" in jump["message"]
    assert "requests" in spots["draft", "plateau"]["message"]


@pytest.mark.parametrize(
    "junk",
    [
        "x",
        [],
        5,
        {},
        {**COSTS, "verify_ms_by_tokens": [[1, float("nan")]]},
        {**COSTS, "draft_ms_by_requests": [[1] * 3]},
    ],
)
def test_hostile_costs(api: RunningApi, publisher: Publisher, store: Store, junk: Any) -> None:
    """Tables that cannot be used are refused by name, with the reason, and never used for advice."""
    publisher.publish(body=busy())
    beat(store, "junk", junk, 1_800_000_000_000)
    found = api.get(f"{PATH}/costs").json()
    assert (found["engines"], [item["engine"] for item in found["refused"]]) == ([], ["junk"])
    assert found["refused"][0]["message"].startswith("costs")
    assert api.get(ADVICE).json()["cost_source"] == "none"
    beat(store, "good", COSTS)
    assert api.get(ADVICE).json()["cost_source"] == "engine:good"


def test_raw_hostile_heartbeats(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Half characters, huge numbers and what is no JSON do not break either answer."""
    raw = (
        b'{"costs":"\\ud800"}',
        b'{"costs":{"draft_ms_by_requests":[[1,1e400]],"verify_ms_by_tokens":[[1,1]]}}',
        b'{"costs":{"draft_ms_by_requests":[[' + b"9" * 4000 + b',1]],"verify_ms_by_tokens":[[1,1]]}}',
        b'{"costs":' + b"[" * 5000,
        b"\xff",
    )
    for number, body in enumerate(raw):
        store.heartbeat(PAIR.id, f"e{number}", body)
    assert api.get(f"{PATH}/costs").status_code == 200
    assert api.get(ADVICE).json()["cost_source"] == "none"


def test_pages_of_costs(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Pages of any size list every engine with tables once, in the order of the names, refused ones included."""
    for number in range(5):
        beat(store, f"e{number}", COSTS if number != 2 else "x")
    for limit in (1, 2, 5, 1000):
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = api.get(f"{PATH}/costs", limit=limit, after=after).json()
            seen += [item["engine"] for item in page["engines"] + page["refused"]]
            after = page["next"]
        assert sorted(seen) == [f"e{number}" for number in range(5)]


def test_unknown_pair(api: RunningApi) -> None:
    """A pair that nobody registered is 404 on both."""
    for path in ("/v1/pairs/nobody/costs", "/v1/pairs/nobody/workloads/code:greedy/advice"):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pair_unknown")
