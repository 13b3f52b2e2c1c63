"""Pin, shift or freeze coefficients, and lift it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from accord.learner.plain_text import plain

from .change import report, seen
from .client import Api
from .options import (
    DEFAULT,
    Actor,
    AsJson,
    ExpiresIn,
    Intercepts,
    PairArg,
    Reason,
    Revision,
    Slopes,
    TokenFile,
    Url,
    Variance,
    WorkloadArg,
    actor_or_login,
    connect,
    numbers,
    resolve,
    scope_path,
    seconds,
)
from .output import console, emit_json, table, when

override = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Pin, shift or freeze coefficients, and lift it again.",
)


@override.command("list")
def listed(pair: PairArg, url: Url = DEFAULT, token_file: TokenFile = None, json: AsJson = False) -> None:
    """List the overrides in force."""
    with connect(url, token_file) as api:
        found = api.get(f"{scope_path(resolve(api, pair), None)}/overrides").body
    if json:
        return emit_json(found)
    rows = [
        (
            item["scope"] or "the whole pair",
            item["kind"] if item["shift"] is None else f"{item['kind']} {item['shift']:+g}",
            item["actor"],
            item["reason"],
            when(item["created_ms"]),
            when(item["expires_ms"]) if item["expires_ms"] else "never",
        )
        for item in found["overrides"]
    ]
    columns = ("scope", "what", "who", "why", "since", "ends")
    console().print(table(f"revision {found['revision']}", columns, rows))
    return None


@override.command()
def pin(
    pair: PairArg,
    slopes: Slopes,
    intercepts: Intercepts,
    reason: Reason,
    workload: WorkloadArg = None,
    request_variance: Variance = 0.0,
    expires_in: ExpiresIn = None,
    actor: Actor = None,
    revision: Revision = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Serve exactly these coefficients."""
    row: dict[str, Any] = {
        "slopes": numbers("slopes", slopes),
        "intercepts": numbers("intercepts", intercepts),
        "request_variance": request_variance,
    }
    with connect(url, token_file) as api:
        pair = resolve(api, pair)
        if len(row["slopes"]) == 1:
            row["slopes"] += [0.0] * len(api.get(scope_path(pair, None)).body["knots"])
        body = {"kind": "pin", "coefficients": row}
        _put(api, pair, workload, body, reason, actor, expires_in, revision, json)


@override.command()
def shift(
    pair: PairArg,
    by: Annotated[float, typer.Option("--by", help="Added to every intercept, in log-odds.")],
    reason: Reason,
    workload: WorkloadArg = None,
    expires_in: ExpiresIn = None,
    actor: Actor = None,
    revision: Revision = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Add a number to every intercept of what is learnt."""
    with connect(url, token_file) as api:
        body = {"kind": "shift", "shift": by}
        _put(api, resolve(api, pair), workload, body, reason, actor, expires_in, revision, json)


@override.command()
def freeze(
    pair: PairArg,
    reason: Reason,
    workload: WorkloadArg = None,
    expires_in: ExpiresIn = None,
    actor: Actor = None,
    revision: Revision = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Keep the coefficients as they are now."""
    with connect(url, token_file) as api:
        _put(api, resolve(api, pair), workload, {"kind": "freeze"}, reason, actor, expires_in, revision, json)


@override.command()
def lift(
    pair: PairArg,
    reason: Reason,
    workload: WorkloadArg = None,
    actor: Actor = None,
    revision: Revision = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """End an override: the learnt coefficients return at once, or what the whole pair has over them."""
    with connect(url, token_file) as api:
        pair = resolve(api, pair)
        body = {"reason": reason, "actor": actor_or_login(actor)}
        done = api.send("DELETE", f"{scope_path(pair, workload)}/override", body, seen(api, pair, revision))
        left = workload is not None and api.find(f"{scope_path(pair, None)}/override") is not None
    what = "the whole pair's override over it" if left else "what is learnt"
    report(done, json, f"lifted: version {done.body['version']} of {pair} serves {what}")


def _put(
    api: Api,
    pair: str,
    workload: str | None,
    body: Mapping[str, Any],
    reason: str,
    actor: str | None,
    expires_in: str | None,
    revision: int | None,
    json: bool,
) -> None:
    whole = {**body, "reason": reason, "actor": actor_or_login(actor), "expires_in_s": seconds(expires_in)}
    done = api.send("PUT", f"{scope_path(pair, workload)}/override", whole, seen(api, pair, revision))
    if (warning := done.body["warning"]) is not None and not json:
        typer.echo(plain(f"warning: {warning['message']}"), err=True)
    made = done.body["override"]
    until = f" until {when(made['expires_ms'])}" if made["expires_ms"] else ""
    what = workload or "the whole pair"
    report(done, json, f"{made['kind']} of {what} is in force{until}: version {done.body['version']} of {pair}")
