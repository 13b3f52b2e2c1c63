"""Routes, one noun a module; each module has a `router`."""

from fastapi import APIRouter

from . import (
    advice,
    audit,
    coefficients,
    costs,
    events,
    health,
    history,
    metrics,
    overrides,
    page,
    pairs,
    rollback,
    what_if,
    whoami,
    workloads,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    metrics.router,
    pairs.router,
    coefficients.router,
    workloads.router,
    what_if.router,
    advice.router,
    costs.router,
    overrides.router,
    rollback.router,
    history.router,
    audit.router,
    events.router,
    whoami.router,
    page.router,
)
"""In the order of the documentation. Another noun is another module and another entry here."""
