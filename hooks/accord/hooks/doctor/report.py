"""What a check found, and all of it together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1
SHOWN = 400


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as well as it could, or not for long."""
    FAIL = "fail"
    """It does not work."""
    SKIP = "skip"
    """Not configured, or not to be told from here."""


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: stable, for programs.
        status: see `Status`.
        found: what is the case, one sentence.
        advice: what to do; empty when there is nothing to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        """Plain values."""
        return {"name": self.name, "status": self.status.value, "found": self.found, "advice": self.advice}


def ok(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name, Status.OK, found)


def warn(name: str, found: str, advice: str) -> Check:
    """It works, with a catch."""
    return Check(name, Status.WARN, found, advice)


def fail(name: str, found: str, advice: str) -> Check:
    """It does not work."""
    return Check(name, Status.FAIL, found, advice)


def skip(name: str, found: str, advice: str = "") -> Check:
    """Nobody can tell, or nobody asked."""
    return Check(name, Status.SKIP, found, advice)


@dataclass
class Report:
    """All findings, in the order of the checks.

    Args:
        secrets: texts that must appear nowhere; what is added later is cleaned of them.

    >>> report = Report(secrets=["hunter2"])
    >>> report.add([fail("redis.reach", "AUTH hunter2 refused", "mend it")])
    >>> report.checks[0].found, report.exit_code
    ('AUTH *** refused', 1)
    """

    secrets: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when something would not work, else 0."""
        return 1 if any(check.status is Status.FAIL for check in self.checks) else 0

    def add(self, checks: Iterable[Check]) -> None:
        """Takes findings in, one line each, without secrets."""
        for check in checks:
            self.checks.append(Check(check.name, check.status, self._clean(check.found), self._clean(check.advice)))

    def to_dict(self, **facts: Any) -> dict[str, Any]:
        """The stable form: `schema`, `ok`, the facts, `counts` by status, and `checks`."""
        counts = {status.value: sum(check.status is status for check in self.checks) for status in Status}
        checks = [check.to_dict() for check in self.checks]
        return {"schema": SCHEMA, "ok": self.exit_code == 0, **facts, "counts": counts, "checks": checks}

    def _clean(self, text: str) -> str:
        text = " ".join(text.split())
        # The longest first: a secret may be a part of another.
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
