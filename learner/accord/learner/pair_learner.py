"""One pair's stream turned into states and publications: a function of the stream, never of the learner's timing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from .calibration import Cells, metrics
from .coefficients import CoefficientTable
from .counters import Counters
from .errors import Refusal
from .pair_state import Folded
from .refit import FitStatus
from .room import make_room
from .sequences import Sequences
from .state_codec import Learnt
from .summary import RoundSummary
from .wire import Expected
from .wire_batch import Decoded, decode_many

TICK_MS = 250
"""Entries whose ids fall into the same quarter of a second are folded at once and followed by one refit."""

PUBLISH_EVERY_MS = 1_000

MAX_NOTES = 64
"""Alarms, and engines that were set aside, of one publication's history: the newest, and the first."""

MAX_LINEAGE = 1_024
"""Engines that one publication's history names; summaries of others are counted."""

DECODED_AT_ONCE = 64
MAX_FOLD_BYTES = 256 << 20
"""About how much of a tick's summaries, decoded, is held in memory; what is beyond is folded, and fitted, after it."""

Entry = tuple[str, bytes]


@dataclass(frozen=True)
class Published:
    """One publication: the table, and the history entry that explains it."""

    table: CoefficientTable
    history: bytes


@dataclass
class PairLearner:
    """Advances a pair over closed ticks of its stream.

    Any split of the same stream into calls gives the same state, to the bit: a tick is folded whole, refits happen only
    after a tick with evidence, and a publication that waits for its interval is made as of the tick in which it falls
    due, whether or not anything arrived then.
    """

    learnt: Learnt
    sequences: Sequences = field(default_factory=Sequences)
    counters: Counters = field(default_factory=Counters)
    watermark: str = "0-0"

    def advance(self, entries: Sequence[Entry], closed_tick: int) -> list[Published]:
        """Folds entries in stream order and returns what is to be published, oldest first.

        Args:
            entries: (stream id, bytes) behind the watermark, whole ticks only, all before `closed_tick`.
            closed_tick: every tick before this one is over by the store's clock.
        """
        published: list[Published] = []
        for tick, group in groupby(entries, key=lambda entry: tick_of(entry[0])):
            published += self._fall_due(tick)
            published += self._fold(tick, list(group))
        published += self._fall_due(closed_tick)
        return published

    def begin(self, closed_tick: int) -> list[Published]:
        """Publishes a prior that was carried over, once, so that engines apply it before anything is learnt."""
        learnt = self.learnt
        if not learnt.carried or learnt.served.version:
            return []
        at_ms = closed_tick * TICK_MS
        learnt.served = replace(learnt.served, version=1, published_ms=at_ms)
        history = {"cause": "carried", "version": 1, "published_ms": at_ms, "carried": learnt.carried}
        return [Published(learnt.served, json.dumps(history, separators=(",", ":"), allow_nan=False).encode())]

    @property
    def idle_until_tick(self) -> int | None:
        """The tick at whose end a waiting publication falls due, or None."""
        return self._due_tick() if self.learnt.due else None

    def _fold(self, tick: int, entries: Sequence[Entry]) -> Iterator[Published]:
        end_ms = (tick + 1) * TICK_MS
        heard_ms, self.watermark = (tick_of(self.watermark) + 1) * TICK_MS, entries[-1][0]
        for ids, found in self._decoded(entries):
            self._make_room(found, end_ms)
            admitted = [
                summary
                for entry_id, one in zip(ids, found, strict=True)
                if (summary := self._admit(entry_id, one, end_ms)) is not None
            ]
            if admitted:
                self._learn(admitted, end_ms, heard_ms)
                heard_ms = end_ms
        if heard_ms == end_ms and self.learnt.due and self._due_tick() <= tick:
            yield self._publish(end_ms)

    def _decoded(self, entries: Sequence[Entry]) -> Iterator[tuple[list[str], list[Decoded]]]:
        """The summaries of a tick, all at once unless they are larger than a learner should hold.

        A few KB can inflate to megabytes of empty sketches. Where a tick is parted follows from its entries alone.
        """
        expected = Expected(self.learnt.state.pair, self.learnt.state.k, self.learnt.state.knots)
        ids, found, size = list[str](), list[Decoded](), 0
        for start in range(0, len(entries), DECODED_AT_ONCE):
            part = entries[start : start + DECODED_AT_ONCE]
            new = decode_many([payload for _, payload in part], expected)
            size += sum(_size(one) for one in new)
            ids += [entry_id for entry_id, _ in part]
            found += new
            if size > MAX_FOLD_BYTES:
                yield ids, found
                ids, found, size = [], [], 0
        if ids:
            yield ids, found

    def _learn(self, admitted: Sequence[RoundSummary], end_ms: int, heard_ms: int) -> None:
        state = self.learnt.state
        before = int(state.labels.sum())
        folded = state.fold(end_ms, admitted)
        self.counters.labels += int(state.labels.sum()) - before
        self.counters.fitted(state.status.value)
        self.sequences.forget(end_ms, heard_ms)
        self._note(folded, end_ms)
        self._propose()

    def _make_room(self, found: Sequence[Decoded], end_ms: int) -> None:
        """Before anything of a tick is taken in: what is named twice is decided once, for all of its summaries."""
        summaries = [one for one in found if not isinstance(one, Refusal) and self._is_new(one, end_ms)]
        self.counters.displaced += len(make_room(self.learnt, summaries, end_ms))

    def _is_new(self, summary: RoundSummary, end_ms: int) -> bool:
        try:
            self.sequences.check(summary.engine, summary.boot, summary.first_seq, summary.last_seq, end_ms)
        except Refusal:
            return False
        return True

    def _note(self, folded: Folded, end_ms: int) -> None:
        """What a tick showed beside evidence: for the comparisons under way, for history and for the counters."""
        learnt, state = self.learnt, self.learnt.state
        learnt.probation.watch(folded.fresh, state, learnt.served)
        for index, alarm in folded.alarms:
            key = state.keys[index]
            learnt.probation.changed(key, state.influence.reporting(index))
            self.counters.alarmed(alarm.detector)
            learnt.drift.append({"workload": key, "at_ms": end_ms, **alarm.to_dict()})
        del learnt.drift[:-MAX_NOTES]
        self.counters.sketches_aside += round(folded.sketches_aside)
        for item in folded.aside:
            self.counters.aside += round(item.labels)
            if item.engine in learnt.aside or len(learnt.aside) < MAX_NOTES:
                of_engine = learnt.aside.setdefault(item.engine, {})
                labels = of_engine.get(item.workload, {}).get("labels", 0.0) + item.labels
                of_engine[item.workload] = {"labels": labels, "level": item.level, "slope": item.slope}

    def _admit(self, entry_id: str, whole: Decoded, end_ms: int) -> RoundSummary | None:
        state = self.learnt.state
        try:
            if isinstance(whole, Refusal):
                raise whole
            summary = state.fitting(whole)
            other = self.sequences.in_between(summary.engine, summary.boot)
            missing = self.sequences.admit(summary.engine, summary.boot, summary.first_seq, summary.last_seq, end_ms)
        except Refusal as refusal:
            self.counters.refuse(refusal, entry_id)
            return None
        if summary is not whole:
            self.counters.overflow(
                whole.labels - summary.labels, len(whole.workloads) - len(summary.workloads), entry_id
            )
        state.reserve(summary.workloads)
        self.counters.summaries += 1
        self.counters.rounds += summary.rounds
        self.counters.rounds_missing += missing
        if other is not None:
            self.counters.share(summary.engine, summary.boot, other)
        self._trace(summary)
        return summary

    def _trace(self, summary: RoundSummary) -> None:
        """Where the next version comes from."""
        first, lineage = summary.first_seq, self.learnt.lineage
        known = lineage.get(summary.engine)
        if known is None and len(lineage) >= MAX_LINEAGE:
            self.learnt.unlisted += 1
            return
        if known is not None and known[0] == summary.boot:
            first = min(first, known[1])
        lineage[summary.engine] = [summary.boot, first, summary.last_seq]

    def _due_tick(self) -> int:
        """The first tick whose end lies at least one publish interval behind the last publication."""
        return -(-(self.learnt.served.published_ms + PUBLISH_EVERY_MS) // TICK_MS) - 1

    def _fall_due(self, before_tick: int) -> Iterator[Published]:
        if self.learnt.due and (tick := self._due_tick()) < before_tick:
            yield self._publish((tick + 1) * TICK_MS)

    def _propose(self) -> None:
        """After a refit: which rows the guard holds back, and whether what is left is worth publishing."""
        learnt = self.learnt
        if learnt.state.status is not FitStatus.CONVERGED:
            learnt.due = False
            return
        proposed = learnt.probation.propose(learnt.state, learnt.served, nominate=True)
        self.counters.guarded += len(set(proposed.held) - set(learnt.held))
        learnt.held, learnt.due = proposed.held, proposed.material

    def _publish(self, at_ms: int) -> Published:
        learnt, state = self.learnt, self.learnt.state
        proposed = learnt.probation.propose(state, learnt.served)
        candidate = state.table(learnt.served.version + 1, at_ms)
        table = replace(candidate, workloads=proposed.rows)
        returned = {key: why for key, why in learnt.probation.returns.items() if key in proposed.moved}
        self.counters.returned += len(returned)
        history = {
            "cause": "returned" if returned else "drift" if learnt.drift else "refit",
            "version": table.version,
            "published_ms": at_ms,
            "moved": proposed.moved,
            "held": proposed.held,
            "returned": returned,
            "drift": learnt.drift,
            "aside": learnt.aside,
            "labels": dict(zip(state.keys, state.labels.tolist(), strict=True)),
            "metrics": {
                key: metrics(Cells.of(state.arrays["acceptance"][index], table.workloads[key], state.basis))
                for index, key in enumerate(state.keys)
            },
            "lineage": dict(sorted(learnt.lineage.items())),
            "unlisted": learnt.unlisted,
        }
        learnt.probation.published(learnt.served, table, proposed.moved)
        learnt.served, learnt.due, learnt.lineage, learnt.drift, learnt.aside = table, False, {}, [], {}
        learnt.unlisted = 0
        return Published(table, json.dumps(history, separators=(",", ":"), allow_nan=False).encode())


def _size(one: Decoded) -> int:
    if isinstance(one, Refusal):
        return 0
    moments = sum(array.nbytes for array in one.moments.arrays().values())
    return moments + (0 if one.sketch is None else one.sketch.acceptance.nbytes + one.sketch.survival.nbytes)


def tick_of(entry_id: str) -> int:
    """The tick of a stream id.

    >>> tick_of("1700000000250-3")
    6800000001
    """
    return int(entry_id.partition("-")[0]) // TICK_MS
