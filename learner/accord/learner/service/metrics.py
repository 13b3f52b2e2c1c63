"""The learner's metrics, for Prometheus: what it committed, how long that took, and what waits.

Counters grow by what is committed, so their sum over all learners is the fleet's, whoever holds a pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from ..causes import CAUSES
from ..errors import Reason
from ..refit import FitStatus
from .journal import grown
from .watch import Step, Watcher

OTHER = "_other"
"""Label of every pair beyond the limit; no pair id begins like this."""

DETECTORS = ("jump", "residual", "deviance")
COMMIT_FAILURES = ("fence", "watermark", "version", "overrides", "unavailable")

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_LATENCY = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)

_COUNTS: tuple[tuple[str, str, str], ...] = (
    ("labels", "labels_learnt", "Labels learnt"),
    ("summaries", "summaries_learnt", "Summaries learnt"),
    ("rounds", "rounds_learnt", "Rounds learnt"),
    ("rounds_missing", "rounds_missing", "Rounds that never arrived: not sent, or trimmed before they were read"),
    ("guarded", "guard_refusals", "Times that the guard began to keep a workload's old coefficients"),
    ("returned", "rows_returned", "Workloads whose last good coefficients came back"),
    ("aside", "labels_set_aside", "Labels that do not count, because one engine contradicted the others"),
    ("sketches_aside", "sketch_labels_set_aside", "Labels of sketches that do not count"),
    ("overflowed", "labels_without_room", "Labels of workloads for which a pair has no room"),
    ("displaced", "workloads_displaced", "Workloads forgotten because the room was needed for others"),
    ("shared", "summaries_of_shared_names", "Summaries of two processes in turn under one engine name"),
)
_KINDS: tuple[tuple[str, str, str, str], ...] = (
    ("refused", "summaries_refused", "reason", "Summaries refused"),
    ("alarms", "drift_alarms", "detector", "Memories shortened because the traffic had changed"),
    ("fits", "fits", "status", "Refits by how they ended"),
)
_KNOWN = {
    "reason": frozenset(reason.value for reason in Reason),
    "detector": frozenset(DETECTORS),
    "status": frozenset(status.value for status in FitStatus),
    "cause": frozenset(CAUSES),
}


class Meters(Watcher):
    """Counts what a learner does.

    Args:
        max_pairs: pairs with series of their own; what others count is summed up under `_other`.
        clock: seconds.

    Attributes:
        registry: this learner's own.
    """

    def __init__(self, max_pairs: int = 200, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._max_pairs, self._clock = max_pairs, clock
        self._labelled: dict[str, None] = {}
        self._owned: set[str] = set()
        self._passed_at = clock()
        self._reached = False
        self._counts = {field: self._counter(name, text, "pair") for field, name, text in _COUNTS}
        self._kinds = {field: self._counter(name, text, "pair", kind) for field, name, kind, text in _KINDS}
        self._publications = self._counter("publications", "Versions published, by cause", "pair", "cause")
        self._failed = self._counter("commits_failed", "Commits refused, or of unknown outcome", "reason")
        for reason in COMMIT_FAILURES:
            self._failed.labels(reason)
        self._rewinds = self._counter(
            "store_rewinds", "Times that the store came back older than a commit that it had acknowledged"
        )
        self._lag_entries = self._gauge("lag_entries", "Summaries that wait to be learnt", "pair")
        self._lag_seconds = self._gauge("lag_seconds", "Age of the oldest summary that waits", "pair")
        self._pairs = self._gauge("pairs_owned", "Pairs that this learner holds")
        self._left_out = self._gauge("pairs_left_out", "Held pairs without series of their own")
        self._up = self._gauge("store_up", "1 while the store answers, else 0")
        self._age = self._gauge("pass_age_seconds", "Seconds since the loop last ended a pass over its pairs")
        self._age.set_function(lambda: self.pass_age_s)
        self._step = self._histogram("tick_duration_seconds", "Learning and committing what closed ticks taught", _FAST)
        self._commit = self._histogram("commit_duration_seconds", "The commit alone", _FAST)
        self._latency = self._histogram(
            "publish_latency_seconds", "From the summary that made a publication due to its commit", _LATENCY
        )
        info = self._gauge("build_info", "1; the version is a label", "version")
        info.labels(version("accord")).set(1)
        ProcessCollector(registry=self.registry)

    @property
    def pass_age_s(self) -> float:
        """Seconds since the loop ended a pass, whatever became of it, or since the start."""
        return self._clock() - self._passed_at

    @property
    def ready(self) -> bool:
        """Whether the last pass went well."""
        return self._reached

    def store_reached(self) -> None:
        """Up."""
        self._reached = True
        self._up.set(1)

    def store_lost(self, reason: str) -> None:
        """Down."""
        self._reached = False
        self._up.set(0)

    def store_rewound(self, pair: str, committed: str, found: str) -> None:
        """One more."""
        self._rewinds.inc()

    def passed(self) -> None:
        """The loop goes round."""
        self._passed_at = self._clock()

    def pair_taken(self, pair: str, fence: int, version: int, workloads: int) -> None:
        """One more."""
        self._owned.add(pair)
        self._admit(pair)
        self._owned_changed()

    def pair_given_back(self, pair: str) -> None:
        """One less."""
        self._lose(pair)

    def pair_dropped(self, pair: str, reason: str) -> None:
        """One less."""
        self._lose(pair)

    def commit_failed(self, pair: str, reason: str) -> None:
        """Counted."""
        self._failed.labels(reason if reason in COMMIT_FAILURES else OTHER).inc()

    def stepped(self, step: Step) -> None:
        """What was committed is counted."""
        label = self._label(step.pair)
        for field, counter in self._counts.items():
            counter.labels(label).inc(max(0, getattr(step.after, field) - getattr(step.before, field)))
        for field, _, kind, _ in _KINDS:
            for name, number in grown(getattr(step.before, field), getattr(step.after, field)).items():
                self._kinds[field].labels(label, _known(kind, name)).inc(number)
        for item in step.published:
            self._publications.labels(label, _known("cause", item.cause)).inc()
            if item.latency_s is not None:
                self._latency.observe(item.latency_s)
        self._commit.observe(step.commit_s)
        self._step.observe(step.total_s)

    def waiting(self, pair: str, entries: int, seconds: float) -> None:
        """The lag as of now; while nothing is heard of it, its age grows by itself."""
        if self._label(pair) == OTHER:
            return
        self._lag_entries.labels(pair).set(entries)
        heard = self._clock()
        self._lag_seconds.labels(pair).set_function(
            lambda: seconds + self._clock() - heard if entries else 0.0,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"accord_learner_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"accord_learner_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"accord_learner_{name}", text, registry=self.registry, buckets=buckets)

    def _admit(self, pair: str) -> None:
        if pair in self._labelled:
            return
        if len(self._labelled) >= self._max_pairs:
            gone = next((known for known in self._labelled if known not in self._owned), None)
            if gone is None:
                return
            self._forget(gone)
        self._labelled[pair] = None
        # At 0 from the start, or the first increase could not be seen as one.
        for counter in self._counts.values():
            counter.labels(pair)
        for counter, kind in self._by_kind():
            for name in _KNOWN[kind]:
                counter.labels(pair, name)

    def _forget(self, pair: str) -> None:
        """Makes room: a pair that somebody else holds now goes first."""
        del self._labelled[pair]
        for counter in self._counts.values():
            counter.remove(pair)
        for counter, kind in self._by_kind():
            for name in (*_KNOWN[kind], OTHER):
                counter.remove(pair, name)

    def _by_kind(self) -> list[tuple[Counter, str]]:
        kinds = [(self._kinds[field], kind) for field, _, kind, _ in _KINDS]
        return [*kinds, (self._publications, "cause")]

    def _label(self, pair: str) -> str:
        return pair if pair in self._labelled else OTHER

    def _lose(self, pair: str) -> None:
        self._owned.discard(pair)
        for gauge in (self._lag_entries, self._lag_seconds):
            gauge.remove(pair)
        self._owned_changed()

    def _owned_changed(self) -> None:
        self._pairs.set(len(self._owned))
        self._left_out.set(len(self._owned - set(self._labelled)))


def _known(kind: str, name: str) -> str:
    """A label value of a closed set."""
    return name if name in _KNOWN[kind] else OTHER
