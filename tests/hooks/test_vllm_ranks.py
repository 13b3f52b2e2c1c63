from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from accord.hooks.vllm import ranks
from accord.hooks.vllm.ranks import Boundary, Ranks, agree
from accord.hooks.vllm.rows import Rows
from accord.learner.basis import SplineBasis
from accord.learner.coefficients import Coefficients, CoefficientTable

PLAN = {"round_steps": [3], "labels": {"order": []}}


class MemoryStore:
    """What `torch.distributed` offers, in one process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        """Sets a key."""
        with self._lock:
            self._values[key] = value

    def get(self, key: str) -> bytes:
        """The value of a key."""
        return self._values[key].encode()

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""
        return all(key in self._values for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Sets a key if it is as expected."""
        with self._lock:
            if self._values.get(key) == expected:
                self._values[key] = desired
            return self._values.get(key, expected).encode()


def all_ranks(
    plans: list[Any], delays: list[float] | None = None, leader: float = 0.4, others: float = 0.8
) -> list[Any]:
    """What every rank is told."""
    store = MemoryStore()

    def one(rank: int) -> Any:
        time.sleep((delays or [0.0] * len(plans))[rank])
        return agree(store, "p", rank, len(plans), plans[rank], leader, others)

    with ThreadPoolExecutor(len(plans)) as pool:
        return list(pool.map(one, range(len(plans))))


def test_all_get_the_plan_of_the_first() -> None:
    """Settings come from the first rank, whatever the others had in mind."""
    assert all_ranks([PLAN, {}, {"other": 1}], leader=20.0, others=40.0) == [PLAN, PLAN, PLAN]


def test_a_group_of_one_asks_nobody() -> None:
    """One rank goes its own way."""
    assert all_ranks([PLAN]) == [PLAN]
    assert all_ranks([None]) == [None]


@pytest.mark.parametrize("without", [0, 1, 2])
def test_one_that_cannot_keeps_all_back(without: int) -> None:
    """A rank that cannot take part says so, and all go without, at once."""
    plans: list[Any] = [PLAN, {}, {}]
    plans[without] = None
    began = time.monotonic()
    assert all_ranks(plans, leader=5.0, others=5.0) == [None, None, None]
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("absent", [0, 1])
def test_one_that_never_comes_keeps_all_back(absent: int) -> None:
    """A rank without the plugin leaves the others waiting for a while, and then none of them goes."""
    store = MemoryStore()
    present = 1 - absent
    assert agree(store, "p", present, 2, PLAN, 0.1, 0.1) is None


@pytest.mark.parametrize("late", [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3])
def test_no_timing_makes_some_go_and_others_stay(late: float) -> None:
    """Whenever ranks arrive, around and beyond every limit, all are told the same."""
    for delays in ([late, 0.0], [0.0, late]):
        told = all_ranks([PLAN, {}], delays, leader=0.15, others=0.15)
        assert told in ([PLAN, PLAN], [None, None])


def test_another_protocol_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that would not understand each other's broadcast do not begin."""
    store = MemoryStore()
    monkeypatch.setattr(ranks, "PROTOCOL", 2)
    other = threading.Thread(target=agree, args=(store, "p", 1, 2, PLAN, 0.2, 2.0))
    other.start()
    while not store.check(["p/1"]):
        time.sleep(0.001)
    monkeypatch.setattr(ranks, "PROTOCOL", 1)
    assert agree(store, "p", 0, 2, PLAN, 0.2, 2.0) is None
    other.join()


def table() -> CoefficientTable:
    """A table with two workloads."""
    basis = SplineBasis((0.0,))
    rows = {f"{name}:warm": Coefficients([0.5, at], [at, -at], at) for name, at in (("a", 0.1), ("b", 0.2))}
    return CoefficientTable("p", 7, Coefficients.cold(2, basis), rows, basis.knots)


def test_rows_are_those_of_the_table() -> None:
    """Each workload gets its row, an unknown one or a free slot the prior."""
    rows = Rows.of(table())
    slopes, intercepts, variance = rows.take(["b:warm", None, "c:warm", "a:warm"])
    assert slopes.tolist() == [[0.5, 0.2], [0.5, 0.0], [0.5, 0.0], [0.5, 0.1]]
    assert intercepts.tolist() == [[0.2, -0.2], [-0.2, -0.2], [-0.2, -0.2], [0.1, -0.1]]
    assert variance.tolist() == [0.2, 0.0, 0.0, 0.1]


def test_a_boundary_survives_the_way_to_other_ranks() -> None:
    """Every bit of every coefficient arrives, as plain values that any unpickler knows."""
    keys = ("a:warm", None, "c:hot")
    sent = Boundary(300, True, "fleet", 7, keys, Rows.of(table()))
    got = Boundary.unpack(pickle.loads(pickle.dumps(sent.pack())))
    assert got[:-1] == sent[:-1]
    assert got.rows is not None
    assert sent.rows is not None
    for ours, theirs in zip(sent.rows.take(keys), got.rows.take(keys), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert got.rows.digest(keys) == sent.rows.digest(keys)
    assert b"accord" not in pickle.dumps(sent.pack())


def test_a_digest_tells_slots_and_coefficients_apart() -> None:
    """Another order of slots or another table is another digest."""
    rows, cold = Rows.of(table()), Rows.of(CoefficientTable.cold("p", 2, (0.0,)))
    digests = {rows.digest(["a:warm", None]), rows.digest([None, "a:warm"]), cold.digest(["a:warm", None])}
    assert len(digests) == 3


class Recorder:
    """A TP group in which this rank is alone in speaking."""

    def __init__(self, rank: int, answer: Any = None) -> None:
        self.world_size, self.rank_in_group = 2, rank
        self.answer, self.sent = answer, []

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        """Takes what the first rank says, or gives it to another."""
        self.sent.append(obj)
        return self.answer if self.rank_in_group else obj


def test_the_first_rank_speaks_and_the_others_listen() -> None:
    """Both have the same boundary afterwards."""
    boundary = Boundary(10, True, "local", 0, ("a:warm",), Rows.of(table()))
    first = Recorder(0)
    told = Ranks(first).share(boundary)
    second = Recorder(1, first.sent[0])
    heard = Ranks(second).share(None)
    assert told[:-1] == heard[:-1] == boundary[:-1]
    assert told.rows is not None
    assert heard.rows is not None
    np.testing.assert_array_equal(told.rows.values, heard.rows.values)


def test_a_group_that_cannot_broadcast_is_not_hidden() -> None:
    """The transport's error reaches the engine: ranks must not go on apart."""

    class Broken(Recorder):
        def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
            raise ConnectionError("the group is gone")

    with pytest.raises(ConnectionError):
        Ranks(Broken(1)).share(None)
