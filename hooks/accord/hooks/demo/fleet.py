"""A fleet of replay engines as child processes, and what they last said."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from accord.learner.child import Child

from ..replay.score import Scoreboard

ROUND_STEPS = "10,20,40"
"""Shorter rounds than in production, so that a minute shows many of them."""


class Fleet:
    """Replay engines with different mixtures of the same trace.

    Args:
        folder: for logs and status files.
        redis_url, api_url: the service.
        engines: how many.
        rate: decode steps a second of each.
        local_after_s: when a silent service makes an engine refit itself.
        trace: None replays the bundled one.
    """

    def __init__(
        self,
        folder: Path,
        redis_url: str,
        api_url: str,
        *,
        engines: int = 3,
        rate: float = 40.0,
        local_after_s: float = 3.0,
        trace: Path | None = None,
    ) -> None:
        environment = {
            "ACCORD_REDIS_URL": redis_url,
            "ACCORD_API_URL": api_url,
            "ACCORD_LOCAL_AFTER_S": str(local_after_s),
            "ACCORD_ROUND_STEPS": ROUND_STEPS,
            "ACCORD_HEARTBEAT_S": "0.5",
            "ACCORD_MODE": "fleet",
            "OMP_NUM_THREADS": "1",
        }
        self.engines: list[Child] = []
        self._files: list[Path] = []
        for index in range(engines):
            name, status = f"engine-{index + 1}", folder / f"engine-{index + 1}.status"
            argv = [sys.executable, "-m", "accord.hooks.replay", "--engine", name, "--seed", str(index)]
            argv += ["--rate", str(rate), "--loop", "--score", "--status-file", str(status)]
            argv += ["--trace", str(trace)] if trace is not None else []
            status.unlink(missing_ok=True)
            self.engines.append(Child(name, argv, folder / f"{name}.log", environment=environment))
            self._files.append(status)

    def start(self) -> None:
        """Starts every engine."""
        for engine in self.engines:
            engine.start()

    def stop(self, timeout_s: float = 20.0) -> list[int | None]:
        """Asks every engine to send what it has and end; their exit statuses."""
        for engine in self.engines:
            if engine.alive:
                engine.signal(signal.SIGTERM)
        # Asked once: a second SIGTERM could meet a process that is already taking its handlers down.
        for engine in self.engines:
            engine.wait(timeout_s)
        for engine in self.engines:
            engine.kill()
        return [engine.returncode for engine in self.engines]

    def statuses(self) -> list[dict[str, Any]]:
        """The last status line of each engine, {} before the first."""
        return [_last_line(path) for path in self._files]

    def scores(self) -> Scoreboard:
        """What the engines have scored so far, summed."""
        board = Scoreboard()
        for status in self.statuses():
            board.merge(status.get("scores", {}))
        return board


def _last_line(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 262_144))
        lines = file.read().split(b"\n")
    # What follows the last line break is still being written.
    for line in reversed(lines[:-1]):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        return value if isinstance(value, dict) else {}
    return {}
