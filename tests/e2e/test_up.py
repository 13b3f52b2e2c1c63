"""`accord up`: one command, one process to stop, children that come back."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil
from tests.waiting import until

Process = subprocess.Popen[str]
ACCORD = str(Path(sys.executable).with_name("accord"))


@contextmanager
def up(folder: Path) -> Iterator[tuple[Process, str]]:
    """A running `accord up` on an embedded store, and the address of its API."""
    argv = [ACCORD, "up", "--port", "0", "--data", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"accord serves (http://\S+)", said)
            assert found, said
            yield process, found[1]
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(20.0) == 0


def running(process: Process, module: str) -> list[psutil.Process]:
    """The living children of `accord up` that run a module."""
    found = []
    for item in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):
            if module in item.cmdline():
                found.append(item)
    return found


def replaced(process: Process, module: str, pid: int) -> bool:
    """Whether another process runs the module now."""
    return any(item.pid != pid for item in running(process, module))


def ready(url: str) -> bool:
    """Whether the API answers that it is ready."""
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_killed_part_comes_back_at_the_same_address(tmp_path: Path) -> None:
    """API and learner are started again after SIGKILL, and the API keeps its port."""
    with up(tmp_path) as (process, url):
        for module in ("accord.api", "accord.learner"):
            (victim,) = running(process, module)
            victim.kill()
            until(partial(replaced, process, module, victim.pid))
            until(lambda: ready(url))


def test_the_end_of_the_parent_is_the_end_of_everything(tmp_path: Path) -> None:
    """SIGTERM ends every child; data stay in the folder for the next start."""
    with up(tmp_path) as (process, url):
        assert ready(url)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 3
    assert not any(item.is_running() for item in children)
    assert (tmp_path / "store").is_dir()


def test_children_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL of `accord up` leaves no process behind."""
    argv = [ACCORD, "up", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "accord serves" in process.stdout.readline()
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        until(lambda: not any(item.is_running() and item.status() != psutil.STATUS_ZOMBIE for item in children))
