"""`accord tail`: every publication as it happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from accord.learner.plain_text import plain

from .client import Api
from .failures import CommandError, Exit
from .options import DEFAULT, AsJson, PairArg, TokenFile, Url, connect, resolve, scope_path
from .output import cell, json_text, when

RETRY_S = (0.5, 1.0, 2.0, 5.0)
"""Waits between attempts to get back a stream that broke; the last one repeats."""


def tail(
    pair: PairArg,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many; never without it.")] = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Follow a pair: a line for every version that is published, until interrupted."""
    with connect(url, token_file) as api:
        pair = resolve(api, pair)
        shown = 0
        try:
            for entry in _published(api, pair):
                line = json_text(entry) if json else _line(entry)
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
                shown += 1
                if shown == count:
                    return
        except KeyboardInterrupt:
            return


def _published(api: Api, pair: str) -> Iterator[dict[str, Any]]:
    """History entries made from now on, oldest first; what a broken stream missed is fetched when it is back."""
    path = f"{scope_path(pair, None)}/history"
    newest = api.get(path, limit=1).body["entries"]
    # By its place in the history, which only grows: after a restored backup versions come again.
    seen = _place(newest[0]) if newest else (0, 0)
    failures = 0
    while True:
        try:
            # What was published between the look above, or the last stream, and the stream that opens now.
            for _ in _changes(api, pair):
                for entry in _newer(api, path, seen):
                    yield entry
                    seen = _place(entry)
                failures = 0
        except CommandError as error:
            if error.exit_code != Exit.UNREACHABLE:
                raise
            typer.echo(plain(f"accord: {error}; trying again"), err=True)
        time.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
        failures += 1


def _newer(api: Api, path: str, seen: tuple[int, int]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    before: str | None = None
    while True:
        page = api.get(path, limit=100, before=before).body
        found += [entry for entry in page["entries"] if _place(entry) > seen]
        before = page["next"]
        if before is None or _place(page["entries"][-1]) <= seen:
            return found[::-1]


def _place(entry: dict[str, Any]) -> tuple[int, int]:
    ms, _, number = entry["id"].partition("-")
    return int(ms), int(number)


def _changes(api: Api, pair: str) -> Iterator[None]:
    """One item when the stream has opened, and one for every change that it tells."""
    opened = False
    for line in api.lines("/v1/events", pair=pair):
        if not opened or line.startswith("data:"):
            opened = True
            yield None


def _line(entry: dict[str, Any]) -> str:
    moved = sorted(entry.get("moved") or {})
    what = ", ".join(moved[:4]) + (f" and {len(moved) - 4} more" if len(moved) > 4 else "")
    if (made := entry.get("override")) is not None:
        what = f"{made['kind']} of {made['scope'] or 'the whole pair'} by {made['actor']}: {made['reason']}"
    return f"{when(entry['published_ms'])}  version {entry['version']}  {entry['cause']:<9} {cell(what)}"
