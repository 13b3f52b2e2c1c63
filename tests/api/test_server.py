"""File descriptors, sockets and log lines of the server."""

from __future__ import annotations

import json
import logging
import resource
import socket
import sys

import pytest

from accord.api import Settings
from accord.api.server import SPARE_FILES, BindError, address, allow_waiters, bind
from accord.learner.logs import JsonFormatter

WANTED = 20_000 + 200 + SPARE_FILES


@pytest.mark.parametrize(
    ("limits", "set_to", "waiters", "streams"),
    [
        ((1024, 100_000), (WANTED, 100_000), 20_000, 200),
        ((1024, resource.RLIM_INFINITY), (WANTED, resource.RLIM_INFINITY), 20_000, 200),
        ((1024, 4096), (4096, 4096), 4096 - SPARE_FILES - 200, 200),
        ((1024, WANTED - 1), (WANTED - 1, WANTED - 1), 19_999, 200),
        ((600, 600), (600, 600), 44, 44),
        ((64, 64), (64, 64), 0, 0),
        ((50_000, 50_000), None, 20_000, 200),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 20_000, 200),
    ],
)
def test_file_limit(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], set_to: tuple[int, int] | None, waiters: int, streams: int
) -> None:
    """The limit of open files is raised for waiters and streams, and their numbers lowered to what is granted."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: limits)
    monkeypatch.setattr("resource.setrlimit", lambda _, value: calls.append(value))
    found = allow_waiters(Settings())
    assert (found.max_waiters, found.max_streams) == (waiters, streams)
    assert calls == ([] if set_to is None else [set_to])


def test_bind() -> None:
    """Port 0 binds a free port, IPv6 addresses are bracketed, and what cannot be bound names host and port."""
    with bind("127.0.0.1", 0) as sock:
        assert address(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(BindError, match=r"cannot listen on 127\.0\.0\.1 port [0-9]+: Address already in use"):
            bind("127.0.0.1", sock.getsockname()[1])
    if socket.has_ipv6:
        with bind("::1", 0) as sock:
            assert address(sock).startswith("http://[::1]:")
    with pytest.raises(BindError, match=r"cannot listen on no\.such\.host\.invalid port 1"):
        bind("no.such.host.invalid", 1)


def test_log_line() -> None:
    """A record with a traceback, and with fields that JSON does not know, is one line of JSON."""
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        found = sys.exc_info()
    record = logging.LogRecord("accord.api", logging.ERROR, "", 0, "it\nbroke\n", (), found)
    record.fields = {"store": object(), "n": 3}
    text = JsonFormatter("api").format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["event"], line["n"]) == ("error", "it\nbroke", 3)
    assert "RuntimeError" in line["traceback"]
