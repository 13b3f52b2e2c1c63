"""Options and arguments that the commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..bounds import MAX_PAGE
from .client import DEFAULT_URL, Api, read_token, segment
from .failures import CommandError, Exit

COMPLETION_TIMEOUT_S = 1.0
MAX_PAIRS = 100_000


def complete_pair(incomplete: str) -> list[str]:
    """Pair ids for the shell; none when the api does not answer quickly."""
    try:
        file = os.environ.get("ACCORD_API_TOKEN_FILE")
        token = read_token(Path(file) if file else None)
        with Api(os.environ.get("ACCORD_API_URL", DEFAULT_URL), token, _ca_file(), COMPLETION_TIMEOUT_S) as api:
            return [item["id"] for item in api.get("/v1/pairs").body["pairs"] if item["id"].startswith(incomplete)]
    except (CommandError, KeyError, TypeError):
        return []


Url = Annotated[str, typer.Option("--url", envvar="ACCORD_API_URL", help="Address of the api.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="ACCORD_API_TOKEN_FILE", help="File with the token. Or set ACCORD_API_TOKEN."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PairArg = Annotated[
    str,
    typer.Argument(help="Pair id, or any part of it that no other pair has.", autocompletion=complete_pair),
]
WorkloadArg = Annotated[str | None, typer.Argument(help="Workload, `label:class`; the whole pair without one.")]
Workload = Annotated[str, typer.Argument(help="Workload, `label:class`.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; goes into the audit trail.")]
Actor = Annotated[
    str | None, typer.Option("--actor", envvar="ACCORD_ACTOR", help="Who; the login name without it.", show_default="")
]
ExpiresIn = Annotated[
    str | None, typer.Option("--expires-in", help="When it ends by itself, as 90s, 30m, 12h or 7d; never without it.")
]
Revision = Annotated[
    int | None,
    typer.Option("--revision", min=0, help="Refuse unless the pair's overrides still have this revision."),
]
Slopes = Annotated[str, typer.Option("--slopes", help="F numbers with commas; one alone is the slope without bends.")]
Intercepts = Annotated[str, typer.Option("--intercepts", help="K numbers with commas.")]
Variance = Annotated[float, typer.Option("--request-variance", min=0.0, help="Of the request effect; 0: off.")]

DEFAULT: str = DEFAULT_URL


def connect(url: str, token_file: Path | None) -> Api:
    """The api that the options name."""
    return Api(url, read_token(token_file), _ca_file())


def resolve(api: Api, text: str) -> str:
    """The pair that a text means: the one of this id, else the only one whose id contains it.

    Raises:
        CommandError: UNKNOWN when there is none, REFUSED when there are several.
    """
    if not text:
        raise CommandError("pair = '': names nothing", Exit.REFUSED)
    found: list[str] = []
    after: str | None = None
    while len(found) < MAX_PAIRS:
        page = api.get("/v1/pairs", limit=MAX_PAGE, after=after).body
        found += [item["id"] for item in page["pairs"]]
        if (after := page["next"]) is None:
            break
    if text in found:
        return text
    matches = [pair for pair in found if text in pair]
    if not matches:
        raise CommandError(f"pair = {text!r:.140}: no engine has registered such a pair", Exit.UNKNOWN)
    if len(matches) > 1:
        shown = ", ".join(matches[:3]) + (", ..." if len(matches) > 3 else "")
        raise CommandError(f"pair = {text!r:.140}: could be any of {len(matches)}: {shown}", Exit.REFUSED)
    return matches[0]


def scope_path(pair: str, workload: str | None) -> str:
    """The path of a pair, or of one of its workloads.

    Raises:
        CommandError: REFUSED for a name that would be the path of something else.

    >>> scope_path("a.b", "chat:hot")
    '/v1/pairs/a.b/workloads/chat:hot'
    """
    whole = f"/v1/pairs/{segment('pair', pair)}"
    return whole if workload is None else f"{whole}/workloads/{segment('workload', workload)}"


def seconds(text: str | None) -> int | None:
    """A duration in seconds.

    >>> seconds("12h"), seconds(None)
    (43200, None)

    Raises:
        CommandError: for anything but a whole number followed by s, m, h or d.
    """
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    if unit not in units or not (number.isascii() and number.isdigit()) or len(number) > 9 or int(number) == 0:
        raise CommandError(f"expires_in = {text!r:.120}: must be like 90s, 30m, 12h or 7d", Exit.REFUSED)
    return int(number) * units[unit]


def numbers(field: str, text: str) -> list[float]:
    """Numbers with commas between them.

    >>> numbers("slopes", "0.5,-0.1")
    [0.5, -0.1]

    Raises:
        CommandError: naming the field and the part that is no finite number.
    """
    found = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = float("nan")
        if value != value or value in (float("inf"), float("-inf")):
            raise CommandError(f"{field} = {part.strip()!r:.40}: must be finite numbers with commas", Exit.REFUSED)
        found.append(value)
    return found


def actor_or_login(actor: str | None) -> str:
    """Who acts: as said, else the login name."""
    return actor or os.environ.get("SUDO_USER") or os.environ.get("USER") or os.environ.get("LOGNAME") or "unknown"


def _ca_file() -> Path | None:
    file = os.environ.get("ACCORD_API_CA_FILE")
    return Path(file) if file else None
