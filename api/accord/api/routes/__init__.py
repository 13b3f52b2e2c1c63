"""Routes, one noun a module; each module has a `router`."""

from fastapi import APIRouter

from . import (
    advice,
    audit,
    coefficients,
    costs,
    health,
    history,
    metrics,
    overrides,
    pairs,
    rollback,
    what_if,
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
)
"""In the order of the documentation. Another noun is another module and another entry here."""
