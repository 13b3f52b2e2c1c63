"""Whether speculation pays for a workload, and with which K: tokens per step against what the step costs.

With S[j] the share of blocks whose drafts 0..j are all accepted, a step that drafts m tokens brings 1 + S[0] + ... +
S[m - 1] tokens: the one behind the last accepted draft always comes (Leviathan et al. 2023, section 3.1). Divided by
the cost of the step that is what speculation is for; the best m has the largest ratio, and m = 0 is no speculation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from .basis import Array
from .costs import EngineCosts
from .guard import MIN_JUDGED_LABELS
from .pair import Method
from .state_codec import decode_learnt

USUAL_SIGN = 2.0
"""Tokens per step below which speculation usually costs more than it brings."""

CLEARLY = 2.5
"""Tokens per step from which it usually pays; between the two it depends on the draft."""

MARGINAL_GAIN = 1.10
"""Tokens per cost against no speculation: below 1 it hurts, below this it is not worth the trouble it may bring."""

LEAST_POSITION_LABELS = 20.0
"""With fewer labels a position is taken to accept like the one before it."""

TRIMMED = 0.95
"""Labels behind an accepted draft, as a share of what full verification gives, below which engines trim."""

ONE_PASS = frozenset({Method.DFLASH, Method.DSPARK})
"""Methods that draft a whole block at once."""


class Pays(StrEnum):
    """Whether speculation, at the K in use, is worth what it costs."""

    HELPS = "helps"
    MARGINAL = "marginal"
    HURTS = "hurts"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Cost:
    """What a step of m = 0..K drafts costs, [K + 1], all above 0.

    Args:
        of_step: in any unit, the same for all.
        source: `engine:<name>` or `ratio`.
        unit: of the numbers, for people.
    """

    of_step: Array
    source: str
    unit: str

    @classmethod
    def of_ratio(cls, k: int, ratio: float) -> Cost:
        """Each draft token costs `ratio` of a target step, and verifying is free: true while memory bounds the step."""
        return cls(1.0 + ratio * np.arange(k + 1, dtype=np.float64), "ratio", "target step")

    @classmethod
    def of_engine(cls, k: int, engine: str, costs: EngineCosts, batch: int, method: Method) -> Cost:
        """What an engine measured, for a step of `batch` requests."""
        return cls(costs.step_ms(k, batch, one_pass=method in ONE_PASS), f"engine:{engine}", "ms per step")


@dataclass(frozen=True)
class Advice:
    """The answer; None wherever there are too few labels, or no costs, to say it.

    Attributes:
        labels: recent labels, faded, that it rests on.
        acceptance: [K] share of blocks accepted up to and including each position; conditional: [K] of those that got
            there, None where it is assumed.
        mean_accepted_length: drafts accepted per step, without the token that always comes; of blocks verified whole.
        tokens_per_step, tokens_per_cost: [K + 1] by drafted tokens 0..K.
        cost_source, cost_unit: where the cost is from.
        best_k: which K has the most tokens per cost, 0 for none; gain, best_gain: of K and of best_k against 0.
        break_even_ratio: the draft token's cost, in target steps, at which K just pays when verifying is free.
        verdict, message: of the K in use; notes: what to keep in mind.
    """

    labels: float
    acceptance: list[float | None]
    conditional: list[float | None]
    mean_accepted_length: float | None
    tokens_per_step: list[float | None]
    cost_source: str
    cost_unit: str | None
    tokens_per_cost: list[float] | None
    best_k: int | None
    gain: float | None
    best_gain: float | None
    break_even_ratio: float | None
    verdict: Pays
    message: str
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "verdict": self.verdict.value}


def advise(acceptance: Array, cost: Cost | None) -> Advice:
    """Advice from a workload's acceptance sketch.

    Args:
        acceptance: float64 [K, 64, 3], K >= 1.
        cost: of a step; None when nobody knows it.
    """
    n, y = acceptance[..., 0].sum(axis=1), acceptance[..., 1].sum(axis=1)
    labels = float(n.sum())
    if n[0] < MIN_JUDGED_LABELS:
        return _silent(len(n), n, cost)
    known = n >= LEAST_POSITION_LABELS
    conditional = np.minimum(np.divide(y, n, out=np.zeros(len(n)), where=known), 1.0)
    for j in np.flatnonzero(np.logical_not(known)):
        conditional[j] = conditional[j - 1]
    found = advise_survival(np.cumprod(conditional), cost, labels)
    return replace(
        found,
        conditional=[float(p) if seen else None for p, seen in zip(conditional, known, strict=True)],
        notes=[*_notes(n, y, known), *found.notes],
    )


def advise_state(body: bytes | None, key: str, k: int, cost: Cost | None) -> Advice:
    """Advice for a workload of a learnt state; one that the state does not hold has no labels.

    Args:
        body: the state's bytes, None for a pair that nobody has learnt yet.
        key: the workload; k: draft positions of the pair; cost: as for `advise`.

    Raises:
        Refusal: for bytes that are not a state.
    """
    if body is not None:
        state = decode_learnt(body).state
        if key in state.keys:
            return advise(state.arrays["acceptance"][state.keys.index(key)], cost)
    return advise(np.zeros((k, 1, 3)), cost)


def advise_survival(survival: Array, cost: Cost | None, labels: float) -> Advice:
    """Advice from the share of blocks that survive each position.

    Args:
        survival: float64 [K], K >= 1, 0 to 1.
        cost: of a step; None when nobody knows it.
        labels: how much it rests on, for the answer.

    >>> advise_survival(np.array([0.8, 0.6, 0.4]), Cost.of_ratio(3, 0.1), 9000.0).message[:57]
    'K = 3 brings 2.80 tokens per step and 2.15 times the toke'
    """
    k = len(survival)
    tokens = np.concatenate([[1.0], 1.0 + np.cumsum(survival)])
    before = np.concatenate([[1.0], survival[:-1]])
    base = Advice(
        labels=labels,
        acceptance=survival.tolist(),
        conditional=np.divide(survival, before, out=np.zeros(k), where=before > 0.0).tolist(),
        mean_accepted_length=float(tokens[k] - 1.0),
        tokens_per_step=tokens.tolist(),
        cost_source="none" if cost is None else cost.source,
        cost_unit=None if cost is None else cost.unit,
        tokens_per_cost=None,
        best_k=None,
        gain=None,
        best_gain=None,
        break_even_ratio=float((tokens[k] - 1.0) / k),
        verdict=Pays.UNKNOWN,
        message="",
        notes=[],
    )
    return _by_sign(base, k) if cost is None else _by_cost(base, k, tokens, cost)


def best_by_batch(found: Advice, costs: EngineCosts, method: Method) -> list[dict[str, float]]:
    """The best K and its gain against none at 1, 2, 4, ... requests, up to as many as the engine has measured."""
    if found.tokens_per_step[0] is None:
        return []
    tokens = np.array(found.tokens_per_step, dtype=np.float64)
    rows, batch = [], 1
    while batch <= max(costs.draft.sizes[-1], 1):
        per_cost = tokens / costs.step_ms(len(tokens) - 1, batch, one_pass=method in ONE_PASS)
        best = int(np.argmax(per_cost))
        rows.append({"batch": batch, "best_k": best, "gain": float(per_cost[best] / per_cost[0])})
        batch *= 2
    return rows


def _by_cost(base: Advice, k: int, tokens: Array, cost: Cost) -> Advice:
    per_cost = tokens / cost.of_step
    best = int(np.argmax(per_cost))
    gain, best_gain = float(per_cost[k] / per_cost[0]), float(per_cost[best] / per_cost[0])
    verdict = Pays.HURTS if gain < 1.0 else Pays.MARGINAL if gain < MARGINAL_GAIN else Pays.HELPS
    message = f"K = {k} brings {tokens[k]:.2f} tokens per step and {gain:.2f} times the tokens per cost of none"
    if best == 0:
        message += "; no K pays"
    elif best != k:
        message += f"; K = {best} would bring {best_gain:.2f} times"
    else:
        message += "; no smaller K is better"
    return replace(
        base,
        tokens_per_cost=per_cost.tolist(),
        best_k=best,
        gain=gain,
        best_gain=best_gain,
        verdict=verdict,
        message=f"{message}{_usual_sign(k, tokens[k])}",
    )


def _by_sign(base: Advice, k: int) -> Advice:
    """Without costs: by the usual sign, and for K = 1, which cannot reach it, by what the draft token may cost."""
    tokens, ratio = base.tokens_per_step[k] or 1.0, base.break_even_ratio or 0.0
    measure, low, high = (tokens, USUAL_SIGN, CLEARLY) if k > 1 else (ratio, 0.4, 0.6)
    verdict = Pays.HURTS if measure < low else Pays.MARGINAL if measure < high else Pays.HELPS
    message = (
        f"K = {k} brings {tokens:.2f} tokens per step; costs are not known, so this is the usual case: it pays while "
        f"drafting a token costs less than {ratio:.0%} of a target step{_usual_sign(k, tokens)}"
    )
    return replace(base, verdict=verdict, message=message)


def _usual_sign(k: int, tokens: float) -> str:
    if k == 1 or tokens >= USUAL_SIGN:
        return ""
    return f". Below {USUAL_SIGN:g} tokens per step is the usual sign that speculation costs more than it brings"


def _silent(k: int, n: Array, cost: Cost | None) -> Advice:
    return Advice(
        labels=float(n.sum()),
        acceptance=[None] * k,
        conditional=[None] * k,
        mean_accepted_length=None,
        tokens_per_step=[None] * (k + 1),
        cost_source="none" if cost is None else cost.source,
        cost_unit=None if cost is None else cost.unit,
        tokens_per_cost=None,
        best_k=None,
        gain=None,
        best_gain=None,
        break_even_ratio=None,
        verdict=Pays.UNKNOWN,
        message=f"{n[0]:,.0f} recent drafts are too few to tell: at least {MIN_JUDGED_LABELS:,.0f} are needed",
        notes=[],
    )


def _notes(n: Array, y: Array, known: Array) -> list[str]:
    notes = []
    trimmed = (n[1:] < TRIMMED * y[:-1]) & (y[:-1] >= LEAST_POSITION_LABELS)
    if trimmed.any():
        first = int(np.flatnonzero(trimmed)[0]) + 1
        notes.append(
            f"engines verify adaptively: from position {first} on only confident drafts were verified, so tokens per "
            "step of a fixed K are stated too high"
        )
    if not known.all():
        notes.append(
            f"position {int(np.argmin(known))} and later have fewer than {LEAST_POSITION_LABELS:.0f} recent "
            "labels and are taken to accept like the one before them"
        )
    return notes
