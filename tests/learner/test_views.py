from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from tests.learner.strategies import KEYS, PAIR, Engine, engines, few

from accord.learner.counters import Counters
from accord.learner.errors import Refusal
from accord.learner.pair_learner import PairLearner
from accord.learner.state_codec import Learnt, encode_learnt
from accord.learner.views import pair_view, workload_view
from accord.learner.wire import encode
from accord.learner.workload import TemperatureClass


def written(view: object) -> object:
    """The view through JSON, which has no word for NaN."""
    return json.loads(json.dumps(view, allow_nan=False))


def learnt(engine: Engine, rounds: int, steps: int = 10) -> PairLearner:
    """A learner that learnt some rounds of an engine, more than a publish interval apart."""
    one = PairLearner(Learnt.new(PAIR, engine.k, engine.knots))
    for i in range(1, rounds + 1):
        one.advance([(f"{i * 1_250}-0", encode(engine.round(steps)))], i * 5 + 1)
    return one


def test_a_pair_that_nobody_has_learnt_has_an_empty_view() -> None:
    """Without a state there are no workloads, and the counters are zeros."""
    view = pair_view(None, None)
    assert view == written(view)
    assert (view["workloads"], view["labels"], view["fit_status"]) == ([], 0, None)
    assert view["counters"] == json.loads(Counters().encode())


def test_a_state_without_workloads_has_a_view() -> None:
    """A state that has folded nothing shows the cold pair."""
    view = pair_view(encode_learnt(Learnt.new(PAIR, 3, ())), b"")
    assert view == written(view)
    assert view["workloads"] == []
    assert view["pair_effects"]["slopes"] == [0.5]


@given(engines())
@few
def test_views_are_json_and_agree_with_the_state(engine: Engine) -> None:
    """Whatever was learnt, both views can be written as JSON, and their numbers are those of the state."""
    one = learnt(engine, 2, steps=4)
    body, state = encode_learnt(one.learnt), one.learnt.state
    view = pair_view(body, one.counters.encode())
    assert view == written(view)
    assert [line["workload"] for line in view["workloads"]] == list(engine.keys)
    assert view["labels"] == one.counters.labels == sum(line["labels"] for line in view["workloads"])
    for index, key in enumerate(engine.keys):
        found = workload_view(body, key)
        assert found is not None
        assert found == written(found)
        assert found["learnt"] == state.row(index).to_dict()
        assert found["coefficients"] == one.learnt.served.row(key).to_dict()
        fitted = state.arrays["intercept_errors"][index]
        assert np.all(np.array(found["standard_errors"]["intercepts"]) / fitted > 0.7)
        assert found["labels"] == state.labels[index]
        assert found["event_time_ms"] == (int(state.event_ms[index]) or None)


def test_a_large_state_has_a_view() -> None:
    """64 workloads at K = 16 with 7 knots can be shown."""
    keys = tuple(f"w{i}:{kind.value}" for i in range(16) for kind in list(TemperatureClass)[:4])
    engine = Engine(1, k=16, knots=(-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), keys=keys, requests=128)
    one = learnt(engine, 1, steps=6)
    body = encode_learnt(one.learnt)
    assert len(written(pair_view(body, one.counters.encode()))["workloads"]) == 64  # type: ignore[index]
    written(workload_view(body, keys[-1]))


def test_an_unknown_workload_has_no_view() -> None:
    """A workload that the state does not hold is None, not an error."""
    body = encode_learnt(learnt(Engine(1), 1).learnt)
    assert workload_view(body, "never:hot") is None


def test_a_held_row_says_why() -> None:
    """What the guard keeps back is shown with its numbers beside the served row."""
    one = learnt(Engine(1), 1)
    one.learnt.held = {KEYS[0]: {"worse_by": 0.1, "noise": 0.01, "labels": 300.0}}
    found = workload_view(encode_learnt(one.learnt), KEYS[0])
    assert found is not None
    assert found["held_back"] == {"worse_by": 0.1, "noise": 0.01, "labels": 300.0}


def test_damaged_bytes_are_refused() -> None:
    """Bytes that are no state raise a refusal in both views."""
    with pytest.raises(Refusal):
        pair_view(b"x", None)
    with pytest.raises(Refusal):
        workload_view(b"x", KEYS[0])
