from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.fleet import KNOTS, Fleet, K, Traffic
from tests.learner.strategies import few, seeds

from accord.learner.basis import SplineBasis
from accord.learner.drift import BLOCK_LABELS, KEPT, RING, DriftMonitor, explained_deviance
from accord.learner.hierarchy import LEVEL_VARIANCE, prior_slope_variance
from accord.learner.information import Information
from accord.learner.pair_learner import PairLearner
from accord.learner.pair_state import LEAST_MEMORY, MEMORY_LABELS
from accord.learner.sequences import Sequences
from accord.learner.state_codec import decode_learnt, encode_learnt

BASIS = SplineBasis(KNOTS)
FIT = np.zeros((1, BASIS.size)), np.zeros((1, K))


def tick(offset: float, curvature: float = 40.0) -> Information:
    """Evidence of one workload that is off by so much in log-odds, at coefficients 0."""
    info = Information.zeros(1, K, BASIS)
    info.c[:] = curvature / K
    info.e1[:] = offset * info.c
    return info


def watch(monitor: DriftMonitor, offsets: np.ndarray) -> list[tuple[int, int, str]]:
    """(time, row, detector) of every alarm, each acted upon."""
    found = []
    for time, offset in enumerate(offsets):
        alarms = monitor.observe(
            tick(offset), np.array([float(BLOCK_LABELS)]), FIT, np.array([10_000]), np.array([6_000.0])
        )
        for alarm in alarms:
            found.append((time, alarm.row, alarm.detector))
            monitor.forget(0)
    return found


def monitor() -> DriftMonitor:
    """Of a pair with one workload."""
    one = DriftMonitor(K, BASIS)
    one.reserve(1)
    return one


def noise(seed: int, count: int) -> np.ndarray:
    """Offsets of blocks in which nothing is wrong."""
    return np.random.default_rng(seed).normal(0.0, 40.0**-0.5, count)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_wrong_is_no_alarm_over_thousands_of_blocks(seed: int) -> None:
    """Independent residuals of a right fit raise none of the detectors in 1,500 blocks."""
    assert watch(monitor(), noise(seed, 1_500)) == []


@pytest.mark.parametrize(("offset", "delay"), [(1.2, 1), (0.5, 9), (0.3, 30)])
def test_a_shift_is_found_sooner_the_larger_it_is(offset: float, delay: int) -> None:
    """A lasting error is found within so many blocks, whichever its sign."""
    for sign in (-1.0, 1.0):
        found = watch(monitor(), noise(3, 90) + sign * offset * (np.arange(90) >= 40))
        assert found
        assert 40 <= found[0][0] <= 40 + delay


def test_an_error_that_vanishes_is_no_alarm() -> None:
    """Residuals that shrink towards 0 are the fit getting better."""
    assert watch(monitor(), noise(1, 80) + 0.6 * np.exp(-np.arange(80) / 20.0)) == []


@given(st.lists(st.sampled_from([0.0, 0.1, -0.4, 1.5, np.nan, np.inf]), min_size=1, max_size=90), st.data())
@few
def test_a_detector_built_again_from_its_ring_goes_on_to_the_bit(offsets: list[float], data: st.DataObject) -> None:
    """Whenever the monitor is rebuilt from its arrays, alarms and arrays are those of one that never was."""
    whole, parts = monitor(), monitor()
    series = noise(5, len(offsets) + 60)
    series[60:] += offsets
    cuts = set(data.draw(st.lists(st.integers(0, len(series) - 1), max_size=6)))
    for time, offset in enumerate(series):
        if time in cuts:
            again = DriftMonitor(K, BASIS)
            for name, array in parts.arrays().items():
                setattr(again, name.removeprefix("drift_"), array.copy())
            parts = again
        assert watch(whole, np.array([offset])) == watch(parts, np.array([offset]))
        for name, array in whole.arrays().items():
            assert array.tobytes() == parts.arrays()[name].tobytes()
    assert np.all(whole.filled <= RING)
    assert np.all(np.isfinite(whole.ring))


def test_a_full_ring_keeps_its_newest_half() -> None:
    """The ring drops its oldest blocks and never grows."""
    one = monitor()
    watch(one, noise(0, RING + 1))
    assert one.filled.tolist() == [KEPT + 1, KEPT + 1]


@pytest.mark.parametrize("effect", [0.0, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_learning_versions_and_a_daily_mix_are_no_drift(seed: int, effect: float) -> None:
    """A fleet that learns from nothing, publishes, and whose mixture swings raises no alarm."""
    fleet = Fleet(2, 16, seed)
    for hour in range(8):
        swing = 0.8 * np.sin(2.0 * np.pi * hour / 8.0)
        fleet.run(Traffic(effect=effect, share=(1.0 + swing, 1.0, 1.0 - swing)), 15)
    assert fleet.alarms == [0, 0, 0]
    assert len(fleet.published) > 10


@pytest.mark.parametrize(
    "after",
    [Traffic(level=(0.9, 0.2, 0.5)), Traffic(level=(-0.1, -0.8, -0.5)), Traffic(slope=(0.25, 0.25, 0.25))],
    ids=["easier", "harder", "slope"],
)
def test_drift_shortens_memories_and_the_fit_follows(after: Traffic) -> None:
    """After a change the memory is shortened once, the truth is found soon, the memory grows, and history tells why."""
    fleet = Fleet(3, 32, 4)
    fleet.run(Traffic(), 25)
    fleet.run(after, 8)
    assert all(count >= 1 for count in fleet.alarms)
    assert sum(fleet.alarms) <= 6
    told = [entry for p in fleet.published if (entry := history(p.history))["drift"]]
    assert told[0]["cause"] == "drift"
    assert {"workload", "at_ms", "detector", "before", "after", "direction"} <= set(told[0]["drift"][0])
    memory = fleet.learner.learnt.state.arrays["memory"].copy()
    assert np.all((memory >= LEAST_MEMORY) & (memory < MEMORY_LABELS))
    fleet.run(after, 6)
    assert np.all(fleet.learner.learnt.state.arrays["memory"] > memory)
    f = np.linspace(0.0, 5.0, 6)
    for index, key in enumerate(fleet.learner.learnt.state.keys):
        truth = after.log_odds(np.repeat(f[:, None], K, axis=1), np.full(6, index))
        served = fleet.learner.learnt.served.row(key).log_odds(BASIS, np.repeat(f[:, None], K, axis=1))
        assert np.abs(truth - served).mean() < 0.2


def test_a_restart_in_the_middle_of_drift_changes_no_bit() -> None:
    """A learner that is replaced after every round ends with the bytes of one that never was."""
    whole, parts = (Fleet(1, 32, 9) for _ in range(2))
    for traffic in (Traffic(), Traffic(level=(0.9, 0.2, 0.5))):
        whole.run(traffic, 14)
        for _ in range(14):
            parts.run(traffic, 1)
            one = parts.learner
            parts.learner = PairLearner(
                decode_learnt(encode_learnt(one.learnt)), Sequences.decode(one.sequences.encode()), one.counters,
                one.watermark,
            )  # fmt: skip
    assert sum(whole.alarms) > 0
    assert encode_learnt(whole.learner.learnt) == encode_learnt(parts.learner.learnt)
    assert [p.history for p in whole.published] == [p.history for p in parts.published]


def history(body: bytes) -> dict[str, object]:
    """A history entry."""

    entry: dict[str, object] = json.loads(body)
    return entry


@given(seeds, st.integers(1, 5), st.integers(1, 4))
def test_deviance_is_explained_as_by_the_dense_matrices(seed: int, k: int, rows: int) -> None:
    """Scores and expectations of many blocks at once are those of each block's own dense Hessian."""
    rng, basis = np.random.default_rng(seed), SplineBasis((0.0, 2.0))
    f = basis.size
    x = rng.normal(size=(rows, k, 20, f))
    v = rng.uniform(0.05, 0.25, size=(rows, k, 20))
    A, B, c = np.einsum("rkn,rknf,rkng->rfg", v, x, x), np.einsum("rkn,rknf->rkf", v, x), v.sum(axis=2)
    g0, g1 = rng.normal(size=(rows, f)), rng.normal(size=(rows, k))
    found = explained_deviance(A, B, c, g0, g1)
    prior = np.diag(np.append(1.0 / prior_slope_variance(f), np.full(k, 1.0 / LEVEL_VARIANCE)))
    for r in range(rows):
        H = np.block([[A[r], B[r].T], [B[r], np.diag(c[r])]])
        inverse, g = np.linalg.inv(H + prior), np.append(g0[r], g1[r])
        assert found[r] == pytest.approx(g @ inverse @ g - np.trace(H @ inverse), rel=1e-8, abs=1e-8)
