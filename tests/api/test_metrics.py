"""What Prometheus scrapes from the api."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tests.api.harness import KNOTS, PAIR, Poll, Publisher, RunningApi
from tests.learner.strategies import Engine
from tests.proxy import TcpProxy
from tests.waiting import until

from accord.api import Settings
from accord.api.engine_status import SILENT_MS, STATES
from accord.api.metrics import fleet_cache
from accord.api.metrics.engines import judge_engines
from accord.api.metrics.families import ENGINE_STATES, FleetCollector
from accord.api.metrics.fleet import FEW_BYTES, FEW_ENGINES
from accord.api.metrics.fleet_cache import FleetCache
from accord.api.metrics.requests import RequestMetrics
from accord.api.metrics.snapshot import Seen, Snapshot, Workload
from accord.hooks.standing import State
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_state import PairState
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import PAIRS, PairKeys, Store, StoreUnavailableError

Samples = Mapping[str, float]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scrape reads anew."""
    monkeypatch.setattr(fleet_cache, "CACHE_S", 0.0)
    monkeypatch.setattr(fleet_cache, "PATIENCE_S", 20.0)


def scrape(api: RunningApi) -> Samples:
    """Every sample of a scrape, `name{label="value",...}` -> value."""
    answer = api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = ",".join(f'{key}="{sample.labels[key]}"' for key in sorted(sample.labels))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def beat(store: Store, engine: str, age_ms: int = 0, pair: str = PAIR.id, **status: Any) -> None:
    """A heartbeat of so long ago."""
    body = {"time_ms": store.clock_ms(pair) - age_ms, "state": "fleet", "version": 1, **status}
    store.heartbeat(pair, engine, json.dumps(body).encode())


def learnt(rounds: int = 6) -> bytes:
    """A state of the pair with two workloads."""
    state = PairState(PAIR.id, PAIR.k, KNOTS)
    engine = Engine(1, pair=PAIR.id, keys=("chat:hot", "code:greedy"), requests=12)
    for i in range(rounds):
        state.fold(1_000 * (i + 1), [engine.round(20)])
    return encode_learnt(replace(Learnt.new(PAIR.id, PAIR.k, KNOTS), state=state))


def of_pair(found: Samples, name: str, **labels: str) -> float | None:
    """A sample of the pair."""
    given = {"pair": PAIR.id, **labels}
    text = ",".join(f'{key}="{given[key]}"' for key in sorted(given))
    return found.get(f"accord_{name}{{{text}}}")


def test_a_pair_is_shown_as_the_store_has_it(api: RunningApi, store: Store, publisher: Publisher) -> None:
    """Version, owner, backlog, engines by state, and the quality of every workload come from one reading."""
    assert of_pair(scrape(api), "pair_version") == 0
    publisher.publish(learnt())
    publisher.publish()
    store.append(PAIR.id, b"one")
    store.append(PAIR.id, b"two")
    beat(store, "a/0")
    beat(store, "b/0", version=2)
    beat(store, "c/0", state="local", version=1)
    beat(store, "d/0", age_ms=2 * SILENT_MS)
    beat(store, "e/0", stopped=True)
    store.heartbeat(PAIR.id, "f/0", b"\xff not json")
    found = scrape(api)
    assert of_pair(found, "pair_version") == 2
    assert of_pair(found, "pair_published_timestamp_seconds") == 1_700_000_000
    assert of_pair(found, "pair_owned") == 1
    assert of_pair(found, "pair_lag_entries") == 2
    lag = of_pair(found, "pair_lag_seconds")
    assert lag is not None
    assert 0.0 <= lag < 60.0
    engines = {state: of_pair(found, "pair_engines", state=state) for state in ENGINE_STATES}
    expected = dict.fromkeys(ENGINE_STATES, 0.0) | {"fleet": 2, "local": 1, "silent": 1, "stopped": 1, "unknown": 1}
    assert engines == expected
    assert of_pair(found, "pair_engine_version_lag") == 1
    assert of_pair(found, "pair_engines_behind") == 1
    detail = {item["workload"]: item for item in api.get(f"/v1/pairs/{PAIR.id}").json()["workloads"]}
    assert set(detail) == {"chat:hot", "code:greedy"}
    for key, glance in detail.items():
        assert of_pair(found, "workload_labels_total", workload=key) == glance["labels"]
        for name, field in (("ece", "ece"), ("log_loss", "log_loss"), ("accepted_ratio", "accepted")):
            assert of_pair(found, f"workload_{name}", workload=key) == pytest.approx(glance[field])
    assert found["accord_api_pairs"] == 1


def test_overrides_in_force_are_counted(api: RunningApi, publisher: Publisher) -> None:
    """An override counts from the scrape after it was put until the one after it was lifted, and quality is judged by
    what is served."""
    publisher.publish(learnt())
    before = of_pair(scrape(api), "workload_log_loss", workload="chat:hot")
    assert before is not None
    path, body = f"/v1/pairs/{PAIR.id}/override", {"kind": "shift", "shift": -3.0, "reason": "test", "actor": "me"}
    put = api.client.put(path, json=body, headers={"If-Match": "*"})
    assert put.status_code == 200
    found = scrape(api)
    worse = of_pair(found, "workload_log_loss", workload="chat:hot")
    assert of_pair(found, "pair_overrides") == 1
    assert worse is not None
    assert worse > before + 0.1
    assert api.client.delete(f"{path}?reason=over&actor=me", headers={"If-Match": "*"}).status_code == 200
    assert of_pair(scrape(api), "pair_overrides") == 0


def test_a_released_pair_has_no_owner(api: RunningApi, store: Store, publisher: Publisher) -> None:
    """A pair whose lease was given back is not owned, one that nobody ever held neither."""
    assert of_pair(scrape(api), "pair_owned") == 0
    lease = store.acquire(PAIR.id, "somebody", 60_000)
    assert lease is not None
    assert of_pair(scrape(api), "pair_owned") == 1
    store.release(lease)
    assert of_pair(scrape(api), "pair_owned") == 0


def test_requests_are_counted_by_template(api: RunningApi, publisher: Publisher) -> None:
    """Whatever is asked for, the labels are route templates, known methods and statuses; refusals are counted too."""
    api.get(f"/v1/pairs/{PAIR.id}")
    api.get("/v1/pairs/nobody")
    api.client.head("/livez")
    for i in range(5):
        api.get(f"/no/such/{i}")
        api.client.request(f"BREW{i}", "/livez")
    api.client.request("GET", "/livez", content=b"x" * (2 << 20))
    found = scrape(api)

    def count(method: str, route: str, status: int) -> float | None:
        return found.get(f'accord_api_requests_total{{method="{method}",route="{route}",status="{status}"}}')

    assert count("GET", "/v1/pairs/{pair}", 200) == 1
    assert count("GET", "/v1/pairs/{pair}", 404) == 1
    assert count("HEAD", "/livez", 200) == 1
    assert count("GET", "unknown", 404) == 5
    assert count("unknown", "/livez", 405) == 5
    assert count("GET", "/livez", 413) == 1
    name = "accord_api_request_duration_seconds_count"
    assert found[f'{name}{{method="GET",route="/v1/pairs/{{pair}}"}}'] == 2


def test_what_nobody_foresaw_counts_as_500(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose route fails is counted with the status that its client sees."""

    async def fails() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(api.services.source, "ping", fails)
    # On a connection of its own, because the server closes it after that.
    assert httpx.get(f"{api.url}/readyz").status_code == 500
    assert scrape(api)['accord_api_requests_total{method="GET",route="/readyz",status="500"}'] == 1


def test_limits_hold_and_what_is_left_out_is_counted(store: Store, server: EmbeddedServer) -> None:
    """Beyond the limits pairs and workloads get no series, and their number is shown."""
    pairs = [Pair(f"z{i}", "d", Method.MTP, DraftSampling.GREEDY, PAIR.k) for i in range(4)]
    for item in pairs:
        store.register(item, KNOTS)
    Publisher(store).publish(learnt())
    store.client.hset(PAIRS, "Not A Pair", b"x")
    with RunningApi(Settings(redis_url=server.url, metrics_max_pairs=3, metrics_max_workloads=1)) as api:
        found = scrape(api)
    shown = {name for name in found if name.startswith("accord_pair_version{")}
    assert shown == {f'accord_pair_version{{pair="{item}"}}' for item in sorted([PAIR.id, *(p.id for p in pairs)])[:3]}
    assert found["accord_api_pairs_left_out"] == 2
    assert found["accord_api_pairs"] == 6
    assert found["accord_api_pairs_unreadable"] == 1
    assert found["accord_api_workloads_left_out"] == 1
    assert sum(name.startswith("accord_workload_ece{") for name in found) == 1
    store.client.hdel(PAIRS, "Not A Pair")


@pytest.mark.parametrize("part", ["engines", "state", "coefficients", "lease", "overrides", "rounds"])
def test_a_damaged_pair_hides_no_other(api: RunningApi, store: Store, publisher: Publisher, part: str) -> None:
    """A key of a wrong type, or a state that cannot be decoded, takes one pair out of the scrape and is counted."""
    other = Pair("other", "d", Method.MTP, DraftSampling.GREEDY, 1)
    Publisher(store, other).publish()
    key = getattr(PairKeys(PAIR.id), part)
    store.client.delete(key)
    store.client.set(key, "x")
    found = scrape(api)
    assert found[f'accord_pair_version{{pair="{other.id}"}}'] == 1
    assert of_pair(found, "pair_version") is None
    assert found["accord_api_pairs_unreadable"] == 1
    store.client.delete(key)
    publisher.publish(b"damaged") if part == "state" else None
    assert scrape(api)["accord_api_pairs_unreadable"] == (1 if part == "state" else 0)


@pytest.mark.parametrize(
    "status",
    [
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"state": ["fleet"]}',
        b'{"state": "Fleet\\n", "version": 1e400}',
        b'{"time_ms": -1}',
    ],
)
def test_what_an_engine_writes_is_not_trusted(status: bytes) -> None:
    """A status that is not one counts as unknown, never as a label of its own."""
    assert judge_engines([status], 5, 1_000) == ({"unknown": 1}, 0, 0)


def test_only_engines_that_follow_can_be_behind() -> None:
    """Engines that refit themselves, are frozen, silent or stopped are not behind; absurd versions are left out."""
    states = [("fleet", 3), ("stale", 1), ("local", 0), ("frozen", 0), ("observe", 5), ("fleet", True), ("fleet", -1)]
    statuses = [json.dumps({"state": state, "version": version, "time_ms": 10}) for state, version in states]
    counted, lag, behind = judge_engines(statuses, 5, 1_000)
    assert (lag, behind) == (4, 2)
    assert counted == {"fleet": 3, "stale": 1, "local": 1, "frozen": 1, "observe": 1}


def test_every_state_of_an_engine_is_known() -> None:
    """The states that are counted are those that engines have."""
    assert set(STATES) == {state.value for state in State}


def test_an_open_poll_and_the_read_after_a_publication_are_seen(api: RunningApi, publisher: Publisher) -> None:
    """Open polls are a gauge, and a newer version that somebody waited for is timed; a first sight of a table is not,
    nor what is read because somebody asks."""
    path = f"/v1/pairs/{PAIR.id}/coefficients"
    publisher.publish()
    etag = api.get(path).headers["etag"]
    poll = Poll(api, path, etag, 60)
    until(lambda: api.services.waiters.count == 1)
    found = scrape(api)
    assert found["accord_api_waiters"] == 1
    assert found["accord_api_tables"] == 1
    assert found["accord_api_tables_stale"] == 0
    assert found["accord_api_publish_to_read_seconds_count"] == 0
    publisher.publish()
    assert poll.result().status_code == 200
    assert scrape(api)["accord_api_publish_to_read_seconds_count"] == 1
    publisher.publish()
    until(lambda: api.get(path).headers["accord-version"] == "3")
    assert scrape(api)["accord_api_publish_to_read_seconds_count"] == 1


@pytest.fixture
def far_api(store: Store, proxy: TcpProxy, publisher: Publisher) -> Iterator[RunningApi]:
    """An api behind a proxy."""
    with RunningApi(Settings(redis_url=f"redis://127.0.0.1:{proxy.port}/0")) as running:
        yield running.ready()


def test_a_scrape_outlives_the_store(far_api: RunningApi, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is away a scrape answers, says so, and shows the last reading until that is too old."""
    far_api.get(f"/v1/pairs/{PAIR.id}/coefficients")
    assert of_pair(scrape(far_api), "pair_version") == 0
    proxy.cut()
    until(lambda: not far_api.services.subscriber.alive)
    found = scrape(far_api)
    assert found["accord_api_store_up"] == 0
    assert found["accord_api_fleet_up"] == 1
    assert found["accord_api_tables_stale"] == found["accord_api_tables"] == 1
    assert of_pair(found, "pair_version") == 0
    monkeypatch.setattr(fleet_cache, "EXPIRES_S", 0.0)
    found = scrape(far_api)
    assert found["accord_api_fleet_up"] == 0
    assert of_pair(found, "pair_version") is None


def test_a_slow_store_holds_up_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape waits for a reading no longer than its patience, and several share one reading."""
    monkeypatch.setattr(fleet_cache, "PATIENCE_S", 0.01)
    begun = 0

    async def scenario() -> None:
        release = asyncio.Event()

        async def read() -> Snapshot:
            nonlocal begun
            begun += 1
            await release.wait()
            return Snapshot(asyncio.get_running_loop().time(), known=begun)

        cache = FleetCache(read)
        assert await asyncio.gather(*(cache.get() for _ in range(5))) == [None] * 5
        release.set()
        monkeypatch.setattr(fleet_cache, "PATIENCE_S", 20.0)
        found = await cache.get()
        assert found is not None
        assert found.known == 1
        monkeypatch.setattr(fleet_cache, "CACHE_S", 60.0)
        assert await cache.get() is found
        await cache.close()

    asyncio.run(scenario())
    assert begun == 1


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), ZeroDivisionError()])
def test_a_failed_reading_keeps_the_last_one(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """When a reading fails, the one before is shown; that the store is away is not logged here, anything else is."""

    async def scenario() -> None:
        found = [Snapshot(asyncio.get_running_loop().time(), known=7)]

        async def read() -> Snapshot:
            if not found:
                raise error
            return found.pop()

        cache = FleetCache(read)
        for _ in range(2):
            last = await cache.get()
            assert last is not None
            assert last.known == 7

    asyncio.run(scenario())
    assert len(caplog.records) == (0 if isinstance(error, StoreUnavailableError) else 1)


def test_applications_share_nothing(api: RunningApi, server: EmbeddedServer) -> None:
    """Two applications in one process count apart."""
    with RunningApi(Settings(redis_url=server.url)) as other:
        for _ in range(3):
            other.get("/livez")
        name = 'accord_api_requests_total{method="GET",route="/livez",status="200"}'
        assert scrape(other)[name] == 3
        assert name not in scrape(api)


def test_a_viewer_may_scrape_and_an_engine_may_not(store: Store, server: EmbeddedServer, tmp_path: Path) -> None:
    """With tokens the page asks for a viewer's, and who was refused is counted by reason."""
    from accord.api.auth.roles import Role
    from accord.api.auth.tokens import create

    made = {role: create(role.value, role, None) for role in (Role.ENGINE, Role.VIEWER)}
    file = tmp_path / "tokens"
    file.write_text("".join(f"{entry.line()}\n" for _, entry in made.values()))
    file.chmod(0o600)
    with RunningApi(Settings(redis_url=server.url, tokens_file=str(file))) as api:

        def get(role: Role | None) -> Any:
            headers = {} if role is None else {"Authorization": f"Bearer {made[role][0]}"}
            return api.client.get("/metrics", headers=headers)

        assert [get(role).status_code for role in (None, Role.ENGINE, Role.VIEWER)] == [401, 403, 200]
        assert 'accord_api_auth_refusals_total{reason="missing"} 1.0' in get(Role.VIEWER).text


def test_pairs_in_use_are_shown_before_others(store: Store, server: EmbeddedServer) -> None:
    """Pairs that were never published push none that was out of sight, wherever their names stand."""
    for number in range(4):
        store.register(Pair(f"0{number}", "d", Method.MTP, DraftSampling.GREEDY, PAIR.k), KNOTS)
    Publisher(store).publish(learnt())
    with RunningApi(Settings(redis_url=server.url, metrics_max_pairs=3)) as api:
        found = scrape(api)
    assert f'accord_pair_version{{pair="{PAIR.id}"}}' in found
    assert found["accord_api_pairs_left_out"] == 2


def test_not_a_number_is_left_out() -> None:
    """A metric without a value has no sample."""
    registry = CollectorRegistry()
    collector = FleetCollector()
    registry.register(collector)
    workload = Workload("chat:hot", 0, None, float("nan"), np.inf)
    seen = Seen("a.b", 0, 0, False, 0, 0.0, {}, 0, 0, workloads=[workload])
    collector.snapshot = Snapshot(0.0, [seen])
    labels = {"pair": "a.b", "workload": "chat:hot"}
    assert registry.get_sample_value("accord_workload_labels_total", labels) == 0
    for name in ("accepted_ratio", "log_loss", "ece"):
        assert registry.get_sample_value(f"accord_workload_{name}", labels) is None


def test_requests_are_timed_in_buckets() -> None:
    """Every bucket holds the requests that took at most its bound, the last one all of them."""
    registry = CollectorRegistry()
    requests = RequestMetrics(registry)
    for seconds in (0.0, 0.001, 0.0011, 59.0, 61.0):
        requests.answered("GET", "/v1/pairs", 200, seconds)
    requests.answered("GET", "/v1/pairs", 404, 0.5)

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"method": "GET", "route": "/v1/pairs", **labels})

    name = "accord_api_request_duration_seconds"
    found = {le: sample(f"{name}_bucket", le=le) for le in ("0.001", "0.0025", "0.25", "0.5", "30.0", "60.0", "+Inf")}
    assert found == {"0.001": 2, "0.0025": 3, "0.25": 3, "0.5": 4, "30.0": 4, "60.0": 5, "+Inf": 6}
    assert sample(f"{name}_count") == 6
    assert sample(f"{name}_sum") == pytest.approx(120.5021)
    assert [sample("accord_api_requests_total", status=status) for status in ("200", "404", "500")] == [5, 1, None]


def test_every_engine_of_a_crowded_pair_counts(api: RunningApi, store: Store, publisher: Publisher) -> None:
    """Engines beyond those that are read with the rest of a chunk are counted all the same, by count and by size."""
    for number in range(FEW_ENGINES + 5):
        beat(store, f"many/{number}")
    assert of_pair(scrape(api), "pair_engines", state="fleet") == FEW_ENGINES + 5
    other = Pair("T", "D", Method.MTP, DraftSampling.GREEDY, 1)
    store.register(other, KNOTS)
    for number in range(10):
        beat(store, f"large/{number}", pair=other.id, reason="x" * (FEW_BYTES // 8))
    assert of_pair(scrape(api), "pair_engines", pair=other.id, state="fleet") == 10


def test_a_restored_backup_is_seen(api: RunningApi, store: Store, publisher: Publisher) -> None:
    """A state and overrides that differ under the same version, revision and time are read anew."""
    publisher.publish(learnt())
    api.client.put(f"/v1/pairs/{PAIR.id}/override", json={"kind": "freeze", "reason": "r", "actor": "a"},
                   headers={"If-Match": "*"}).raise_for_status()  # fmt: skip
    found = scrape(api)
    labels = of_pair(found, "workload_labels_total", workload="chat:hot")
    assert labels
    assert of_pair(found, "pair_overrides") == 1
    keys = PairKeys(PAIR.id)
    store.client.hset(keys.state, "body", learnt(12))
    store.client.hset(keys.overrides, "overrides", "[]")
    store.client.hset(keys.coefficients, "etag", '"2-other"')
    found = scrape(api)
    assert of_pair(found, "workload_labels_total", workload="chat:hot") > labels
    assert of_pair(found, "pair_overrides") == 0
