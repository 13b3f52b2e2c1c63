"""The command behind `python -m accord.hooks.replay`."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from accord.learner.errors import AccordError
from accord.learner.evaluate.trace import Trace
from accord.learner.signals import when_told

from ..agent import Agent
from ..engine import EngineSide
from ..settings import AgentSettings, SettingError
from .player import Mix, ReplayEngine
from .score import Duel

STATUS_EVERY_S = 0.5


def replay(
    trace: Annotated[Path | None, typer.Option(help="Trace file; the bundled one when left out.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Where evidence goes. [env: ACCORD_REDIS_URL]")] = None,
    api_url: Annotated[str | None, typer.Option(help="Where coefficients come from. [env: ACCORD_API_URL]")] = None,
    engine: Annotated[str | None, typer.Option(help="Name of this engine. [env: ACCORD_ENGINE]")] = None,
    mode: Annotated[str | None, typer.Option(help="fleet, local, observe or frozen. [env: ACCORD_MODE]")] = None,
    local_after: Annotated[float | None, typer.Option(help="Seconds. [env: ACCORD_LOCAL_AFTER_S]")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Workload to keep; repeat for several.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw another order of the requests.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="Decode steps a second.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many decode steps.")] = None,
    loop: Annotated[bool, typer.Option(help="Start again at the end of the trace.")] = False,
    score: Annotated[bool, typer.Option(help="Score predictions beside vLLM's rule, in the status.")] = False,
    status_file: Annotated[Path | None, typer.Option(help="Gets a JSON line every half second.")] = None,
    stop_timeout: Annotated[float, typer.Option(min=0.0, help="Seconds for the last evidence to be sent.")] = 10.0,
) -> None:
    """Replay a recorded trace as an engine. SIGTERM and SIGINT end it in order, after what is queued was sent."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stop = threading.Event()
    when_told(stop.set)
    try:
        settings = AgentSettings.from_env(
            redis_url=redis_url, api_url=api_url, engine=engine, mode=mode, local_after_s=local_after
        )
        recorded = Trace.load(trace) if trace is not None else Trace.bundled()
        agent = Agent(recorded.pair, settings)
        judge = Duel(recorded.pair.k) if score else None
        player = ReplayEngine(EngineSide(agent), recorded, Mix(tuple(workload or ()), seed), rate, loop, judge)
    except (SettingError, AccordError) as error:
        typer.echo(f"accord replay: {error}", err=True)
        raise typer.Exit(2) from None
    writer = _StatusWriter(status_file, player, judge)
    agent.start()
    writer.start()
    try:
        player.run(steps, stop)
    finally:
        player.close()
        complete = agent.stop(stop_timeout)
        writer.close(complete)
    raise typer.Exit(0 if complete or settings.redis_url is None else 1)


class _StatusWriter:
    """Writes the engine's status on a thread of its own."""

    def __init__(self, path: Path | None, player: ReplayEngine, duel: Duel | None) -> None:
        self._player, self._duel = player, duel
        self._file: IO[str] | None = None if path is None else path.open("w", encoding="utf-8")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay-status", daemon=True)

    def start(self) -> None:
        if self._file is not None:
            self._thread.start()

    def close(self, complete: bool) -> None:
        self._over.set()
        if self._file is not None:
            self._thread.join()
            self._write({"final": True, "complete": complete})
            self._file.close()

    def _run(self) -> None:
        while not self._over.wait(STATUS_EVERY_S):
            self._write({"final": False})

    def _write(self, extra: dict[str, Any]) -> None:
        if self._file is not None:
            line = {**self._player.status(), **extra, "at_ms": time.time_ns() // 1_000_000}
            if self._duel is not None:
                line["scores"] = self._duel.scores()
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
