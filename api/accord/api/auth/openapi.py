"""Says in the description of the api which token each route asks for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from .roles import Role
from .table import LEAST

SCHEME = "token"

_ENVELOPE = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
_CHALLENGE = {
    "WWW-Authenticate": {"description": "What is asked for, as RFC 6750 defines it", "schema": {"type": "string"}}
}


def describe(app: FastAPI) -> None:
    """Adds the security scheme, the least role and the refusals to every operation."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        if SCHEME in schemes:
            return document
        schemes[SCHEME] = {
            "type": "http",
            "scheme": "bearer",
            "description": "From `accord token create`. A server on loopback without a token file asks for none.",
        }
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _operation(operation, LEAST.get((method.upper(), path), Role.OPERATOR))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(operation: dict[str, Any], least: Role) -> None:
    if least is Role.OPEN:
        operation["security"] = []
        return
    operation["security"] = [{SCHEME: []}]
    operation["x-least-role"] = least.value
    for status in (401, 403):
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "headers": _CHALLENGE,
            "content": _ENVELOPE,
        }
    operation["responses"] = dict(sorted(operation["responses"].items()))
