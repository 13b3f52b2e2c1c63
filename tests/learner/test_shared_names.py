"""Two processes under one engine name, as the learner sees them."""

from __future__ import annotations

from tests.learner.strategies import Engine

from accord.learner.pair_learner import PairLearner
from accord.learner.state_codec import Learnt
from accord.learner.wire import encode


def test_two_processes_under_one_name_are_counted_and_both_learnt() -> None:
    """Rounds of both boots are learnt once each, and the counters name the engine and the two boots."""
    one, two = Engine(1, boot="a" * 16), Engine(2, boot="b" * 16)
    learner = PairLearner(Learnt.new(one.pair, one.k, one.knots))
    made = [one.round(5), two.round(5), one.round(5), two.round(5)]
    learner.advance([(f"{1000 * (i + 1)}-0", encode(summary)) for i, summary in enumerate(made)], 1 << 40)
    counters = learner.counters
    assert (counters.rounds, counters.rounds_missing, counters.shared) == (4, 0, 2)
    assert counters.last_shared == {"engine": "host-1/0", "boot": "b" * 16, "other": "a" * 16}
