"""Errors that say which field is wrong, with which value, and why."""

from __future__ import annotations

from enum import StrEnum


class AccordError(Exception):
    """Base of every error that accord raises on purpose.

    Attributes:
        exit_code: what a command ends with when it fails so; 2 for what the caller can mend.
    """

    exit_code = 2


class Reason(StrEnum):
    """Why something from outside was refused: a closed set, so that it can be counted."""

    SIZE = "size"
    """Larger than anything the contract allows."""
    SCHEMA = "schema"
    """Not this format, or a version of it that is not known here."""
    SHAPE = "shape"
    """Arrays that do not fit each other, the pair's K or its knots."""
    NOT_FINITE = "not_finite"
    """NaN or infinity where a number belongs."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """A finite number outside what is possible."""
    INCONSISTENT = "inconsistent"
    """Numbers that no set of labels can produce together."""
    WRONG_PAIR = "wrong_pair"
    """Evidence or coefficients of another pair."""
    KNOTS = "knots"
    """Another spline basis than the pair's."""
    DUPLICATE = "duplicate"
    """A summary whose rounds were learnt already."""
    OVERLAP = "overlap"
    """A summary that repeats some rounds and adds others."""
    WORKLOADS = "workloads"
    """More distinct workloads than a pair may have."""
    STALE = "stale"
    """A version older than the one in force."""


class InvalidValue(AccordError, ValueError):
    """A value that cannot be used; the message names the field and shows the value.

    Attributes:
        reason: the kind of fault that a refusal counts when the value came from outside.

    >>> str(InvalidValue("k", 0, "must be between 1 and 64"))
    'k = 0: must be between 1 and 64'
    """

    def __init__(self, field: str, value: object, why: str, reason: Reason = Reason.SCHEMA) -> None:
        self.field = field
        self.why = why
        self.reason = reason
        shown = repr(value)
        if len(shown) > 120:
            shown = f"{shown[:117]}..."
        super().__init__(f"{field} = {shown}: {why}")


class Refusal(AccordError):
    """Something from outside was refused; nothing of it was applied.

    Attributes:
        reason: the kind of fault, from a closed set.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}")
