"""The api on a Redis Cluster."""

from __future__ import annotations

import redis
from tests.api.harness import PAIR, Poll, Publisher, RunningApi
from tests.waiting import until

from accord.api import Settings
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Store, connect

PATH = f"/v1/pairs/{PAIR.id}"


def healthy(node: EmbeddedServer) -> bool:
    """Whether the cluster of one node serves."""
    with redis.Redis.from_url(node.url) as admin:
        return b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO")


def test_every_route(free_port: int) -> None:
    """On a cluster every route answers, and a commit answers the open poll."""
    with EmbeddedServer(options=["--cluster-enabled", "yes", "--cluster-port", str(free_port)]) as node:
        with redis.Redis.from_url(node.url) as admin:
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: healthy(node))
        url = f"redis+cluster://127.0.0.1:{node.port}"
        with Store(connect(url)) as store, RunningApi(Settings(redis_url=url)) as api:
            Publisher(store, Pair("another", "d", Method.MTP, DraftSampling.GREEDY, 1)).publish()
            publisher = Publisher(store)
            store.append(PAIR.id, b"x")
            etag = api.ready().get(f"{PATH}/coefficients").headers["etag"]
            poll = Poll(api, f"{PATH}/coefficients", etag, 60)
            until(lambda: api.services.waiters.count == 1)
            table = publisher.publish()
            assert poll.result().content == table.to_json()
            assert poll.seconds < 30
            assert [item["workloads"] for item in api.get("/v1/pairs").json()["pairs"]] == [1, 1]
            assert api.get(PATH).json()["lag"]["entries"] == 1
            assert api.get(f"{PATH}/workloads/code:greedy").status_code == 200
            assert api.get("/readyz").status_code == 200
            assert f'accord_pair_lag_entries{{pair="{PAIR.id}"}} 1.0' in api.get("/metrics").text
            body = {"kind": "shift", "shift": 0.5, "reason": "r", "actor": "a", "expires_in_s": 1}
            override = f"{PATH}/workloads/code:greedy/override"
            assert api.client.put(override, json=body, headers={"If-Match": '"0"'}).json()["version"] == 2
            until(lambda: api.get(f"{PATH}/coefficients").headers["accord-version"] == "3")
            back = {"version": 2, "reason": "r", "actor": "a", "hold": False}
            assert api.client.post(f"{PATH}/rollback", json=back, headers={"If-Match": "*"}).json()["version"] == 4
            assert [item["version"] for item in api.get(f"{PATH}/history").json()["entries"]] == [4, 3, 2, 1]
            assert len(api.get(f"{PATH}/audit").json()["entries"]) == 3
            assert api.get(f"{PATH}/coefficients", as_of="1").headers["accord-version"] == "0"
            node.restart()
            until(lambda: healthy(node))
            publisher.version = 4
            publisher.publish()
            until(lambda: api.get(f"{PATH}/coefficients").headers["accord-version"] == "5")
            until(lambda: api.get("/readyz").status_code == 200)
