"""Two readings of a metrics page, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accord.learner.advice import Pays

from .address import Address, AuditError
from .http import Http
from .judge import Judgement, judge, pays
from .load import Load
from .page import Page, parse, title
from .window import between

PAYS, HURTS, CANNOT_SAY = 0, 1, 2
"""Exit codes."""

TRIMMED_NOTE = (
    "accord's plugin or adaptive verification is at work: drafts that were trimmed count as rejected on this page, "
    "so acceptance by position is stated too low, but tokens per step are right; accord's own pages show accepted over "
    "verified"
)


@dataclass(frozen=True)
class Report:
    """An audit.

    Attributes:
        metrics: where it was read; interval_s: between the readings.
        engines: by title, those that speculate; silent: engines of the page that do not.
        gone: engines that the second reading no longer has.
        load: what was driven; None without.
        verdict, message: of all together; notes: what to keep in mind.
    """

    metrics: str
    interval_s: float
    engines: dict[str, Judgement]
    silent: list[str]
    gone: list[str]
    load: Load | None
    verdict: Pays
    message: str
    notes: list[str]

    @property
    def exit_code(self) -> int:
        """0 pays (or nearly), 1 does not, 2 cannot say."""
        codes = {Pays.HELPS: PAYS, Pays.MARGINAL: PAYS, Pays.HURTS: HURTS}
        return codes.get(self.verdict, CANNOT_SAY)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "metrics": self.metrics,
            "interval_s": self.interval_s,
            "verdict": self.verdict.value,
            "message": self.message,
            "engines": {name: found.to_dict() for name, found in self.engines.items()},
            "without_speculation": self.silent,
            "gone": self.gone,
            "load": None if self.load is None else self.load.to_dict(),
            "notes": self.notes,
            "exit_code": self.exit_code,
        }


def audit(
    http: Http,
    address: Address,
    interval_s: float,
    draft_ratio: float | None = None,
    drive: Callable[[], Load] | None = None,
) -> Report:
    """Reads the page, waits (or drives a load), reads again, and judges.

    Raises:
        AuditError: when a page cannot be had, or is none of vLLM.
    """
    before, began = _read(http, address), time.monotonic()
    load = None
    if drive is None:
        time.sleep(interval_s)
    else:
        load = drive()
    after, elapsed = _read(http, address), time.monotonic() - began
    return report(address.metrics, before, after, elapsed, draft_ratio, load)


def report(
    metrics: str, before: Page, after: Page, elapsed: float, draft_ratio: float | None, load: Load | None
) -> Report:
    """What two readings say."""
    speculating = {key: engine for key, engine in after.engines.items() if engine.speculates}
    engines: dict[str, Judgement] = {}
    for key, engine in sorted(speculating.items()):
        name = title(key)
        # Labels may be anything, so two engines may read the same.
        name = name if name not in engines else f"{name} ({len(engines)})"
        engines[name] = judge(between(before.engines.get(key), engine), draft_ratio)
    silent = [title(key) for key in sorted(after.engines) if key not in speculating]
    gone = [title(key) for key in sorted(before.engines) if key not in after.engines]
    verdict = pays(list(engines.values()))
    return Report(
        metrics=metrics,
        interval_s=round(elapsed, 3),
        engines=engines,
        silent=silent,
        gone=gone,
        load=load,
        verdict=verdict,
        message=_message(verdict, engines),
        notes=_notes(after, gone, load),
    )


def _read(http: Http, address: Address) -> Page:
    page = parse(http.page(address.metrics))
    if not page.vllm:
        raise AuditError(f"{address.metrics} has no metrics of vLLM: is this the address of a vLLM server?")
    return page


def _message(verdict: Pays, engines: dict[str, Judgement]) -> str:
    if not engines:
        return (
            "the page has no counters of speculative decoding: speculation is off, or this vLLM is older than 0.10 "
            "and does not count it"
        )
    words = {
        Pays.HELPS: "speculation pays",
        Pays.MARGINAL: "speculation hardly pays",
        Pays.HURTS: "speculation does not pay",
        Pays.UNKNOWN: "whether speculation pays cannot be said",
    }
    behind = [name for name, found in engines.items() if found.verdict is verdict]
    return words[verdict] + (f" at {len(behind)} of {len(engines)} engines" if len(engines) > 1 else "")


def _notes(after: Page, gone: list[str], load: Load | None) -> list[str]:
    notes = []
    if after.adaptive:
        notes.append(TRIMMED_NOTE)
    if after.unreadable:
        notes.append(f"{after.unreadable} lines about these counters cannot be read, and were left out")
    if gone:
        notes.append(f"gone between the two readings: {', '.join(gone)}")
    if load is not None:
        notes.append("the load is greedy (temperature 0): production at higher temperatures accepts less")
        if load.failed:
            notes.append(f"{load.failed} of {load.sent} requests failed: {'; '.join(load.errors)}")
        if load.mismatches:
            notes.append(
                f"greedy answers do not repeat: {load.mismatches} of {load.compared} prompts got two different ones. "
                "Batches of other sizes round differently, so try --concurrency 1: what still differs there is a fault"
            )
    return notes
