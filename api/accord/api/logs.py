"""Structured logs: one JSON object a line, one line a change of state, never one a request."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("accord.api")


def event(name: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Logs that something changed, with what is needed to act on it."""
    logger.log(level, name, extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; a traceback becomes a field, so that a line stays a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().strip(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line |= fields
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: int = logging.INFO) -> None:
    """Sends the api's own events, and what goes wrong in the libraries, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # It warns of every request that is not HTTP, so anybody could fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logger.setLevel(level)
