from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.engine.support.guard import READS, HiddenSynchronisation, no_hidden_synchronisation
from tests.engine.support.reference import Both, random_rows

pytestmark = pytest.mark.engine


@pytest.fixture
def both() -> Both:
    """An estimator whose coefficients are no longer the cold ones."""
    fresh = Both(workloads=3, k=2, slots=4)
    fresh.apply(random_rows(fresh.rng, 3, 2, fresh.basis))
    return fresh


@pytest.mark.parametrize("draft_step", [torch.tensor(1), torch.tensor([0, 1, 0, 1])], ids=["scalar", "block"])
def test_predict_only_launches_kernels(both: Both, draft_step: torch.Tensor) -> None:
    """Predicting reads nothing on the host, and calls no torch operator, so it allocates and copies nothing."""
    batch = torch.randn(4, 100), torch.tensor([0, 0, 2, 2]), draft_step, torch.zeros(4, 2), torch.ones(4)
    with no_hidden_synchronisation() as operators:
        both.ours.predict(*batch)
        assert operators == []


def test_step_only_launches_kernels(both: Both) -> None:
    """Taking verdicts reads nothing on the host, and calls no torch operator."""
    verdict = torch.tensor([0, -1, 2]), torch.tensor([1, 0, 3]), torch.tensor([1, 0, 0])
    with no_hidden_synchronisation() as operators:
        both.ours.step(*verdict)
        assert operators == []


def test_round_boundaries_only_copy(both: Both) -> None:
    """Assigning, loading, draining and collecting read no device data on the host; they copy, and zero in place."""
    with no_hidden_synchronisation() as operators:
        both.ours.assign([1, 3], [2, 0])
        both.ours.drain(with_sketch=True)
        both.ours.load(both.reference.slopes, both.reference.intercepts, np.zeros(3))
        assert set(operators) <= {"copy_", "zero_", "slice", "view", "alias", "detach"}


@pytest.mark.parametrize("name", READS)
def test_the_guard_catches_reads(name: str) -> None:
    """The guard itself fails on every way to read a tensor."""
    with no_hidden_synchronisation(), pytest.raises(HiddenSynchronisation):
        getattr(torch.Tensor, name)(torch.ones(1))


def test_the_guard_catches_operators() -> None:
    """The guard fails on operators that read device data, also where no method is called."""
    with no_hidden_synchronisation():
        for read in (torch.nonzero, torch.is_nonzero):
            with pytest.raises(HiddenSynchronisation):
                read(torch.ones(1))
        with pytest.raises(HiddenSynchronisation):
            assert torch.ones(1)
