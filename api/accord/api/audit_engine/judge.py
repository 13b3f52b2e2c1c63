"""What the figures of a window mean: does speculation pay, and what to look at next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from accord.learner.advice import Cost, Pays, advise_survival
from accord.learner.basis import Array

from .window import Window

LEAST_DRAFTS = 200.0
"""With fewer drafts there is no verdict."""

SELDOM, OFTEN = 0.10, 0.60
"""A last position that survives less often is not worth its draft; behind one that survives more often is room."""

WEAK_FIRST = 0.50
"""A first draft accepted less often points at the draft model or the temperature, not at K."""

FADING = 0.70
"""A conditional acceptance below this share of the first: the drafter loses its way within the block."""

BUSY = 32
"""Running requests from which verifying may no longer be free."""

UNDRAFTED = 0.25
"""A larger share of tokens generated without drafts is worth a word."""


@dataclass(frozen=True)
class Judgement:
    """The word on one engine.

    Attributes:
        verdict: see `Pays`; message: in a sentence.
        k: draft positions, as far as the page tells.
        drafts: what it rests on; drafted_per_step: draft tokens of a block; acceptance: [K] by position, unconditional;
        conditional: [K]; mean_accepted_length: without the token that always comes.
        tokens_per_step: for K; tokens_by_k: [K + 1] for every smaller one.
        best_k, gain: with a draft ratio only.
        check_next: what to look at, most telling first; notes: what to keep in mind.
    """

    verdict: Pays
    message: str
    k: int | None
    drafts: float
    drafted_per_step: float | None
    acceptance: list[float] | None
    conditional: list[float] | None
    mean_accepted_length: float | None
    tokens_per_step: float | None
    tokens_by_k: list[float] | None
    best_k: int | None
    gain: float | None
    break_even_ratio: float | None
    running: float | None
    since_start: bool
    check_next: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "verdict": self.verdict.value}


def judge(window: Window, draft_ratio: float | None = None) -> Judgement:
    """Judges a window; a draft ratio (cost of a draft token in target steps) replaces the usual sign by arithmetic."""
    survival = window.survival if window.survival is not None else _flat(window)
    if survival is None or window.drafts < LEAST_DRAFTS:
        return _unknown(window, survival)
    k = len(survival)
    cost = None if draft_ratio is None else Cost.of_ratio(k, draft_ratio)
    told = advise_survival(survival, cost, window.drafts)
    by_position = window.survival is not None
    conditional = [p if p is not None else 0.0 for p in told.conditional]
    return Judgement(
        verdict=told.verdict,
        message=told.message,
        k=k,
        drafts=window.drafts,
        drafted_per_step=window.draft_tokens / window.drafts,
        acceptance=survival.tolist() if by_position else None,
        conditional=conditional if by_position else None,
        mean_accepted_length=window.accepted / window.drafts,
        tokens_per_step=window.tokens_per_step,
        tokens_by_k=[t for t in told.tokens_per_step if t is not None] if by_position else None,
        best_k=told.best_k if by_position else None,
        gain=told.gain,
        break_even_ratio=told.break_even_ratio,
        running=window.running,
        since_start=window.since_start,
        check_next=_check_next(
            window, survival, conditional if by_position else [], told.verdict, told.break_even_ratio
        ),
        notes=[*window.notes, *_notes(window, k)],
    )


def _flat(window: Window) -> Array | None:
    """Without counts by position only their mean is known: K from the drafts, the same survival everywhere."""
    if not window.drafts > 0.0:
        return None
    k = max(round(window.draft_tokens / window.drafts), 1)
    return np.full(min(k, 64), min(window.accepted / window.drafts / k, 1.0))


def _unknown(window: Window, survival: Array | None) -> Judgement:
    if window.draft_tokens > 0.0 and not window.drafts > 0.0:
        share = window.accepted / window.draft_tokens
        message = f"{share:.0%} of the draft tokens are accepted, but how many a step brings cannot be told"
    elif window.drafts > 0.0:
        message = f"{window.drafts:,.0f} drafts are too few to tell: at least {LEAST_DRAFTS:,.0f} are needed"
    else:
        message = "nothing was drafted since the engine started: send it requests, or use --load"
    return Judgement(
        verdict=Pays.UNKNOWN,
        message=message,
        k=None if survival is None else len(survival),
        drafts=window.drafts,
        drafted_per_step=window.draft_tokens / window.drafts if window.drafts > 0.0 else None,
        acceptance=None if window.survival is None else window.survival.tolist(),
        conditional=None,
        mean_accepted_length=window.accepted / window.drafts if window.drafts > 0.0 else None,
        tokens_per_step=window.tokens_per_step,
        tokens_by_k=None,
        best_k=None,
        gain=None,
        break_even_ratio=None,
        running=window.running,
        since_start=window.since_start,
        check_next=[],
        notes=window.notes,
    )


def _check_next(
    window: Window, survival: Array, conditional: list[float], verdict: Pays, break_even: float | None
) -> list[str]:
    found, k = [], len(survival)
    if conditional:
        found += _positions(survival, conditional)
    if verdict is not Pays.HELPS and break_even is not None:
        found.append(
            f"draft size: K = {k} pays only while drafting a token costs less than {break_even:.0%} of a step of the "
            "target model; a smaller draft, or a head such as EAGLE or MTP, costs less"
        )
    if window.running is not None and window.running >= BUSY:
        found.append(
            f"batch size: {window.running:,.0f} requests are running; once the target model is bound by compute, "
            "verifying is no longer free: compare the throughput at this load with a smaller K and with none"
        )
    return found


def _positions(survival: Array, conditional: list[float]) -> list[str]:
    found, k = [], len(survival)
    if conditional[0] < WEAK_FIRST:
        found.append(
            f"temperature: the first draft token is accepted only {conditional[0]:.0%} of the time; compare with "
            "requests at temperature 0: if that is much better, sampling is what costs acceptance"
        )
        found.append(
            "draft: if temperature 0 is no better, check that the draft was made for exactly this target (its version, "
            "fine-tuning, chat template and quantisation), because that shows in the first token"
        )
    useful = int(np.count_nonzero(survival >= SELDOM))
    if useful < k and k > 1:
        found.append(
            f"K: from position {useful} on, fewer than {SELDOM:.0%} of the drafts survive; try K = {max(useful, 1)}"
        )
    elif survival[-1] >= OFTEN:
        found.append(f"K: the last of {k} positions still survives {survival[-1]:.0%} of the time; try a larger K")
    fading = [at for at in range(1, k) if conditional[at] < FADING * conditional[0] and survival[at - 1] >= SELDOM]
    if fading and conditional[0] >= WEAK_FIRST:
        found.append(
            f"draft: acceptance falls from {conditional[0]:.0%} at the first position to "
            f"{conditional[fading[0]]:.0%} at position {fading[0]}, though everything before was right; a drafter "
            "trained for longer blocks keeps up"
        )
    return found


def _notes(window: Window, k: int) -> list[str]:
    notes = []
    drafted = window.draft_tokens / window.drafts
    if drafted < 0.95 * k:
        notes.append(
            f"a step drafts {drafted:.1f} of {k} tokens on average: the drafter finds nothing to propose now and then, "
            "or requests are near their end"
        )
    steps = window.drafts + window.accepted
    if window.generated is not None and window.generated > 0.0 and steps < (1.0 - UNDRAFTED) * window.generated:
        notes.append(
            f"{1.0 - steps / window.generated:.0%} of the tokens came from steps without drafts; speculation is "
            "switched off for some requests or loads, or answers are very short"
        )
    if window.waiting is not None and window.waiting > 0.0:
        notes.append(f"{window.waiting:,.0f} requests are waiting, so throughput matters more than latency here")
    return notes


def pays(judgements: list[Judgement]) -> Pays:
    """The word on all engines: hurts where any does, helps where at least one does or nearly, else unknown."""
    verdicts = {found.verdict for found in judgements}
    for verdict in (Pays.HURTS, Pays.HELPS, Pays.MARGINAL):
        if verdict in verdicts:
            return verdict
    return Pays.UNKNOWN
