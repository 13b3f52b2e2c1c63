from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.engine.support.reference import (
    Both,
    Step,
    assert_close,
    published_refit,
    random_rows,
    random_step,
    vllm_estimator,
)

from accord.learner.request_effect import DISCOUNT

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("knots", "workloads", "k", "rows"),
    [
        ((), 1, 3, 6),
        ((0.0, 2.0, 4.0), 3, 4, 8),
        ((-1.0, 3.0), 2, 7, 10),
        ((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 2, 2, 6),
    ],
)
def test_sums_equal_the_reference(knots: tuple[float, ...], workloads: int, k: int, rows: int) -> None:
    """Two rounds of mixed traffic at different coefficients sum to what the NumPy reference sums."""
    both = Both(workloads, k, slots=rows + 3, knots=knots, seed=k)
    both.assign(np.arange(rows + 3), both.rng.integers(0, workloads, rows + 3))
    for _ in range(2):
        both.apply(random_rows(both.rng, workloads, k, both.basis))
        both.random_steps(12, rows)
        assert both.ours.drain(with_sketch=True)
        drained, reference = both.ours.collect(), both.reference.drain_sketch()
        assert_close(drained.moments, both.reference.drain())
        assert drained.moments.n.sum() > 40
        np.testing.assert_allclose(drained.sketch.acceptance, reference.acceptance, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(drained.sketch.survival, reference.survival, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(drained.slopes, both.reference.slopes)
        np.testing.assert_array_equal(drained.intercepts, both.reference.intercepts)


def test_request_effects_equal_the_reference() -> None:
    """R and V of every slot follow the reference through labels, padding and new requests."""
    both = Both(workloads=2, k=3, slots=6, seed=3)
    both.apply(random_rows(both.rng, 2, 3, both.basis))
    both.random_steps(25, rows=5)
    effects = both.reference.effects
    expected = np.stack([effects.residual, effects.curvature], axis=1)
    np.testing.assert_allclose(both.ours._effects.numpy()[:, :2], expected, rtol=1e-4, atol=1e-5)
    assert DISCOUNT == 0.98


def test_a_taken_over_slot_starts_without_effect() -> None:
    """Assigning a slot forgets R and V; moving a live request keeps them."""
    both = Both(workloads=2, k=2, slots=3)
    both.draw_features()
    both.verify(Step(*(torch.tensor(part, dtype=torch.int32) for part in ([0, 1, 2], [1, 1, 1], [2, 2, 2]))))
    before = both.ours._effects.clone()
    both.ours.assign([0], [1])
    both.ours.assign([1], [1], fresh=False)
    assert both.ours._effects[0].tolist() == [0.0] * 4
    assert torch.equal(both.ours._effects[1:], before[1:])
    assert both.ours._workloads.tolist() == [1, 1, 0]


def test_many_requests_in_one_step() -> None:
    """Batches wider than one block of requests lose nobody."""
    both = Both(workloads=2, k=1, slots=400, knots=())
    both.assign(np.arange(400), both.rng.integers(0, 2, 400))
    both.draw_features()
    both.verify(random_step(both.rng, 400, 1, 390))
    assert both.ours.drain()
    assert_close(both.ours.collect().moments, both.reference.drain())


def test_the_same_traffic_gives_the_same_bits() -> None:
    """Two estimators that see the same steps hold the same sums, bit for bit."""
    sums = []
    for _ in range(2):
        both = Both(workloads=2, k=3, slots=6, seed=9)
        both.random_steps(4, rows=5)
        sums.append(both.ours._flat.clone())
    assert torch.equal(*sums)


def test_a_broken_draft_teaches_nothing() -> None:
    """A NaN feature leaves every sum finite, and the labels of other positions in place."""
    both = Both(workloads=1, k=3, slots=2, knots=())
    both.draw_features()
    both.ours.features[0, 1] = float("nan")
    verdict = (torch.tensor(part, dtype=torch.int32) for part in ([0, 1], [4, 4], [0, 0]))
    both.ours.step(*verdict)
    assert both.ours.drain(with_sketch=True)
    drained = both.ours.collect()
    assert drained.moments.n.tolist() == [[2.0, 1.0, 2.0]]
    assert drained.sketch.survival[..., 0].sum(axis=2).tolist() == [[2.0, 1.0, 1.0]]
    assert all(np.isfinite(array).all() for array in drained.moments.arrays().values())
    assert torch.isfinite(both.ours._effects).all()


def test_sums_and_refit_equal_vllm() -> None:
    """With one workload, no knots and labels counted in full, sums are vLLM's, and its rule gives its coefficients.

    Equal are info (A, B, c by position; A is summed over positions on our side), grad and counts. Two things differ, by
    rounding: vLLM keeps the probability it predicted and takes p (1 - p), where we recompute p and 1 - p from the
    feature; and vLLM subtracts the mode's own term from the sum, so that its features of sure drafts have few digits
    left. The drafts here are unsure.
    """
    both = Both(workloads=1, k=3, slots=6, knots=(), seed=4, working_variance=0.0)
    stock = vllm_estimator(6, 3)
    generator = torch.Generator().manual_seed(4)
    temperature = torch.tensor([0.0, 0.5, 1.0, 1.0, 0.3, 2.0])
    requests = torch.arange(6, dtype=torch.int32)
    confidence = torch.zeros(6, 3)
    nothing = torch.zeros(6, dtype=torch.int32)
    slope, intercepts = 0.5, np.full(3, -0.2)
    for _ in range(3):
        for _ in range(8):
            for k in range(3):
                batch = (
                    torch.randn(6, 64, generator=generator) * 1.5,
                    requests,
                    torch.tensor(k),
                    confidence,
                    temperature,
                )
                both.ours.predict(*batch)
                stock.predict(*batch)
            step = random_step(both.rng, 6, 3, 6, padding=0.0)
            for estimator in (both.ours, stock):
                estimator.step(step.idx_mapping, step.num_sampled, step.num_rejected)
        assert both.ours.drain()
        moments = both.ours.collect().moments
        info, grad = stock.info.numpy(), stock.grad.numpy()
        near = {"rtol": 2e-5, "atol": 2e-5}
        np.testing.assert_allclose(moments.A[0, 0], info[:, 0].sum(), **near)
        np.testing.assert_allclose(moments.B[0, :, 0], info[:, 1], **near)
        np.testing.assert_allclose(moments.c[0], info[:, 2], **near)
        np.testing.assert_allclose(moments.g0[0, 0], grad[:, 0].sum(), **near)
        np.testing.assert_allclose(moments.g1[0], grad[:, 1], **near)
        np.testing.assert_array_equal(moments.n[0], stock.counts.numpy())

        slope, intercepts = published_refit(slope, intercepts, moments)
        stock.REFIT_INTERVAL = 0
        stock.step(requests, nothing, nothing)
        stock.REFIT_INTERVAL = 1 << 60
        np.testing.assert_allclose(slope, stock.slope.item(), rtol=1e-5)
        np.testing.assert_allclose(intercepts, stock.intercepts.numpy(), rtol=1e-5, atol=1e-6)
        both.ours.load([[slope]], [intercepts], [0.0])
