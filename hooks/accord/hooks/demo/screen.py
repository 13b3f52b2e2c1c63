"""What the demo shows: one table of workloads, one line an engine, and what is going on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..replay.score import Score, Scoreboard


class ServiceView:
    """What the API says of one pair; the last answer stays while it is away."""

    def __init__(self, api_url: str, pair_id: str) -> None:
        self._client = httpx.Client(timeout=2.0, trust_env=False)
        self._url = f"{api_url}/v1/pairs/{pair_id}"
        self.reachable = False
        self.table: dict[str, Any] = {}
        self.detail: dict[str, Any] = {}

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def refresh(self) -> None:
        """Asks for the coefficients in force and the pair's detail."""
        try:
            table, detail = self._client.get(f"{self._url}/coefficients"), self._client.get(self._url)
        except httpx.HTTPError:
            self.reachable = False
            return
        self.reachable = table.status_code == detail.status_code == 200
        if self.reachable:
            self.table, self.detail = table.json(), detail.json()

    @property
    def labels(self) -> dict[str, int]:
        """Labels learnt, by workload."""
        return {row["workload"]: int(row["labels"] or 0) for row in self.detail.get("workloads", [])}


def screen(
    service: ServiceView, board: Scoreboard, statuses: Sequence[Mapping[str, Any]], happening: str
) -> RenderableType:
    """Everything at once, for a live display or a printout."""
    return Group(_workloads(service, board), outline(service, statuses, happening))


def outline(service: ServiceView, statuses: Sequence[Mapping[str, Any]], happening: str) -> RenderableType:
    """The engines, and what is going on."""
    return Group(_engines(service, statuses), Text(f" {happening}", style="bold"))


def _workloads(service: ServiceView, board: Scoreboard) -> Table:
    version = service.table.get("version", 0)
    table = Table(title=f"coefficients in force: version {version}", title_justify="left", expand=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("slope by piece", justify="right", no_wrap=True)
    table.add_column("intercepts", justify="right", no_wrap=True)
    table.add_column("labels", justify="right")
    for metric in ("log-loss", "ECE"):
        table.add_column(f"{metric}\naccord", justify="right")
        table.add_column("\nvLLM", justify="right")
    rows = service.table.get("workloads", {})
    for key in sorted(set(rows) | set(board.scores)):
        row = rows.get(key) or service.table.get("prior")
        scores = board.scores.get(key, {})
        table.add_row(
            key,
            _slopes(row),
            _range(row),
            f"{service.labels.get(key, 0):,}",
            *_compared(scores.get("accord"), scores.get("vllm"), "log_loss"),
            *_compared(scores.get("accord"), scores.get("vllm"), "ece"),
        )
    table.add_section()
    ours, theirs = board.overall("accord"), board.overall("vllm")
    table.add_row(
        "all",
        "",
        "",
        f"{sum(service.labels.values()):,}",
        *_compared(ours, theirs, "log_loss"),
        *_pair(board.workload_ece("accord"), board.workload_ece("vllm")),
        style="bold",
    )
    return table


def _engines(service: ServiceView, statuses: Sequence[Mapping[str, Any]]) -> Table:
    table = Table.grid(padding=(0, 2))
    served = service.table.get("version", 0)
    for status in statuses:
        if not status:
            continue
        state = str(status["state"])
        colour = {"fleet": "green", "stale": "yellow", "local": "magenta"}.get(state, "white")
        table.add_row(
            f" {status['engine']}",
            Text(state, style=colour),
            f"version {status['version']} of {served}",
            f"{status['labels']['put']:,} labels, {status['labels']['queued']:,} waiting",
            f"step p99 {status['step']['p99_ms']:.1f} ms",
        )
    return table


def _slopes(row: Mapping[str, Any] | None) -> str:
    """The slope of each piece of the spline."""
    return " ".join(f"{s:.2f}" for s in np.cumsum(row["slopes"])) if row else ""


def _range(row: Mapping[str, Any] | None) -> str:
    return f"{row['intercepts'][0]:+.2f} … {row['intercepts'][-1]:+.2f}" if row else ""


def _compared(ours: Score | None, theirs: Score | None, metric: str) -> tuple[Text, Text]:
    return _pair(getattr(ours, metric, None), getattr(theirs, metric, None))


def _pair(ours: float | None, theirs: float | None) -> tuple[Text, Text]:
    if ours is None or theirs is None:
        return Text("-"), Text("-")
    better = ours < theirs
    return Text(f"{ours:.4f}", style="green" if better else ""), Text(f"{theirs:.4f}", style="" if better else "green")
