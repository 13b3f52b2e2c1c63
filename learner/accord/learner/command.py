"""`accord learner`: the learner process."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any

import typer

from .drift import check_river
from .logs import configure, event
from .service.loop import LearnerService
from .service.settings import LearnerSettings
from .service.watch import Watcher
from .signals import when_told
from .store import safe_url

log = logging.getLogger("accord.learner")


def learner(
    redis_url: Annotated[str | None, typer.Option(help="Store, e.g. redis://host:6379/0 (ACCORD_REDIS_URL).")] = None,
    lease_ms: Annotated[int | None, typer.Option(help="How long a silent learner keeps its pairs.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics, /livez and /readyz here (ACCORD_LEARNER_METRICS_PORT).")
    ] = None,
    metrics_host: Annotated[str | None, typer.Option(help="Address there (ACCORD_LEARNER_METRICS_HOST).")] = None,
) -> None:
    """Run one learner; start as many as you like, they share the pairs."""
    check_river()
    configure("learner")
    settings = LearnerSettings.from_environment()
    given: dict[str, Any] = {
        "redis_url": redis_url,
        "lease_ms": lease_ms,
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
    }
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    with ExitStack() as stack:
        service = LearnerService(settings, watchers=_metrics(settings, stack))
        when_told(service.stop)
        event(log, "learner started", learner=settings.learner_id, store=safe_url(settings.redis_url))
        service.run()
    event(log, "learner stopped", learner=settings.learner_id)


def _metrics(settings: LearnerSettings, stack: ExitStack) -> list[Watcher]:
    """The watcher behind the metrics, served until the stack is closed; none when no port is set."""
    if settings.metrics_port is None:
        return []
    # Only here: without metrics a learner needs no client of Prometheus.
    from prometheus_client import disable_created_metrics

    from .service.metrics import Meters
    from .service.metrics_server import MetricsServer

    disable_created_metrics()  # type: ignore[no-untyped-call]
    meters = Meters(settings.metrics_max_pairs)
    server = stack.enter_context(MetricsServer(meters, settings.metrics_host, settings.metrics_port))
    event(log, "metrics served", address=server.url)
    return [meters]
