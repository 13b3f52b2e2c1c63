"""The command `accord audit`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accord.learner.errors import InvalidValue

from .address import Address
from .audit import audit as run
from .http import Http
from .load import MAX_CONCURRENCY, MAX_REQUESTS, MAX_TOKENS, Load, drive
from .screen import show

KEY_VARIABLE = "ACCORD_AUDIT_API_KEY"
MAX_KEY_BYTES = 4096


def audit(
    url: Annotated[str, typer.Argument(help="The vLLM server, such as http://127.0.0.1:8000.")],
    interval: Annotated[float, typer.Option(min=0.1, max=3600.0, help="Seconds between the two readings.")] = 10.0,
    draft_ratio: Annotated[
        float | None,
        typer.Option(min=0.0, max=100.0, help="What drafting a token costs, in steps of the target model."),
    ] = None,
    load: Annotated[
        int | None, typer.Option(min=2, max=MAX_REQUESTS, help="Send so many greedy requests between the readings.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="For --load: the model, where the server has several.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=MAX_CONCURRENCY, help="For --load: requests at a time.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="For --load: tokens of an answer.")] = 64,
    api_key_file: Annotated[
        Path | None, typer.Option(help=f"File with the server's API key. [env: {KEY_VARIABLE} holds the key itself]")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600.0, help="Seconds for each answer.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Does speculation pay at a vLLM server, with or without accord's plugin? Reads its metrics page twice.

    Exit code 0: it pays, or nearly. 1: it does not. 2: that cannot be said (no traffic, no speculation, no answer).
    Nothing but the given server is asked, and without --load nothing but its metrics page.
    """
    for name, value in (("interval", interval), ("draft-ratio", draft_ratio), ("timeout", timeout)):
        if value is not None and not math.isfinite(value):
            raise InvalidValue(name, value, "must be a finite number")
    address = Address.of(url)
    with Http(timeout, _key(api_key_file), concurrency) as http:

        def traffic() -> Load:
            return drive(http, address.base, model, load or 0, concurrency, max_tokens)

        found = run(http, address, interval, draft_ratio, None if load is None else traffic)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        show(found, Console(highlight=False))
    raise typer.Exit(found.exit_code)


def _key(path: Path | None) -> str | None:
    if path is None:
        return _checked(os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE) or None
    try:
        with path.open("rb") as file:
            text = file.read(MAX_KEY_BYTES + 1).decode("ascii", "replace")
    except OSError as error:
        raise InvalidValue("api-key-file", str(path), error.strerror or "cannot be read") from None
    return _checked(text, f"api-key-file {path}")


def _checked(text: str, name: str) -> str:
    key = text.strip()
    # The key itself is never shown.
    if len(key) > MAX_KEY_BYTES or not all("!" <= c <= "~" for c in key):
        raise InvalidValue(name, "(not shown)", "must hold one key of printable ASCII characters")
    return key
