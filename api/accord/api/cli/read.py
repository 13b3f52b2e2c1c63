"""`accord pairs`, `show`, `engines`, `history` and `advice`: what is known, as tables or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..bounds import MAX_PAGE
from .options import DEFAULT, AsJson, PairArg, TokenFile, Url, Workload, WorkloadArg, connect, resolve, scope_path
from .output import NONE, cell, console, emit_json, say, span, table, when

Limit = Annotated[int, typer.Option("--limit", min=1, max=MAX_PAGE, help="How many, newest first.")]


def pairs(url: Url = DEFAULT, token_file: TokenFile = None, json: AsJson = False) -> None:
    """List the registered pairs."""
    with connect(url, token_file) as api:
        items: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = api.get("/v1/pairs", limit=MAX_PAGE, after=after).body
            items += page["pairs"]
            if (after := page["next"]) is None:
                break
    if json:
        return emit_json(items)
    rows = (
        (item["id"], item["version"], when(item["published_ms"]), item["workloads"], item["identity"]["method"])
        for item in items
    )
    console().print(table(f"{len(items)} pairs", ("pair", "version", "published", "workloads", "method"), rows))
    return None


def show(
    pair: PairArg,
    workload: WorkloadArg = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Show a pair, or one of its workloads with its coefficients."""
    with connect(url, token_file) as api:
        found = api.get(scope_path(resolve(api, pair), workload)).body
    if json:
        return emit_json(found)
    return _show_pair(found) if workload is None else _show_workload(found)


def engines(pair: PairArg, url: Url = DEFAULT, token_file: TokenFile = None, json: AsJson = False) -> None:
    """List the engines of a pair: what they apply, and when they last reported."""
    with connect(url, token_file) as api:
        found = api.get(scope_path(resolve(api, pair), None)).body
    if json:
        return emit_json(found["engines"])
    rows = []
    for engine in found["engines"]:
        version, status = engine["version"], engine["status"]
        behind = None if version is None else max(0, found["version"] - version)
        # An api of before tells only what the engine said.
        state = engine.get("state", status.get("state"))
        rows.append((engine["engine"], state, version, behind, span(engine["silent_ms"]), _why(status)))
    columns = ("engine", "state", "version", "behind", "silent for", "why")
    console().print(table(f"{found['id']}, version {found['version']} in force", columns, rows))
    return None


def history(
    pair: PairArg,
    workload: WorkloadArg = None,
    limit: Limit = 20,
    cause: Annotated[str | None, typer.Option("--cause", help="Only this cause, such as drift or override.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="What people did, instead of what was published.")] = False,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Show what was published, when and why; with --audit, who changed what."""
    with connect(url, token_file) as api:
        whole = scope_path(resolve(api, pair), None)
        if audit:
            entries = api.get(f"{whole}/audit", limit=limit).body["entries"]
        else:
            entries = api.get(f"{whole}/history", limit=limit, workload=workload, cause=cause).body["entries"]
    if json:
        return emit_json(entries)
    if audit:
        columns: tuple[str, ...] = ("when", "who", "did", "to", "why", "version")
        rows = [
            (
                when(entry["at_ms"]),
                _who(entry),
                f"{entry['action']} {_kind(entry)}".strip(),
                entry["scope"] or "the whole pair",
                entry["reason"],
                f"{entry['version_before']} > {entry['version_after']}",
            )
            for entry in entries
        ]
    else:
        columns = ("version", "published", "cause", "labels", "moved", "held back", "log-loss", "ECE")
        rows = [_history_row(entry, workload) for entry in entries]
    console().print(table(pair if workload is None else f"{pair} {workload}", columns, rows))
    return None


def advice(
    pair: PairArg,
    workload: Workload,
    draft_ratio: Annotated[
        float | None,
        typer.Option("--draft-ratio", help="Cost of one draft token over one target step, where no engine tells."),
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Requests in a step.")] = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Say whether speculation pays for a workload, and which K pays best."""
    with connect(url, token_file) as api:
        path = scope_path(resolve(api, pair), workload)
        found = api.get(f"{path}/advice", draft_ratio=draft_ratio, batch=batch).body
    if json:
        return emit_json(found)
    out = console()
    say(f"{workload}: speculation {found['verdict']}. {found['message']}", out)
    for note in found["notes"]:
        say(f"- {note}", out)
    costs = found["tokens_per_cost"] or [None] * len(found["tokens_per_step"])
    rows = [
        (k, found["acceptance"][k - 1] if k else None, tokens, costs[k], "best" if k == found["best_k"] else "")
        for k, tokens in enumerate(found["tokens_per_step"])
    ]
    columns = ("K", "acceptance of its last position", "tokens per step", "tokens per cost", "")
    out.print(table(f"costs from: {found['cost_source']}", columns, rows))
    return None


def _show_pair(found: Mapping[str, Any]) -> None:
    out = console()
    identity = found["identity"]
    say(f"{found['id']}: {identity['target']} with {identity['draft']}", out)
    held = found.get("overrides") or 0
    lag = found["lag"]
    say(
        f"version {found['version']} since {when(found['published_ms'])}, {cell(found['labels'])} labels, "
        f"last refit {found['fit_status'] or NONE}, {lag['entries']} summaries waiting ({span(lag['ms'])}), "
        f"{len(found['engines'])} engines, {held} overrides",
        out,
    )
    columns = ("workload", "labels", "accepted", "log-loss", "ECE", "AUC", "Brier", "last evidence")
    rows = [
        (
            *(item[name] for name in ("workload", "labels", "accepted", "log_loss", "ece", "auc", "brier")),
            when(item["event_time_ms"]),
        )
        for item in found["workloads"]
    ]
    out.print(table(f"{len(rows)} workloads", columns, rows))


def _show_workload(found: Mapping[str, Any]) -> None:
    out = console()
    calibration, errors = found["calibration"], found["standard_errors"]
    prior = " (not seen yet: the prior)" if found["prior"] else ""
    say(
        f"{found['workload']}{prior}: version {found['version']}, {cell(found['labels'])} labels, "
        f"log-loss {cell(calibration['log_loss'])}, ECE {cell(calibration['ece'])}, AUC {cell(calibration['auc'])}",
        out,
    )
    if (override := found.get("override")) is not None:
        until = f" until {when(override['expires_ms'])}" if override["expires_ms"] else ""
        say(f"override: {override['kind']} by {override['actor']}{until}: {override['reason']}", out)
    row = found["coefficients"]
    learnt = found.get("learnt") or row
    rows: list[tuple[Any, ...]] = []
    for name in ("slopes", "intercepts"):
        wrong = errors[name] if errors else [None] * len(row[name])
        rows += [
            (f"{name[:-1]} {index}", value, learnt[name][index], wrong[index]) for index, value in enumerate(row[name])
        ]
    rows.append(("request variance", row["request_variance"], learnt["request_variance"], None))
    out.print(table("coefficients", ("", "in force", "learnt", "standard error"), rows))


def _history_row(entry: Mapping[str, Any], workload: str | None) -> tuple[Any, ...]:
    labels, metrics = entry.get("labels") or {}, entry.get("metrics") or {}
    chosen = metrics.get(workload, {}) if workload else {}
    return (
        entry["version"],
        when(entry["published_ms"]),
        entry["cause"],
        labels.get(workload) if workload else sum(labels.values()),
        len(entry.get("moved") or {}),
        len(entry.get("held") or {}),
        chosen.get("log_loss"),
        chosen.get("ece"),
    )


def _why(status: Mapping[str, Any]) -> Any:
    """What stands in an engine's way: a refused table, evidence that does not get out, else the reason of its state."""
    reason = None if status.get("state") == "fleet" else status.get("reason")
    nack = status.get("nack")
    if isinstance(nack, dict):
        nack = f"{nack.get('reason')}: {nack.get('detail')}"
    return nack or status.get("publisher_error") or reason


def _who(entry: Mapping[str, Any]) -> str:
    actor, token = entry["actor"] or NONE, entry["token"]
    return actor if token in (None, actor) else f"{actor} (token {token})"


def _kind(entry: Mapping[str, Any]) -> str:
    changed = entry["after"] or entry["before"]
    return changed["kind"] if changed else ""
