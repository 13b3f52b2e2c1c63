"""Ten thousand long-polls on one api process: memory for each, and the time from a commit to the last answer."""

from __future__ import annotations

import resource
import select
import socket
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
from tests.api.harness import Publisher
from tests.bench.api_ratio import PAIR, table
from tests.bench.rounds import KNOTS, load_note

from accord.learner.child import Child
from accord.learner.coefficients import CoefficientTable
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect

SPARE = 600


def main(polls: int = 10_000, turns: int = 3) -> dict[str, float]:
    """Prints and returns bytes for each waiter, seconds to the last answer, and how many were answered."""
    polls = _allowed(polls)
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as redis, Store(connect(redis.url)) as store:
        ready = Path(name) / "url"
        publisher = Publisher(store, PAIR, KNOTS)
        publisher.table = _table  # type: ignore[method-assign]
        publisher.publish()
        api = Child("api", [sys.executable, "-m", "accord.api", "--port", "0", "--ready-file", str(ready)],
                    Path(name) / "log", environment={"ACCORD_REDIS_URL": redis.url})  # fmt: skip
        api.start()
        while not ready.exists():
            assert api.alive, api.tail()
            time.sleep(0.02)
        try:
            return _measure(ready.read_text().strip(), psutil.Process(api.pid), publisher, polls, turns)
        finally:
            api.stop()


def _measure(url: str, process: psutil.Process, publisher: Publisher, polls: int, turns: int) -> dict[str, float]:
    with httpx.Client(base_url=url, timeout=60.0) as client:
        etag = client.get(f"/v1/pairs/{PAIR.id}/coefficients").headers["etag"]
        before = process.memory_info().rss
        sockets = _connect(url, polls)
        connected = process.memory_info().rss
        last, answered, waiting = [], 0, 0
        for _ in range(turns):
            request = (f"GET /v1/pairs/{PAIR.id}/coefficients?wait=60 HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
                       f"If-None-Match: {etag}\r\n\r\n").encode()  # fmt: skip
            for sock in sockets.values():
                sock.sendall(request)
            _wait_for(client, polls)
            waiting = max(waiting, process.memory_info().rss)
            publisher.publish()
            committed = time.perf_counter()
            answered += _collect(sockets)
            last.append(time.perf_counter() - committed)
            etag = client.get(f"/v1/pairs/{PAIR.id}/coefficients").headers["etag"]
        for sock in sockets.values():
            sock.close()
    connection, each = (connected - before) / polls, (waiting - before) / polls
    print(
        f"  {polls} long-polls on one process: {each / 1024:.1f} KiB each, of them {connection / 1024:.1f} for the "
        f"idle "
        f"connection; commit to the last answer {min(last):.2f} s (of {turns}: "
        f"{', '.join(f'{one:.2f}' for one in last)}); {load_note()}"
    )
    return {"bytes": each, "seconds": min(last), "answered": answered / (turns * polls), "polls": polls}


def _table(version: int, **_: float) -> CoefficientTable:
    made = table()
    return CoefficientTable(made.pair, version, made.prior, made.workloads, made.knots, made.published_ms + version)


def _allowed(polls: int) -> int:
    """As many as this process may open files for; the api has the same limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = polls + SPARE
    if soft < wanted:
        granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
        polls = min(polls, granted - SPARE)
    return polls


def _connect(url: str, count: int) -> dict[int, socket.socket]:
    parts = urlsplit(url)
    sockets = {}
    for _ in range(count):
        sock = socket.create_connection((parts.hostname, parts.port))
        sockets[sock.fileno()] = sock
    return sockets


def _wait_for(client: httpx.Client, polls: int) -> None:
    """Until the api says that all are waiting."""
    deadline = time.monotonic() + 180.0
    while time.monotonic() < deadline:
        found = [line for line in client.get("/metrics").text.splitlines() if line.startswith("accord_api_waiters ")]
        if found and float(found[0].split()[1]) >= polls:
            return
        time.sleep(0.2)
    raise TimeoutError(f"not all of {polls} polls wait")


def _collect(sockets: dict[int, socket.socket]) -> int:
    """Reads the answer of every poll; how many were 200."""
    poller, good = select.epoll(), 0
    for number in sockets:
        poller.register(number, select.EPOLLIN)
    left, parts = set(sockets), dict.fromkeys(sockets, b"")
    while left:
        ready = poller.poll(60.0)
        if not ready:
            raise TimeoutError(f"{len(left)} polls have no answer")
        for number, _ in ready:
            parts[number] += sockets[number].recv(1 << 16)
            head, found, body = parts[number].partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if found and len(body) >= int(lengths[0].partition(b":")[2]):
                good += head.startswith(b"HTTP/1.1 200")
                left.discard(number)
                poller.unregister(number)
    poller.close()
    return good


if __name__ == "__main__":
    main()
