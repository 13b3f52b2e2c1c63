"""A reading of the fleet as metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..engine_status import SILENT, STATES, STOPPED, UNKNOWN
from .snapshot import Seen, Snapshot, Workload

ENGINE_STATES = (*STATES, SILENT, STOPPED, UNKNOWN)

_PAIR: tuple[tuple[str, str, Callable[[Seen], float]], ...] = (
    ("version", "Version of the coefficients in force", lambda p: p.version),
    ("published_timestamp_seconds", "When it was published; 0 before the first", lambda p: p.published_ms / 1000.0),
    ("owned", "1 while a learner holds the pair, else 0", lambda p: float(p.owned)),
    ("lag_entries", "Summaries that wait to be learnt", lambda p: p.waiting),
    ("lag_seconds", "Age of the oldest summary that waits", lambda p: p.waited_s),
    ("overrides", "Overrides in force", lambda p: p.overrides),
    ("engine_version_lag", "Versions that the last of the following engines is behind", lambda p: p.version_lag),
    ("engines_behind", "Following engines that apply an older version", lambda p: p.behind),
)
_WORKLOAD: tuple[tuple[str, str, Callable[[Workload], float | None]], ...] = (
    ("accepted_ratio", "Accepted share of the recent labels", lambda w: w.accepted),
    ("log_loss", "Recent log-loss of the coefficients in force, nats a label", lambda w: w.log_loss),
    ("ece", "Recent expected calibration error of the coefficients in force", lambda w: w.ece),
)


class FleetCollector(Collector):
    """Yields what was read last.

    Attributes:
        snapshot: None while nothing recent was read: then there is nothing to say of any pair.
        age_s: of the snapshot.
    """

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.age_s = 0.0

    def collect(self) -> Iterable[Metric]:
        """All families."""
        found = self.snapshot
        yield _gauge("accord_api_fleet_up", "1 when the fleet was read within the last minute", found is not None)
        known = found or Snapshot(0.0)
        about = "Age of the reading behind accord_pair_ and accord_workload_"
        yield _gauge("accord_api_fleet_age_seconds", about, self.age_s)
        yield _gauge("accord_api_pairs", "Registered pairs", known.known)
        yield _gauge("accord_api_pairs_left_out", "Pairs beyond the limit, without series", known.left_out)
        yield _gauge("accord_api_pairs_unreadable", "Pairs whose stored values are damaged", known.unreadable)
        yield _gauge("accord_api_workloads_left_out", "Workloads beyond the limit", known.workloads_left_out)
        yield from _pairs(known.pairs)
        yield from _workloads(known.pairs)


def _pairs(pairs: Iterable[Seen]) -> Iterator[Metric]:
    for name, text, value in _PAIR:
        family = GaugeMetricFamily(f"accord_pair_{name}", text, labels=["pair"])
        for seen in pairs:
            family.add_metric([seen.pair], value(seen))
        yield family
    engines = GaugeMetricFamily("accord_pair_engines", "Engines by state", labels=["pair", "state"])
    for seen in pairs:
        for state in ENGINE_STATES:
            engines.add_metric([seen.pair, state], seen.engines.get(state, 0))
    yield engines


def _workloads(pairs: Iterable[Seen]) -> Iterator[Metric]:
    labels = CounterMetricFamily("accord_workload_labels", "Every label ever learnt", labels=["pair", "workload"])
    for seen in pairs:
        for item in seen.workloads:
            labels.add_metric([seen.pair, item.key], item.labels)
    yield labels
    for name, text, value in _WORKLOAD:
        family = GaugeMetricFamily(f"accord_workload_{name}", text, labels=["pair", "workload"])
        for seen in pairs:
            for item in seen.workloads:
                known = value(item)
                if known is not None and math.isfinite(known):
                    family.add_metric([seen.pair, item.key], known)
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
