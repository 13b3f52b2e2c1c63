"""Where an engine stands with the service: a pure function of reports and time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .settings import Mode


class State(StrEnum):
    """What is in force at an engine, and why it may be."""

    STARTING = "starting"
    """No answer yet, and not for long: bootstrap or cold coefficients."""
    FLEET = "fleet"
    """The service answers."""
    STALE = "stale"
    """The service does not answer, but not for long: its last good coefficients."""
    LOCAL = "local"
    """The engine refits itself."""
    OBSERVE = "observe"
    """Measuring only."""
    FROZEN = "frozen"
    """The bootstrap table, for good."""


@dataclass(frozen=True)
class Contact:
    """The last word on the service. Replaced as a whole, so readers need no lock.

    Attributes:
        answered: whether it ever gave a usable answer (a table, or 304).
        reported_at: when the last report came, seconds.
        silent_since: when it stopped to answer, seconds; None while it answers.
        reason: why not.
    """

    answered: bool
    reported_at: float
    silent_since: float | None
    reason: str


class Standing:
    """The state machine; reports come from the puller's thread, questions from any.

    Args:
        mode: what was asked for.
        has_service: whether a service is configured at all.
        started_at: seconds, on the same clock as everything else here.
        local_after_s: silence beyond this makes the engine refit itself.
        patience_s: no report at all for this long counts as silence, whatever became of the reporter.

    >>> standing = Standing(Mode.FLEET, True, 0.0, local_after_s=30.0, patience_s=60.0)
    >>> standing.answered(1.0)
    >>> standing.failed(10.0, 9.0, "connection refused")
    >>> [standing.state(t)[0].value for t in (12.0, 39.0, 39.5)]
    ['stale', 'stale', 'local']
    """

    def __init__(
        self, mode: Mode, has_service: bool, started_at: float, local_after_s: float, patience_s: float
    ) -> None:
        self._mode, self._has_service = mode, has_service
        self._local_after_s, self._patience_s = local_after_s, patience_s
        self.contact = Contact(False, started_at, started_at, "no answer yet")

    def answered(self, now: float) -> None:
        """The service gave a usable answer."""
        self.contact = Contact(True, now, None, "")

    def failed(self, now: float, since: float, reason: str) -> None:
        """It did not; `since` is when it last showed a sign of life, for a first failure."""
        known = self.contact
        started = known.silent_since if known.silent_since is not None else max(since, known.reported_at)
        self.contact = Contact(known.answered, now, started, reason)

    def state(self, now: float) -> tuple[State, str]:
        """State and reason at a time."""
        if self._mode is Mode.FROZEN:
            return State.FROZEN, "configured"
        if self._mode is Mode.LOCAL:
            return State.LOCAL, "configured"
        if not self._has_service:
            return (State.OBSERVE if self._mode is Mode.OBSERVE else State.LOCAL), "no service configured"
        since, reason = self._silence(now)
        if self._mode is Mode.OBSERVE:
            return State.OBSERVE, reason or "the service answers"
        if since is None:
            return State.FLEET, "the service answers"
        if now - since > self._local_after_s:
            return State.LOCAL, reason
        return (State.STALE if self.contact.answered else State.STARTING), reason

    def _silence(self, now: float) -> tuple[float | None, str]:
        contact = self.contact
        if contact.silent_since is None and now - contact.reported_at > self._patience_s:
            return contact.reported_at, "no report from the puller"
        return contact.silent_since, contact.reason
