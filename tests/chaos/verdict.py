"""The account at the end: what engines counted, what was learnt, and why the rest was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from accord.learner.counters import Counters
from accord.learner.errors import Refusal
from accord.learner.pair import Pair
from accord.learner.pair_learner import Entry, PairLearner
from accord.learner.sequences import Sequences
from accord.learner.state_codec import Learnt, decode_learnt, encode_learnt
from accord.learner.store import Store
from accord.learner.summary import RoundSummary
from accord.learner.wire import Expected, decode

from .difference import differences
from .faults import Event
from .ledger import Account

KNOTS = (0.0, 2.0, 4.0)
WARM = 20
"""Steps of a boot that are not compared: what is imported and allocated once."""

AFTER_S = 2.0
"""Steps this soon after a fault still count as steps under it."""


@dataclass
class Verdict:
    """What a campaign showed; `faults` lists what must not be."""

    observed: int = 0
    learnt: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    boots: int = 0
    entries: int = 0
    duplicates: int = 0
    merged_rounds: int = 0
    rounds_missing: int = 0
    rewinds: int = 0
    faults: list[str] = field(default_factory=list)

    def judge(
        self, store: Store, pair: Pair, entries: Sequence[Entry], gone: Sequence[Entry], books: Sequence[Account]
    ) -> None:
        """Adds one pair.

        Args:
            store: the store as it ended.
            pair: whose account.
            entries: all that ever stood in its stream and was not lost with a primary.
            gone: acknowledged entries that were.
            books: the boots of its engines.
        """
        stored = store.load(pair.id)
        learner = PairLearner(Learnt.new(pair.id, pair.k, KNOTS))
        published = learner.advance(entries, 1 << 50)
        body = encode_learnt(learner.learnt)
        if stored.body != body:
            where = differences(stored.body, body)
            self.faults.append(f"{pair.id}: the state is not the fault-free run's: {where}")
        self._check(stored.sequences == learner.sequences.encode(), f"{pair.id}: sequences differ")
        served = store.coefficients(pair.id)
        same = served is not None and published and served.body == published[-1].table.to_json()
        self._check(bool(same), f"{pair.id}: the served coefficients are not the fault-free run's")
        counters = Counters.decode(stored.counters)
        state_labels = int(decode_learnt(stored.body or b"").state.labels.sum())
        self._check(counters.labels == state_labels, f"{pair.id}: {counters.labels} counted, {state_labels} in state")
        self._check(set(counters.refused) <= {"duplicate"}, f"{pair.id}: refused {counters.refused}")
        landed = admitted(pair, entries)
        lost_with_primary = admitted(pair, gone)
        missing = 0
        for book in books:
            missing += self._book(book, landed.pop(book.boot, []), lost_with_primary.get(book.boot, []))
        self._check(not landed, f"{pair.id}: boots that nobody booked: {sorted(landed)}")
        self._check(counters.rounds_missing == missing, f"{pair.id}: {counters.rounds_missing} missing, not {missing}")
        self.learnt += counters.labels
        self.entries += len(entries)
        self.duplicates += counters.refused.get("duplicate", 0)
        self.rounds_missing += counters.rounds_missing
        self.rewinds += getattr(counters, "rewinds", 0)

    def close(self) -> None:
        """The one equation."""
        total = self.learnt + sum(self.lost.values())
        self._check(self.observed == total, f"engines counted {self.observed}, learnt and lost are {total}")

    def _book(self, book: Account, landed: list[RoundSummary], gone: list[RoundSummary]) -> int:
        """One boot; returns how many rounds before its last one are missing."""
        self.boots += 1
        self.observed += book.observed
        seen: set[int] = set()
        for summary in landed:
            covered = range(summary.first_seq, summary.last_seq + 1)
            labels = sum(book.rounds[seq] for seq in covered)
            self._check(
                summary.labels == labels, f"{book.engine}: rounds {covered} carry {summary.labels}, not {labels}"
            )
            self._check(seen.isdisjoint(covered), f"{book.engine}: rounds {covered} were learnt twice")
            seen.update(covered)
            self.merged_rounds += summary.rounds - 1
        last = max(seen, default=0)
        with_primary = {seq for summary in gone for seq in range(summary.first_seq, summary.last_seq + 1)}
        missing = 0
        for seq, labels in book.rounds.items():
            if seq in seen:
                continue
            missing += seq < last
            if seq in with_primary:
                self.lost["acknowledged by a primary that was lost"] += labels
            elif seq > book.rounds_sent and seq > last:
                self.lost[
                    "unsent when its engine was killed" if not book.stopped else "unsent when its engine ended"
                ] += labels
            else:
                self.lost["unexplained"] += labels
                self.faults.append(f"{book.engine} {book.boot}: round {seq} of {labels} labels vanished")
        still_open = book.observed - sum(book.rounds.values())
        self._check(not (book.stopped and still_open), f"{book.engine}: {still_open} labels in no round")
        if still_open:
            self.lost["in the open round of an engine that was killed"] += still_open
        return missing

    def _check(self, good: bool, otherwise: str) -> None:
        if not good:
            self.faults.append(otherwise)


def admitted(pair: Pair, entries: Sequence[Entry]) -> dict[str, list[RoundSummary]]:
    """Boot -> its summaries that are neither duplicates nor overlap."""
    found: dict[str, list[RoundSummary]] = {}
    seen, expected = Sequences(), Expected(pair.id, pair.k, KNOTS)
    for _, payload in entries:
        summary = decode(payload, expected)
        try:
            seen.admit(summary.engine, summary.boot, summary.first_seq, summary.last_seq, 0)
        except Refusal:
            continue
        found.setdefault(summary.boot, []).append(summary)
    return found


@dataclass(frozen=True)
class Percentiles:
    """99th percentiles, in milliseconds, of our part of a decode step."""

    steps: int
    calm: float
    faults: float
    calm_cpu: float
    faults_cpu: float


@dataclass(frozen=True)
class StepTimes:
    """Engines beside a control: the same steps in a process without threads of ours, on the same machine.

    A machine of two cores on which processes are started again and again is slow for everybody; the control says how
    slow.
    """

    ours: Percentiles
    control: Percentiles

    FLOOR_MS = 5.0
    FACTOR = 1.5
    FEW = 10_000
    FEW_FLOOR_MS = 100.0
    """A percentile of few steps is the machine's noise, but a call that waits for a network would still stand out."""

    @property
    def limit_ms(self) -> float:
        """What a step may take under faults: 1.5 times its baseline, scaled by how much slower the control became."""
        slower = self.control.faults / self.control.calm if self.control.calm else 1.0
        floor = self.FLOOR_MS if self.ours.steps >= self.FEW else self.FEW_FLOOR_MS
        return max(floor, self.FACTOR * self.ours.calm * max(slower, 1.0))

    @property
    def good(self) -> bool:
        """Whether no step became slower because of us, by the clock and of the processor."""
        cpu_limit = max(self.FLOOR_MS, self.FACTOR * self.ours.calm_cpu)
        return self.ours.faults <= self.limit_ms and self.ours.faults_cpu <= cpu_limit


def step_times(books: Sequence[Account], control: Sequence[Account], events: Sequence[Event]) -> StepTimes:
    """Splits every step of every engine; steps during which their own process was frozen are left out."""
    return StepTimes(_percentiles(books, events), _percentiles(control, events))


def _percentiles(books: Sequence[Account], events: Sequence[Event]) -> Percentiles:
    calm, trouble = [], []
    for book in books:
        frozen = [event for event in events if event.frozen == book.process]
        for end, wall, cpu in book.steps[WARM:]:
            if any(end - wall < event.end + 0.2 and end > event.begin for event in frozen):
                continue
            under = any(event.begin <= end and end - wall <= event.end + AFTER_S for event in events)
            (trouble if under else calm).append((wall, cpu))
    (cw, cc), (fw, fc) = (np.percentile(np.array(part or [(0.0, 0.0)]), 99, axis=0) * 1e3 for part in (calm, trouble))
    return Percentiles(len(calm) + len(trouble), float(cw), float(fw), float(cc), float(fc))
