"""The short form of the fault campaign: every kind of fault once, in about a minute; `make chaos` is the long one."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from .campaign import KINDS, run
from .stack import Size


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_label_is_learnt_or_lost_for_a_reason(kind: str, tmp_path: Path) -> None:
    """Through every kind of fault labels counted are labels learnt and lost, and coefficients those of a calm run."""
    seed = secrets.randbelow(1 << 31)
    print(f"seed {seed}: python -m tests.chaos {kind} --seed {seed} --minutes 0 --pace 0.15 --engines 6")
    pairs = 3 if kind == "cluster" else 2
    report = run(kind, seed, 0.0, tmp_path, Size(engines=6, processes=2, pairs=pairs, pace=0.15))
    print("\n".join(report.lines()))
    assert report.verdict.faults == []
    assert report.verdict.learnt > 10_000
