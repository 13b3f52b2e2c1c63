"""`accord doctor`."""

from __future__ import annotations

import importlib.metadata
import json
import os
from typing import Annotated

import typer
from rich.console import Console

from ..settings import VARIABLES
from .api_checks import check_api
from .bounded import bounded
from .engine import check_engine, skipped
from .environment import check_environment, secrets_of
from .facts import Facts
from .models import check_models
from .pairing import Asked, check_pair
from .redis_checks import check_redis
from .report import SHOWN, Report
from .screen import show
from .verdict import check_bootstrap, check_clocks, check_registered, check_run

GRACE_S = 2.0
"""A group's own timeouts come first, and say more than the limit around it."""


def doctor(
    model: Annotated[
        str | None, typer.Option("--model", "--target", help="The target model, as vllm serve gets it.")
    ] = None,
    speculative_config: Annotated[str | None, typer.Option(help="JSON, as vllm serve gets it.")] = None,
    draft: Annotated[str | None, typer.Option(help="The draft model.")] = None,
    method: Annotated[str | None, typer.Option(help="draft_model, eagle, eagle3, mtp, dflash or dspark.")] = None,
    draft_sampling: Annotated[str | None, typer.Option(help="greedy (vLLM's default) or probabilistic.")] = None,
    k: Annotated[int | None, typer.Option(help="Number of draft tokens.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Where evidence goes. [env: ACCORD_REDIS_URL]")] = None,
    api_url: Annotated[str | None, typer.Option(help="Where coefficients come from. [env: ACCORD_API_URL]")] = None,
    mode: Annotated[str | None, typer.Option(help="fleet, local, observe or frozen. [env: ACCORD_MODE]")] = None,
    service_only: Annotated[bool, typer.Option(help="Do not look at vLLM: for a machine without an engine.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=60.0, help="Seconds for each answer of a server.")] = 3.0,
    engine_timeout: Annotated[float, typer.Option(min=1.0, max=600.0, help="Seconds to import vLLM.")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Would accord work in this environment? Run it where the engine runs, with the engine's variables.

    Exit code 0: it would, perhaps with warnings. 1: something would not work. 2: the command line is wrong. Nothing is
    written anywhere, and no password or token is shown.
    """
    options = {"redis_url": redis_url, "api_url": api_url, "mode": mode}
    environ = dict(os.environ) | {VARIABLES[name]: value for name, value in options.items() if value is not None}
    facts = Facts(environ)
    report = Report(secrets_of(environ))
    asked = Asked.of(model, speculative_config, draft, method, draft_sampling, k)
    for name, checks, seconds in (
        ("settings", lambda: check_environment(facts), timeout),
        ("pair", lambda: check_pair(facts, asked), timeout),
        ("models", lambda: check_models(facts, asked), 60.0),
        ("vllm", lambda: skipped() if service_only else check_engine(facts, engine_timeout), engine_timeout),
        ("redis", lambda: check_redis(facts, timeout), timeout),
        ("api", lambda: check_api(facts, timeout), timeout),
        ("clock", lambda: check_clocks(facts), timeout),
        ("pair.registered", lambda: check_registered(facts), timeout),
        ("bootstrap", lambda: check_bootstrap(facts), timeout),
        ("run", lambda: check_run(facts, service_only), timeout),
    ):
        report.add(bounded(name, checks, seconds + GRACE_S))
    if as_json:
        told = report.to_dict(
            accord=importlib.metadata.version("accord"),
            engine=facts.settings.engine if facts.settings is not None else None,
            mode=facts.settings.mode.value if facts.settings is not None else None,
            pair=facts.pair.id if facts.pair is not None else None,
            version=facts.version,
        )
        typer.echo(json.dumps(told, indent=2))
    else:
        # A log has no width: there every finding gets a line of its own.
        console = Console(highlight=False)
        show(report, console if console.is_terminal else Console(highlight=False, width=4 * SHOWN))
    raise typer.Exit(report.exit_code)
