"""The API: there, ready, willing to talk to this engine, and with something to say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from accord.learner.errors import Refusal
from accord.learner.store import safe_url

from ..credentials import CredentialError, Credentials
from ..judge import Judge
from ..settings import Mode
from .facts import Facts
from .http import Http, Reply
from .report import Check, fail, ok, skip, warn

CERTIFICATE_DAYS = 14
LAG_MS = 10_000
_TABLE = "api.coefficients"


def check_api(facts: Facts, seconds: float) -> Iterator[Check]:
    """livez, readyz, the token, the table that an engine would get, and whether somebody learns."""
    settings = facts.settings
    if settings is None or settings.api_url is None:
        yield skip("api.live", "ACCORD_API_URL is not set: the engine refits itself")
        return
    facts.api_works = False
    try:
        http = Http(settings, seconds)
    except CredentialError as error:
        facts.api_reason = str(error)
        yield fail("api.live", str(error), "engines keep trying; write the file, or correct its name")
        return
    try:
        live = _live(facts, http)
        yield from live
        if live[0].status == "fail":
            return
        ready = _ready(http)
        yield ready
        if facts.pair is None:
            yield skip(_TABLE, "which table depends on the pair, which is not known")
            return
        table = _coefficients(facts, http, Judge(facts.pair.id, facts.pair.k, settings.knots))
        yield table
        facts.api_works = ready.status != "fail" and table.status != "fail"
        facts.api_reason = "" if facts.api_works else (table if table.status == "fail" else ready).found
        if facts.api_works and settings.mode in (Mode.FLEET, Mode.OBSERVE):
            yield from _learner(facts, http)
    finally:
        http.close()


def _live(facts: Facts, http: Http) -> list[Check]:
    shown = safe_url(http.url)
    try:
        reply = http.get("/livez")
    except httpx.HTTPError as error:
        facts.api_reason = f"{type(error).__name__}: {error}"
        text = str(error)
        advice = "check host and port, that accord api runs, and what the network lets through"
        if "CERTIFICATE_VERIFY_FAILED" in text:
            advice = "name the authority that signed it in ACCORD_API_CA_FILE"
        elif "SSL" in text or "WRONG_VERSION" in text:
            advice = "is this port served with TLS? ACCORD_API_URL says https://"
        return [fail("api.live", f"{shown}: {facts.api_reason}", advice)]
    _clock(facts, reply)
    if reply.status != 200:
        facts.api_reason = f"HTTP {reply.status}"
        advice = "is this accord's API? ACCORD_API_URL is its address without /v1"
        return [fail("api.live", f"{shown}/livez answers HTTP {reply.status}", advice)]
    told = f"{shown} answers in {reply.took_s * 1e3:.1f} ms"
    if reply.tls is None:
        return [ok("api.live", told)]
    protocol, end_s = reply.tls
    days = None if end_s is None else (end_s - time.time()) / 86_400.0
    checks = [ok("api.live", f"{told}, {protocol}")]
    if days is not None and days < CERTIFICATE_DAYS:
        checks.append(warn("api.live", f"its certificate ends in {days:.0f} days", "renew it"))
    return checks


def _clock(facts: Facts, reply: Reply) -> None:
    try:
        date_s = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except (TypeError, ValueError):
        return
    # The header names the second that has begun.
    facts.skews_s["the API"] = (date_s + 0.5 - (reply.began_s + 0.5 * reply.took_s), 0.5 + 0.5 * reply.took_s)


def _ready(http: Http) -> Check:
    reply = _get(http, "/readyz")
    if isinstance(reply, str):
        return fail("api.ready", reply, "see the API's log")
    if reply.status == 200:
        return ok("api.ready", "its store answers and announces changes")
    return fail("api.ready", f"HTTP {reply.status}: {_message(reply)}", "see the API's log, and its ACCORD_REDIS_URL")


def _coefficients(facts: Facts, http: Http, judge: Judge) -> Check:
    reply = _get(http, f"/v1/pairs/{judge.pair}/coefficients")
    if isinstance(reply, str):
        return fail(_TABLE, reply, "see the API's log")
    if reply.status in (401, 403):
        credentials = Credentials.of(facts.settings) if facts.settings is not None else Credentials()
        told = f"the token of {credentials.source} is refused" if credentials.given else "the API wants a token"
        message = _message(reply)
        advice = "write a token of the role engine into a file, and name it in ACCORD_API_TOKEN_FILE"
        return fail(_TABLE, f"HTTP {reply.status}: {told}{f': {message}' if message else ''}", advice)
    if reply.status == 404:
        facts.registered = bool(facts.registered)
        if facts.registered:
            return fail(_TABLE, "the pair is in Redis, but not in the API's store", "do both use the same Redis?")
        return ok(_TABLE, "nothing yet: the pair is not registered, its first engine does that")
    if reply.status != 200:
        return fail(_TABLE, f"HTTP {reply.status}: {_message(reply)}", "see the API's log")
    if reply.headers.get("content-encoding", "identity") != "identity":
        return fail(_TABLE, "the body comes compressed", "stop whatever stands between from compressing it")
    try:
        table = judge.decode(reply.body)
    except Refusal as refusal:
        advice = "set ACCORD_KNOTS to the pair's" if refusal.reason == "knots" else "see the API's log"
        return fail(_TABLE, f"an engine would refuse this table: {refusal}", advice)
    facts.version, facts.registered = table.version, True
    facts.knots = facts.knots if facts.knots is not None else table.knots
    if reply.headers.get("accord-stale") == "true":
        return warn(_TABLE, f"version {table.version}, but the API has lost its store", "see its log")
    if table.version == 0:
        return ok(_TABLE, "version 0, the cold start: nothing has been published for this pair yet")
    age_s = max(time.time() - table.published_ms / 1e3, 0.0)
    told = f"version {table.version}, published {_ago(age_s)} ago, {len(table.workloads)} workloads"
    return ok(_TABLE, f"{told}{', token accepted' if _guarded(facts, http, judge) else ''}")


def _guarded(facts: Facts, http: Http, judge: Judge) -> bool:
    """Whether the API asks for a token at all; otherwise a good answer says nothing of ours."""
    if facts.settings is None or not Credentials.of(facts.settings).given:
        return False
    try:
        return http.get(f"/v1/pairs/{judge.pair}/coefficients", token=False).status in (401, 403)
    except httpx.HTTPError:
        return False


def _learner(facts: Facts, http: Http) -> Iterator[Check]:
    assert facts.pair is not None
    reply = _get(http, f"/v1/pairs/{facts.pair.id}")
    if isinstance(reply, str):
        yield warn("learner", f"the API does not tell how far it is: {reply}", "see the API's log")
        return
    if reply.status in (401, 403):
        yield skip(
            "learner", "not checked: this token may not see how far the learner is, which is right for an engine"
        )
        return
    if reply.status != 200:
        if facts.registered:
            told = f"the API does not tell how far it is: HTTP {reply.status}: {_message(reply)}"
            yield warn("learner", told, "see the API's log, and the learner's")
        return
    lag = _object(_object(reply.body).get("lag"))
    entries, late_ms = lag.get("entries"), lag.get("ms")
    if not isinstance(entries, int) or not isinstance(late_ms, int):
        yield skip("learner", "not checked: the API says nothing about its lag")
    elif late_ms > LAG_MS:
        advice = "does a learner run on this Redis? one that is too slow says so in its log"
        yield warn("learner", f"{entries} rounds wait, the oldest for {_ago(late_ms / 1e3)}", advice)
    else:
        yield ok("learner", f"{entries} rounds wait to be learnt")


def _get(http: Http, path: str) -> Reply | str:
    try:
        return http.get(path)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"


def _message(reply: Reply) -> str:
    return str(_object(_object(reply.body).get("error")).get("message", ""))[:200]


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _ago(seconds: float) -> str:
    for size, unit in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
