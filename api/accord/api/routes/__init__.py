"""Routes, one noun a module; each module has a `router`."""

from fastapi import APIRouter

from . import advice, coefficients, costs, health, pairs, what_if, workloads

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    pairs.router,
    coefficients.router,
    workloads.router,
    what_if.router,
    advice.router,
    costs.router,
)
"""In the order of the documentation. Another noun is another module and another entry here."""
