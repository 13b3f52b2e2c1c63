"""Which workloads a pair knows when engines name more than it has room for.

A workload that one engine alone has reported is that engine's; once a second engine reports it, it is everybody's. When
the room is used up, a new workload takes the place of

- one of which nothing was heard for an hour of stream time, the longest silent first; else
- one of the engine that has most of its own, if that engine has at least two more than the engine that brings the new
  one: the one with the fewest labels.

So engines share what is not everybody's equally (max-min fairness), whoever came first, and an engine that names a new
workload every second displaces nobody's but its own. Each displacement makes the shares more equal, so it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .coefficients import MAX_WORKLOADS
from .pair_state import COUNTS, PairState
from .state_codec import Learnt
from .summary import RoundSummary

IDLE_MS = 3_600_000
"""A workload that was silent for so long makes room when a new one comes."""

EVERYBODYS = ""


@dataclass
class _New:
    """A workload that is not known yet, the engine that names it first, and whose it is then."""

    key: str
    engine: str
    holder: str


def make_room(learnt: Learnt, summaries: Sequence[RoundSummary], now_ms: int) -> list[str]:
    """Looks who names which workloads, and makes room for new ones where that is fair; returns what had to go.

    What is new and gets a place is reserved, so that nothing else takes it.

    Args:
        learnt: whose workloads; its `holders` are brought up to date.
        summaries: of one tick, in stream order.
        now_ms: stream time.
    """
    state, new = learnt.state, _named(learnt, summaries)
    room = MAX_WORKLOADS - len(state.keys)
    if len(new) <= room:
        learnt.holders |= {item.key: item.holder for item in new}
        return []
    own = Counter(engine for engine in learnt.holders.values() if engine != EVERYBODYS)
    gone: list[str] = []
    waiting = list(new)
    while waiting:
        item = min(waiting, key=lambda one: own[one.engine])
        waiting.remove(item)
        if len(state.keys) >= MAX_WORKLOADS:
            victim = _silent(state, now_ms) or _of_the_richest(learnt, own, own[item.engine])
            if victim is None:
                continue
            own[learnt.holders.get(victim, EVERYBODYS)] -= 1
            forget(learnt, victim)
            gone.append(victim)
        state.reserve([item.key])
        state.event_ms[-1] = now_ms
        learnt.holders[item.key] = item.holder
        own[item.holder] += 1
    return gone


def forget(learnt: Learnt, key: str) -> None:
    """Drops everything that is known of a workload: the next version serves the prior row for it."""
    state, probation = learnt.state, learnt.probation
    row = state.keys.index(key)
    del state.keys[row]
    for name, array in state.arrays.items():
        state.arrays[name] = np.delete(array, row, axis=0)
    for name in COUNTS:
        setattr(state, name, np.delete(getattr(state, name), row))
    state.drift.remove(row)
    for name in state.influence.ARRAYS:
        setattr(state.influence, name, np.delete(getattr(state.influence, name), row, axis=1))
    for record in (probation.trials, probation.passed, probation.returns, learnt.held, learnt.holders):
        record.pop(key, None)
    probation.cautious.discard(key)
    probation.excused.discard(key)


def _named(learnt: Learnt, summaries: Sequence[RoundSummary]) -> list[_New]:
    known, new = set(learnt.state.keys), dict[str, _New]()
    for summary in summaries:
        for key in summary.workloads:
            if key in known:
                if learnt.holders.get(key, summary.engine) not in (EVERYBODYS, summary.engine):
                    learnt.holders[key] = EVERYBODYS
            elif key not in new:
                new[key] = _New(key, summary.engine, summary.engine)
            elif new[key].engine != summary.engine:
                new[key].holder = EVERYBODYS
    return list(new.values())


def _silent(state: PairState, now_ms: int) -> str | None:
    row = int(np.argmin(state.event_ms))
    return state.keys[row] if now_ms - int(state.event_ms[row]) > IDLE_MS else None


def _of_the_richest(learnt: Learnt, own: Counter[str], mine: int) -> str | None:
    state = learnt.state
    labels = {key: int(n) for key, n in zip(state.keys, state.labels, strict=True)}
    theirs: dict[str, list[str]] = {}
    for key in state.keys:
        theirs.setdefault(learnt.holders.get(key, EVERYBODYS), []).append(key)
    theirs.pop(EVERYBODYS, None)
    richest = max(theirs, key=lambda engine: (own[engine], engine), default=None)
    if richest is None or own[richest] <= mine + 1:
        return None
    # Of those with as few labels the one that came last: `min` finds the first.
    return min(reversed(theirs[richest]), key=lambda key: labels[key])
