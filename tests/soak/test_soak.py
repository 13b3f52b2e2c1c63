"""The short form of the soak, in less than a minute, and what its verdict can tell; `make soak` is the long form."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .plots import draw
from .run import ACCOUNT, SAMPLES, Plan, soak
from .sampler import FIELDS
from .series import Series
from .site import Size
from .verdict import judge, table

SMALL = Size(engines=4, apis=1, rate=15.0, churn_s=20.0, a_new_one_s=3.0, history=20)


@pytest.mark.timeout(300)
def test_nothing_grows_and_every_label_is_accounted_for(tmp_path: Path) -> None:
    """While engines come and go descriptors stay flat, streams capped, every key declared and every label accounted."""
    soak(tmp_path, SMALL, Plan(40.0, every_s=1.0, pollers=4, pause_s=1.0))
    series, account = Series(tmp_path / SAMPLES), json.loads((tmp_path / ACCOUNT).read_text())
    lines, wrong = judge(series, account, SMALL, long=False)
    print(table(lines))
    assert wrong == []
    assert account["boots"] >= 5
    assert account["learnt"] > 10_000
    assert {"operator 200", "poller 200", "scraper 200", "reader 200", "event: change"} <= set(account["answers"])
    assert series.get("keys accord:{pair}:history", "longest")[1].max() >= SMALL.history
    assert all(path.stat().st_size < 150_000 for path in draw(series, SMALL, tmp_path))


CALM: dict[tuple[str, str], float] = {
    ("process api-0", "uss"): 60e6,
    ("process api-0", "fds"): 20,
    ("process api-0", "threads"): 3,
    ("store", "used_memory"): 10e6,
    ("store", "connected_clients"): 12,
    ("store", "aof_current_size"): 40e6,
    ("store", "dbsize"): 14,
    **{("keys accord:{pair}:state", name): 4e5 for name in ("body", "sequences")},
    **{(f"keys accord:{{pair}}:{part}", "longest"): 4 for part in ("rounds", "history", "audit", "engines", "state")},
    **{(f"keys accord:{{pair}}:{part}", "longest"): 4 for part in ("coefficients", "overrides", "lease")},
    ("keys accord:pairs", "longest"): 2,
    ("keys accord:learners", "longest"): 2,
}


def _wrong(folder: Path, leak: Callable[[float], dict[tuple[str, str], float]], **account: Any) -> list[str]:
    """What is wrong with two hours in which all was calm but for what `leak` adds after so many hours."""
    with (folder / SAMPLES).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(FIELDS)
        for seconds in range(0, 7201, 60):
            added = leak(seconds / 3600.0)
            for subject, measure in {**CALM, **added}:
                value = CALM.get((subject, measure), 0.0) + added.get((subject, measure), 0.0)
                rows.writerow((seconds, subject, measure, value))
    calm = {"observed": 10, "learnt": 10, "lost": {}, "refused": {}, "not_ended_in_order": [], "trouble": []}
    return judge(Series(folder / SAMPLES), calm | account, Size(), long=True)[1]


def test_a_calm_soak_is_found_calm(tmp_path: Path) -> None:
    """What warms up, is busy now and then, or wavers, is no leak."""
    assert _wrong(tmp_path, lambda hours: {}) == []
    assert _wrong(tmp_path, lambda hours: {("process api-0", "uss"): 30e6 * min(hours, 0.8)}) == []
    assert _wrong(tmp_path, lambda hours: {("process api-0", "uss"): 90e6 * (1.5 < hours < 1.6)}) == []
    assert _wrong(tmp_path, lambda hours: {("process api-0", "fds"): round(hours * 60) % 3}) == []


@pytest.mark.parametrize(
    ("subject", "measure", "per_hour"),
    [
        ("process api-0", "uss", 4e6),
        ("process api-0", "fds", 6.0),
        ("process api-0", "threads", 6.0),
        ("store", "used_memory", 4e6),
        ("store", "dbsize", 3.0),
        ("keys accord:{pair}:state", "body", 2e6),
        ("keys accord:{pair}:state", "sequences", 3e4),
        ("keys accord:{pair}:history", "longest", 150.0),
        ("keys accord:{pair}:audit", "longest", 150.0),
        ("keys accord:{pair}:engines", "longest", 24.0),
        ("undeclared", "accord:scratch", 1.0),
    ],
)
def test_what_leaks_is_named(tmp_path: Path, subject: str, measure: str, per_hour: float) -> None:
    """Every kind of growth that a soak looks for is found, and nothing else is blamed."""
    wrong = _wrong(tmp_path, lambda hours: {(subject, measure): per_hour * hours})
    assert len(wrong) == 1
    assert measure in wrong[0]


def test_labels_without_a_reason_are_named(tmp_path: Path) -> None:
    """A label that is neither learnt nor lost for a reason, a refusal, and what was logged fail a soak."""
    assert _wrong(tmp_path, lambda hours: {}, learnt=9, lost={"no room": 1}) == []
    assert "counted 10 labels" in _wrong(tmp_path, lambda hours: {}, learnt=9)[0]
    assert "refused" in _wrong(tmp_path, lambda hours: {}, refused={"overlap": 1})[0]
    assert _wrong(tmp_path, lambda hours: {}, trouble=["api-0.log: Traceback"]) == ["api-0.log: Traceback"]
