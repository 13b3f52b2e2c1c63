"""Metrics of the running service, against the dashboard, the alerts, the handbook and Prometheus' conventions."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.docker.queries import ALERTS, alerts, dashboard_queries, labels_used, metrics_used
from tests.waiting import until

from accord.hooks.demo.stack import Stack
from accord.learner.child import Child
from accord.learner.evaluate.trace import Trace
from accord.learner.pair import check_pair_id
from accord.learner.store import Store, connect
from accord.learner.workload import WorkloadKey

DOC = Path(__file__).parent.parent.parent / "docs" / "observe.md"
TARGET_LABELS = {"instance", "job"}
"""Labels that Prometheus adds to whatever it scrapes."""

Families = dict[str, Metric]


def families(url: str) -> Families:
    """A scrape, parsed."""
    answer = httpx.get(f"{url}/metrics", trust_env=False, timeout=10.0)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def total(found: Families, name: str, **labels: str) -> float:
    """The sum of a family's samples with these labels."""
    samples = found[name].samples if name in found else []
    return sum(
        s.value for s in samples if labels.items() <= s.labels.items() and not s.name.endswith(("_bucket", "_sum"))
    )


@dataclass
class Scraped:
    """What was scraped, and the logs of the processes."""

    learner: Families
    api: Families
    logs: dict[str, list[dict[str, object]]]
    asked: dict[str, list[object]] | None
    """Query -> what Prometheus itself answered; None where it is not installed."""

    @property
    def all(self) -> Families:
        """Everything, without the families that the client library brings."""
        return {name: family for name, family in (self.learner | self.api).items() if name.startswith("accord_")}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    """The service after a replayed engine, a damaged summary, a refused request and an override."""
    folder = tmp_path_factory.mktemp("observe")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCORD_LEARNER_METRICS_PORT", "0")
        with Stack(folder) as stack:
            pair = Trace.bundled().pair.id
            learner = served_at(folder / "learner-1.log")
            argv = [sys.executable, "-m", "accord.hooks.replay", "--steps", "300", "--engine", "replay/0"]
            subprocess.run([*argv, "--redis-url", stack.redis_url, "--api-url", stack.api_url], check=True, timeout=120)
            with Store(connect(stack.redis_url)) as store:
                store.append(pair, b"damaged")
            override = {"kind": "shift", "shift": -0.5, "reason": "test", "actor": "me"}
            with httpx.Client(base_url=stack.api_url, trust_env=False) as client:
                path = f"/v1/pairs/{pair}/override"
                assert client.get(f"/v1/pairs/{pair}/coefficients").status_code == 200
                assert client.put(path, json=override, headers={"If-Match": "*"}).status_code == 200
                assert client.get("/nowhere").status_code == 404
            until(lambda: total(families(learner), "accord_learner_summaries_refused") > 0)
            until(lambda: total(families(learner), "accord_learner_publications") > 0)
            until(lambda: total(families(stack.api_url), "accord_pair_overrides") == 1)
            until(lambda: total(families(stack.api_url), "accord_pair_lag_entries") == 0)
            learnt, served = families(learner), families(stack.api_url)
            binary = shutil.which("prometheus")
            asked = None if binary is None else ask(binary, folder, learner, stack.api_url)
        logs = {
            path.stem: [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
            for path in (folder / "learner-1.log", folder / "api.log")
        }
    return Scraped(learnt, served, logs, asked)


def ask(binary: str, folder: Path, learner: str, api: str) -> dict[str, list[object]]:
    """Lets a real Prometheus scrape the service with our rules, and asks it every query of dashboard and rules."""
    shutil.copy(ALERTS, folder)
    jobs = [
        {"job_name": name, "scrape_interval": "1s", "static_configs": [{"targets": [url.partition("//")[2]]}]}
        for name, url in (("accord-learner", learner), ("accord-api", api))
    ]
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": [ALERTS.name], "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    where = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    child = Child("prometheus", [binary, *where, f"--web.listen-address=127.0.0.1:{port}"], folder / "prometheus.log")
    child.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, timeout=10.0) as client:

            def answer(query: str) -> list[object]:
                found = client.get("/query", params={"query": query})
                assert found.status_code == 200, found.text
                result: list[object] = found.json()["data"]["result"]
                return result

            def ready() -> bool:
                try:
                    return client.get(f"http://127.0.0.1:{port}/-/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(ready)
            until(lambda: len(answer("count_over_time(up[1m]) > 2 and up == 1")) == 2)
            until(lambda: all(rule["health"] != "unknown" for rule in rules(client)))
            assert {rule["health"] for rule in rules(client)} == {"ok"}
            queries = [query.replace("$pair", ".*").replace("$workload", ".*") for query in dashboard_queries()]
            queries = [query for query in queries if not query.startswith("label_values")]
            return {query: answer(query) for query in queries}
    finally:
        child.stop()


def rules(client: httpx.Client) -> list[dict[str, str]]:
    """The rules as Prometheus evaluates them."""
    groups = client.get("/rules").json()["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def served_at(log: Path) -> str:
    """Where a learner says that it serves its metrics."""
    found: list[str] = []

    def said() -> bool:
        found.extend(re.findall(r'"event": "metrics served".*"address": "([^"]+)"', log.read_text()))
        return bool(found)

    until(said)
    return found[0]


def rows(found: Families) -> list[str]:
    """The handbook's lines for some families."""
    made = []
    for name, family in sorted(found.items()):
        shown = f"{name}_total" if family.type == "counter" else name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        words = ", ".join(f"`{label}`" for label in labels)
        made.append(f"| `{shown}` | {family.type} | {words} | {family.documentation} |")
    return made


def test_the_learner_counted_what_was_replayed(scraped: Scraped) -> None:
    """Labels, rounds, publications, a refusal and the latencies of the replay are there."""
    found = scraped.learner
    assert total(found, "accord_learner_labels_learnt") > 1000
    assert total(found, "accord_learner_summaries_refused") == 1
    assert total(found, "accord_learner_publications", cause="refit") >= 1
    assert total(found, "accord_learner_publish_latency_seconds") >= 1
    assert total(found, "accord_learner_pairs_owned") == 1
    assert total(found, "accord_learner_store_up") == 1


def test_the_api_shows_the_fleet(scraped: Scraped) -> None:
    """Engine, version, owner and calibration of the replay are there, and the requests that were made."""
    found = scraped.api
    assert total(found, "accord_pair_owned") == 1
    assert total(found, "accord_pair_engines", state="stopped") == 1
    assert total(found, "accord_pair_version") >= 2
    assert total(found, "accord_workload_labels") == total(scraped.learner, "accord_learner_labels_learnt")
    assert 0.0 < total(found, "accord_workload_ece") < 1.0 * len(found["accord_workload_ece"].samples)
    assert total(found, "accord_api_requests", route="unknown", status="404") == 1
    assert total(found, "accord_api_requests", route="/v1/pairs/{pair}/coefficients", status="200") >= 1


@pytest.mark.parametrize("source", ["dashboard", "alerts"])
def test_every_metric_that_is_asked_for_is_there(scraped: Scraped, source: str) -> None:
    """Every metric and every label of the dashboard and of the alert rules exists on a real scrape."""
    queries = dashboard_queries() if source == "dashboard" else [rule["expr"] for rule in alerts()]
    samples: dict[str, set[str]] = {}
    for family in scraped.all.values():
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    assert queries
    for query in queries:
        used = metrics_used(query)
        assert used <= set(samples), query
        known = TARGET_LABELS.union(*(samples[name] for name in used))
        assert labels_used(query) <= known, query


def test_prometheus_answers_every_query(scraped: Scraped) -> None:
    """A real Prometheus scrapes both processes, finds the rules sound, and has something to show in every panel."""
    if scraped.asked is None:
        pytest.skip("prometheus is not installed")
    assert len(scraped.asked) > 30
    assert [query for query, answer in scraped.asked.items() if not answer] == []


def test_names_follow_the_conventions(scraped: Scraped) -> None:
    """Names are lower case with the prefix, counters end in _total, times and sizes name base units, help is there."""
    for name, family in scraped.all.items():
        assert re.fullmatch(r"accord_(learner|api|pair|workload)_[a-z0-9]+(_[a-z0-9]+)*", name)
        assert family.documentation
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent|count|sum|bucket|info_total)$", name)
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        else:
            assert not name.endswith("_total")
        if re.search(r"(duration|latency|age|lag_s|timestamp|publish_to_read)", name):
            assert name.endswith("_seconds") or name == "accord_pair_engine_version_lag"
        assert name not in family.documentation


def test_label_values_come_from_closed_sets(scraped: Scraped) -> None:
    """Pairs and workloads are valid ids, everything else is a short word, a route template, a status or a version."""
    for family in scraped.all.values():
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label == "pair":
                    check_pair_id(value)
                elif label == "workload":
                    WorkloadKey.parse(value)
                elif label == "route":
                    assert value == "unknown" or value.startswith("/")
                else:
                    assert re.fullmatch(r"[A-Za-z0-9_.+-]{1,40}", value), (family.name, label, value)


@pytest.mark.parametrize("section", ["Learner", "API", "Fleet, from the API"])
def test_the_handbook_lists_every_metric(scraped: Scraped, section: str) -> None:
    """The tables of docs/observe.md are what is scraped: names, types, labels and meaning."""
    text = DOC.read_text().split(f"### {section}\n", 1)[1].split("\n#", 1)[0]
    listed = [line for line in text.splitlines() if line.startswith("| `")]
    prefix = {"Learner": ("accord_learner_",), "API": ("accord_api_",)}.get(
        section, ("accord_pair_", "accord_workload_")
    )
    found = {name: family for name, family in scraped.all.items() if name.startswith(prefix)}
    assert listed == rows(found), "\n".join(rows(found))


def test_logs_are_lines_of_one_form(scraped: Scraped) -> None:
    """Both processes write JSON with the same first fields, one line a change, and the handbook knows each event."""
    known = set(re.findall(r"`([^`]+)`", DOC.read_text().split("## Logs", 1)[1]))
    for name, lines in scraped.logs.items():
        assert lines
        for line in lines:
            assert {"ts", "level", "component", "event"} <= set(line)
            assert line["component"] == name.partition("-")[0]
            assert line["event"] in known | {"few file descriptors"}, line
    events = [line["event"] for line in scraped.logs["learner-1"]]
    assert events.count("refused") == 1
    assert {"learner started", "metrics served", "store reached", "pair taken", "published"} <= set(events)
    assert events[-2:] == ["pair given back", "learner stopped"]
