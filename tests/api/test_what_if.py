"""What-if over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
from tests.api.harness import KNOTS, PAIR, Publisher, RunningApi
from tests.api.test_pairs import learnt
from tests.waiting import until

from accord.learner.coefficients import CoefficientTable
from accord.learner.state_codec import Learnt, encode_learnt

PATH = f"/v1/pairs/{PAIR.id}/workloads/code:greedy/what-if"
GOOD = {"slopes": [0.5, 0.0, 0.0], "intercepts": [0.4, 0.4, 0.4]}


def busy(table: CoefficientTable) -> bytes:
    """A state whose workload has 8,000 labels, of which 6,000 were accepted at f = 1."""
    found = Learnt.new(PAIR.id, PAIR.k, KNOTS)
    found.served = table
    found.state.reserve(["code:greedy"])
    found.state.labels[0] = 8000
    found.state.arrays["acceptance"][0, 0, 20] = (8000.0, 6000.0, 8000.0)
    return encode_learnt(found)


def ask(api: RunningApi, body: Any, path: str = PATH) -> httpx.Response:
    """One what-if; text goes out as it is."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return api.client.post(path, content=content, headers={"content-type": "application/json"})


def refused(answer: httpx.Response) -> dict[str, Any]:
    """The error of a 422."""
    assert answer.status_code == 422, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == "value_invalid"
    return error


def test_a_worse_row(api: RunningApi, publisher: Publisher) -> None:
    """A row that hurts is told by how much, against what is in force and against what was learnt."""
    table = publisher.table(1, code_greedy=0.6)
    publisher.publish(body=busy(table), code_greedy=0.6)
    found = ask(api, {"slopes": [0.5, 0.0, 0.0], "intercepts": [2.5, 2.5, 2.5]}).json()
    assert (found["verdict"], found["labels"]) == ("worse", 8000)
    assert found["difference"]["log_loss"] > 3 * found["difference"]["noise"] > 0
    assert found["proposed"]["log_loss"] > found["in_force"]["log_loss"]
    assert found["learnt"]["log_loss"] > 0
    assert "8,000 recent labels" in found["message"]
    assert [line["position"] for line in found["positions"]] == [0, 1, 2]
    assert found["positions"][0]["accepted"] == 0.75
    assert found["realised_per_step"] == 0.75


def test_the_row_in_force_is_the_served_one(api: RunningApi, publisher: Publisher) -> None:
    """What engines are served now is what a proposal is compared with, not what the state last saw published."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=0.6)), code_greedy=0.6)
    served = {"slopes": [0.5, 0.0, 0.0], "intercepts": [1.5] * 3}
    assert ask(api, served).json()["verdict"] == "worse"
    publisher.publish(code_greedy=1.5)
    coefficients = f"/v1/pairs/{PAIR.id}/coefficients"
    until(lambda: api.get(coefficients).headers["accord-version"] == "2")
    same = ask(api, served).json()
    assert (same["verdict"], same["difference"]["log_loss"]) == ("no_difference", 0.0)


def test_slope_alone(api: RunningApi, publisher: Publisher) -> None:
    """One slope stands for a straight line."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=0.6)), code_greedy=0.6)
    short = ask(api, {"slope": 0.7, "intercepts": [0.4] * 3}).json()
    assert short == ask(api, {"slopes": [0.7, 0.0, 0.0], "intercepts": [0.4] * 3}).json()


def test_request_variance_is_not_judged(api: RunningApi, publisher: Publisher) -> None:
    """Left out it is as in force; another one is noted as not judged."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=0.6)), code_greedy=0.6)
    assert ask(api, GOOD).json()["notes"] == []
    (note,) = ask(api, {**GOOD, "request_variance": 0.4}).json()["notes"]
    assert "request_variance 0.4 against 0.1 in force is not judged" in note


@pytest.mark.parametrize("state", [None, "few"])
def test_too_few_labels(api: RunningApi, publisher: Publisher, state: str | None) -> None:
    """Without enough labels the answer has no figures, no difference, and says so."""
    publisher.publish(body=learnt(publisher.table(1)) if state else None)
    found = ask(api, GOOD).json()
    assert (found["verdict"], found["difference"]) == ("no_difference", None)
    assert found["proposed"] == found["in_force"] == dict.fromkeys(found["proposed"])
    assert "too few" in found["message"]


def test_unknown_pair(api: RunningApi) -> None:
    """A pair that nobody registered is 404."""
    answer = ask(api, GOOD, PATH.replace(PAIR.id, "nobody"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pair_unknown")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slopes": [0.5]}, "slopes"),
        ({"slopes": [0.5] * 9}, "slopes"),
        ({"slopes": [0.5, -0.6, 0.0]}, "slopes"),
        ({"intercepts": [0.4] * 4}, "intercepts"),
        ({"intercepts": []}, "intercepts"),
        ({"intercepts": [0.4, 0.4, 40.5]}, "intercepts.2"),
        ({"intercepts": [0.4, "0.4", 0.4]}, "intercepts.1"),
        ({"intercepts": [0.4, True, 0.4]}, "intercepts.1"),
        ({"request_variance": 4.5}, "request_variance"),
        ({"request_variance": -0.1}, "request_variance"),
        ({"slope": 0.5}, "body"),
        ({"slopes": None}, "body"),
        ({"slopes": None, "slope": -0.5}, "slope"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_what_cannot_be_judged(api: RunningApi, publisher: Publisher, change: dict[str, Any], field: str) -> None:
    """A wrong count, a number out of bounds or an unknown field is named."""
    assert refused(ask(api, {**GOOD, **change}))["field"] == field


def test_the_refusal_says_what_the_pair_has(api: RunningApi, publisher: Publisher) -> None:
    """A wrong number of values is answered with the pair's K, F and knots."""
    for body in ({**GOOD, "slopes": [0.5]}, {**GOOD, "intercepts": [0.1] * 7}):
        message = refused(ask(api, body))["message"]
        assert "this pair has K = 3 positions and F = 3 slopes (knots [0.0, 2.0])" in message


@pytest.mark.parametrize(
    "intercept",
    ["NaN", "Infinity", "1e400", "9" * 4000, "9" * 5000, "[" * 100_000, '"\\ud800"', '"\u00e9"', "{}", "null", "tru"],
    ids=lambda text: text[:12],
)
def test_hostile_numbers(api: RunningApi, publisher: Publisher, intercept: str) -> None:
    """Numbers that are none, huge or deeply nested end as 422 in the envelope."""
    refused(ask(api, f'{{"slopes": [0.5, 0, 0], "intercepts": [0.1, 0.2, {intercept}]}}'.encode()))


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[]", b"null", b'{"\\ud800": 1}', b'"text"'])
def test_hostile_bodies(api: RunningApi, publisher: Publisher, body: bytes) -> None:
    """What is no JSON object, or names a field that cannot be written, ends as 422 in the envelope."""
    refused(ask(api, body))


def test_extreme_rows_have_finite_answers(api: RunningApi, publisher: Publisher) -> None:
    """The largest coefficients that are allowed give finite figures."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=0.6)), code_greedy=0.6)
    found = ask(api, {"slopes": [40.0, 40.0, 40.0], "intercepts": [-40.0] * 3}).json()
    assert all(np.isfinite(value) for value in found["proposed"].values() if value is not None)
    assert found["verdict"] == "worse"


def test_asking_changes_nothing(api: RunningApi, publisher: Publisher) -> None:
    """The served table is the same before and after."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=0.6)), code_greedy=0.6)
    before = api.get(f"/v1/pairs/{PAIR.id}/coefficients")
    ask(api, GOOD)
    after = api.get(f"/v1/pairs/{PAIR.id}/coefficients")
    assert (before.headers["etag"], before.content) == (after.headers["etag"], after.content)


BAD: dict[str, Any] = {
    "kind": "pin",
    "coefficients": {"slopes": [0.5, 0.0, 0.0], "intercepts": [2.5] * 3, "request_variance": 0.1},
}
BY = {"reason": "a try", "actor": "ada"}


def pin(api: RunningApi, scope: str, body: dict[str, Any]) -> dict[str, Any]:
    """A PUT of a pin that must succeed, and its answer."""
    path = f"/v1/pairs/{PAIR.id}{scope}/override"
    answer = api.client.put(path, json={**body, **BY}, headers={"If-Match": "*"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("scope", ["/workloads/code:greedy", ""])
def test_a_pin_that_hurts_is_warned_of(api: RunningApi, publisher: Publisher, scope: str) -> None:
    """A pin that is worse than what was learnt answers by how much, as the what-if does, and is put anyway."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=0.6)), code_greedy=0.6)
    found = pin(api, scope, BAD)
    warning = found["warning"]
    assert warning["message"].startswith("code:greedy: 0.")
    assert "8,000 recent labels" in warning["message"]
    assert warning["log_loss_worse_by"] > 3 * warning["noise"] > 0
    assert found["override"]["kind"] == "pin"
    # What was asked and what was put are judged alike.
    asked = ask(api, {"slopes": [0.5, 0.0, 0.0], "intercepts": [0.6] * 3}).json()
    assert asked["difference"]["log_loss"] == pytest.approx(-warning["log_loss_worse_by"])
    assert asked["difference"]["noise"] == pytest.approx(warning["noise"])


def test_a_pin_that_does_not_hurt(api: RunningApi, publisher: Publisher) -> None:
    """A better row, and one that nothing is known about, are pinned without a warning."""
    publisher.publish(body=busy(publisher.table(1, code_greedy=2.5)), code_greedy=2.5)
    assert (
        pin(api, "/workloads/code:greedy", {**BAD, "coefficients": {**BAD["coefficients"], **GOOD}})["warning"] is None
    )
    assert pin(api, "/workloads/never:hot", BAD)["warning"] is None


def test_a_pin_over_a_state_that_cannot_be_read(api: RunningApi, publisher: Publisher) -> None:
    """A damaged state is no reason to refuse a pin: it is put, without a warning."""
    publisher.publish(body=b"damaged", code_greedy=0.6)
    assert pin(api, "/workloads/code:greedy", BAD)["warning"] is None
