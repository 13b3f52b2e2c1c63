"""What must hold at the end of a soak, and the table of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accord.learner.basis import DEFAULT_KNOTS
from accord.learner.coefficients import MAX_WORKLOADS
from accord.learner.evaluate.trace import Trace
from accord.learner.influence import MAX_ENGINES
from accord.learner.state_codec import Learnt, encode_learnt

from .series import Series, growth
from .shortened import FORGET_AFTER_S, MAX_AUDIT
from .site import Size

MIB = float(1 << 20)
MEMORY_SHARE, MEMORY_FLOOR = 0.03, 2.0
"""What memory may gain in the second half of two hours: 3 %, or 2 MiB where that is more. An allocator's noise is below
it. A process that leaked 3 % of its size every hour would need twelve days to reach ten times that size."""

NODE = 100
"""Entries that a store drops at once from a stream whose length is capped about so."""

BACKLOG = 200
"""Rounds that may wait for a learner: seconds of them."""

MANY_NOTES = 128 << 10
"""Bytes of what a full state says in words: the served table, rows on trial, and what has happened since."""

AOF_MIB = 192.0
"""The store rewrites its file when it is 64 MB long and has doubled; rewriting takes a while, and writes go on."""


@dataclass(frozen=True)
class Line:
    """One thing that was judged.

    Attributes:
        what: for people; unit: of the figures.
        middle, last: the medians at the beginning and at the end of the second half.
        found: what is compared with `most`.
    """

    what: str
    unit: str
    middle: float
    last: float
    found: float
    most: float
    rule: str

    @property
    def good(self) -> bool:
        """Whether it holds."""
        return self.found <= self.most

    def cells(self) -> list[str]:
        """For a table."""
        return [self.what, f"{self.middle:.4g}", f"{self.last:.4g}", f"{self.found:.3g}",
                f"{self.most:.3g}", self.unit, self.rule, "yes" if self.good else "NO"]  # fmt: skip


HEAD = ["what", "middle", "end", "found", "allowed", "unit", "rule", "holds"]


def judge(series: Series, account: dict[str, Any], size: Size, *, long: bool) -> tuple[list[Line], list[str]]:
    """The lines of the table, and what is wrong beside them.

    Args:
        series, account: what the soak left; size: what was soaked.
        long: whether it was long enough for memory to say something.
    """
    lines = [*_processes(series, long), *_store(series, long), *_caps(series, size)]
    wrong = [f"no samples of {line.what}" for line in lines if math.isnan(line.found)]
    wrong += [f"{line.what}: {line.found:.3g} {line.unit}, at most {line.most:.3g}" for line in lines if not line.good]
    wrong += [f"key without a TTL or a reason: {key}" for key in series.measures("undeclared")]
    return lines, [*wrong, *_labels(account), *account["trouble"]]


WARMING = 2.0
"""Threads, descriptors and connections that pools may still open in the second half of a soak of seconds: they do so
when two want something at once, and then keep what they have."""


def full_state() -> int:
    """Bytes of a state that knows as many workloads and engines as it may.

    Two hours see fewer engines than that; each that comes adds ten thousand bytes until then.
    """
    pair = Trace.bundled().pair
    learnt = Learnt.new(pair.id, pair.k, DEFAULT_KNOTS)
    learnt.state.reserve([f"w{number}:hot" for number in range(MAX_WORKLOADS)])
    learnt.state.influence.place({f"host-{number}/0": True for number in range(MAX_ENGINES)}, 0)
    return len(encode_learnt(learnt)) + MANY_NOTES


def _processes(series: Series, long: bool) -> Iterator[Line]:
    stay = [s for s in series.subjects("process ") if not s.startswith("process passing-")]
    for subject in stay:
        # The store says itself what it uses; what its allocator keeps beyond that depends on the build.
        if long and subject != "process store":
            yield _grows(series, subject, "uss", "MiB", 1 / MIB, MEMORY_SHARE, MEMORY_FLOOR)
        # A leak of one for each engine that comes and goes would be dozens.
        yield _grows(series, subject, "fds", "", 1.0, 0.0, 2.0 + (0.0 if long else WARMING))
        yield _grows(series, subject, "threads", "", 1.0, 0.0, 1.0 + (0.0 if long else WARMING))


def _store(series: Series, long: bool) -> Iterator[Line]:
    if long:
        yield _grows(series, "store", "used_memory", "MiB", 1 / MIB, MEMORY_SHARE, MEMORY_FLOOR)
        yield _grows(series, "keys accord:{pair}:state", "sequences", "KiB", 1 / 1024, MEMORY_SHARE, 8.0)
    yield _grows(series, "store", "connected_clients", "", 1.0, 0.0, 2.0 + (0.0 if long else WARMING))
    yield _stays_below(series, "keys accord:{pair}:state", "body", "KiB", 1 / 1024, full_state() / 1024)
    yield _stays_below(series, "store", "aof_current_size", "MiB", 1 / MIB, AOF_MIB)


def _caps(series: Series, size: Size) -> Iterator[Line]:
    gone = math.ceil((FORGET_AFTER_S + 120.0) * size.engines / 2 / size.churn_s)
    caps = {
        "rounds": BACKLOG,
        # An operator's publications are trimmed by the next commit.
        "history": size.history + 10,
        "audit": MAX_AUDIT + NODE,
        "engines": size.engines + gone,
        "state": 8,
        "coefficients": 8,
        "overrides": 8,
        "lease": 8,
    }
    for part, most in caps.items():
        subject = f"keys accord:{{pair}}:{part}"
        # Nobody has to have overridden anything.
        if series.subjects(subject) or part not in ("audit", "overrides"):
            yield _stays_below(series, subject, "longest", "entries", 1.0, float(most))
    yield _stays_below(series, "keys accord:pairs", "longest", "entries", 1.0, float(size.pairs))
    yield _stays_below(series, "keys accord:learners", "longest", "entries", 1.0, float(size.learners))
    yield _stays_below(series, "store", "dbsize", "keys", 1.0, 2.0 + len(caps) * size.pairs)


def _labels(account: dict[str, Any]) -> Iterator[str]:
    explained = account["learnt"] + sum(account["lost"].values())
    if account["observed"] != explained:
        yield f"engines counted {account['observed']} labels, learnt and lost are {explained}"
    if set(account["refused"]) - {"duplicate"}:
        yield f"refused: {account['refused']}"
    if account["not_ended_in_order"]:
        yield f"not ended in order: {account['not_ended_in_order']}"


def _ends(values: np.ndarray) -> tuple[float, float]:
    few = max(1, len(values) // 20)
    return float(np.median(values[:few])), float(np.median(values[-few:]))


def _grows(series: Series, subject: str, measure: str, unit: str, scale: float, share: float, floor: float) -> Line:
    seconds, values = series.second_half(subject, measure)
    what = f"{subject.removeprefix('process ')}: {measure}"
    if not len(values):
        return Line(what, unit, math.nan, math.nan, math.nan, 0.0, "growth")
    values = values * scale
    most = max(share * float(np.median(values)), floor)
    return Line(what, unit, *_ends(values), growth(seconds, values), most, "growth in the second half")


def _stays_below(series: Series, subject: str, measure: str, unit: str, scale: float, most: float) -> Line:
    _, values = series.get(subject, measure)
    what = f"{subject.removeprefix('keys ')}: {measure}"
    if not len(values):
        return Line(what, unit, math.nan, math.nan, math.nan, most, "most")
    _, late = series.second_half(subject, measure)
    return Line(what, unit, *_ends(late * scale), float(values.max() * scale), most, "most ever")


def table(lines: list[Line]) -> str:
    """For people, and for a Markdown page."""
    rows = [HEAD, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)
