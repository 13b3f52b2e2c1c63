"""The queries of the dashboard and of the alert rules, and the names in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

DOCKER = Path(__file__).parent.parent.parent / "docker"
ALERTS = DOCKER / "prometheus" / "alerts.yml"
DASHBOARD = DOCKER / "grafana" / "dashboards" / "accord.json"

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def alerts() -> list[dict[str, Any]]:
    """Every alert rule."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    """Every query of the dashboard, those of its variables included."""
    board = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return found + [item["definition"] for item in board["templating"]["list"]]


def metrics_used(query: str) -> set[str]:
    """Names of accord's metrics in a query, suffixes of histograms included."""
    return set(re.findall(r"\baccord_[a-z0-9_]+", _TEXT.sub('""', query)))


def labels_used(query: str) -> set[str]:
    """Labels that a query selects or groups by."""
    bare = _TEXT.sub('""', query)
    selected = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"\"", bare))
    grouped = {name for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", bare) for name in group.split(", ")}
    return selected | grouped
