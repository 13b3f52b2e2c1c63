"""The demo: a fleet learns from a recorded trace, and goes on while parts of the service are taken away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from accord.learner.evaluate.trace import Trace

from .fleet import Fleet
from .screen import ServiceView, outline, screen
from .stack import Stack

_DRAW_EVERY_S = 0.5
_CATCH_UP_S = 20.0


@dataclass(frozen=True)
class Ending:
    """What the demo ends with.

    Attributes:
        sent, learnt, lost: labels.
        steps: decode steps made by all engines.
        step_ms: (median, longest) step of any engine, milliseconds, outages included.
        stalled: acts in which some engine made no step.
        version: of the coefficients at the end.
        log_loss, workload_ece: (accord, vLLM's rule).
        exits: exit statuses of the engines.
    """

    sent: int
    learnt: int
    lost: int
    steps: int
    step_ms: tuple[float, float]
    stalled: list[str]
    version: int
    log_loss: tuple[float, float]
    workload_ece: tuple[float, float]
    exits: list[int | None]

    @property
    def good(self) -> bool:
        """Nothing lost, every label learnt once, every engine ended by itself, and better than the peer."""
        return not self.wrong

    @property
    def wrong(self) -> str:
        """What is not as it should be; empty when everything is."""
        found = {
            "labels sent and learnt differ": self.sent != self.learnt or self.sent == 0,
            "labels were lost": self.lost > 0,
            f"engines stood still while {self.stalled}": bool(self.stalled),
            f"engines ended with {self.exits}": set(self.exits) != {0},
            "log-loss is not below the peer's": self.log_loss[0] >= self.log_loss[1],
            "calibration is not better than the peer's": self.workload_ece[0] >= self.workload_ece[1],
        }
        return ", ".join(text for text, is_so in found.items() if is_so)


class Story:
    """Runs the acts one after the other and keeps the screen up to date.

    Args:
        console: where to show it; a live display on a terminal, a printout after each act elsewhere.
        folder: for logs and data.
        act_s: seconds of each quiet act; outages last about a third of it.
        engines: how many replay engines.
        trace: None replays the bundled one.
    """

    def __init__(
        self, console: Console, folder: Path, *, act_s: float = 15.0, engines: int = 3, trace: Path | None = None
    ) -> None:
        self.console, self.act_s = console, act_s
        self.trace_path = trace
        self.pair = (Trace.load(trace) if trace is not None else Trace.bundled()).pair
        self.stack = Stack(folder)
        self._folder, self._engines = folder, engines
        self._stalled: list[str] = []
        self._draw: Callable[[Any], None] = lambda _: None

    def run(self, afterwards: Callable[[Ending], None] | None = None) -> Ending:
        """Plays everything; every process that it started has ended when it returns.

        Args:
            afterwards: called at the end, with the service and the fleet running; may take as long as it likes.
        """
        with self.stack:
            self.console.print(f"store {self.stack.redis_url}, API {self.stack.api_url}, logs in {self._folder}")
            self.console.print(f"the page: {self.stack.api_url}/")
            self.fleet = Fleet(
                self._folder,
                self.stack.redis_url,
                self.stack.api_url,
                engines=self._engines,
                local_after_s=self.act_s / 5.0,
                trace=self.trace_path,
            )
            self.service = ServiceView(self.stack.api_url, self.pair.id)
            try:
                self.fleet.start()
                self._play()
                ending = self._end()
                if afterwards is not None:
                    self.fleet.start()
                    afterwards(ending)
                return ending
            finally:
                self.fleet.stop(5.0)
                self.service.close()

    def _play(self) -> None:
        if not self.console.is_terminal:
            self._acts(self._print_act)
            self.console.print(self._screen(""))
            return
        with Live(console=self.console, refresh_per_second=4) as live:
            self._draw = live.update
            self._acts(lambda _: None)
        self._draw = lambda _: None

    def _acts(self, after: Callable[[str], None]) -> None:
        for happening, seconds in self._script():
            before = self._steps()
            self._watch(happening, seconds)
            if any(now <= then for then, now in zip(before, self._steps(), strict=True)):
                self._stalled.append(happening)
            after(happening)

    def _steps(self) -> list[int]:
        return [status.get("steps", 0) for status in self.fleet.statuses()]

    def _script(self) -> Iterator[tuple[str, float]]:
        stack, quiet, outage = self.stack, self.act_s, self.act_s / 3.0
        yield "the fleet learns from what its engines send", quiet
        stack.api.kill()
        yield "the API was killed: engines keep the last good coefficients, then refit themselves", outage
        stack.restart_api()
        yield "the API is back: engines return to the fleet's coefficients", outage
        stack.learners[0].kill()
        yield "the learner was killed: evidence waits in the store", outage
        stack.learners[0].start()
        yield "the learner is back: it goes on where it was, to the bit", outage
        assert stack.server is not None
        stack.server.kill()
        yield "the store was killed: evidence waits in the engines", outage
        stack.server.start()
        yield "the store is back: what waited is sent and learnt", quiet

    def _watch(self, happening: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0.0:
            self.service.refresh()
            self._draw(self._screen(happening))
            time.sleep(min(left, _DRAW_EVERY_S))

    def _print_act(self, happening: str) -> None:
        self.service.refresh()
        self.console.print(outline(self.service, self.fleet.statuses(), happening))

    def _screen(self, happening: str) -> Any:
        return screen(self.service, self.fleet.scores(), self.fleet.statuses(), happening)

    def _end(self) -> Ending:
        exits = self.fleet.stop()
        statuses, board = self.fleet.statuses(), self.fleet.scores()
        sent = sum(status.get("labels", {}).get("put", 0) for status in statuses)
        deadline = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < deadline:
            self.service.refresh()
            if sum(self.service.labels.values()) >= sent:
                break
            time.sleep(0.1)
        ours, theirs = board.overall("accord"), board.overall("vllm")
        return Ending(
            sent=sent,
            learnt=sum(self.service.labels.values()),
            lost=sum(status.get("labels", {}).get("lost", 0) for status in statuses),
            steps=sum(status.get("steps", 0) for status in statuses),
            step_ms=(
                max(status.get("step", {}).get("p50_ms", 0.0) for status in statuses),
                max(status.get("step", {}).get("max_ms", 0.0) for status in statuses),
            ),
            stalled=self._stalled,
            version=int(self.service.table.get("version", 0)),
            log_loss=(ours.log_loss or 0.0, theirs.log_loss or 0.0),
            workload_ece=(board.workload_ece("accord") or 0.0, board.workload_ece("vllm") or 0.0),
            exits=exits,
        )
