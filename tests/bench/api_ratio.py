"""GET of coefficients, against a bare Starlette route that returns the same bytes on the same uvicorn.

The ratio is that of requests which one core of the server gives: CPU time of the server process, which a busy machine
blurs less than wall time. Both sides take turns in the same run.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from tests.api.harness import Publisher
from tests.api.tokens import TokenFile
from tests.bench.rounds import KNOTS, load_note

from accord.api.auth.roles import Role
from accord.learner.child import Child
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.embedded import EmbeddedServer
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.store import Store, connect

PAIR = Pair("meta/Target-8B", "org/Draft-1B", Method.EAGLE, DraftSampling.GREEDY, 7)
WORKLOADS = 8
GOAL = 0.8


@dataclass
class Client:
    """One kept connection that sends the same request again and again."""

    url: str
    process: psutil.Process

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self.host = parts.netloc
        self.sock = socket.create_connection((parts.hostname, parts.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, headers: dict[str, str]) -> bytes:
        """The bytes of a GET."""
        lines = [f"GET /v1/pairs/{PAIR.id}/coefficients HTTP/1.1", f"Host: {self.host}", "Accept: */*"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def answer(self, request: bytes) -> bytes:
        """One request and its whole answer."""
        self.sock.sendall(request)
        got = self.sock.recv(1 << 16)
        head, _, body = got.partition(b"\r\n\r\n")
        wanted = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:") and b" 304 " not in head[:20]:
                wanted = int(line.partition(b":")[2])
        while len(body) < wanted:
            body += self.sock.recv(1 << 16)
        return head + b"\r\n\r\n" + body

    def costs(self, request: bytes, size: int, count: int) -> tuple[float, float]:
        """Seconds of the server's CPU, and of the wall, for so many requests whose answer has a known size."""
        times = self.process.cpu_times()
        before, start = times.user + times.system, time.perf_counter()
        for _ in range(count):
            self.sock.sendall(request)
            got = 0
            while got < size:
                got += len(self.sock.recv(1 << 16))
        wall = time.perf_counter() - start
        times = self.process.cpu_times()
        return times.user + times.system - before, wall


def table() -> CoefficientTable:
    """A table of usual size."""
    rows = {f"label-{i}:sampled": Coefficients([0.51234567, 0.1, -0.05, 0.02], [-0.21234567] * PAIR.k, 0.1)
            for i in range(WORKLOADS)}  # fmt: skip
    return CoefficientTable(PAIR.id, 1, Coefficients([0.5, 0, 0, 0], [-0.3] * PAIR.k), rows, KNOTS, 1_700_000_000_000)


def main(rounds: int = 15, requests: int = 1_000) -> dict[str, float]:
    """Prints and returns the ratios of 200 and 304, without and with a token."""
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as redis, Store(connect(redis.url)) as store:
        folder = Path(name)
        publisher = Publisher(store, PAIR, KNOTS)
        publisher.table = lambda version, **_: table()  # type: ignore[method-assign]
        publisher.publish()
        tokens = TokenFile(folder / "tokens")
        token = {"authorization": f"Bearer {tokens.tokens[Role.ENGINE]}"}
        for kind, environment, extra in (
            ("without token", {}, {}),
            ("with token", {"ACCORD_API_TOKENS_FILE": str(tokens.path)}, token),
        ):
            results |= _compare(folder, redis.url, kind, environment, extra, rounds, requests)
    print(f"  goal: {GOAL}; {load_note()}")
    return results


def _compare(
    folder: Path, redis_url: str, kind: str, environment: dict[str, str], extra: dict[str, str], rounds: int, count: int
) -> dict[str, float]:
    ready, bare_ready = folder / "url", folder / "bare"
    ready.unlink(missing_ok=True)
    bare_ready.unlink(missing_ok=True)
    api = Child("api", [sys.executable, "-m", "accord.api", "--port", "0", "--ready-file", str(ready)],
                folder / "api.log", environment={"ACCORD_REDIS_URL": redis_url, **environment})  # fmt: skip
    bare = Child("bare", [sys.executable, "-m", "tests.bench.bare_route", str(folder)], folder / "bare.log")
    api.start()
    clients: list[Client] = []
    try:
        ours = Client(_wait(ready, api), psutil.Process(api.pid))
        whole = ours.answer(ours.request(extra))
        head, _, body = whole.partition(b"\r\n\r\n")
        lines = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:])
        kept = {key: value for key, value in lines.items() if key not in ("date", "content-length", "content-type")}
        (folder / "body").write_bytes(body)
        (folder / "headers").write_text(json.dumps(kept))
        bare.start()
        theirs = Client(_wait(bare_ready, bare), psutil.Process(bare.pid))
        clients += [ours, theirs]
        found = {}
        for status, headers in ((200, extra), (304, {"if-none-match": lines["etag"], **extra})):
            sides = []
            for client in (ours, theirs):
                request = client.request(headers)
                answer = client.answer(request)
                assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
                sides.append((client, request, len(answer)))
            assert sides[0][2] == sides[1][2], "both sides must send the same bytes"
            for client, request, size in sides:
                client.costs(request, size, count // 2)
            took = [[client.costs(request, size, count) for client, request, size in sides] for _ in range(rounds)]
            cpu = [sum(turn[side][0] for turn in took) / (rounds * count) * 1e6 for side in (0, 1)]
            wall = statistics.median(turn[1][1] / turn[0][1] for turn in took)
            found[f"{status} {kind}"] = cpu[1] / cpu[0]
            print(f"  {status} {kind:14s} ours {cpu[0]:6.1f} us of CPU, bare route {cpu[1]:6.1f}: "
                  f"ratio {cpu[1] / cpu[0]:.2f} (by wall time, one connection: {wall:.2f})")  # fmt: skip
        return found
    finally:
        for client in clients:
            client.sock.close()
        api.stop()
        if bare.alive:
            bare.stop()


def _wait(ready: Path, child: Child) -> str:
    deadline = time.monotonic() + 60.0
    while not ready.exists():
        assert child.alive, child.tail()
        assert time.monotonic() < deadline, child.tail()
        time.sleep(0.02)
    return ready.read_text().strip()


if __name__ == "__main__":
    main()
