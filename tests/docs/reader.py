"""A reader who pastes the blocks of a page into a shell, beside a running service."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from .markdown import Block

BLOCK_S = 120.0
ENDLESS_S = 15.0

ELSEWHERE = "8791"
"""The port that pages use for a second service."""

_API = re.compile(r"http://(127\.0\.0\.1|localhost|accord):8790")
_STORE = re.compile(r"redis://[\w.]+:\d+/0")


class Reader:
    """One shell for one page: variables and the folder last from block to block.

    Args:
        folder: where files are written, and home.
        data: of the service, to be found where `accord up` keeps them.
        api_url, redis_url: stand in for those that the pages show.
        pair: what `$PAIR` is.
    """

    def __init__(self, folder: Path, data: Path, api_url: str, redis_url: str, pair: str) -> None:
        self._folder, self._api_url, self._redis_url = folder, api_url, redis_url
        state = folder / ".local" / "state"
        state.mkdir(parents=True)
        (state / "accord").symlink_to(data)
        self._free_port = _free_port()
        self._state = folder / ".shell"
        self._state.write_text("")
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "USER": "reader",
            "API": api_url,
            "ACCORD_API_PORT": str(self._free_port),
            "ACCORD_REDIS_URL": redis_url,
            "ACCORD_API_URL": api_url,
            "PAIR": pair,
        }

    def script(self, block: Block) -> str:
        """What the shell gets: addresses of this service, then the state for the next block."""
        text = _STORE.sub(self._redis_url, _API.sub(self._api_url, block.commands))
        text = text.replace(ELSEWHERE, str(self._free_port))
        return f"set -a\n. {self._state}\n{text}\nexport -p > {self._state}\n"

    def run(self, block: Block) -> subprocess.CompletedProcess[str]:
        """Runs a block to its end, or an endless one until it has said something; a fault fails the test."""
        argv = ["bash", "-euo", "pipefail", "-c", self.script(block)]
        with subprocess.Popen(
            argv,
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if block.endless else subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                if block.endless:
                    self._stop_once_it_speaks(process, block)
                out, err = process.communicate(timeout=BLOCK_S)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        wanted = (0, 130, -signal.SIGINT) if block.endless else (0,)
        assert process.returncode in wanted, f"{block.where}: status {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in f"{out}{err}", f"{block.where}\n{out}\n{err}"
        return subprocess.CompletedProcess(argv, process.returncode, out, err or "")

    def _stop_once_it_speaks(self, process: subprocess.Popen[str], block: Block) -> None:
        assert process.stdout is not None
        spoken = threading.Event()
        waiting = threading.Thread(target=_first_line, args=(process, spoken), daemon=True)
        waiting.start()
        assert spoken.wait(ENDLESS_S), f"{block.where}: nothing in {ENDLESS_S:g} s"
        assert process.poll() is None, f"{block.where}: has ended by itself, and is marked as endless"
        os.killpg(process.pid, signal.SIGINT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_line(process: subprocess.Popen[str], spoken: threading.Event) -> None:
    assert process.stdout is not None
    if process.stdout.readline():
        spoken.set()
