"""Overrides over real HTTP: what engines are served, and who may change what when."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import httpx
import pytest
from tests.api.harness import PAIR, Poll, Publisher, RunningApi
from tests.waiting import until

from accord.api import Settings
from accord.api.models.text import PATTERN
from accord.learner.coefficients import CoefficientTable
from accord.learner.store import PairKeys, Store

PATH = f"/v1/pairs/{PAIR.id}"
ROW = {"slopes": [0.7, 0.1, 0.0], "intercepts": [-0.1, -0.2, -0.3], "request_variance": 0.05}
BY = {"reason": "incident 12", "actor": "ada"}
PIN = {"kind": "pin", "coefficients": ROW, **BY}
WORKLOAD = f"{PATH}/workloads/code:greedy/override"
WHOLE = f"{PATH}/override"


def send(api: RunningApi, method: str, path: str, body: Any = None, match: str | None = "*") -> httpx.Response:
    """One request that changes something."""
    headers = {} if match is None else {"If-Match": match}
    return api.client.request(method, path, json=body, headers=headers)


def put(api: RunningApi, path: str, body: Any, match: str | None = "*") -> dict[str, Any]:
    """A PUT that must succeed."""
    answer = send(api, "PUT", path, body, match)
    assert answer.status_code == 200, answer.text
    assert answer.headers["etag"] == f'"{answer.json()["revision"]}"'
    found: dict[str, Any] = answer.json()
    return found


def served(api: RunningApi) -> CoefficientTable:
    """What engines get now."""
    return CoefficientTable.from_json(api.get(f"{PATH}/coefficients").content)


def test_a_pin_is_served_at_once_and_its_lifting_returns_the_learnt_row(api: RunningApi, publisher: Publisher) -> None:
    """A pinned row is what engines get, others stay as they are, and after DELETE the learnt bytes return."""
    learnt = publisher.publish(code_greedy=0.4, chat_warm=0.2)
    etag = api.get(f"{PATH}/coefficients").headers["etag"]
    poll = Poll(api, f"{PATH}/coefficients", etag, 30)
    until(lambda: api.services.waiters.count == 1)
    found = put(api, WORKLOAD, PIN, '"0"')
    assert (found["revision"], found["version"], found["warning"]) == (1, 2, None)
    assert found["override"]["coefficients"] == ROW
    assert CoefficientTable.from_json(poll.result().content).row("code:greedy").to_dict() == ROW
    now = served(api)
    assert now.version == 2
    assert now.row("chat:warm").to_dict() == learnt.row("chat:warm").to_dict()
    shown = api.get(f"{PATH}/workloads/code:greedy").json()
    assert (shown["coefficients"], shown["override"]["kind"]) == (ROW, "pin")
    assert shown["learnt"] == learnt.row("code:greedy").to_dict()
    gone = send(api, "DELETE", WORKLOAD, BY, '"1"')
    assert gone.json() == {"override": None, "revision": 2, "version": 3, "warning": None}
    after = served(api)
    assert (after.version, after.row("code:greedy").to_dict()) == (3, learnt.row("code:greedy").to_dict())


def test_a_shift_follows_what_is_learnt(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """A shift moves every intercept of a workload's learnt row."""
    publisher.publish(code_greedy=0.4)
    put(api, WORKLOAD, {"kind": "shift", "shift": -0.25, **BY})
    assert served(api).row("code:greedy").intercepts.tolist() == [0.4 - 0.25] * 3


def test_a_freeze_keeps_the_rows(api: RunningApi, publisher: Publisher) -> None:
    """A freeze serves what was served, under a new version."""
    before = publisher.publish(code_greedy=0.4)
    assert put(api, WHOLE, {"kind": "freeze", **BY})["override"]["coefficients"] is None
    assert served(api).workloads.keys() == before.workloads.keys()
    assert served(api).version == 2


def test_overrides_work_before_anything_is_learnt(api: RunningApi, publisher: Publisher) -> None:
    """A pair without a publication, and a workload that nobody has seen, can be overridden."""
    put(api, WORKLOAD, PIN, '"0"')
    put(api, WHOLE, {"kind": "shift", "shift": 1.0, **BY}, '"1"')
    now = served(api)
    assert now.row("code:greedy").to_dict() == ROW
    assert now.prior.intercepts.tolist() == [-0.2 + 1.0] * 3
    listed = api.get(f"{PATH}/overrides")
    assert listed.headers["etag"] == '"2"'
    assert [item["scope"] for item in listed.json()["overrides"]] == [None, "code:greedy"]
    detail = api.get(PATH).json()
    assert (detail["revision"], detail["overrides"], detail["override"]["kind"]) == (2, 2, "shift")
    other = api.get(f"{PATH}/workloads/chat:warm").json()
    assert other["override"]["scope"] is None
    assert other["learnt"]["intercepts"] == [-0.2] * 3


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("path", [WORKLOAD, WHOLE])
@pytest.mark.parametrize(
    ("match", "status"),
    [
        (None, 428),
        ('"0"', 412),
        ('"2"', 412),
        ('W/"1"', 412),
        ('"0", "2"', 412),
        ('"1"', 200),
        ('"0", "1"', 200),
        ("*", 200),
        ("1", 422),
        ('"1', 422),
        ("", 422),
        ('"1";', 422),
    ],
)
def test_if_match(
    api: RunningApi, publisher: Publisher, store: Store, method: str, path: str, match: str | None, status: int
) -> None:
    """A change needs the revision that it means; what is refused changes nothing."""
    put(api, path, PIN, '"0"')
    before = store.client.hgetall(PairKeys(PAIR.id).overrides)
    answer = send(api, method, path, PIN if method == "PUT" else BY, match)
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["revision"] == 2
    else:
        assert store.client.hgetall(PairKeys(PAIR.id).overrides) == before
    if status == 412:
        assert answer.headers["etag"] == '"1"'


def test_of_two_operators_exactly_one_wins(api: RunningApi, publisher: Publisher) -> None:
    """Writers that read the same revision: one gets 200, the others 412, and the revision grows by one."""
    publisher.publish()
    for revision in range(5):
        answers: list[int] = []
        go = threading.Barrier(4)

        def write(name: str, match: str, answers: list[int] = answers, go: threading.Barrier = go) -> None:
            go.wait()
            body = {**PIN, "actor": name}
            answers.append(httpx.put(api.url + WORKLOAD, json=body, headers={"If-Match": match}).status_code)

        threads = [threading.Thread(target=write, args=(f"op {i}", f'"{revision}"')) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [200, 412, 412, 412]
    assert api.get(f"{PATH}/overrides").json()["revision"] == 5
    assert len(api.get(f"{PATH}/audit").json()["entries"]) == 5


def test_an_absent_override_is_404_with_the_revision(api: RunningApi, publisher: Publisher) -> None:
    """GET and DELETE of a scope without an override name it, and GET tells the revision to begin with."""
    for path in (WORKLOAD, WHOLE):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "override_unknown")
        assert answer.headers["etag"] == '"0"'
        gone = send(api, "DELETE", path, BY, '"0"')
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "override_unknown")
    put(api, WHOLE, PIN)
    assert api.get(WORKLOAD).status_code == 404
    assert api.get(WHOLE).json()["override"]["actor"] == "ada"


def test_an_unknown_pair_is_404(api: RunningApi) -> None:
    """Nobody can override, roll back or look up what no engine has registered."""
    for method, path, body in (
        ("PUT", WORKLOAD, PIN),
        ("DELETE", WHOLE, BY),
        ("POST", f"{PATH}/rollback", {"version": 0, **BY}),
        ("GET", f"{PATH}/overrides", None),
        ("GET", f"{PATH}/audit", None),
        ("GET", f"{PATH}/history", None),
        ("GET", f"{PATH}/coefficients?version=0", None),
        ("GET", f"{PATH}/coefficients?as_of=1", None),
    ):
        answer = send(api, method, path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pair_unknown"), path


DIGITS = "9" * 5000
BAD: list[tuple[str, str]] = [
    ('{"kind":"pin","coefficients":{"slopes":[NaN,0,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","coefficients":{"slopes":[1e400,0,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","coefficients":{"slopes":[41,0,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","coefficients":{"slopes":[true,0,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","coefficients":{"slopes":["1",0,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","coefficients":{"slopes":[-1,0,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "slopes"),
    ('{"kind":"pin","coefficients":{"slopes":[1,0],"intercepts":[0,0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","coefficients":{"slopes":[1,0,0],"intercepts":[0,0]},"reason":"r","actor":"a"}', "coeff"),
    ('{"kind":"pin","reason":"r","actor":"a"}', "body"),
    ('{"kind":"shift","reason":"r","actor":"a"}', "body"),
    ('{"kind":"shift","shift":1,"coefficients":{"slopes":[1],"intercepts":[1]},"reason":"r","actor":"a"}', "body"),
    ('{"kind":"shift","shift":-1e400,"reason":"r","actor":"a"}', "shift"),
    ('{"kind":"shift","shift":' + DIGITS + ',"reason":"r","actor":"a"}', "body"),
    ('{"kind":"shift","shift":' + "9" * 400 + ',"reason":"r","actor":"a"}', "shift"),
    ('{"kind":"rollback","reason":"r","actor":"a"}', "kind"),
    ('{"kind":"freeze","actor":"a"}', "reason"),
    ('{"kind":"freeze","reason":"r"}', "actor"),
    ('{"kind":"freeze","reason":"","actor":"a"}', "reason"),
    ('{"kind":"freeze","reason":"  ","actor":"a"}', "reason"),
    ('{"kind":"freeze","reason":"a\\u0000b","actor":"a"}', "reason"),
    ('{"kind":"freeze","reason":"\\ud800","actor":"a"}', "reason"),
    ('{"kind":"freeze","reason":"' + "x" * 501 + '","actor":"a"}', "reason"),
    ('{"kind":"freeze","reason":"r","actor":"' + "x" * 121 + '"}', "actor"),
    ('{"kind":"freeze","reason":"r","actor":"a","expires_in_s":0.5}', "expires_in_s"),
    ('{"kind":"freeze","reason":"r","actor":"a","expires_in_s":31536001}', "expires_in_s"),
    ('{"kind":"freeze","reason":"r","actor":"a","expires_in_s":NaN}', "expires_in_s"),
    ('{"kind":"freeze","reason":"r","actor":"a","surprise":1}', "surprise"),
    ("[" * 100_000, "body"),
    ("\xff", "body"),
    ("", "body"),
    ("null", "body"),
]


@pytest.mark.parametrize(("body", "field"), BAD, ids=range(len(BAD)))
def test_bad_bodies_are_422_and_change_nothing(
    api: RunningApi, publisher: Publisher, store: Store, body: str, field: str
) -> None:
    """Whatever cannot be served, or says too little, is refused by name."""
    for path in (WORKLOAD, WHOLE):
        headers = {"If-Match": "*", "Content-Type": "application/json"}
        answer = api.client.put(path, content=body.encode("latin-1"), headers=headers)
        assert answer.status_code == 422, answer.text
        error = json.loads(answer.text, parse_constant=lambda text: pytest.fail(text))["error"]
        assert error["code"] == "value_invalid"
        assert field in error["field"]
    assert store.client.exists(PairKeys(PAIR.id).overrides) == 0


def test_a_delete_says_who_and_why_in_body_or_query(api: RunningApi, publisher: Publisher) -> None:
    """Without a reason or an actor nothing is lifted; either place will do, and both reach the audit."""
    for query, body, status in (
        ({}, None, 422),
        ({"reason": "r"}, None, 422),
        ({}, {"actor": "a"}, 422),
        ({"reason": "x" * 501, "actor": "a"}, None, 422),
        ({"reason": "over", "actor": "ada"}, None, 200),
        ({}, {"reason": "over", "actor": "ada"}, 200),
    ):
        put(api, WORKLOAD, PIN)
        answer = api.client.request("DELETE", WORKLOAD, params=query, json=body, headers={"If-Match": "*"})
        assert answer.status_code == status, answer.text
        newest = api.get(f"{PATH}/audit").json()["entries"][0]
        assert newest["action"] == ("delete" if status == 200 else "put")
        if status == 200:
            assert (newest["actor"], newest["reason"], newest["after"]) == ("ada", "over", None)
            assert newest["before"]["kind"] == "pin"


def test_text_of_any_language_comes_back(api: RunningApi, publisher: Publisher) -> None:
    """Reasons and actors keep every character."""
    said = {"reason": "zu langsam: 慢すぎ 🐢\nsee wiki", "actor": "Åsa Þórsdóttir"}
    put(api, WORKLOAD, {**PIN, **said})
    entry = api.get(f"{PATH}/audit").json()["entries"][0]
    assert {name: entry[name] for name in said} == said
    assert api.get(f"{PATH}/overrides").json()["overrides"][0]["reason"] == said["reason"]


@pytest.mark.parametrize(
    "mark",
    [*"\x00\x08\x0b\r\x1b\x1f\x7f\x80\x9b\x9f", *"\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"],
    ids=lambda mark: f"U+{ord(mark):04X}",
)
def test_text_that_deceives_where_it_is_shown(api: RunningApi, publisher: Publisher, mark: str) -> None:
    """Control characters and marks that turn the direction of text are refused by name, in bodies and in queries."""
    for name in BY:
        said = {**BY, name: f"a{mark}b"}
        for method, how in (
            ("PUT", {"json": {"kind": "freeze", **said}}),
            ("DELETE", {"json": said}),
            ("DELETE", {"params": said}),
        ):
            answer = api.client.request(method, WORKLOAD, headers={"If-Match": "*"}, **how)
            assert answer.status_code == 422, (method, name)
            error = answer.json()["error"]
            assert error["field"] == name
            assert f"U+{ord(mark):04X}" in error["message"]
        body = {"version": 0, **said}
        assert api.client.post(f"{PATH}/rollback", json=body, headers={"If-Match": "*"}).status_code == 422
    assert re.search(PATTERN, f"a{mark}b") is None
    assert re.search(PATTERN, "a\tb\nc é 慢") is not None


def test_too_many_scopes_are_refused(api: RunningApi, publisher: Publisher) -> None:
    """A pair has rows for 64 workloads at most, overridden ones included."""
    publisher.publish(code_greedy=0.4)
    for number in range(63):
        put(api, f"{PATH}/workloads/w{number}:hot/override", PIN)
    answer = send(api, "PUT", f"{PATH}/workloads/w63:hot/override", PIN)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    put(api, WORKLOAD, PIN)
    put(api, WHOLE, PIN)
    assert len(served(api).workloads) == 64


@pytest.mark.parametrize("key", ["overrides", "audit", "history", "coefficients"])
def test_a_key_of_a_wrong_type_changes_nothing(api: RunningApi, publisher: Publisher, store: Store, key: str) -> None:
    """A key that somebody overwrote is 500 with a clear word, and no other key is touched."""
    store.client.set(getattr(PairKeys(PAIR.id), key), "spoilt")
    before = sorted(store.client.keys())
    answer = send(api, "PUT", WORKLOAD, PIN)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "store_failed")
    assert sorted(store.client.keys()) == before


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b"\xff", b"[" * 5000, b'[{"scope":"code:greedy"}]'])
def test_spoilt_overrides_are_reported_and_engines_go_on(
    api: RunningApi, publisher: Publisher, store: Store, value: bytes
) -> None:
    """Overrides that are not understood are 500 to operators, and coefficients are served all the same."""
    publisher.publish()
    store.client.hset(PairKeys(PAIR.id).overrides, "overrides", value)
    store.client.hset(PairKeys(PAIR.id).coefficients, "expires_ms", 1)
    assert send(api, "PUT", WORKLOAD, PIN).status_code == 500
    assert api.get(f"{PATH}/overrides").status_code == 500
    with RunningApi(Settings(redis_url=api.services.settings.redis_url)) as fresh:
        assert fresh.ready().get(f"{PATH}/coefficients").status_code == 200
