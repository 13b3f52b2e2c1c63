"""What the commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accord.learner.plain_text import plain

NONE = "-"


def emit_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    r"""A value as JSON, with what a terminal would obey escaped: JSON itself asks that of some control characters only.

    >>> json_text("é \x9b \u202e")
    '"é \\u009b \\u202e"'
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def console() -> Console:
    """Where tables go. Piped into a program, nothing is cut to the width of a terminal."""
    out = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    if not sys.stdout.isatty():
        out.width = 240
    return out


def say(text: str, out: Console | None = None) -> None:
    """One line for people, which may quote what engines and operators wrote."""
    (out or console()).print(plain(text), markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table whose numbers stand on the right; every cell is text, never markup."""
    rows = [[cell(value) for value in row] for row in rows]
    made = Table(title=escape(plain(title)), title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(_numeric(row[index]) for row in rows) and bool(rows)
        made.add_column(escape(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(text) for text in row))
    return made


def cell(value: Any) -> str:
    """A value as people read it.

    >>> cell(0.12345), cell(None), cell(12000), cell(True)
    ('0.1235', '-', '12,000', 'yes')
    """
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return plain(value)


def when(ms: int | None) -> str:
    """Unix milliseconds as local time to the second.

    >>> when(None), when(0)
    ('-', '-')
    """
    if not ms:
        return NONE
    return datetime.fromtimestamp(ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(ms: int | None) -> str:
    """A length of time in its largest unit.

    >>> span(1500), span(90_000), span(None)
    ('1.5 s', '1.5 min', '-')
    """
    if ms is None:
        return NONE
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms} ms"


def _numeric(text: str) -> bool:
    return text == NONE or text.replace(",", "").replace(".", "").replace("-", "").replace("e", "").isdigit()
