"""Structured logs of the service: one line a change of state, never one a request or a tick.

Every line has the same first fields: `ts` (RFC 3339, UTC), `level`, `component` (the process: `learner` or `api`),
`event` (a few fixed words to search for), and then what is needed to act on it, `pair` first where there is one.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from typing import Any

from .errors import InvalidValue

FORMAT_VARIABLE = "ACCORD_LOG_FORMAT"
LONGEST_TEXT = 2_000
"""Characters of one field: what a client or a server said is quoted, but never at any length."""


def event(logger: logging.Logger, name: str, *, level: int = logging.INFO, error: bool = False, **fields: Any) -> None:
    """Logs that something changed.

    Args:
        logger: whose line it is.
        name: what happened, in fixed words.
        level: of the logging module.
        error: whether the exception that is being handled belongs to the line.
        fields: plain values.
    """
    logger.log(level, name, exc_info=error, extra={"fields": fields})


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that `event` gave a record; none for a line of a library."""
    fields = getattr(record, "fields", None)
    return dict(fields) if isinstance(fields, Mapping) else {}


class _Formatter(logging.Formatter):
    def __init__(self, component: str) -> None:
        super().__init__()
        self.component = component

    def line(self, record: logging.LogRecord) -> dict[str, Any]:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found = {
            "ts": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "component": self.component,
            "event": _plain(record.getMessage().strip()),
        }
        given = fields_of(record)
        if "pair" in given:
            found["pair"] = given["pair"]
        found |= {name: _plain(value) for name, value in given.items() if name not in found}
        found["logger"] = record.name
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return found


class JsonFormatter(_Formatter):
    """A record as one line of JSON; a traceback becomes a field, so that a line stays a line.

    Args:
        component: which process writes.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        return json.dumps(self.line(record), default=str)


class TextFormatter(_Formatter):
    """The same for people: `ts LEVEL component event name=value ...`, then the traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        line = self.line(record)
        trace = line.pop("traceback", None)
        head = [line.pop("ts"), line.pop("level").upper(), line.pop("component"), _word(line.pop("event"), spaces=True)]
        text = " ".join([*head, *(f"{name}={_word(value)}" for name, value in line.items())])
        return text if trace is None else f"{text}\n{trace}"


FORMATS: Mapping[str, type[_Formatter]] = {"json": JsonFormatter, "text": TextFormatter}


def configure(component: str, environment: Mapping[str, str] = os.environ) -> None:
    """Sends accord's own events, and what goes wrong in the libraries, to stderr, in the form that ACCORD_LOG_FORMAT
    names: `json` (the default) or `text`.

    Raises:
        InvalidValue: for another name.
    """
    wanted = environment.get(FORMAT_VARIABLE) or "json"
    if wanted not in FORMATS:
        raise InvalidValue(FORMAT_VARIABLE, wanted, f"must be one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[wanted](component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("accord").setLevel(logging.INFO)


def _plain(value: Any) -> Any:
    """Something that JSON can hold: NaN becomes a word, and a long text is cut."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[: LONGEST_TEXT - 3]}..."
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value


def _word(value: Any, *, spaces: bool = False) -> str:
    """A value that cannot break the line: as it is, or as JSON where it holds what would."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    bare = text.replace(" ", "") if spaces else text
    plain = isinstance(value, str) and bare.isprintable() and '"' not in bare and "=" not in bare and " " not in bare
    return text if plain or not isinstance(value, str) else json.dumps(value)
