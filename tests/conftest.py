"""A real server for every test that needs one."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect, permanent_reason

# Test modules are imported by path, so the helpers next to this file need the root to be found as `tests.proxy`.
sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.proxy import TcpProxy

# A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One real server for the whole run; tests that stop or kill a server start their own."""
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def store(server: EmbeddedServer) -> Iterator[Store]:
    """An empty store; fails the test that leaves a key without a TTL or a declared reason."""
    with Store(connect(server.url, role="test")) as fresh:
        fresh.client.flushall()
        yield fresh
        assert undeclared_keys(fresh) == []


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[TcpProxy]:
    """A proxy before the server."""
    with TcpProxy("127.0.0.1", server.port) as running:
        yield running


@pytest.fixture
def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def undeclared_keys(store: Store) -> list[str]:
    """Keys that live for ever without a reason in `keys.PERMANENT`."""
    found = sorted(key.decode() for key in store.client.scan_iter(count=1000))
    return [key for key in found if store.client.ttl(key) == -1 and permanent_reason(key) is None]
