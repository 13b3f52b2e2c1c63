"""Overrides that end by themselves."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

import pytest
from tests.api.harness import PAIR, Poll, Publisher, RunningApi
from tests.api.test_overrides import BY, PATH, PIN, ROW, WHOLE, WORKLOAD, put, send, served
from tests.api.test_tables import Shelf
from tests.waiting import until

from accord.api import Settings
from accord.api.tables import Table, Tables
from accord.api.waiters import Waiters
from accord.learner.coefficients import CoefficientTable
from accord.learner.store import PairKeys, Store

KEYS = PairKeys(PAIR.id)


def end_now(store: Store) -> None:
    """As if the time of every override had run out, without an announcement."""
    stored = json.loads(store.client.hget(KEYS.overrides, "overrides") or b"[]")
    store.client.hset(KEYS.overrides, "overrides", json.dumps([{**item, "expires_ms": 1} for item in stored]))
    store.client.hset(KEYS.coefficients, "expires_ms", 1)


def actions(api: RunningApi) -> list[str]:
    """What the audit says, newest first."""
    return [entry["action"] for entry in api.get(f"{PATH}/audit").json()["entries"]]


def test_an_open_poll_is_answered_when_an_override_ends(api: RunningApi, publisher: Publisher) -> None:
    """Nobody asks and no learner runs: at its end the learnt row is pushed to whoever waits."""
    learnt = publisher.publish(code_greedy=0.4)
    put(api, WORKLOAD, {**PIN, "expires_in_s": 1})
    etag = api.get(f"{PATH}/coefficients").headers["etag"]
    answer = Poll(api, f"{PATH}/coefficients", etag, 30).result()
    table = CoefficientTable.from_json(answer.content)
    assert (table.version, table.row("code:greedy").to_dict()) == (3, learnt.row("code:greedy").to_dict())
    (expired, put_entry) = api.get(f"{PATH}/audit").json()["entries"]
    assert (expired["action"], expired["actor"], expired["after"]) == ("expire", "accord", None)
    assert expired["before"] == put_entry["after"]
    late_ms = expired["at_ms"] - put_entry["after"]["expires_ms"]
    assert 0 <= late_ms < 10_000
    assert api.get(WORKLOAD).status_code == 404
    assert api.get(f"{PATH}/overrides").json() == {"revision": 2, "overrides": []}


def test_many_apis_take_an_override_away_once(store: Store, settings: Settings, publisher: Publisher) -> None:
    """Every api has a timer for the same end; the audit has one entry for it, and all serve the same bytes."""
    publisher.publish(code_greedy=0.4)
    with ExitStack() as stack:
        apis = [stack.enter_context(RunningApi(settings)).ready() for _ in range(4)]
        for scope in ("code:greedy", "chat:hot", "chat:warm"):
            put(apis[0], f"{PATH}/workloads/{scope}/override", {**PIN, "expires_in_s": 1})
        for api in apis:
            until(lambda api=api: served(api).version == 4)  # type: ignore[misc]
        for api in apis:
            until(lambda api=api: served(api).version == 7)  # type: ignore[misc]
        assert actions(apis[1]) == ["expire"] * 3 + ["put"] * 3
        assert len({api.get(f"{PATH}/coefficients").content for api in apis}) == 1
        assert apis[2].get(PATH).json()["revision"] == 6


def test_whoever_reads_first_takes_it_away(store: Store, settings: Settings, publisher: Publisher) -> None:
    """An api that starts after the end, and every route that shows overrides, never shows what is over."""
    learnt = publisher.publish(code_greedy=0.4)
    paths = (f"{PATH}/coefficients", f"{PATH}/overrides", WORKLOAD, PATH, f"{PATH}/workloads/code:greedy")
    with RunningApi(settings) as first:
        first.ready()
        for number, path in enumerate(paths):
            put(first, WORKLOAD, PIN)
            end_now(store)
            with RunningApi(settings) as api:
                answer = api.ready().get(path)
                assert answer.status_code == (404 if path == WORKLOAD else 200)
                assert "incident 12" not in answer.text
                row = served(api).row("code:greedy")
                assert row.to_dict() == learnt.row("code:greedy").to_dict()
                assert actions(api) == ["expire", "put"] * (number + 1)


def test_an_end_moves_the_revision(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """Who wants to change what has just ended is told that it has: 412 for the old revision."""
    put(api, WORKLOAD, PIN)
    end_now(store)
    answer = send(api, "PUT", WORKLOAD, PIN, '"1"')
    assert (answer.status_code, answer.headers["etag"]) == (412, '"2"')
    assert actions(api) == ["expire", "put"]


def test_a_new_end_replaces_the_old_one(api: RunningApi, publisher: Publisher, store: Store) -> None:
    """An override put again without an end, or with a later one, does not end at the old time."""
    publisher.publish()
    put(api, WORKLOAD, {**PIN, "expires_in_s": 1})
    ended = put(api, WORKLOAD, {**PIN, "expires_in_s": 3600})["override"]["expires_ms"]
    until(lambda: store.clock_ms(PAIR.id) > ended - 3_600_000 + 2_000)
    assert served(api).row("code:greedy").to_dict() == ROW
    put(api, WORKLOAD, PIN)
    assert store.client.hget(KEYS.coefficients, "expires_ms") is None
    assert actions(api) == ["put"] * 3


def test_one_of_two_ends(api: RunningApi, publisher: Publisher) -> None:
    """When a workload's override ends the whole pair's takes its place."""
    publisher.publish(code_greedy=0.4)
    put(api, WHOLE, {"kind": "shift", "shift": 0.5, **BY})
    put(api, WORKLOAD, {**PIN, "expires_in_s": 1})
    etag = api.get(f"{PATH}/coefficients").headers["etag"]
    Poll(api, f"{PATH}/coefficients", etag, 30).result()
    assert served(api).row("code:greedy").intercepts.tolist() == [0.4 + 0.5] * 3


@pytest.mark.parametrize("forgotten", [False, True])
def test_the_timer_of_a_table(forgotten: bool) -> None:
    """A table is read again at its end, also when nobody waits, and not when it left the memory or everything ends."""

    async def body() -> None:
        shelf, loop = Shelf(), asyncio.get_running_loop()

        async def read(pair: str) -> Table | None:
            shelf.reads.append(pair)
            return Table(1, '"1"', b"", 0, 5, 0.05 if len(shelf.reads) < 3 else None)

        tables = Tables(read, Waiters(10), 1)
        tables.feed_back()
        await tables.get("a")
        if forgotten:
            await tables.get("b")
            tables.close()
        end = loop.time() + 0.4
        while loop.time() < end:
            await asyncio.sleep(0.02)
        assert shelf.reads == (["a", "b"] if forgotten else ["a", "a", "a"])
        tables.close()

    asyncio.run(body())
