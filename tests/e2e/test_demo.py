"""The demo is the product: everything real, and parts of it taken away on the way."""

from __future__ import annotations

import io
from pathlib import Path

import psutil
from rich.console import Console

from accord.hooks.demo.story import Story


def test_the_fleet_outlives_every_part_of_the_service_and_every_label_is_learnt_once(tmp_path: Path) -> None:
    """API, learner and store are killed and restarted under a running fleet; labels sent and learnt are equal."""
    shown = io.StringIO()
    ending = Story(Console(file=shown, width=120), tmp_path, act_s=6.0, engines=2).run()
    assert ending.sent == ending.learnt > 10_000
    assert ending.lost == 0
    assert ending.exits == [0, 0]
    assert ending.version > 3
    assert ending.log_loss[0] < ending.log_loss[1]
    assert ending.good
    text = shown.getvalue()
    for state in ("fleet", "local", "the store was killed", "chat:sampled"):
        assert state in text
    assert not [child for child in psutil.Process().children(recursive=True) if "accord" in " ".join(child.cmdline())]
