"""A child process that dies with its parent, keeps its own log, and is ended by its id alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import AccordError

# Runs as the child before the program replaces it, so nothing happens between fork and exec of a threaded parent.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ChildError(AccordError):
    """A child process could not be started."""


class Child:
    """One program as a child process, which may be started again after it ended.

    It leads a process group of its own, so that Ctrl-C reaches the parent only, which then stops it in order. On Linux
    it gets SIGTERM when the parent dies, however that happens.

    Args:
        name: for people.
        argv: program and arguments.
        log: file that gets what it writes to stdout and stderr, appended.
        environment: added to the parent's.
        cwd: working directory.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name, self.argv, self.log = name, list(argv), log
        self._environment = dict(environment or {})
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; ChildError before the first start."""
        if self._process is None:
            raise ChildError(f"{self.name} was not started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended: an exit status, minus a signal number, or None while it runs or before it started."""
        return None if self._process is None else self._process.poll()

    def start(self, pass_fds: Sequence[int] = ()) -> None:
        """Starts it; nothing happens when it runs already.

        Raises:
            ChildError: when the program cannot be run.
        """
        if self.alive:
            return
        self._reap()
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *self.argv]
        started, failure = threading.Event(), list[OSError]()

        def keep() -> None:
            try:
                with open(self.log, "ab") as log:
                    process = self._process = subprocess.Popen(
                        launch,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=self._cwd,
                        env=os.environ | self._environment,
                        pass_fds=pass_fds,
                        process_group=0,
                    )
            except OSError as error:
                failure.append(error)
                return
            finally:
                started.set()
            process.wait()

        # Linux ends the child with the thread that made it, so that thread stays as long as the child.
        self._keeper = threading.Thread(target=keep, name=f"accord-child-{self.name}", daemon=True)
        self._keeper.start()
        started.wait()
        if failure:
            what = f"its log {self.log}" if failure[0].filename == str(self.log) else self.argv[0]
            raise ChildError(f"{self.name} cannot be run, {what}: {failure[0].strerror or failure[0]}")

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal; nothing happens when it has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """Waits for its end and returns its exit status, or None when it still runs."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, timeout_s: float = 10.0) -> None:
        """Asks it to end, and kills it when it has not by the deadline."""
        if self._process is not None:
            self._process.terminate()
            if self.wait(timeout_s) is None:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
        self._reap()

    def tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as log:
            log.seek(max(0, self.log.stat().st_size - 65_536))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self._keeper is not None:
            self._keeper.join()
            self._keeper = None
