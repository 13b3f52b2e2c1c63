"""What the page shows of drift, influence, costs and advice: a fleet with a known truth that changes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import expect
from tests.api.harness import RunningApi
from tests.learner import fleet
from tests.page.support import Tabs, picture

from accord.api import Settings
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import TICK_MS, PairLearner
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Commit, Publication, Store, connect
from accord.learner.store.keys import PairKeys

PAIR = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, fleet.K)
DRIFTED = "code:greedy"
COSTS = {
    "draft_ms_by_requests": [[1, 0.8], [8, 1.0], [64, 2.0]],
    "verify_ms_by_tokens": [[1, 9.0], [8, 9.5], [16, 30.0], [32, 14.0], [64, 16.0], [256, 40.0]],
}


@pytest.fixture(scope="module")
def drifted(chromium: str) -> Iterator[RunningApi]:
    """An api before a pair whose drafts for code became much worse, and an engine that has told its costs."""
    with EmbeddedServer() as own, Store(connect(own.url, role="test")) as store:
        store.register(PAIR, fleet.KNOTS)
        seen = fleet.Fleet(size=2)
        seen.learner = PairLearner(Learnt.new(PAIR.id, fleet.K, fleet.KNOTS))
        seen.alter = lambda _, summary: replace(summary, pair=PAIR.id)
        seen.tick = time.time_ns() // 1_000_000 // TICK_MS - 2_000
        seen.run(fleet.Traffic(), 40)
        seen.run(fleet.Traffic(level=(-1.4, -0.3, 0.0)), 25)
        assert seen.alarms[0] > 0
        lease = store.acquire(PAIR.id, "test", 60_000)
        assert lease is not None
        publications = [
            Publication(one.table.version, one.table.to_json(), one.history, one.table.published_ms)
            for one in seen.published
        ]
        learner, watermark = seen.learner, store.load(PAIR.id).watermark
        store.commit(
            lease,
            Commit(
                watermark, watermark, encode_learnt(learner.learnt), learner.sequences.encode(),
                learner.counters.encode(), publications[-1].version, publications,
            ),
        )  # fmt: skip
        now = time.time_ns() // 1_000_000
        status = {"state": "fleet", "version": 1, "time_ms": now, "labels": {"sent": 7}, "costs": COSTS}
        store.client.hset(PairKeys(PAIR.id).engines, "host-0/0", json.dumps(status))
        gone = {
            "state": "local",
            "version": 1,
            "time_ms": now - 3_600_000,
            "nack": {"reason": "k", "detail": "wrong K"},
        }
        store.client.hset(PairKeys(PAIR.id).engines, "host-9/0", json.dumps(gone))
        with RunningApi(Settings(redis_url=own.url)) as api:
            yield api.ready()


def test_drift(drifted: RunningApi, tabs: Tabs) -> None:
    """A drift alarm is marked in the charts by a letter, and told in the history in words."""
    page = tabs.open(f"{drifted.url}/#/pairs/{PAIR.id}/workloads/{DRIFTED}").page
    expect(page.locator("#ece-chart .legend")).to_contain_text("D drift")
    expect(page.locator("#history-table")).to_contain_text("drift: acceptance changed")
    expect(page.locator("#history-table")).to_contain_text("less was accepted than predicted")
    expect(page.locator(".answers > div").nth(2)).to_contain_text("drift")
    expect(page.locator(".facts").first).to_contain_text("Drift alarms")
    picture(page, "drift-1280-light")
    page.goto("about:blank")


def test_costs_and_engines(drifted: RunningApi, tabs: Tabs) -> None:
    """Cost curves name their dead spots; an engine that fell silent stands first, with what it refuses."""
    page = tabs.open(f"{drifted.url}/#/pairs/{PAIR.id}").page
    costs = page.locator("#costs")
    expect(costs.locator("canvas")).to_have_count(2)
    expect(costs).to_contain_text("dead spot")
    expect(costs.locator("li").filter(has_text="verify, ").first).to_be_visible()
    first = page.locator("#engine-table tbody tr").first
    for text in ("host-9/0", "silent", "60 min", "wrong K"):
        expect(first).to_contain_text(text)
    expect(page.locator("#influence-table")).to_contain_text("host-1/0")
    picture(page, "costs-1280-light")
    page.goto("about:blank")


def test_advice(drifted: RunningApi, tabs: Tabs) -> None:
    """Advice says in words whether speculation pays, and with whose costs."""
    page = tabs.open(f"{drifted.url}/#/pairs/{PAIR.id}/workloads/{DRIFTED}").page
    advice = page.locator("#advice")
    expect(advice).to_contain_text("speculation")
    expect(advice).to_contain_text("engine host-0/0")
    expect(advice.locator("canvas")).to_have_count(2)
    page.goto("about:blank")
