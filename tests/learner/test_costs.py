"""Cost tables: what is refused, how they are read, and their dead spots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.hooks.vllm.identity import cost_tables
from accord.learner.costs import MAX_DEAD_SPOTS, MAX_POINTS, CostCurve, EngineCosts, Kind
from accord.learner.errors import InvalidValue

GRAPHS = [1, 2, 4, *range(8, 257, 8)]
"""The sizes that vLLM captures by default, up to 256."""


class Manager:
    """As much of vLLM's `AdaptiveVerificationManager` as the hook reads."""

    def __init__(self, draft: np.ndarray, verify: np.ndarray) -> None:
        self.cost_tables = (draft, verify)


def padded(limit: int, ms: dict[int, float]) -> np.ndarray:
    """A table by size 0..limit as vLLM builds it: each size costs what the next measured one does."""
    sizes = np.array(sorted(ms))
    costs = np.array([ms[size] for size in sizes])
    return costs[np.minimum(np.searchsorted(sizes, np.arange(limit + 1)), len(sizes) - 1)]


def test_what_an_engine_publishes_is_read_back() -> None:
    """The curves that the hook makes of vLLM's tables give every size the cost that the table has."""
    draft = padded(64, {size: 0.5 + 0.01 * size for size in GRAPHS if size <= 64})
    verify = padded(256, {size: 8.0 + 0.02 * size for size in GRAPHS})
    costs = EngineCosts.of(cost_tables(Manager(draft, verify)))
    assert costs.draft.at(np.arange(65)) == pytest.approx(draft, abs=1e-6)
    assert costs.verify.at(np.arange(257)) == pytest.approx(verify, abs=1e-6)


def test_thinning_keeps_the_small_batches() -> None:
    """Of a table with graphs up to 512 tokens and every size up to 8,192 behind them, every cost is read within 3%."""
    graphs = [1, 2, 4, *range(8, 513, 8)]
    sizes = np.arange(8193)
    roofline = np.where(sizes <= 200, 8.0 + 0.004 * sizes, 8.8 + 0.03 * (sizes - 200))
    verify = np.concatenate([padded(512, {size: roofline[size] for size in graphs}), roofline[513:] + 4.0])
    costs = EngineCosts.of(cost_tables(Manager(padded(256, {size: 1.0 + 0.01 * size for size in GRAPHS}), verify)))
    assert len(costs.verify.sizes) <= 128
    told = costs.verify.at(sizes)
    assert np.all(told >= verify - 1e-6)
    assert (told / verify).max() < 1.03
    assert costs.verify.at([8, 64, 512]) == pytest.approx(verify[[8, 64, 512]], rel=0.03)


def test_beyond_the_table_the_last_slope_goes_on() -> None:
    """Past the last level the cost grows as between the last two, and never falls."""
    assert CostCurve((10, 20), (1.0, 3.0)).at([20, 30]).tolist() == [3.0, 5.0]
    assert CostCurve((10, 20), (3.0, 1.0)).at([30, 1000]).tolist() == [1.0, 1.0]
    assert CostCurve((10,), (3.0,)).at([5, 1000]).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "points",
    [
        None,
        [],
        {},
        "text",
        [[1, 1.0]] * (MAX_POINTS + 1),
        [1, 2],
        [[1]],
        [[1, 2, 3]],
        [["1", 2.0]],
        [[True, 2.0]],
        [[1.5, 2.0]],
        [[-1, 2.0]],
        [[1 << 25, 2.0]],
        [[10**4000, 2.0]],
        [[1, float("nan")]],
        [[1, float("inf")]],
        [[1, -0.1]],
        [[1, 1e7]],
        [[1, 10**400]],
        [[1, None]],
        [[1, True]],
        [[2, 1.0], [2, 1.0]],
        [[3, 1.0], [2, 1.0]],
    ],
)
def test_what_is_no_curve_is_refused(points: Any) -> None:
    """Anything but a bounded list of rising sizes with finite costs is refused, and the field is named."""
    with pytest.raises(InvalidValue, match=r"^costs\.verify_ms_by_tokens"):
        EngineCosts.of({"draft_ms_by_requests": [[1, 0.0]], "verify_ms_by_tokens": points})


@pytest.mark.parametrize("values", [None, [], 5, {}, {"draft_ms_by_requests": [[1, 1.0]]}])
def test_what_is_no_report_is_refused(values: Any) -> None:
    """Both curves are needed."""
    with pytest.raises(InvalidValue, match=r"^costs"):
        EngineCosts.of(values)


def test_verifying_costs_something() -> None:
    """A verifying pass of 0 ms would make everything free: refused. A draft of 0 ms is what n-gram drafters cost."""
    with pytest.raises(InvalidValue, match=r"verify_ms_by_tokens = 0.0: must be above 0 ms"):
        EngineCosts.of({"draft_ms_by_requests": [[1, 0.0]], "verify_ms_by_tokens": [[1, 0.0], [2, 1.0]]})


def test_a_step_costs_its_drafts_and_its_tokens() -> None:
    """A drafter of blocks costs the same for one token as for K; another costs in proportion; none without drafts."""
    costs = EngineCosts(CostCurve((8,), (2.0,)), CostCurve((4, 16), (10.0, 12.0)))
    assert costs.step_ms(4, 2, one_pass=True).tolist() == [10.0, 12.0, 14.0, 14.0, 14.0]
    assert costs.step_ms(4, 2, one_pass=False).tolist() == [10.0, 10.5, 13.0, 13.5, 14.0]


def test_a_jump_is_a_dead_spot_until_it_is_worth_it() -> None:
    """Behind a rise by half, sizes are dead as long as the smaller batch brings a tenth more per millisecond."""
    (spot,) = CostCurve((64, 90, 110, 128), (10.0, 15.0, 15.1, 15.2)).dead_spots("tokens")
    assert (spot.kind, spot.first, spot.last) == (Kind.JUMP, 65, 86)
    assert spot.message == (
        "65 to 86 tokens cost 15 ms, 50% more than 64 do, and bring less per millisecond: stay at 64 or go beyond 86"
    )
    for size, dead in ((86, True), (87, False)):
        assert (size / 15.0 < 64 / 10.0 * 0.9) is dead


def test_dead_levels_in_a_row_are_one_spot() -> None:
    """A long dead range over several levels is told once."""
    (spot,) = CostCurve((64, 70, 75, 95, 115), (10.0, 15.0, 15.1, 15.2, 15.3)).dead_spots("tokens")
    assert (spot.kind, spot.first, spot.last) == (Kind.JUMP, 65, 87)
    assert "stay at 64 or go beyond 87" in spot.message


def test_a_fall_is_a_dead_spot() -> None:
    """Where more tokens are cheaper than fewer, the fewer are dead, and the message says which are cheaper."""
    (spot,) = CostCurve((8, 16, 24), (3.0, 3.6, 3.2)).dead_spots("tokens")
    assert (spot.kind, spot.first, spot.last) == (Kind.FALLS, 9, 16)
    assert "9 to 16 tokens cost 3.6 ms, but 24 cost only 3.2 ms: more is cheaper than less" in spot.message


def test_a_wide_plateau_is_a_dead_spot() -> None:
    """A level that nearly doubles is told, because everything up to its end is free; a graph's padding is not."""
    (spot,) = CostCurve((256, 512), (10.0, 10.5)).dead_spots("tokens")
    assert (spot.kind, spot.first, spot.last) == (Kind.PLATEAU, 257, 512)
    assert "whatever fits up to 512 is free" in spot.message


def test_captured_graphs_are_no_dead_spots() -> None:
    """The levels of vLLM's default graphs, on a flat and then linear roofline, have none."""
    verify = CostCurve(tuple(GRAPHS), tuple(max(8.0, 8.0 + 0.03 * (size - 96)) for size in GRAPHS))
    assert verify.dead_spots("tokens") == []


curves = st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100.0)), min_size=1, max_size=40).map(
    lambda pairs: CostCurve(tuple(np.cumsum([width for width, _ in pairs]).tolist()), tuple(ms for _, ms in pairs))
)


@given(curves)
def test_dead_spots_are_what_they_say(curve: CostCurve) -> None:
    """In a jump some smaller batch brings a tenth more per millisecond, in a fall a larger one is cheaper."""
    sizes = np.arange(1, curve.sizes[-1] + 1)
    cost = curve.at(sizes)
    best = np.maximum.accumulate(sizes / cost)
    spots = curve.dead_spots("tokens")
    assert len(spots) <= MAX_DEAD_SPOTS
    for spot in spots:
        inside = (sizes >= spot.first) & (sizes <= spot.last)
        assert 1 <= spot.first <= spot.last <= curve.sizes[-1]
        if spot.kind is Kind.JUMP:
            assert np.all((sizes / cost)[inside] < 0.9 * best[inside] + 1e-9)
        elif spot.kind is Kind.FALLS:
            assert cost[inside].min() > cost[spot.last :].min()
        else:
            assert np.ptp(cost[inside]) == 0.0
