from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.engine.support.reference import CPU, Both, assert_close, random_rows

from accord.hooks.vllm.estimator import AcceptanceEstimator, Drained
from accord.hooks.vllm.staging import Uploader
from accord.learner.basis import SplineBasis
from accord.learner.errors import InvalidValue
from accord.learner.moments import Moments

pytestmark = pytest.mark.engine


class SlowDevice:
    """Makes fences that the device passes only when told to."""

    def __init__(self) -> None:
        self.passed = False

    def __call__(self) -> SlowDevice:
        """The one fence."""
        return self

    def record(self) -> None:
        """Nothing: all fences are passed together."""

    def query(self) -> bool:
        """Whether the device caught up."""
        return self.passed


def addresses(estimator: AcceptanceEstimator) -> list[int]:
    """Where every tensor of an estimator lies."""
    return [value.data_ptr() for value in vars(estimator).values() if isinstance(value, torch.Tensor)]


def test_no_buffer_ever_moves() -> None:
    """Loading, assigning, draining and stepping keep every address that a captured graph may hold."""
    both = Both(workloads=2, k=2, slots=4)
    before = addresses(both.ours)
    both.apply(random_rows(both.rng, 2, 2, both.basis))
    both.random_steps(2, rows=3)
    both.ours.drain(with_sketch=True)
    both.ours.collect()
    both.apply(random_rows(both.rng, 2, 2, both.basis))
    assert addresses(both.ours) == before
    np.testing.assert_array_equal(both.ours._theta.numpy()[:, :4], both.reference.slopes.astype(np.float32))


@pytest.mark.parametrize("made_in", [True, False])
def test_inference_mode_does_not_matter(made_in: bool) -> None:
    """Made inside or outside of torch's inference mode, an estimator works on the other side of it."""
    with torch.inference_mode(made_in):
        both = Both(workloads=1, k=2, slots=4, knots=())
    with torch.inference_mode(not made_in):
        both.apply(random_rows(both.rng, 1, 2, both.basis))
        both.random_steps(2, rows=3)
        assert both.ours.drain(with_sketch=True)
    assert_close(both.ours.collect().moments, both.reference.drain())


def test_a_drain_belongs_to_its_own_steps() -> None:
    """Steps between drain and collect count for the next round; the note and the coefficients are the drain's."""
    both = Both(workloads=2, k=2, slots=5)
    old = random_rows(both.rng, 2, 2, both.basis)
    both.apply(old)
    both.random_steps(3, rows=4)
    assert both.ours.drain(note="first")
    first = both.reference.drain()
    both.apply(random_rows(both.rng, 2, 2, both.basis))
    both.random_steps(3, rows=4)
    drained = both.ours.collect()
    assert_close(drained.moments, first)
    assert drained.note == "first"
    assert drained.sketch is None
    np.testing.assert_array_equal(drained.slopes, [row.slopes for row in old])
    assert both.ours.collect() is None
    assert both.ours.drain(with_sketch=True)
    last = both.ours.collect()
    assert_close(last.moments, both.reference.drain())
    np.testing.assert_allclose(last.sketch.acceptance, both.reference.drain_sketch().acceptance, rtol=1e-5, atol=1e-4)


def test_a_slow_device_loses_and_repeats_nothing() -> None:
    """While two drains wait a third is refused and its sums go on; every label comes out once, in order."""
    device = SlowDevice()
    both = Both(workloads=1, k=2, slots=4, knots=())
    both.ours = AcceptanceEstimator(4, 2, CPU, basis=SplineBasis(()), workloads=1, make_fence=device)
    started, notes, drains = [], [], []
    for number in range(5):
        both.random_steps(2, rows=3)
        if both.ours.drain(note=number):
            started.append(number)
        if number == 3:
            device.passed = True
        while (drained := both.ours.collect()) is not None:
            assert device.passed
            notes.append(drained.note)
            drains.append(drained.moments)
    assert started == notes == [0, 1, 4]
    assert_close(total(drains), both.reference.drain())


def total(parts: list[Moments]) -> Moments:
    """The sums of several rounds at equal coefficients."""
    out = parts[0]
    for part in parts[1:]:
        out = replace(out, **{name: array + getattr(part, name) for name, array in out.arrays().items()})
    return out


def test_collected_sums_are_copies() -> None:
    """What was collected does not change when its pinned buffer is used again."""
    both = Both(workloads=1, k=2, slots=4, knots=())
    kept: list[tuple[Drained, float]] = []
    for _ in range(3):
        both.random_steps(2, rows=3)
        assert both.ours.drain(with_sketch=True)
        drained = both.ours.collect()
        kept.append((drained, float(drained.moments.loss.sum() + drained.sketch.acceptance.sum())))
    for drained, before in kept:
        assert float(drained.moments.loss.sum() + drained.sketch.acceptance.sum()) == before


def test_uploads_outlast_a_device_that_lags() -> None:
    """An upload that finds every pinned buffer in use is still right, and counted."""
    target = torch.zeros(4)
    uploader = Uploader(target, SlowDevice(), depth=2)
    for value in range(4):
        uploader.upload(np.full(3, value, dtype=np.float32))
    assert target.tolist() == [3.0, 3.0, 3.0, 0.0]
    assert uploader.waits == 2


@pytest.mark.parametrize(
    ("requests", "workloads"), [([0, 0], [0, 1]), ([4], [0]), ([-1], [0]), ([0], [2]), ([0], [-1]), ([[0]], [[0]])]
)
def test_bad_slots_change_nothing(requests: list[int], workloads: list[int]) -> None:
    """Slots that are repeated or out of range are refused before anything is queued."""
    estimator = AcceptanceEstimator(4, 1, CPU, workloads=2)
    with pytest.raises(InvalidValue, match="slots"):
        estimator.assign(requests, workloads)
    assert estimator._workloads.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_bad_coefficients_change_nothing(bad: float) -> None:
    """Coefficients of a wrong shape, or not finite in float32, are refused with the old ones in force."""
    estimator = AcceptanceEstimator(4, 2, CPU, basis=SplineBasis(()))
    before = estimator._theta.clone()
    with pytest.raises(InvalidValue, match="slopes"):
        estimator.load([[bad]], [[0.0, 0.0]], [0.0])
    with pytest.raises(InvalidValue, match="intercepts"):
        estimator.load([[0.5]], [[0.0]], [0.0])
    assert torch.equal(estimator._theta, before)


def test_workload_slots_are_bounded() -> None:
    """No more than 32 workload slots, and at least one."""
    for workloads in (0, 33):
        with pytest.raises(InvalidValue, match="workloads"):
            AcceptanceEstimator(4, 1, CPU, workloads=workloads)
