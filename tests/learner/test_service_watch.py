"""What a learner tells of its work, to its log and to its metrics."""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.learner.fleet import KNOTS as FLEET_KNOTS
from tests.learner.fleet import Fleet, K, Traffic
from tests.learner.strategies import Engine
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.learner.counters import Counters
from accord.learner.embedded import EmbeddedServer
from accord.learner.errors import InvalidValue
from accord.learner.log_throttle import QUIET_S
from accord.learner.logs import fields_of
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.service.journal import Journal
from accord.learner.service.loop import LearnerService
from accord.learner.service.metrics import OTHER, Meters
from accord.learner.service.metrics_server import SILENT_S, MetricsServer, MetricsServerError
from accord.learner.service.progress import Progress
from accord.learner.service.settings import LearnerSettings
from accord.learner.service.watch import Publication, Step, Watcher, Watchers
from accord.learner.store import Store, connect
from accord.learner.wire import encode

KNOTS = (0.0, 2.0)
PAIRS = [Pair(f"org/Target-{i}", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3) for i in range(3)]


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """What was logged."""
    return [(record.getMessage(), fields_of(record)) for record in caplog.records]


def value(meters: Meters, name: str, **labels: str) -> float | None:
    """A sample of a learner's registry."""
    found: float | None = meters.registry.get_sample_value(f"accord_learner_{name}", labels)
    return found


@pytest.fixture
def loud(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log from INFO on."""
    with caplog.at_level(logging.INFO, "accord"):
        yield caplog


def test_refusals_are_told_once_a_minute_with_their_number(loud: pytest.LogCaptureFixture) -> None:
    """The first of a kind is told at once, later ones a minute after it and all together, other kinds by themselves."""
    clock, counters = Clock(), Counters()
    journal = Journal(clock=clock)

    def refused(reason: str, number: int) -> None:
        nonlocal counters
        before, counters = counters, replace(counters, refused=dict(counters.refused))
        counters.refused[reason] = counters.refused.get(reason, 0) + number
        counters.last_refusal = {"reason": reason, "detail": "why", "entry": "1-0"}
        journal.stepped(Step("a.b", before, counters))

    refused("size", 1)
    refused("size", 40)
    refused("overlap", 2)
    clock.now += QUIET_S
    refused("size", 2)
    assert [(name, found["reason"], found["count"]) for name, found in events(loud)] == [
        ("refused", "size", 1),
        ("refused", "overlap", 2),
        ("refused", "size", 42),
    ]
    assert events(loud)[0][1]["detail"] == "why"


def test_a_step_is_told_as_lines(loud: pytest.LogCaptureFixture) -> None:
    """A publication, a group of alarms of one moment, and a workload that the guard begins to hold are a line each."""
    alarms = [{"workload": key, "at_ms": 250, "detector": "jump"} for key in ("code:greedy", "chat:hot")]
    held = {"code:greedy": {"worse_by": 0.1, "noise": 0.01, "labels": 300.0}}
    step = Step("a.b", Counters(), Counters(), [Publication(7, "drift", 0.5, 2, 1)], held, alarms)
    Journal().stepped(step)
    assert events(loud) == [
        ("drift", {"pair": "a.b", "detector": "jump", "at_ms": 250, "workloads": ["code:greedy", "chat:hot"]}),
        ("published", {"pair": "a.b", "version": 7, "cause": "drift", "moved": 2, "held": 1}),
        ("guard holds", {"pair": "a.b", "workload": "code:greedy", "count": 1, **held["code:greedy"]}),
    ]


def test_a_watcher_that_fails_ends_nothing(loud: pytest.LogCaptureFixture) -> None:
    """What one watcher raises is logged, and the next one is told all the same."""

    class Broken(Watcher):
        def passed(self) -> None:
            raise ZeroDivisionError

    meters = Meters(clock=Clock())
    told = Watchers(Broken(), meters)
    told.passed()
    told.pair_taken("a.b", 1, 0, 0)
    assert [name for name, _ in events(loud)] == ["watcher failed"]
    assert value(meters, "pairs_owned") == 1


def test_progress_says_what_changed_since_a_step_began() -> None:
    """Alarms, holds and publications of a step are exactly those that the pair's state gained in it."""
    fleet = Fleet(size=2, seed=3)
    progress = Progress("a.b", fleet.learner)
    for traffic, rounds in ((Traffic(), 40), (Traffic(level=(-2.0, -2.0, -2.0)), 25)):
        alarms, published = 0, 0
        before = sum(fleet.alarms)
        for _ in range(rounds):
            begun = len(fleet.published)
            progress.begin()
            fleet.run(traffic, 1)
            new = fleet.published[begun:]
            progress.advanced(new, f"{fleet.tick * 250}-0")
            step = progress.committed(new, (fleet.tick + 1) * 250, 0.0)
            alarms += len(step.alarms)
            published += len(step.published)
            assert step.after.labels > step.before.labels
            assert [item.version for item in step.published] == [item.table.version for item in new]
            assert all(item.latency_s is not None and 0.0 < item.latency_s < 60.0 for item in step.published)
        assert alarms == sum(fleet.alarms) - before
        assert published
    assert sum(fleet.alarms)
    assert fleet.learner.learnt.state.knots == FLEET_KNOTS
    assert fleet.learner.learnt.state.k == K


def test_the_latency_of_a_publication_that_waited_counts_from_what_made_it_due() -> None:
    """A change that waits for the publish interval is as old as the summary that made it due, not the last one."""
    fleet = Fleet(seed=1)
    learner = fleet.learner
    progress = Progress("a.b", learner)
    fleet.run(Traffic(), 3)
    [published] = fleet.published[-1:]
    progress.begin()
    learner.learnt.due = True
    progress.advanced([], "5000-0")
    progress.advanced([], "6000-0")
    learner.learnt.due = False
    progress.advanced([published], "7000-0")
    assert progress.committed([published], 7_400, 0.0).published[0].latency_s == pytest.approx(2.4)


def test_pairs_beyond_the_limit_are_counted_together() -> None:
    """Only so many pairs get series of their own; the counts of the others are kept, under one label, and their number
    is shown; a pair that is no longer held makes room."""
    meters = Meters(max_pairs=2, clock=Clock())
    for name in ("a.a", "b.b", "c.c", "d.d"):
        meters.pair_taken(name, 1, 5, 0)
        meters.stepped(Step(name, Counters(), Counters(labels=10, refused={"size": 1}, alarms={"new": 2})))
        meters.waiting(name, 3, 1.0)
    assert value(meters, "labels_learnt_total", pair="a.a") == 10
    assert value(meters, "labels_learnt_total", pair=OTHER) == 20
    assert value(meters, "drift_alarms_total", pair=OTHER, detector=OTHER) == 4
    assert value(meters, "lag_entries", pair="c.c") is None
    assert value(meters, "pairs_owned") == 4
    assert value(meters, "pairs_left_out") == 2
    meters.pair_given_back("a.a")
    meters.pair_taken("e.e", 1, 0, 0)
    labels = {
        sample.labels["pair"]
        for family in meters.registry.collect()
        for sample in family.samples
        if "pair" in sample.labels
    }
    assert labels == {"b.b", "e.e", OTHER}


def test_a_lag_that_nobody_looks_after_grows() -> None:
    """The age of what waits goes on while the loop says nothing; nothing waiting has no age."""
    clock = Clock()
    meters = Meters(clock=clock)
    meters.pair_taken("a.b", 1, 0, 0)
    meters.waiting("a.b", 3, 2.0)
    clock.now += 5.0
    assert value(meters, "lag_seconds", pair="a.b") == 7.0
    meters.waiting("a.b", 0, 0.0)
    clock.now += 5.0
    assert value(meters, "lag_seconds", pair="a.b") == 0.0
    meters.pair_dropped("a.b", "the lease lapsed")
    assert value(meters, "lag_seconds", pair="a.b") is None


def get(url: str) -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(url: str) -> dict[str, Metric]:
    """The families of a scrape."""
    return {family.name: family for family in text_string_to_metric_families(get(f"{url}/metrics")[1])}


def test_a_running_learner_is_scraped(server: EmbeddedServer, store: Store, loud: pytest.LogCaptureFixture) -> None:
    """Over HTTP a learner shows what it committed, what it refused and what it holds, and that it lives; a damaged
    summary is one line in the log."""
    for item in PAIRS:
        store.register(item, KNOTS)
        engine = Engine(1, pair=item.id)
        for _ in range(3):
            store.append(item.id, encode(engine.round(5)))
        store.append(item.id, b"damaged")
    meters = Meters()
    service = LearnerService(LearnerSettings(redis_url=server.url), Store(connect(server.url)), [meters])
    with MetricsServer(meters, "127.0.0.1", 0) as metrics:
        assert get(f"{metrics.url}/livez")[0] == 200
        assert get(f"{metrics.url}/readyz") == (503, "the store is away\n")
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            until(lambda: all(Counters.decode(store.load(item.id).counters).refused for item in PAIRS))
            until(
                lambda: (
                    value(meters, "summaries_refused_total", pair=PAIRS[2].id, reason="size")
                    or value(meters, "summaries_refused_total", pair=PAIRS[2].id, reason="schema")
                )
            )
            assert get(f"{metrics.url}/readyz") == (200, "ok\n")
            assert get(f"{metrics.url}/other")[0] == 404
            found = scraped(metrics.url)
        finally:
            service.stop()
            thread.join()
    rounds = {s.labels["pair"]: s.value for s in found["accord_learner_rounds_learnt"].samples}
    assert rounds == dict.fromkeys((item.id for item in PAIRS), 3.0)
    assert found["accord_learner_pairs_owned"].samples[0].value == 3
    assert found["accord_learner_store_up"].samples[0].value == 1
    assert {s.labels["pair"] for s in found["accord_learner_lag_seconds"].samples} == {item.id for item in PAIRS}
    count = next(s for s in found["accord_learner_commit_duration_seconds"].samples if s.name.endswith("_count"))
    assert count.value >= 3
    names = [name for name, _ in events(loud)]
    assert names.count("pair taken") == names.count("pair given back") == names.count("refused") == 3
    assert names.count("store reached") == 1


def test_a_store_that_goes_and_comes_back_is_two_lines(
    store: Store, proxy: TcpProxy, loud: pytest.LogCaptureFixture
) -> None:
    """However often the learner tries, the store is lost once and reached once more, and the gauge follows."""
    store.register(PAIRS[0], KNOTS)
    meters = Meters()
    far = Store(connect(f"redis://127.0.0.1:{proxy.port}/0", socket_timeout=1.0))
    service = LearnerService(LearnerSettings(redis_url="redis://127.0.0.1:1/0"), far, [meters])
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        until(lambda: value(meters, "pairs_owned") == 1)
        proxy.cut()
        until(lambda: value(meters, "store_up") == 0)
        until(lambda: value(meters, "pairs_owned") == 0)
        passed = meters.pass_age_s
        until(lambda: meters.pass_age_s < passed)
        proxy.restore()
        until(lambda: value(meters, "pairs_owned") == 1 and value(meters, "store_up") == 1)
    finally:
        service.stop()
        thread.join()
    names = [name for name, _ in events(loud)]
    assert [name for name in names if name.startswith("store")] == ["store reached", "store lost", "store reached"]


def test_a_stuck_loop_is_not_alive() -> None:
    """When the loop has not gone round for long, the liveness probe fails."""
    clock = Clock()
    meters = Meters(clock=clock)
    with MetricsServer(meters, "127.0.0.1", 0) as metrics:
        meters.store_reached()
        clock.now += SILENT_S
        assert get(f"{metrics.url}/livez") == (503, "the loop does not go round\n")
        meters.passed()
        assert get(f"{metrics.url}/livez") == (200, "ok\n")
        meters.store_lost("refused")
        assert get(f"{metrics.url}/livez")[0] == 200
        assert get(f"{metrics.url}/readyz")[0] == 503


def test_an_address_that_cannot_be_listened_on_is_named() -> None:
    """A taken port and a host without address are errors that name the settings."""
    with MetricsServer(Meters(), "127.0.0.1", 0) as metrics:
        port = int(metrics.url.rpartition(":")[2])
        with pytest.raises(MetricsServerError, match=f"ACCORD_LEARNER_METRICS_PORT = {port}"):
            MetricsServer(Meters(), "127.0.0.1", port)
    with pytest.raises(MetricsServerError, match=r"ACCORD_LEARNER_METRICS_HOST = 'no\.such\.host\.invalid'"):
        MetricsServer(Meters(), "no.such.host.invalid", 0)


def test_metrics_settings() -> None:
    """Metrics are off when no port is set, on loopback when no host is; a bad value names its variable."""
    assert LearnerSettings.from_environment({"ACCORD_LEARNER_METRICS_PORT": ""}).metrics_port is None
    given = LearnerSettings.from_environment({"ACCORD_LEARNER_METRICS_PORT": "0"})
    assert (given.metrics_port, given.metrics_host) == (0, "127.0.0.1")
    for name, bad in (("PORT", "65536"), ("PORT", "x"), ("MAX_PAIRS", "-1"), ("PORT", "9" * 5000)):
        with pytest.raises(InvalidValue, match=f"ACCORD_LEARNER_METRICS_{name}"):
            LearnerSettings.from_environment({f"ACCORD_LEARNER_METRICS_{name}": bad})
