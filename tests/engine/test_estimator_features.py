from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.support.reference import CPU, feature

from accord.hooks.vllm.estimator import AcceptanceEstimator, split_vocabulary
from accord.learner.basis import SplineBasis

pytestmark = pytest.mark.engine


def computed(logits: torch.Tensor, temperatures: list[float]) -> np.ndarray:
    """Features [rows] that `predict` stores for rows of logits with these temperatures."""
    rows = len(logits)
    estimator = AcceptanceEstimator(rows, 1, CPU, basis=SplineBasis(()))
    confidence = torch.full((rows, 1), -1.0)
    estimator.predict(logits, torch.arange(rows), torch.tensor(0), confidence, torch.tensor(temperatures))
    assert torch.isfinite(confidence).all()
    return estimator.features.numpy()[:, 0]


def check(logits: torch.Tensor, temperatures: list[float]) -> None:
    """Fails unless every row has the feature of the float64 reference."""
    expected = [feature(row.double().numpy(), t) for row, t in zip(logits, temperatures, strict=True)]
    np.testing.assert_allclose(computed(logits, temperatures), expected, rtol=1e-5, atol=2e-6)


@st.composite
def rows_of_logits(draw: st.DrawFn) -> tuple[torch.Tensor, list[float]]:
    """Two rows: a random spread, some tokens lifted to the mode or excluded, and a lead of the mode over the others."""
    size = draw(st.sampled_from([1, 2, 3, 500, 4096, 4097, 9001]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(0.0, draw(st.sampled_from([0.0, 1.0, 8.0])), (2, size))
    x += draw(st.sampled_from([0.0, -300.0, 5e4]))
    x[:, rng.integers(size)] += draw(st.sampled_from([0.0, 5.0, 20.0, 60.0]))
    if draw(st.booleans()):
        ties = rng.random((2, size)) < 0.01
        x = np.where(ties, x.max(axis=1, keepdims=True), x)
    if draw(st.booleans()):
        x[:, 1:][rng.random((2, size - 1)) < 0.5] = -np.inf
    return torch.tensor(x, dtype=torch.float32), draw(
        st.lists(st.sampled_from([0.0, 0.1, 1.0, 2.5]), min_size=2, max_size=2)
    )


@settings(max_examples=60, deadline=None)
@given(rows_of_logits())
def test_features_equal_float64(case: tuple[torch.Tensor, list[float]]) -> None:
    """Features equal a float64 reference for any vocabulary, spread, ties, excluded tokens and temperature."""
    check(*case)


@pytest.mark.parametrize("lead", [10.0, 17.0, 25.0, 39.0, 60.0])
def test_a_sure_draft_keeps_its_digits(lead: float) -> None:
    """A lead beyond float32's one-minus-epsilon still gives the lead itself as the feature."""
    logits = torch.full((1, 2), 3.0)
    logits[0, 1] += lead
    assert computed(logits, [1.0])[0] == pytest.approx(min(lead, 40.0), rel=1e-6)


@pytest.mark.parametrize("size", [2, 4096, 5000])
def test_equal_logits_give_the_uniform_feature(size: int) -> None:
    """All-equal logits count as ties: one is the mode, the others are its complement."""
    assert computed(torch.full((1, size), 7.5), [0.7])[0] == pytest.approx(-np.log(size - 1), rel=1e-6, abs=1e-6)


def test_ties_over_blocks_of_the_vocabulary() -> None:
    """Two equal modes in different blocks of the vocabulary leave one of them in the sum."""
    logits = torch.full((1, 9000), -50.0)
    logits[0, [3, 8999]] = 4.0
    assert computed(logits, [1.0])[0] == pytest.approx(0.0, abs=1e-6)


def test_rows_without_a_distribution_are_marked() -> None:
    """NaN or nothing but -inf stores NaN and predicts a finite probability; +inf is a certain draft."""
    logits = torch.zeros(4, 4100)
    logits[0, 4099] = float("nan")
    logits[1] = float("-inf")
    logits[2, 5] = float("inf")
    got = computed(logits, [1.0] * 4)
    assert np.isnan(got[:2]).all()
    np.testing.assert_allclose(got[2:], [40.0, -np.log(4099)], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_in_a_wider_buffer(dtype: torch.dtype) -> None:
    """Rows that are slices of a padded buffer, in half precision, are read as they are."""
    wide = (torch.randn(3, 5120, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    check(wide[:, :5001], [1.0, 0.0, 0.5])


@pytest.mark.parametrize("size", [1, 4096, 32_000, 129_280, 262_144, 1_000_000])
def test_blocks_cover_the_vocabulary(size: int) -> None:
    """Blocks cover any vocabulary, within the space that is reserved for their sums."""
    splits, padded, block = split_vocabulary(size)
    assert splits * block >= size > (splits - 1) * block
    assert splits <= padded <= 64
