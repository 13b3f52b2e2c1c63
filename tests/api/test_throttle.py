"""Wrong tokens are slowed, by client, in bounded memory."""

from __future__ import annotations

from accord.api.auth import throttle
from accord.api.auth.throttle import CLIENTS, FREE_FAILURES, LONGEST_WAIT_S, WAITING, Throttle


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def test_grows_and_is_forgiven() -> None:
    """The first failures cost nothing, later ones ever more up to a limit, and time forgives."""
    clock = Clock()
    slow = Throttle(clock)
    waits = [slow.failed("192.0.2.1") for _ in range(FREE_FAILURES + 20)]
    assert waits[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    assert waits[FREE_FAILURES] > 0
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT_S
    clock.now_s += 3600
    assert slow.failed("192.0.2.1") == 0.0


def test_others_are_not_slowed() -> None:
    """One client's failures cost no other one, but all addresses of one IPv6 network count together."""
    slow = Throttle(Clock())
    for number in range(FREE_FAILURES + 5):
        slow.failed("192.0.2.1")
        slow.failed(f"2001:db8::{number:x}")
    assert slow.failed("192.0.2.2") == 0.0
    assert slow.failed("2001:db8:0:1::1") == 0.0
    assert slow.failed("2001:db8::ffff") > 0.0


def test_bounded() -> None:
    """However many clients fail, only so many are remembered, and only so many answers are held back."""
    slow = Throttle(Clock())
    for number in range(2 * CLIENTS):
        slow.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(slow) == CLIENTS
    for _ in range(FREE_FAILURES + 5):
        slow.failed("192.0.2.1")
    slow.waiting = WAITING
    assert slow.failed("192.0.2.1") == 0.0


def test_log_lines() -> None:
    """The log hears of a client's first failure at once, and of those after it together, once a minute."""
    clock = Clock()
    slow = Throttle(clock)
    said = []
    for _ in range(5):
        slow.failed("192.0.2.1")
        said.append(slow.to_say("192.0.2.1"))
    clock.now_s += throttle.SAY_EVERY_S
    slow.failed("192.0.2.1")
    assert [*said, slow.to_say("192.0.2.1")] == [1, 0, 0, 0, 0, 5]
