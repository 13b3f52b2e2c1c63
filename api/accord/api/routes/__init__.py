"""Routes, one noun a module; each module has a `router`."""

from fastapi import APIRouter

from . import coefficients, health, pairs, workloads

ROUTERS: tuple[APIRouter, ...] = (health.router, pairs.router, coefficients.router, workloads.router)
"""In the order of the documentation. Another noun is another module and another entry here."""
