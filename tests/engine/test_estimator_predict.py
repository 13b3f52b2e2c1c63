from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.engine.support.reference import Both, random_rows, random_step, vllm_estimator

pytestmark = pytest.mark.engine

SIZE = 300


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    """Drafts that are not sure of anything: of sure ones vLLM's own features have few digits left."""
    return torch.randn(rows, SIZE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("knots", [(), (0.0, 2.0, 4.0)])
def test_predictions_equal_the_reference(knots: tuple[float, ...]) -> None:
    """Every request is predicted with the row of its workload and its own effect, into its place in the batch."""
    both = Both(workloads=4, k=3, slots=8, knots=knots, seed=1)
    both.apply(random_rows(both.rng, 4, 3, both.basis))
    both.assign(np.arange(8), [0, 1, 2, 3, 3, 2, 1, 0])
    both.draw_features()
    both.verify(random_step(both.rng, 8, 3, 8, padding=0.0))
    idx = torch.tensor([5, -1, 2, 7, 0, -1])
    confidence = torch.full((8, 3), -1.0)
    for k in range(3):
        both.ours.predict(logits(6, k), idx, torch.tensor(k), confidence, torch.ones(8))
    real = np.array([5, 2, 7, 0])
    features = both.ours.features.numpy()[real].astype(np.float64)
    expected = both.reference.predict(features, both.workload_of[real], real)
    np.testing.assert_allclose(confidence.numpy()[[0, 2, 3, 4]], expected, rtol=1e-5)
    assert (confidence[[1, 5, 6, 7]] == -1.0).all()


@pytest.mark.parametrize("block", [False, True], ids=["one position at a time", "block drafting"])
def test_layout_equals_vllm(block: bool) -> None:
    """With one workload and no knots, features and confidences are vLLM's own, place by place, padding included."""
    both = Both(workloads=1, k=4, slots=6, knots=())
    stock = vllm_estimator(6, 4)
    ours, theirs = (torch.full((6, 4), -1.0) for _ in range(2))
    temperature = torch.tensor([0.0, 0.5, 1.0, 1.0, 0.3, 2.0])
    requests = torch.tensor([4, -1, 1, 0])
    for k in range(1 if block else 4):
        if block:
            batch = logits(16), requests.repeat_interleave(4), torch.arange(4).repeat(4)
        else:
            batch = logits(4, k), requests, torch.tensor(k)
        both.ours.predict(*batch, ours, temperature)
        stock.predict(*batch, theirs, temperature)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(both.ours.features, stock.features, rtol=1e-5, atol=1e-5)


def test_strided_request_slots() -> None:
    """Request slots that are a column of a larger tensor are read with their stride."""
    both = Both(workloads=1, k=1, slots=4, knots=())
    table = torch.tensor([[2, 0], [3, 1]])
    confidence = torch.zeros(4, 1)
    both.ours.predict(logits(2), table[:, 0], torch.tensor(0), confidence, torch.ones(4))
    assert (both.ours.features[:, 0] != 0).tolist() == [False, False, True, True]


def test_padding_beyond_all_requests() -> None:
    """A batch padded beyond every request that could be live is no error."""
    both = Both(workloads=1, k=2, slots=2, knots=())
    idx = torch.tensor([1, 0, -1, -1, -1, -1, -1])
    confidence = torch.full((8, 2), -1.0)
    both.ours.predict(logits(7), idx, torch.tensor(1), confidence, torch.ones(2))
    assert (confidence[:2, 1] > 0).all()
    assert (confidence[2:] == -1.0).all()


def test_the_same_graph_can_run_again() -> None:
    """Repeating a prediction gives the same bits: nothing of one run is left for the next."""
    both = Both(workloads=1, k=1, slots=3, knots=())
    outputs = []
    wide = torch.randn(3, 9000, generator=torch.Generator().manual_seed(5)) * 3
    for _ in range(2):
        confidence = torch.zeros(3, 1)
        both.ours.predict(wide, torch.arange(3), torch.tensor(0), confidence, torch.ones(3))
        outputs.append(confidence)
    assert torch.equal(*outputs)
