"""`accord learner`: the learner process."""

from __future__ import annotations

import logging
import signal
from dataclasses import replace
from types import FrameType
from typing import Annotated

import typer

from .drift import check_river
from .service.loop import LearnerService
from .service.settings import LearnerSettings
from .store import safe_url


def learner(
    redis_url: Annotated[str | None, typer.Option(help="Store, e.g. redis://host:6379/0 (ACCORD_REDIS_URL).")] = None,
    lease_ms: Annotated[int | None, typer.Option(help="How long a silent learner keeps its pairs.")] = None,
) -> None:
    """Run one learner; start as many as you like, they share the pairs."""
    check_river()
    settings = LearnerSettings.from_environment()
    if redis_url is not None:
        settings = replace(settings, redis_url=redis_url)
    if lease_ms is not None:
        settings = replace(settings, lease_ms=lease_ms)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    service = LearnerService(settings)

    def stop(signum: int, frame: FrameType | None) -> None:
        service.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    logging.getLogger(__name__).info("learner %s on %s", settings.learner_id, safe_url(settings.redis_url))
    service.run()
