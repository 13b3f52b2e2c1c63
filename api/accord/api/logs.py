"""The api's own log lines; their form is the one of the whole service (`accord.learner.logs`)."""

from __future__ import annotations

import logging
from typing import Any

from accord.learner import logs

logger = logging.getLogger("accord.api")


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Logs that something changed, with what is needed to act on it."""
    logs.event(logger, name, level=level, **fields)


def configure() -> None:
    """Sends the api's own events, and what goes wrong in the libraries, to stderr.

    Raises:
        InvalidValue: for a format that is not known.
    """
    logs.configure("api")
    # It warns of every request that is not HTTP, so anybody could fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
