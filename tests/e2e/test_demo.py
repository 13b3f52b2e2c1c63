"""The demo is the product: everything real, and parts of it taken away on the way."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
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


def test_the_demo_stays_until_it_is_ended() -> None:
    """With --stay the page answers and the fleet goes on after the demo, until SIGINT ends everything."""
    argv = [str(Path(sys.executable).with_name("accord")), "demo", "--stay", "--act", "5", "--engines", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            url = _address(process)
            assert "accord" in httpx.get(url, trust_env=False).text
            before = _labels(url)
            deadline = time.monotonic() + 30.0
            while _labels(url) == before:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            assert process.wait(30.0) == 0
        finally:
            process.kill()
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def _address(process: subprocess.Popen[str]) -> str:
    """The address that the demo ends with, once it has."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        found = re.search(r"the page: (http://\S+) \(Ctrl-C", line)
        if found:
            return found[1]
    raise AssertionError("".join(said))


def _labels(url: str) -> int:
    pair = httpx.get(f"{url}v1/pairs", trust_env=False).json()["pairs"][0]["id"]
    labels: int = httpx.get(f"{url}v1/pairs/{pair}", trust_env=False).json()["labels"]
    return labels
