"""The service that the pages speak of, started as the quickstart says, with an engine at work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.docs.reader import Reader

PYTHON = Path(sys.executable)
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Service:
    """Where it is, and what it knows."""

    api_url: str
    redis_url: str
    pair: str
    data: Path

    def lift_everything(self) -> None:
        """Ends every override, so that a page finds what a reader of that page alone would find."""
        base = f"{self.api_url}/v1/pairs/{self.pair}"
        for override in httpx.get(f"{base}/overrides", trust_env=False).json()["overrides"]:
            scope = base if override["scope"] is None else f"{base}/workloads/{override['scope']}"
            query = {"reason": "next page", "actor": "tests"}
            answer = httpx.delete(f"{scope}/override", params=query, headers={"If-Match": "*"}, trust_env=False)
            answer.raise_for_status()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`accord up`, and the replay engine of the quickstart, which goes on."""
    folder = tmp_path_factory.mktemp("service")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    environment["HOME"] = str(folder)
    with ExitStack() as stack:
        up = [str(PYTHON.with_name("accord")), "up", "--port", "0", "--data", str(folder / "data")]
        process = stack.enter_context(_running(up, environment, folder / "up.log"))
        _until(lambda: "engines:" in (folder / "up.log").read_text(), process)
        said = (folder / "up.log").read_text()
        store, api = re.findall(r"ACCORD_REDIS_URL=(\S+) ACCORD_API_URL=(\S+)", said)[0]
        engine = {**environment, "ACCORD_REDIS_URL": store, "ACCORD_API_URL": api, "ACCORD_ENGINE": "host-1/0"}
        replay = [str(PYTHON), "-m", "accord.hooks.replay", "--loop", "--rate", "50"]
        process = stack.enter_context(_running(replay, engine, folder / "engine.log"))
        _until(lambda: _learnt(api), process)
        (item,) = httpx.get(f"{api}/v1/pairs", trust_env=False).json()["pairs"]
        yield Service(api, store, item["id"], folder / "data")


@pytest.fixture
def reader(service: Service, tmp_path: Path) -> Iterator[Reader]:
    """A shell in an empty folder."""
    yield Reader(tmp_path, service.data, service.api_url, service.redis_url, service.pair)
    service.lift_everything()


def _learnt(api: str) -> bool:
    pairs = httpx.get(f"{api}/v1/pairs", trust_env=False).json()["pairs"]
    return bool(pairs) and pairs[0]["version"] >= 3 and pairs[0]["workloads"] == 8


@contextmanager
def _running(argv: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as said:
        process = subprocess.Popen(argv, env=environment, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20.0)


def _until(condition: object, process: subprocess.Popen[bytes]) -> None:
    assert callable(condition)
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, "it has ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)
