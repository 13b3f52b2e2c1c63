"""What a pair and a workload hold in Redis, and how far a stream grows while no learner runs."""

from __future__ import annotations

import itertools

from tests.bench.rounds import KNOTS, Rounds, load_note

from accord.learner.drift import check_river
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair_learner import TICK_MS
from accord.learner.service.loop import LearnerService
from accord.learner.service.settings import LearnerSettings
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.store import Commit, PairKeys, Store, connect
from accord.learner.store.store import MAX_ENTRIES

BASE_MS = 1_700_000_000_000
ENGINES, SECONDS_A_ROUND = 100, 3.0


def main(hour: int = 3_600, max_entries: int = MAX_ENTRIES) -> dict[str, float]:
    """Prints and returns bytes, and the length of the stream over its cap."""
    check_river()
    with EmbeddedServer(options=["--appendfsync", "no"]) as server, Store(connect(server.url)) as store:
        found = _states(store) | _learnt(store, server.url) | _stopped(store, hour, max_entries)
    print(f"  {load_note()}")
    return found


def _states(store: Store) -> dict[str, float]:
    fleet = Rounds(engines=1, name="states")
    pair_id, k = fleet.pair.id, fleet.pair.k
    store.register(fleet.pair, KNOTS)
    sizes = {}
    for workloads in (0, 1, 8, 64):
        store.client.delete(PairKeys(pair_id).state)
        learnt = Learnt.new(pair_id, k, KNOTS)
        learnt.state.reserve([f"label-{i}:sampled" for i in range(workloads)])
        lease = store.acquire(pair_id, "bench", 60_000)
        assert lease is not None
        store.commit(lease, Commit("0-0", "0-0", encode_learnt(learnt), b"[]", b"{}", 0))
        sizes[workloads] = store.client.memory_usage(PairKeys(pair_id).state, samples=0)
    each = (sizes[64] - sizes[8]) / 56
    print(
        f"  state of a pair without engines, K = {k}: {sizes[0]} bytes, and {each:.0f} for each workload "
        f"(64: {sizes[64]})"
    )
    return {"state_base": sizes[0], "state_workload": each}


def _learnt(store: Store, url: str) -> dict[str, float]:
    """All keys of a pair that 64 engines report."""
    fleet = Rounds(engines=64, name="learnt")
    store.register(fleet.pair, KNOTS)
    keys = PairKeys(fleet.pair.id)
    for i, payload in enumerate(fleet.take(640)):
        store.append(fleet.pair.id, payload, entry_id=f"{BASE_MS + i // 64 * 5 * TICK_MS}-{i % 64 + 1}")
    last = store.client.xrevrange(keys.rounds, count=1)[0][0]
    with Store(connect(url)) as own:
        service = LearnerService(LearnerSettings(redis_url=url, lease_ms=60_000), own)
        while store.client.hget(keys.state, "watermark") != last:
            service.cycle()
    sizes = {
        key: store.client.memory_usage(getattr(keys, key), samples=0) or 0
        for key in ("state", "coefficients", "rounds", "history")
    }
    versions = store.client.xlen(keys.history)
    print(
        f"  after 640 rounds of 64 engines, 8 workloads: {sizes} bytes; a version in history "
        f"{sizes['history'] / max(versions, 1):.0f}"
    )
    return {"history_version": sizes["history"] / max(versions, 1), "state_64_engines": sizes["state"]}


def _stopped(store: Store, hour: int, max_entries: int) -> dict[str, float]:
    """An hour without a learner."""
    fleet = Rounds(engines=ENGINES, name="stopped")
    store.register(fleet.pair, KNOTS)
    key, payloads = PairKeys(fleet.pair.id).rounds, list(fleet.take(1_000))
    before = store.client.info("memory")["used_memory"]
    count = round(hour * ENGINES / SECONDS_A_ROUND)
    sent, most = itertools.cycle(payloads), 0
    for start in range(0, count, 1_000):
        with store.client.pipeline(transaction=False) as pipe:
            for _ in range(min(1_000, count - start)):
                pipe.xadd(key, {b"d": next(sent)}, maxlen=max_entries, approximate=True)
            pipe.execute()
        most = max(most, store.client.memory_usage(key, samples=0) if start % 10_000 == 0 else 0)
    length, size = store.client.xlen(key), store.client.memory_usage(key, samples=0)
    grown = store.client.info("memory")["used_memory"] - before
    print(
        f"  {hour} s without a learner, {ENGINES} engines, a round every {SECONDS_A_ROUND:.0f} s: {count} entries "
        f"sent, "
        f"{length} kept (cap about {max_entries}), {size / 1e6:.0f} MB, {grown / 1e6:.0f} MB more in the server, "
        f"{size / length:.0f} bytes an entry"
    )
    return {
        "stopped_over_cap": length / max_entries,
        "entry_bytes": size / length,
        "most_over_end": max(most, size) / size,
    }


if __name__ == "__main__":
    main()
