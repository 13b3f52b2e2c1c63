"""The state machine, over time that passes when told to."""

from __future__ import annotations

import pytest

from accord.hooks.settings import Mode
from accord.hooks.standing import Standing, State


def standing(mode: Mode = Mode.FLEET, has_service: bool = True) -> Standing:
    """Started at 100 s, own refits after 30 s of silence, patience of 60 s."""
    return Standing(mode, has_service, 100.0, local_after_s=30.0, patience_s=60.0)


def states(subject: Standing, *times: float) -> list[State]:
    """The states at these times."""
    return [subject.state(time)[0] for time in times]


def test_starting_then_fleet() -> None:
    """An engine is starting until the first answer, and in the fleet from then on."""
    subject = standing()
    assert states(subject, 100.0) == [State.STARTING]
    subject.answered(101.0)
    assert states(subject, 101.0, 125.0) == [State.FLEET, State.FLEET]


def test_starting_then_local() -> None:
    """A service that never answers makes the engine refit itself after the limit."""
    subject = standing()
    subject.failed(101.0, 101.0, "refused")
    assert states(subject, 129.0, 131.0) == [State.STARTING, State.LOCAL]
    assert subject.state(131.0)[1] == "refused"


def test_stale_then_local_then_fleet() -> None:
    """Failures make it stale, beyond the limit local, and one answer brings it back."""
    subject = standing()
    subject.answered(110.0)
    subject.failed(120.0, 120.0, "connection refused")
    for time in (130.0, 140.0, 149.0):
        subject.failed(time, time, "connection refused")
    assert states(subject, 120.0, 150.0, 150.1) == [State.STALE, State.STALE, State.LOCAL]
    subject.answered(160.0)
    assert states(subject, 160.0) == [State.FLEET]


def test_silence_counts_from_the_last_sign_of_life() -> None:
    """A poll that timed out counts from its start, because the server gave no sign of life since."""
    subject = standing()
    subject.answered(110.0)
    subject.failed(140.0, 110.0, "ReadTimeout")
    assert states(subject, 140.0, 140.1) == [State.STALE, State.LOCAL]


def test_no_report_at_all() -> None:
    """A puller that reports nothing for longer than it may counts as silence, whatever became of it."""
    subject = standing()
    subject.answered(110.0)
    assert states(subject, 170.0, 170.1) == [State.FLEET, State.LOCAL]
    assert subject.state(170.1)[1] == "no report from the puller"


def test_observe_never_refits() -> None:
    """An observing engine stays observing, with the service's silence as its reason."""
    subject = standing(Mode.OBSERVE)
    subject.answered(110.0)
    assert subject.state(111.0) == (State.OBSERVE, "the service answers")
    subject.failed(120.0, 120.0, "refused")
    assert subject.state(500.0) == (State.OBSERVE, "refused")


@pytest.mark.parametrize(
    ("mode", "has_service", "expected"),
    [
        (Mode.LOCAL, True, (State.LOCAL, "configured")),
        (Mode.FROZEN, True, (State.FROZEN, "configured")),
        (Mode.FLEET, False, (State.LOCAL, "no service configured")),
        (Mode.OBSERVE, False, (State.OBSERVE, "no service configured")),
    ],
)
def test_configured(mode: Mode, has_service: bool, expected: tuple[State, str]) -> None:
    """What is configured holds for ever, with its reason."""
    subject = standing(mode, has_service)
    assert subject.state(100.0) == subject.state(1e6) == expected
