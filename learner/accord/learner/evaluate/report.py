"""The tables of `accord evaluate`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich import box
from rich.table import Table

from .metrics import METRICS, Metrics
from .prequential import Evaluation

GROUPINGS = ("workload", "class")
HEADERS = {"log_loss": "log-loss", "ece": "ECE", "auc": "AUC", "brier": "Brier"}


def tables(evaluation: Evaluation, *, positions: bool = False, by: str = "workload") -> Iterator[Table]:
    """The table per workload (or class) and overall, and, if asked for, one per draft position; 80 columns hold them.

    Args:
        evaluation: what to show.
        positions: whether to add the table by draft position.
        by: one of `GROUPINGS`.
    """
    trace = evaluation.trace
    spread = ", ".join(f"{name} {_number(evaluation.workload_ece(name))}" for name in evaluation.overall)
    table = _table(f"{trace.pair.target} + {trace.pair.draft} ({trace.pair.method}, K = {trace.k})", by)
    expected = ", ".join(f"{name} {_number(value)}" for name, value in evaluation.expected.items())
    table.caption = (
        f"label-weighted mean of the workloads' ECE: {spread}\n"
        f"accepted drafts per request and step: {_number(evaluation.realised)}; expected by {expected}"
    )
    for key, row in (evaluation.classes if by == "class" else evaluation.workloads).items():
        _section(table, key, row.items())
    _section(table, "overall", evaluation.overall.items())
    yield table
    if positions:
        table = _table("by draft position", "position")
        for k in range(trace.k):
            _section(table, str(k), ((name, rows[k]) for name, rows in evaluation.positions.items()))
        yield table


def _table(title: str, first: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    table.add_column("labels", justify="right", no_wrap=True)
    table.add_column("predictor", no_wrap=True)
    for name in METRICS:
        table.add_column(HEADERS[name], justify="right", no_wrap=True)
    return table


def _section(table: Table, title: str, rows: Iterable[tuple[str, Metrics]]) -> None:
    for i, (name, metrics) in enumerate(rows):
        head = (title, f"{metrics.labels:,}") if i == 0 else ("", "")
        table.add_row(*head, name, *(_number(getattr(metrics, metric)) for metric in METRICS))
    table.add_section()


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"
