"""What happened at an engine between two readings of its counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accord.learner.basis import Array

from .page import ACCEPTED, BY_POSITION, COUNTERS, DRAFT_TOKENS, DRAFTS, EMITTED, GENERATED, Counters

CONSISTENT = 0.02
"""By how much sums that should be equal may differ, as a share: they are not counted in one step."""


@dataclass(frozen=True)
class Window:
    """One engine's speculation over some time.

    Attributes:
        since_start: whether this is all since the engine started, because nothing happened between the readings.
        drafts: blocks drafted; draft_tokens, accepted: of all of them; generated: all tokens, None where not told.
        survival: [K] share of blocks accepted up to and including each position; None where not told by position.
        running, waiting: requests at the second reading.
        notes: what to keep in mind.
    """

    since_start: bool
    drafts: float
    draft_tokens: float
    accepted: float
    generated: float | None
    survival: Array | None
    running: float | None
    waiting: float | None
    notes: list[str]

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that a step brings for a request, None without drafts."""
        return 1.0 + self.accepted / self.drafts if self.drafts > 0.0 else None


def between(before: Counters | None, after: Counters) -> Window:
    """The window between two readings; all since the start when nothing was drafted between them.

    A counter that fell means that the engine restarted: then the window is what it did since.
    """
    notes: list[str] = []
    first = before if before is not None else Counters()
    if before is None:
        notes.append("the engine appeared between the two readings: figures are since it started")
    elif _restarted(first, after):
        notes.append("a counter fell between the two readings, so the engine restarted: figures are since then")
        first = Counters()
    counts = {name: value - first.counts.get(name, 0.0) for name, value in after.counts.items()}
    by_position = {at: value - first.by_position.get(at, 0.0) for at, value in after.by_position.items()}
    since_start = before is None
    if not counts.get(DRAFT_TOKENS, 0.0) > 0.0 and after.counts.get(DRAFT_TOKENS, 0.0) > 0.0:
        notes.append("nothing was drafted between the two readings: figures are since the engine started")
        counts, by_position, since_start = dict(after.counts), dict(after.by_position), True
    drafts = _drafts(counts, notes)
    accepted = min(counts.get(ACCEPTED, 0.0), counts.get(DRAFT_TOKENS, 0.0))
    return Window(
        since_start=since_start,
        drafts=drafts,
        draft_tokens=counts.get(DRAFT_TOKENS, 0.0),
        accepted=accepted,
        generated=counts.get(GENERATED),
        survival=_survival(by_position, drafts, accepted, notes),
        running=after.running,
        waiting=after.waiting,
        notes=notes,
    )


def _restarted(before: Counters, after: Counters) -> bool:
    fell = any(after.counts.get(name, 0.0) < before.counts.get(name, 0.0) for name in COUNTERS)
    return fell or any(after.by_position.get(at, 0.0) < value for at, value in before.by_position.items())


def _drafts(counts: dict[str, float], notes: list[str]) -> float:
    if DRAFTS in counts:
        return counts[DRAFTS]
    if EMITTED in counts:
        # Each draft of the V0 engine emits what is accepted and one token more.
        notes.append("an engine of the old kind (V0) counts no drafts: they are taken to be emitted - accepted tokens")
        return max(counts[EMITTED] - counts.get(ACCEPTED, 0.0), 0.0)
    if DRAFT_TOKENS in counts:
        notes.append(f"the page has no {DRAFTS}: this vLLM is too old to tell how long accepted prefixes are")
    return 0.0


def _survival(by_position: dict[int, float], drafts: float, accepted: float, notes: list[str]) -> Array | None:
    k = max(by_position, default=-1) + 1
    if k == 0 or not drafts > 0.0:
        return None
    counts = np.array([by_position.get(at, 0.0) for at in range(k)])
    if abs(counts.sum() - accepted) > max(CONSISTENT * accepted, k):
        notes.append(f"{BY_POSITION} sums to {counts.sum():,.0f}, but {accepted:,.0f} tokens were accepted")
    survival: Array = np.minimum.accumulate(np.clip(counts / drafts, 0.0, 1.0))
    return survival
