"""The description of the api, against what it does."""

from __future__ import annotations

from typing import Any

import httpx
from tests.api.harness import PAIR, Publisher, RunningApi

ROUTES = {
    "/livez",
    "/readyz",
    "/metrics",
    "/v1/events",
    "/v1/pairs",
    "/v1/pairs/{pair}",
    "/v1/pairs/{pair}/coefficients",
    "/v1/pairs/{pair}/costs",
    "/v1/pairs/{pair}/workloads/{key}",
    "/v1/pairs/{pair}/workloads/{key}/advice",
    "/v1/pairs/{pair}/workloads/{key}/what-if",
    "/v1/pairs/{pair}/overrides",
    "/v1/pairs/{pair}/override",
    "/v1/pairs/{pair}/workloads/{key}/override",
    "/v1/pairs/{pair}/rollback",
    "/v1/pairs/{pair}/workloads/{key}/rollback",
    "/v1/pairs/{pair}/history",
    "/v1/pairs/{pair}/audit",
    "/v1/whoami",
}


def references(node: Any) -> set[str]:
    """Every `$ref` of a document."""
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def test_document(api: RunningApi) -> None:
    """The document names every route once, resolves every reference and describes every error as the envelope."""
    document = api.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == ROUTES
    for reference in references(document):
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    for operation in operations:
        assert operation["summary"]
        assert operation["description"]
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorEnvelope"}
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert "content" not in document["paths"]["/v1/pairs/{pair}/coefficients"]["get"]["responses"]["304"]


def test_answers_are_declared(api: RunningApi, publisher: Publisher) -> None:
    """Every status that a route answers is declared for it, and a success has exactly the declared fields."""
    document = api.get("/openapi.json").json()
    current = api.get(f"/v1/pairs/{PAIR.id}/coefficients").headers["etag"]
    seen = set()
    for path, operations in document["paths"].items():
        # A stream has no model, and no end to wait for.
        if "get" not in operations or path == "/v1/events":
            continue
        declared = operations["get"]["responses"]

        def check(answer: httpx.Response, path: str = path, declared: dict[str, Any] = declared) -> None:
            assert str(answer.status_code) in declared
            seen.add((path, answer.status_code))
            if answer.status_code == 200 and path != "/metrics":
                schema = declared["200"]["content"]["application/json"]["schema"]
                model = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
                assert set(answer.json()) == set(model["properties"])

        check(api.client.request("GET", path.format(pair=PAIR.id, key="code:greedy"), content=b"x" * (2 << 20)))
        for pair, key in (
            ("nobody", "code:greedy"),
            ("{}", "code:greedy"),
            (PAIR.id, "code"),
            (PAIR.id, "code:greedy"),
        ):
            for etag in (None, current):
                for query in ({}, {"wait": "nan", "limit": "nan"}):
                    check(api.get(path.format(pair=pair, key=key), etag=etag, **query))
    assert {status for path, status in seen if path.endswith("/coefficients")} == {200, 304, 404, 413, 422}
    assert {status for path, status in seen if path.endswith("/{key}")} == {200, 404, 413, 422}
