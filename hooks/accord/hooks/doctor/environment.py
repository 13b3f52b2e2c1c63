"""The ACCORD_ variables: usable, and spelt as accord reads them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from accord.learner.errors import InvalidValue
from accord.learner.store import connect_async, safe_url

from ..credentials import CredentialError, Credentials
from ..settings import VARIABLES, AgentSettings, Mode, SettingError
from ..vllm.identity import DRAFT_VARIABLE, TARGET_VARIABLE, was_asked_for
from ..vllm.notice import DISABLE_VARIABLE, STRICT_VARIABLE
from ..vllm.workloads import LABELS_VARIABLE, ORDER_VARIABLE, SLOTS_VARIABLE, LabelRules, workload_slots
from .facts import Facts
from .report import Check, fail, ok, warn

KNOWN = {
    *VARIABLES.values(),
    TARGET_VARIABLE,
    DRAFT_VARIABLE,
    LABELS_VARIABLE,
    ORDER_VARIABLE,
    SLOTS_VARIABLE,
    DISABLE_VARIABLE,
    STRICT_VARIABLE,
}
"""What an engine reads. The other processes have variables of their own, under the prefixes below."""

OTHERS = ("ACCORD_API_", "ACCORD_LEARNER_", "ACCORD_LOG_")
SHORTEST_SECRET = 4

_LOCAL = re.compile(r"(localhost|127\.[0-9.]+|\[?::1\]?)?")


def check_environment(facts: Facts) -> Iterator[Check]:
    """Every setting on its own, then all of them together; fills in the settings and whether anybody asked."""
    env = facts.environ
    faults = [fault for fault in (_fault(variable, env) for variable in VARIABLES.values()) if fault]
    faults += _others(env)
    if not faults:
        try:
            mode = None if was_asked_for(env) else Mode.LOCAL.value
            facts.settings = AgentSettings.from_env(env, mode=mode)
        except SettingError as error:
            faults.append(str(error))
    facts.asked = was_asked_for(env)
    for fault in faults:
        yield fail("settings", fault, "vLLM would work as without accord; correct the variable")
    unknown = list(_misspelt(env))
    for name, meant in unknown:
        advice = f"did you mean {meant}?" if meant else "remove it, or see docs/operate.md for the names"
        yield warn("settings", f"{name} is not a setting of accord", advice)
    if facts.settings is not None:
        yield from _in_clear(facts.settings)
        if not unknown:
            yield ok("settings", _summary(facts.settings, env))


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Everything in the settings that must not be shown, as it is written and as it is meant."""
    token, url = environ.get(VARIABLES["api_token"], ""), environ.get(VARIABLES["redis_url"], "")
    found = [token, _token_in(environ.get(VARIABLES["api_token_file"], ""))]
    credentials = url.rpartition("@")[0].rpartition("//")[2]
    found.append(credentials.partition(":")[2])
    try:
        query = urlsplit(url).query
    except ValueError:
        query = url.partition("?")[2]
    found += [value for name, value in parse_qsl(query) if "password" in name]
    # Anything shorter is a part of half the words here; the URLs are shown without it in any case.
    return sorted({text for secret in found for text in (secret, unquote(secret)) if len(text) >= SHORTEST_SECRET})


def _token_in(path: str) -> str:
    try:
        return Credentials(token_file=path).token() or "" if path else ""
    except CredentialError:
        return ""


def is_local(url: str) -> bool:
    """Whether a URL leads to this very machine."""
    if url.startswith("unix:"):
        return True
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    return all(_LOCAL.fullmatch(re.sub(r":[0-9]*$", "", host)) is not None for host in hosts)


def _fault(variable: str, env: Mapping[str, str]) -> str | None:
    if not env.get(variable):
        return None
    alone = {variable: env[variable]}
    if env[variable] == Mode.FROZEN.value:
        # That frozen needs a file is said once all of them are looked at together.
        alone[VARIABLES["bootstrap"]] = env.get(VARIABLES["bootstrap"]) or "-"
    try:
        settings = AgentSettings.from_env(alone)
        if settings.redis_url is not None:
            connect_async(settings.redis_url)
    except (SettingError, InvalidValue) as error:
        return f"{variable}: {error}" if isinstance(error, InvalidValue) else str(error)
    return None


def _others(env: Mapping[str, str]) -> list[str]:
    faults = []
    for read in (LabelRules.from_env, workload_slots):
        try:
            read(env)
        except SettingError as error:
            faults.append(str(error))
    return faults


def _misspelt(env: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    for name in sorted(env):
        if not name.upper().startswith("ACCORD_") or name in KNOWN:
            continue
        close = difflib.get_close_matches(name.upper(), KNOWN, n=1, cutoff=0.8)
        if close or not name.startswith(OTHERS):
            yield name, close[0] if close else None


def _in_clear(settings: AgentSettings) -> Iterator[Check]:
    url = settings.api_url or ""
    if Credentials.of(settings).given and url.startswith("http://") and not is_local(url):
        yield warn("settings", "the token travels in clear to the API", "use https:// in ACCORD_API_URL")
    url = settings.redis_url or ""
    if "@" in url and url.startswith("redis") and not url.startswith("rediss") and not is_local(url):
        yield warn("settings", "the password travels in clear to Redis", "use rediss:// in ACCORD_REDIS_URL")


def _summary(settings: AgentSettings, env: Mapping[str, str]) -> str:
    said = sorted(name for name in KNOWN if env.get(name))
    where = [f"engine {settings.engine}, mode {settings.mode.value}"]
    if settings.redis_url is not None:
        where.append(f"evidence to {safe_url(settings.redis_url)}")
    if settings.api_url is not None:
        where.append(f"coefficients from {safe_url(settings.api_url)}")
    return f"{'; '.join(where)} ({len(said)} variables set)"
