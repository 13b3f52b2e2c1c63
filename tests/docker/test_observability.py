"""Prometheus' rules and Grafana's dashboard, as far as they can be judged without the containers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.docker.queries import ALERTS, DASHBOARD, alerts, dashboard_queries, labels_used, metrics_used

from accord.api.auth.deployment import write_secrets

yaml = pytest.importorskip("yaml", reason="PyYAML reads the files")

DOCKER = ALERTS.parent.parent
DOC = DOCKER.parent / "docs" / "observe.md"


def services() -> dict[str, Any]:
    """The services of the compose file."""
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    return found


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_the_profile(name: str) -> None:
    """Both run only when asked for, from pinned images, without rights, on a loopback port of their own."""
    service = services()[name]
    assert service["profiles"] == ["observability"]
    assert re.search(r":-docker\.io/[a-z/]+:v?[0-9]+\.[0-9]+\.[0-9]+}$", service["image"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_everything_that_is_mounted_is_there() -> None:
    """Every file and folder that the compose file mounts from here exists, and Grafana's paths lead to each other."""
    for name, service in services().items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if name in ("prometheus", "grafana") and source.startswith("./") and "secrets" not in source:
                assert (DOCKER / source).is_dir(), volume
                assert volume.endswith(":ro"), volume
    provider = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/accord.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == "/etc/grafana/dashboards"
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    uids = set(re.findall(r'"type": "prometheus", "uid": "([^"]+)"', DASHBOARD.read_text()))
    assert uids == {source["uid"]}


def test_prometheus_finds_what_the_compose_file_starts() -> None:
    """The scraped names and ports are those of the services, and the jobs those that rules and dashboard name."""
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    found = services()
    jobs = {}
    for job in config["scrape_configs"]:
        [target] = job["dns_sd_configs"]
        [service] = target["names"]
        assert str(target["port"]) in found[service]["command"]
        jobs[job["job_name"]] = service
    assert jobs == {"accord-api": "api", "accord-learner": "learner"}
    queries = [*dashboard_queries(), *(rule["expr"] for rule in alerts())]
    assert set(re.findall(r'job="([^"]+)"', " ".join(queries))) == set(jobs)
    assert config["rule_files"] == [ALERTS.name]


def test_the_token_is_where_prometheus_looks(tmp_path: Path) -> None:
    """The secrets of a deployment hold a viewer's token in the folder that is mounted where the configuration says,
    readable for the container's user."""
    write_secrets(tmp_path / "secrets")
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    wanted = config["scrape_configs"][0]["authorization"]["credentials_file"]
    mounts = dict(volume.split(":")[1::-1] for volume in services()["prometheus"]["volumes"])
    folder, _, name = wanted.rpartition("/")
    found = tmp_path / mounts[folder] / name
    assert found.read_text() == (tmp_path / "secrets" / "viewer.token").read_text()
    assert found.stat().st_mode & 0o777 == 0o644
    assert found.parent.stat().st_mode & 0o777 == 0o755


def test_every_alert_says_what_to_do() -> None:
    """Every alert has a severity, words, and a section of the handbook under its own name."""
    headings = re.findall(r"^### (\S+)$", DOC.read_text().split("## Alerts")[1], re.MULTILINE)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert rule["annotations"]["runbook"] == f"docs/observe.md#{rule['alert'].lower()}"
        assert rule["alert"] in headings
    assert headings == [rule["alert"] for rule in alerts()]


def test_the_dashboard_is_whole() -> None:
    """Panels have titles, words and queries, do not overlap, and use no variable that is not there."""
    board = json.loads(DASHBOARD.read_text())
    names = {item["name"] for item in board["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert panel["targets"]
    for query in dashboard_queries():
        assert set(re.findall(r"\$(\w+)", query)) <= names


def test_queries_are_read_as_they_are_written() -> None:
    """What finds names in a query finds all of them, and no words of PromQL."""
    query = 'histogram_quantile(0.5, sum by (le) (rate(accord_a_seconds_bucket{route!="/v1/{x}", b=~"c|d"}[5m]))) > 0'
    assert metrics_used(query) == {"accord_a_seconds_bucket"}
    assert labels_used(query) == {"le", "route", "b"}
    assert len(set().union(*map(metrics_used, dashboard_queries()))) > 20


@pytest.fixture
def promtool() -> str:
    """Prometheus' own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def test_prometheus_accepts_its_files(promtool: str, tmp_path: Path) -> None:
    """promtool finds no fault with the configuration and the rules."""
    shutil.copytree(ALERTS.parent, tmp_path / "prometheus")
    config, token = tmp_path / "prometheus" / "prometheus.yml", tmp_path / "token"
    token.write_text("x")
    config.write_text(config.read_text().replace("/run/accord/token", str(token)))
    done = subprocess.run(
        [promtool, "check", "config", "prometheus.yml"], cwd=tmp_path / "prometheus", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should(promtool: str) -> None:
    """On made-up series each alert fires, and stays silent on healthy ones."""
    tests = Path(__file__).with_name("alerts_test.yml")
    done = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    """The made-up series cover every alert."""
    tried = yaml.safe_load(Path(__file__).with_name("alerts_test.yml").read_text())["tests"]
    fired = {item["alertname"] for test in tried for item in test["alert_rule_test"] if item.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in alerts()}
