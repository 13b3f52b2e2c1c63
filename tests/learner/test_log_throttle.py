from __future__ import annotations

from accord.learner.log_throttle import MAX_KINDS, QUIET_S, LogThrottle


def test_more_kinds_than_are_remembered_are_one_kind() -> None:
    """Whoever invents a new kind for every line gets one line more a minute, with how many there were."""
    seconds = [0.0]
    throttle = LogThrottle(lambda: seconds[0])
    said = sum(throttle.count(f"kind {number}") > 0 for number in range(3 * MAX_KINDS))
    assert said == MAX_KINDS + 1
    assert throttle.count("kind 7") == 0
    seconds[0] = QUIET_S
    assert throttle.count("kind 0") == 1
    assert throttle.count("something else") == 1
    assert len(throttle._said) <= MAX_KINDS + 1
