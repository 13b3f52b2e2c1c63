from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learner.strategies import many

from accord.learner.astray import (
    ASTRAY_SIGMAS,
    HEAD,
    LEAST_OFFSET,
    MOST_SCATTER,
    RECENT_LABELS,
    SCATTER_TICKS,
    contrary,
    remember,
)
from accord.learner.basis import Array, SplineBasis
from accord.learner.directions import LEAST_LEVEL, LEAST_PART, Directions
from accord.learner.outlier import LEAST_ENGINES, MINORITY

CURVATURE = 0.2
"""sum v of a label."""

DIRECTIONS = Directions(2, SplineBasis(()))


class Known:
    """What is remembered of some engines, and what they say."""

    def __init__(self, engines: int, workloads: int = 1, scatter: float = 1.0) -> None:
        self.shape, self.scatter = (engines, workloads), np.full(workloads, scatter)
        self.recent = np.zeros((*self.shape, HEAD + DIRECTIONS.width))
        # as independent labels scatter
        self.recent[..., 1:HEAD] = 1.0

    def says(
        self,
        engine: int,
        level: float,
        labels: float,
        workload: int | None = None,
        slope: float = 0.0,
        positions: float = 0.0,
    ) -> bool:
        """An engine's labels are off by so much, its two positions by so much apart; whether it is astray anywhere."""
        told, of = np.zeros(self.shape), slice(None) if workload is None else workload
        told[engine, of] = labels
        c = CURVATURE * told
        # features of mean 0 and variance 4, so that level and slope are apart
        common = [level * c, c, slope * 4.0 * c, 0.0 * c, 4.0 * c]
        apart = [0.5 * (level + sign * positions) * c for sign in (1.0, -1.0)]
        sums = np.stack([*common, *apart, 0.5 * c, 0.5 * c], axis=-1)
        known = np.ones(self.shape, dtype=np.bool_)
        remember(DIRECTIONS, self.recent, known, told > 0.0, told, sums, self.scatter)
        return bool(self.recent[engine, :, 0].any())

    def hears_not(self, *speakers: int, known: Array | None = None) -> list[int]:
        """Those among the speakers whom drift does not hear in the first workload."""
        usable = np.zeros(self.shape, dtype=np.bool_)
        usable[list(speakers)] = True
        has_say = np.ones(self.shape, dtype=np.bool_) if known is None else known.astype(np.bool_)
        return np.flatnonzero(contrary(self.recent, has_say, usable)[:, 0]).tolist()


def test_one_that_agrees_with_the_fit_is_not_astray() -> None:
    """Labels off by less than what matters are nothing, however many; a clear contradiction is noticed at once."""
    known = Known(5)
    assert not known.says(0, 0.95 * LEAST_LEVEL, 1e6)
    assert known.says(0, 1.05 * LEAST_LEVEL, 1e6)
    assert known.says(1, -1.5, 200.0)


@pytest.mark.parametrize("scatter", [1.0, 4.0])
def test_a_few_labels_say_nothing(scatter: float) -> None:
    """What is within so many standard errors is chance, and requests that resemble each other widen them."""
    level = 0.5
    enough = (ASTRAY_SIGMAS / level) ** 2 * scatter / CURVATURE
    assert not Known(1, scatter=scatter).says(0, level, 0.9 * enough)
    assert Known(1, scatter=scatter).says(0, level, 1.2 * enough)


def test_a_wrong_slope_is_a_contradiction_too() -> None:
    """Errors that cancel in level are found in the slope."""
    assert not Known(1).says(0, 0.0, 5_000.0)
    assert Known(1).says(0, 0.0, 5_000.0, slope=0.2)
    assert Known(1).says(0, 0.0, 5_000.0, slope=-0.2)


def test_positions_that_cancel_are_a_contradiction_too() -> None:
    """Errors of two draft positions that cancel in level and slope are found in each of them."""
    for off in (1.2 * LEAST_PART, -1.2 * LEAST_PART):
        assert Known(1).says(0, 0.0, 20_000.0, positions=off)
    assert not Known(1).says(0, 0.0, 20_000.0, positions=0.9 * LEAST_PART)


@pytest.mark.parametrize("ticks", [1, 20])
def test_what_scatters_with_the_others_is_no_contradiction(ticks: int) -> None:
    """Where each of the others scatters three standard errors about the fit, an engine may be as far off as well."""
    level, labels = 0.6, (3.0 / 0.6) ** 2 / CURVATURE
    quiet, loud, rng = Known(5), Known(5), np.random.default_rng(3)
    for _ in range(ticks):
        for engine in range(1, 5):
            quiet.says(engine, 0.0, labels)
            loud.says(engine, level * rng.choice([-1.0, 1.0]), labels)
    assert quiet.says(0, level, 2.0 * labels)
    assert not loud.says(0, level, 2.0 * labels)
    assert loud.says(0, 3.0 * level, 4.0 * labels)


def test_one_engine_does_not_widen_what_it_is_judged_by() -> None:
    """Its own scatter is not among the others', and of theirs one that scatters without end is not the median."""
    known, labels = Known(5), 500.0
    for number in range(40):
        known.says(0, 1.0 * (-1.0) ** number, labels)
        known.says(1, 9.0 * (-1.0) ** number, labels)
        for engine in (2, 3, 4):
            known.says(engine, 0.0, labels)
    assert known.recent[:2, 0, 1].max() <= MOST_SCATTER
    assert known.says(0, 0.6, labels)


def test_how_a_tick_scatters_is_a_faded_mean_square() -> None:
    """The first tick counts whole, each one after it a part, and no more than so many squared standard errors."""
    known, c = Known(2), CURVATURE * 400.0 + 1.0
    known.recent[..., 1:HEAD] = 0.0
    square = (0.3 * CURVATURE * 400.0) ** 2 / c
    known.says(0, 0.3, 400.0)
    assert known.recent[0, 0, 1] == pytest.approx(square)
    known.says(0, 0.0, 400.0)
    assert known.recent[0, 0, 1] == pytest.approx(square * (1.0 - 1.0 / SCATTER_TICKS))
    known.says(1, 9.0, 400.0)
    assert known.recent[1, 0, 1:HEAD].tolist() == [MOST_SCATTER, MOST_SCATTER]


def test_a_lie_spread_over_workloads_is_found_in_all_together() -> None:
    """Eight workloads with too few labels each contradict the fit as one, and all of them are withheld."""
    labels, alone = 60.0, Known(5)
    assert not alone.says(0, -0.6, labels)
    spread = Known(5, workloads=8)
    assert spread.says(0, -0.6, labels)
    assert spread.recent[0, :, 0].tolist() == [1.0] * 8
    usable = np.zeros(spread.shape, dtype=np.bool_)
    usable[0] = True
    assert contrary(spread.recent, np.ones(spread.shape, dtype=np.bool_), usable)[0].all()


def test_what_all_workloads_say_together_has_its_own_bar() -> None:
    """The level over all workloads matters from `LEAST_OFFSET` on, beyond what matters in one of them."""
    assert LEAST_LEVEL < LEAST_OFFSET
    for off in (1.1 * LEAST_OFFSET, -1.1 * LEAST_OFFSET):
        labels = 0.5 * (ASTRAY_SIGMAS / off) ** 2 / CURVATURE
        assert not Known(1).says(0, off, labels)
        assert Known(1, workloads=4).says(0, off, labels)
    off = 0.5 * (LEAST_LEVEL + LEAST_OFFSET)
    assert not Known(1, workloads=4).says(0, off, 0.5 * (ASTRAY_SIGMAS / off) ** 2 / CURVATURE)


def test_a_lie_spread_over_ticks_is_found_in_what_is_remembered() -> None:
    """Ticks too short to say anything add up, and fade with the labels that follow."""
    known, labels = Known(1), 40.0
    assert not Known(1).says(0, 0.6, labels)
    found = [known.says(0, 0.6, labels) for _ in range(8)]
    assert not found[0]
    assert found[-1]
    honest = [known.says(0, 0.0, labels) for _ in range(round(3 * RECENT_LABELS / labels))]
    assert honest[0]
    assert not honest[-1]


def test_a_tick_counts_whole_however_much_good_came_before() -> None:
    """Thousands of honest labels excuse no lie: a tick of an engine's own is judged by itself."""
    known = Known(1)
    assert not known.says(0, 0.0, 1e6)
    assert known.says(0, 1.0, 200.0)


def test_what_is_remembered_is_faded_sums() -> None:
    """A workload's own labels fade what was said of it before, and what is silent stays as it was."""
    known = Known(2, workloads=2)
    known.says(0, 1.0, 100.0, workload=0)
    known.says(0, 1.0, 250.0, workload=1)
    known.says(1, 1.0, 100.0, workload=0)
    before = known.recent.copy()
    known.says(0, 0.0, 200.0, workload=0)
    c = CURVATURE * np.array([100.0, 200.0])
    kept = np.exp(-200.0 / RECENT_LABELS)
    assert known.recent[0, 0, HEAD] == pytest.approx(c[0] * kept)
    assert known.recent[0, 0, HEAD + 1] == pytest.approx(c[0] * kept + c[1])
    np.testing.assert_array_equal(known.recent[0, 1], before[0, 1])
    np.testing.assert_array_equal(known.recent[1], before[1])


@pytest.mark.parametrize("engines", [5, 10, 20, 40])
def test_a_minority_is_withheld_and_more_are_the_traffic(engines: int) -> None:
    """Up to a quarter of those that have a say are not heard; one more, and all are."""
    known, quarter = Known(engines), max(int(MINORITY * engines), 1)
    for engine in range(quarter):
        assert known.says(engine, 1.0, 500.0)
        assert known.hears_not(*range(engines)) == list(range(engine + 1))
    assert known.says(quarter, 1.0, 500.0)
    assert known.hears_not(*range(engines)) == []


@pytest.mark.parametrize("engines", [1, 2, 4])
def test_of_a_few_engines_everybody_is_heard(engines: int) -> None:
    """Without four others nobody can be told apart."""
    known = Known(engines)
    assert known.says(0, 1.0, 500.0)
    assert known.hears_not(0) == []


def test_only_those_count_that_have_a_say() -> None:
    """Those that are gone neither make a fleet of a few engines nor are they the rest that a liar is compared with."""
    known = Known(12)
    for engine in range(3):
        assert known.says(engine, 1.0, 500.0)
    assert known.hears_not(*range(12)) == [0, 1, 2]
    gone = np.ones(known.shape)
    gone[8:] = 0.0
    # three of eight are the traffic, although they would be a quarter of twelve
    assert known.hears_not(*range(8), known=gone) == []
    gone[4:] = 0.0
    assert known.hears_not(*range(4), known=gone) == []


def test_only_those_that_spoke_are_contrary() -> None:
    """One that is astray and silent has nothing that could be withheld."""
    known = Known(8)
    assert known.says(3, 1.0, 500.0)
    assert known.hears_not(0, 1) == []
    assert known.hears_not(0, 3) == [3]


@many
@given(st.integers(1, 30), st.data())
def test_drift_always_hears_most_of_a_fleet(engines: int, data: st.DataObject) -> None:
    """Whoever is astray and whoever has a say: nobody is withheld that agrees, nor more than a quarter of the fleet."""
    flags = st.lists(st.booleans(), min_size=engines, max_size=engines)
    astray, has_say, spoke = (np.array(data.draw(flags))[:, None] for _ in range(3))
    recent = np.zeros((engines, 1, HEAD + DIRECTIONS.width))
    recent[..., 0] = astray
    found = contrary(recent, has_say, spoke)
    assert not (found & ~(astray & spoke)).any()
    count, others = int(has_say.sum()), int((found & has_say).sum())
    assert others <= max(MINORITY * count, 1.0)
    if found.any():
        assert count >= LEAST_ENGINES - 1
    alone = astray & has_say & spoke
    if int((astray & has_say).sum()) == 1 and count >= LEAST_ENGINES:
        assert (found & alone).sum() == alone.sum()
