"""Switches, and the one word to the operator when something is in the way."""

from __future__ import annotations

import logging
import os

from accord.learner.errors import AccordError

DISABLE_VARIABLE, STRICT_VARIABLE = "ACCORD_DISABLE", "ACCORD_STRICT"
_NO = ("", "0", "false", "no", "off")

log = logging.getLogger("accord.hooks.vllm")
_said: set[str] = set()


class IncompatibleError(AccordError):
    """This engine cannot be estimated; the message says what stands in the way."""


def disabled() -> bool:
    """Whether ACCORD_DISABLE switches the plugin off."""
    return _is_on(DISABLE_VARIABLE)


def strict() -> bool:
    """Whether ACCORD_STRICT turns every incompatibility into an error."""
    return _is_on(STRICT_VARIABLE)


def complain(reason: str, error: BaseException | None = None) -> None:
    """One WARNING for each reason, and vLLM goes on as if the plugin were not there.

    Raises:
        IncompatibleError: instead, when ACCORD_STRICT is set.
    """
    if strict():
        raise IncompatibleError(f"accord: {reason} (ACCORD_STRICT is set)") from error
    if reason not in _said:
        _said.add(reason)
        log.warning("accord: not used, vLLM works as without it: %s", reason)


def borrow_handlers() -> None:
    """Lets accord's log lines appear where vLLM's do: it configures its own logger only, and plugins have none."""
    ours, theirs = logging.getLogger("accord"), logging.getLogger("vllm")
    if not ours.hasHandlers() and theirs.handlers:
        for handler in theirs.handlers:
            ours.addHandler(handler)
        ours.setLevel(theirs.getEffectiveLevel())


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in _NO
