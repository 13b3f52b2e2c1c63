"""What follows from everything that was found: clocks, knots, and what would run."""

from __future__ import annotations

from collections.abc import Iterator

from accord.learner.errors import InvalidValue

from ..judge import Judge
from ..settings import AgentSettings, Mode
from ..standing import Standing
from .facts import Facts
from .report import Check, fail, ok, skip, warn

SKEW_S = 2.0


def check_clocks(facts: Facts) -> Iterator[Check]:
    """This machine's clock against those that answered."""
    if not facts.skews_s:
        return
    told = [f"{name} {offset:+.1f} s (within {slack:.1f} s)" for name, (offset, slack) in facts.skews_s.items()]
    worst = max(abs(offset) - slack for offset, slack in facts.skews_s.values())
    if worst > SKEW_S:
        advice = "synchronise the clocks (NTP): how long engines are silent is told by them"
        yield warn("clock", f"against this machine: {', '.join(told)}", advice)
    else:
        yield ok("clock", f"against this machine: {', '.join(told)}")


def check_registered(facts: Facts) -> Iterator[Check]:
    """Whether the pair is known, and with the knots that this engine would use."""
    if facts.pair is None or facts.settings is None or facts.registered is None:
        return
    own = facts.settings.knots
    if not facts.registered:
        yield ok("pair.registered", f"not yet: this engine would be the first, and fix its knots as {_knots(own)}")
    elif facts.knots is not None and facts.knots != own:
        advice = f"set ACCORD_KNOTS={_knots(facts.knots)}, or what this engine sends is refused"
        yield fail("pair.registered", f"with knots {_knots(facts.knots)}, this engine has {_knots(own)}", advice)
    else:
        yield ok("pair.registered", f"with knots {_knots(own)}")


def check_bootstrap(facts: Facts) -> Iterator[Check]:
    """The bootstrap file, judged as the engine does."""
    settings, pair = facts.settings, facts.pair
    if settings is None or settings.bootstrap is None:
        return
    if pair is None:
        yield skip("bootstrap", f"{settings.bootstrap} is not read: the pair is not known")
        return
    try:
        table = Judge(pair.id, pair.k, settings.knots).load("ACCORD_BOOTSTRAP", settings.bootstrap)
    except InvalidValue as error:
        facts.stock = facts.stock or "the bootstrap file cannot be used"
        yield fail("bootstrap", str(error), "save the body of /v1/pairs/PAIR/coefficients of this very pair")
    else:
        yield ok("bootstrap", f"version {table.version}, {len(table.workloads)} workloads")


def check_run(facts: Facts, service_only: bool) -> Iterator[Check]:
    """What would run, and why."""
    if facts.settings is None:
        yield fail("run", "vLLM as without accord: its settings cannot be used", "see settings above")
        return
    if facts.stock:
        yield warn("run", f"vLLM as without accord: {facts.stock}", "see above")
        return
    if not facts.asked and not facts.adaptive:
        told = "no service, no ACCORD_MODE"
        told += (
            " and no adaptive verification" if facts.adaptive is False else ", and nobody said adaptive verification"
        )
        advice = "set ACCORD_REDIS_URL and ACCORD_API_URL, or enable_adaptive_verification"
        yield warn("run", f"vLLM as without accord: {told}", advice)
        return
    status = warn if _degraded(facts, facts.settings) else None
    told = _mode(facts, facts.settings)
    if facts.adaptive is False and facts.settings.mode is not Mode.OBSERVE:
        told += "; enable_adaptive_verification is off, so vLLM measures and does not act"
    if service_only:
        told += "; vLLM was not looked at"
    if status is None:
        yield ok("run", told)
    else:
        alone = facts.settings.api_url is None and facts.settings.mode in (Mode.FLEET, Mode.OBSERVE)
        advice = "set ACCORD_API_URL, or ACCORD_MODE=local if it shall be alone" if alone else "see above"
        yield warn("run", told, advice)


def _degraded(facts: Facts, settings: AgentSettings) -> bool:
    wants_service = settings.mode in (Mode.FLEET, Mode.OBSERVE)
    return (wants_service and facts.api_works is not True) or facts.redis_works is False


def _mode(facts: Facts, settings: AgentSettings) -> str:
    standing = Standing(settings.mode, settings.api_url is not None, 0.0, settings.local_after_s, 0.0)
    if facts.api_works:
        standing.answered(0.0)
    elif settings.api_url is not None:
        standing.failed(0.0, 0.0, facts.api_reason or "not known whether the service answers")
    state, reason = standing.state(0.0)
    told = f"mode {settings.mode.value}, state {state.value}: {reason}"
    if state == "fleet":
        version = "the cold start" if not facts.version else f"version {facts.version}"
        told += f"; {version} applies from the first round on"
    elif state == "starting":
        told += f"; cold coefficients, and own refits after {settings.local_after_s:g} s"
    elif state == "local":
        told += "; the engine refits itself"
    sent = {True: "evidence is sent", False: "evidence waits in the engine", None: "evidence stays in the engine"}
    if facts.redis_works is None and settings.redis_url is not None:
        sent[None] = "whether evidence is sent is not known"
    return f"{told}; {sent[facts.redis_works]}"


def _knots(knots: tuple[float, ...]) -> str:
    return ",".join(f"{knot:g}" for knot in knots) or "none"
