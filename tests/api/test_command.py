"""`accord api` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.api.harness import PAIR, Publisher
from tests.waiting import until

from accord.learner.embedded import EmbeddedServer

PATH = f"/v1/pairs/{PAIR.id}/coefficients"


@contextmanager
def process(*options: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`python -m accord.api`, killed at the end if it still runs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    child = subprocess.Popen(
        [sys.executable, "-m", "accord.api", *options],
        env=clean | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with child:
            try:
                yield child
            finally:
                child.kill()
    finally:
        child.wait()


def listening(ready: Path) -> str:
    """The URL of a process that has reached its store."""
    until(ready.exists)
    url = ready.read_text().strip()
    until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    return url


def test_life(server: EmbeddedServer, publisher: Publisher, tmp_path: Path) -> None:
    """It says where it listens, writes the URL, answers, and on SIGTERM ends with status 0; its logs are JSON."""
    ready = tmp_path / "url"
    with process("--port", "0", "--redis-url", server.url, "--ready-file", str(ready)) as child:
        url = listening(ready)
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", url)
        assert httpx.get(f"{url}{PATH}").status_code == 200
        assert httpx.get(f"{url}/nowhere").status_code == 404
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=10)
    assert child.returncode == 0
    assert out == f"accord api listens on {url}\n"
    events = [json.loads(line)["event"] for line in err.splitlines()]
    # Whether the machine grants enough file descriptors is not this test's business.
    assert set(events) - {"few file descriptors"} == {"listening", "stopped", "store reached"}


@pytest.mark.parametrize("name", [".", "folder", "file/url", "n" * 300, "gone/url"])
def test_a_ready_file_that_cannot_be_written(server: EmbeddedServer, tmp_path: Path, name: str) -> None:
    """It ends with one line that names the file, and status 2."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    path = tmp_path / name
    with process("--port", "0", "--redis-url", server.url, "--ready-file", str(path)) as child:
        _, err = child.communicate(timeout=30)
    assert child.returncode == 2
    [line] = (line for line in err.splitlines() if not line.startswith("{"))
    assert line.startswith(f"accord: ready_file = {str(path)!r:.60}")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_with_open_polls(
    server: EmbeddedServer, publisher: Publisher, tmp_path: Path, number: signal.Signals
) -> None:
    """With two thousand open polls it answers all of them 304 and ends soon after a signal."""
    count, ready = 2000, tmp_path / "url"
    with process("--port", "0", "--redis-url", server.url, "--ready-file", str(ready)) as child:
        url = listening(ready)
        etag = httpx.get(f"{url}{PATH}").headers["etag"]
        port = int(url.rpartition(":")[2])
        request = f"GET {PATH}?wait=60 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {etag}\r\n\r\n".encode()

        async def scenario() -> tuple[list[bytes], float]:
            streams = []
            for _ in range(count):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                streams.append((reader, writer))
            # Whatever was sent before is being held once a later request has been answered.
            await asyncio.to_thread(httpx.get, f"{url}/livez", timeout=30)
            begin = time.monotonic()
            child.send_signal(number)
            answers = await asyncio.gather(*(reader.read() for reader, _ in streams))
            await asyncio.to_thread(child.wait, 10)
            took = time.monotonic() - begin
            for _, writer in streams:
                writer.close()
            return answers, took

        answers, took = asyncio.run(scenario())
        assert child.returncode == 0
    assert sum(answer.startswith(b"HTTP/1.1 304 ") for answer in answers) == count
    # A second on a quiet machine; the rest is for one that is busy with other tests.
    assert took < 5


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        (("--port", "70000"), {}, "ACCORD_API_PORT = 70000"),
        ((), {"ACCORD_API_MAX_WAIT_S": "nan"}, "ACCORD_API_MAX_WAIT_S = 'nan'"),
        (("--redis-url", "ftp://me:hush@x"), {}, "ACCORD_REDIS_URL = 'ftp://***@x'"),
        (("--host", "0.0.0.0"), {}, "ACCORD_API_HOST = '0.0.0.0': others reach this address"),
        (("--host", "::"), {"ACCORD_API_INSECURE": "0"}, "ACCORD_API_HOST = '::': others reach this address"),
        ((), {"ACCORD_API_INSECURE": "perhaps"}, "ACCORD_API_INSECURE = 'perhaps': must be 1 or 0"),
        (
            ("--port", "0"),
            {"ACCORD_API_TOKENS_FILE": "/no/such"},
            "ACCORD_API_TOKENS_FILE = '/no/such': No such",
        ),
        ((), {"ACCORD_API_TLS_CERT": "a"}, "ACCORD_API_TLS_CERT = 'a': needs ACCORD_API_TLS_KEY too"),
        ((), {"ACCORD_API_TLS_CERT": "a", "ACCORD_API_TLS_KEY": "b"}, "no usable certificate and key: No such file"),
        (("--host", "203.0.113.7", "--insecure"), {}, "cannot listen on 203.0.113.7 port 8790"),
    ],
)
def test_refused(options: tuple[str, ...], env: dict[str, str], words: str) -> None:
    """What cannot be used ends the command with status 2 and one line that says why."""
    with process(*options, env=env) as child:
        out, err = child.communicate(timeout=30)
    assert child.returncode == 2
    assert out == ""
    assert words in err
    # Whether the machine grants enough file descriptors is not this test's business.
    assert len([line for line in err.splitlines() if "few file descriptors" not in line]) == 1


def test_port_in_use() -> None:
    """A taken port is refused in one line."""
    with socket.create_server(("127.0.0.1", 0)) as taken, process("--port", str(taken.getsockname()[1])) as child:
        _, err = child.communicate(timeout=30)
    assert child.returncode == 2
    assert "cannot listen on 127.0.0.1" in err
