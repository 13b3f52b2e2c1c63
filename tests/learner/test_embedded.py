from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import redis

from accord.learner.embedded import EmbeddedServer, EmbeddedServerError
from accord.learner.errors import InvalidValue

PARENT = """
import sys, time
from accord.learner.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1]).start()
print(server.pid, flush=True)
time.sleep(600)
"""


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Polls with a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def client(server: EmbeddedServer) -> redis.Redis:
    """A plain client of the server."""
    return redis.Redis.from_url(server.url)


def test_keeps_data_over_stop_and_start(tmp_path: Path) -> None:
    """What was written before an orderly stop is there after the start."""
    with EmbeddedServer(tmp_path) as server:
        with client(server) as c:
            c.set("k", "v")
        port = server.port
        server.restart()
        assert server.port == port
        with client(server) as c:
            assert c.get("k") == b"v"


def test_keeps_acknowledged_data_over_a_kill() -> None:
    """A killed server has, after its start, every write that it acknowledged."""
    with EmbeddedServer() as server:
        with client(server) as c:
            for i in range(200):
                c.rpush("k", i)
        pid = server.pid
        server.kill()
        assert gone(pid)
        assert not server.running
        with client(server.start()) as c:
            assert c.llen("k") == 200
        assert server.pid != pid


def test_has_the_promised_settings() -> None:
    """The server listens on loopback only, appends every write, and never evicts."""
    with EmbeddedServer() as server, client(server) as c:
        settings = c.config_get("*")
        assert settings["bind"] == "127.0.0.1"
        assert settings["appendonly"] == "yes"
        assert settings["appendfsync"] == "always"
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["save"] == ""


def test_removes_its_temporary_directory() -> None:
    """A temporary data directory vanishes on close, also when closed twice."""
    with EmbeddedServer() as server:
        where = server.data_dir
        assert where.is_dir()
    assert not where.exists()
    server.close()


def test_keeps_a_given_directory(tmp_path: Path) -> None:
    """A data directory that was given stays."""
    with EmbeddedServer(tmp_path / "a b"):
        pass
    assert (tmp_path / "a b" / "server.log").is_file()


def test_refuses_a_second_server_on_the_same_data(tmp_path: Path) -> None:
    """Two servers never write the same files."""
    with EmbeddedServer(tmp_path), pytest.raises(EmbeddedServerError, match="in use by another server"):
        EmbeddedServer(tmp_path).start()


def test_shows_the_log_when_it_cannot_start(free_port: int) -> None:
    """A server that exits at once is reported with what it logged."""
    server = EmbeddedServer(port=free_port, options=["--no-such-option", "1"])
    with pytest.raises(EmbeddedServerError, match="no-such-option"):
        server.start()
    assert not server.running
    server.close()


def test_does_not_mistake_another_server_for_its_own() -> None:
    """A given port that another server holds is an error, although a PING is answered there."""
    with EmbeddedServer() as other:
        server = EmbeddedServer(port=other.port)
        with pytest.raises(EmbeddedServerError, match="Address already in use"):
            server.start()
        server.close()
        with client(other) as c:
            assert c.ping()


def test_outlives_the_thread_that_started_it() -> None:
    """A server started from a short-lived thread stays when that thread ends."""
    with EmbeddedServer() as server:
        server.stop()
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        with client(server) as c:
            for _ in range(20):
                assert c.ping()
        assert server.running


@pytest.mark.skipif(sys.platform != "linux", reason="the signal on a parent's death is Linux' own")
def test_dies_with_its_parent(tmp_path: Path) -> None:
    """A parent that is killed leaves no server behind, and the data directory is free again."""
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.kill()
        wait_until(lambda: gone(pid))
    with EmbeddedServer(tmp_path) as server:
        assert server.running


def test_does_not_hear_ctrl_c_of_its_parent() -> None:
    """The server leads its own process group, so an interrupt from the terminal reaches the parent only."""
    with EmbeddedServer() as server:
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)


def test_kills_a_server_that_does_not_stop() -> None:
    """A server that ignores the request to stop is killed at the deadline."""
    with EmbeddedServer() as server:
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
        server.stop(timeout_s=0.05)
        assert gone(pid)


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the error names the extra to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedServerError, match=r"pip install 'accord\[embedded\]'"):
        EmbeddedServer()


def test_names_a_bad_port() -> None:
    """A port out of range is named with its value."""
    with pytest.raises(InvalidValue, match="port = 70000"):
        EmbeddedServer(port=70000)


def test_has_no_port_before_the_first_start() -> None:
    """Asking a server that was never started for its port or process says so."""
    server = EmbeddedServer()
    with pytest.raises(EmbeddedServerError, match="no port yet"):
        _ = server.url
    with pytest.raises(EmbeddedServerError, match="not running"):
        _ = server.pid
    server.close()
