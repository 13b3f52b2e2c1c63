"""`accord rollback` and `what-if`, and what every change has in common.

A change names the revision of the pair's overrides that it was made against, so that of two operators who write at
once one is told.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .client import Answer, Api
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
    Workload,
    WorkloadArg,
    actor_or_login,
    connect,
    numbers,
    resolve,
    scope_path,
    seconds,
)
from .output import cell, console, emit_json, say, table, when


def rollback(
    pair: PairArg,
    version: Annotated[int, typer.Option("--version", min=0, help="The version to serve again; see `accord history`.")],
    reason: Reason,
    workload: WorkloadArg = None,
    hold: Annotated[bool, typer.Option(help="Keep it until lifted, or only until the next publication.")] = True,
    expires_in: ExpiresIn = None,
    actor: Actor = None,
    revision: Revision = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Publish an old version again, as a new one."""
    with connect(url, token_file) as api:
        pair = resolve(api, pair)
        body = {
            "version": version,
            "reason": reason,
            "actor": actor_or_login(actor),
            "hold": hold,
            "expires_in_s": seconds(expires_in),
        }
        done = api.send("POST", f"{scope_path(pair, workload)}/rollback", body, seen(api, pair, revision))
    kept = done.body["override"]
    ends = None if kept is None else kept["expires_ms"]
    held = "until the next publication" if kept is None else f"held until {when(ends) if ends else 'lifted'}"
    report(done, json, f"version {version} is served again as version {done.body['version']}, {held}")


def what_if(
    pair: PairArg,
    workload: Workload,
    slopes: Slopes,
    intercepts: Intercepts,
    request_variance: Variance = 0.0,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Say how well any coefficients would have predicted the recent traffic."""
    given = numbers("slopes", slopes)
    row = {"slope": given[0]} if len(given) == 1 else {"slopes": given}
    body = {**row, "intercepts": numbers("intercepts", intercepts), "request_variance": request_variance}
    with connect(url, token_file) as api:
        found = api.send("POST", f"{scope_path(resolve(api, pair), workload)}/what-if", body).body
    if json:
        return emit_json(found)
    say(f"{found['verdict'].replace('_', ' ')}: {found['message']}")
    names = ("log_loss", "ece", "auc", "brier", "accepted_per_step")
    sides = [("proposed", found["proposed"]), ("in force", found["in_force"]), ("learnt", found["learnt"])]
    rows = [(side, *(values.get(name) for name in names)) for side, values in sides if values is not None]
    columns = ("", "log-loss", "ECE", "AUC", "Brier", "accepted per step")
    console().print(table(f"{cell(found['labels'])} recent labels", columns, rows))
    return None


def seen(api: Api, pair: str, revision: int | None) -> str:
    """What If-Match says: the revision that was asked for, else the one that is there now."""
    if revision is not None:
        return f'"{revision}"'
    return api.get(f"{scope_path(pair, None)}/overrides").etag or "*"


def report(done: Answer, json: bool, text: str) -> None:
    """Says what was done."""
    if json:
        emit_json(done.body)
    else:
        say(text)
