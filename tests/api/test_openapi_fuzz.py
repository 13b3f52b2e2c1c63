"""The whole description of the api, fuzzed against the running api: with every role, without one, with absurd values.

Whatever routes are added are tried here without being named.
"""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.api.harness import PAIR, Publisher, RunningApi
from tests.api.tokens import TokenFile, bearer

from accord.api import Settings
from accord.api.auth import Role
from accord.api.auth.table import LEAST, STREAMS
from accord.learner.embedded import EmbeddedServer
from accord.learner.store import Store, connect

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
# The seed is fixed, so that a failure can be seen again.
QUICK = settings(
    database=None,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
REAL = {"pair": PAIR.id, "key": "code:greedy"}
ABSURD = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000, "-" + "9" * 5000, "1e-400", '"\\ud800"']
ABSURD += ["[" * depth + "]" * depth for depth in (40, 900, 20_000)]
ABSURD += ['{"a":' * depth + "1" + "}" * depth for depth in (40, 900, 20_000)]
TOKENS = [
    b"",
    b"\xff\xfe",
    "Bearer \u00e9".encode(),
    b"Bearer " + b"x" * 9000,
    b"Bearer \x80token",
    b"Basic Og==",
    b"Bearer",
]


class Fuzzed:
    """An api with tokens, a pair with a publication, and its description."""

    def __init__(self, api: RunningApi, tokens: TokenFile) -> None:
        self.api, self.tokens = api, tokens
        self.schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json")
        self.session = requests.Session()
        self.session.trust_env = False
        self.document = api.get("/openapi.json").json()

    def operations(self) -> list[Any]:
        """All of them."""
        return [found.ok() for found in self.schema.get_all_operations()]

    def headers(self, role: Role | None) -> dict[str, str]:
        """Of a request of a role."""
        return {} if role is None else bearer(self.tokens.tokens[role])

    def declared(self, method: str, path: str) -> dict[str, Any]:
        """The answers that an operation may give."""
        found: dict[str, Any] = self.document["paths"][path][method.lower()]["responses"]
        return found


@pytest.fixture(scope="module")
def fuzzed(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """One api for all: what one request changes, the next must bear."""
    tokens = TokenFile(tmp_path_factory.mktemp("fuzz") / "tokens")
    with Store(connect(server.url, role="test")) as store:
        store.client.flushall()
        publisher = Publisher(store)
        publisher.publish(code_greedy=0.4)
        chosen = Settings(redis_url=server.url, tokens_file=str(tokens.path), max_wait_s=0.05)
        with RunningApi(chosen) as running:
            running.app.state.auth.throttle.longest_s = 0.0
            yield Fuzzed(running.ready(), tokens)
        store.client.flushall()


def endless(operation: Any, role: Role | None) -> bool:
    """Whether an operation would answer this role without an end."""
    least = LEAST[operation.method.upper(), operation.path]
    return operation.path in STREAMS and role is not None and role.covers(least)


@pytest.mark.parametrize(
    ("role", "mode", "examples"),
    [
        (None, GenerationMode.POSITIVE, 3),
        (Role.ENGINE, GenerationMode.POSITIVE, 4),
        (Role.VIEWER, GenerationMode.POSITIVE, 6),
        (Role.OPERATOR, GenerationMode.POSITIVE, 10),
        (Role.OPERATOR, GenerationMode.NEGATIVE, 10),
    ],
)
def test_every_operation(fuzzed: Fuzzed, role: Role | None, mode: GenerationMode, examples: int) -> None:
    """Good and bad requests with every role and with none get declared answers of the declared shape, and no 5xx."""
    for operation in fuzzed.operations():
        if endless(operation, role):
            continue

        @settings(QUICK, max_examples=examples)
        @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
        def tried(case: Any, real: bool) -> None:
            if real and mode is GenerationMode.POSITIVE:
                case.path_parameters = {name: REAL.get(name, value) for name, value in case.path_parameters.items()}
            answer = case.call(session=fuzzed.session, headers=fuzzed.headers(role))
            case.validate_response(answer, checks=CHECKS, headers=fuzzed.headers(role))
            if role is None and LEAST[case.method.upper(), case.operation.path] is not Role.OPEN:
                assert answer.status_code == 401

        # An operation that takes nothing has no bad request.
        with suppress(Unsatisfiable):
            tried()


def test_absurd_values_in_bodies(fuzzed: Fuzzed) -> None:
    """NaN, numbers beyond every bound, 5,000 digits and deep nesting, anywhere in a body, are refused as declared."""
    for operation in fuzzed.operations():
        if not list(operation.body):
            continue

        @settings(QUICK, max_examples=2 * len(ABSURD))
        @given(case=operation.as_strategy(), raw=st.sampled_from(ABSURD), seed=st.integers(0, 99))
        def tried(case: Any, raw: str, seed: int) -> None:
            path = case.operation.path.format(**REAL)
            body = absurd(case.body, raw, random.Random(seed))
            headers = {**fuzzed.headers(Role.OPERATOR), "Content-Type": "application/json", "If-Match": "*"}
            answer = fuzzed.api.client.request(case.method, path, content=body, headers=headers)
            assert str(answer.status_code) in fuzzed.declared(case.method, case.operation.path), answer.text
            assert answer.status_code < 500, answer.text
            json.loads(answer.text, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))

        tried()


def absurd(body: Any, raw: str, chance: random.Random) -> bytes:
    """A body as JSON in which one value, or all of it, is replaced by other text."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                walk(value)

    copy = json.loads(json.dumps(body)) if isinstance(body, dict | list) else {}
    walk(copy)
    if not places or chance.random() < 0.1:
        return raw.encode()
    node, key = chance.choice(places)
    node[key] = "@absurd@"
    return json.dumps(copy).replace('"@absurd@"', raw).encode()


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "1e400",
        "-1e400",
        "9" * 5000,
        "-1",
        "\u0663",
        "%00",
        "\ud800".encode("utf-8", "replace").decode(),
        "[" * 4000,
    ],
)
def test_absurd_values_in_queries(fuzzed: Fuzzed, value: str) -> None:
    """The same in every query parameter, and in every parameter of a path."""
    for operation in fuzzed.operations():
        method, path = operation.method.upper(), operation.path
        if endless(operation, Role.OPERATOR):
            continue
        parameters = fuzzed.document["paths"][path][method.lower()].get("parameters", [])
        for parameter in parameters:
            place, name = parameter["in"], parameter["name"]
            filled = path.format(**({**REAL, name: value.replace("%", "%25")} if place == "path" else REAL))
            query = {name: value} if place == "query" else {}
            answer = fuzzed.api.client.request(method, filled, params=query, headers=fuzzed.headers(Role.OPERATOR))
            assert answer.status_code < 500, (method, path, name, answer.text)
            # A value with a slash, or of none, is another route.
            assert str(answer.status_code) in fuzzed.declared(method, path), (method, path, name, answer.status_code)


@pytest.mark.parametrize("shown", TOKENS)
def test_absurd_tokens(fuzzed: Fuzzed, shown: bytes) -> None:
    """Whatever stands where a token should, every route that wants one answers 401."""
    host = fuzzed.api.url.removeprefix("http://")
    for (method, path), least in LEAST.items():
        if path not in fuzzed.document["paths"] or method.lower() not in fuzzed.document["paths"][path]:
            continue
        connection = http.client.HTTPConnection(host, timeout=20)
        try:
            connection.putrequest(method, path.format(**REAL))
            connection.putheader("Authorization", shown)
            connection.endheaders()
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        assert answer.status == 401 if least is not Role.OPEN else answer.status < 500, (method, path)


def test_too_much(fuzzed: Fuzzed) -> None:
    """A path, a query and headers of absurd size are 414 and 431 in the envelope, with or without a token."""
    for headers in ({}, fuzzed.headers(Role.VIEWER)):
        long = fuzzed.api.client.get("/v1/pairs", params={"after": "x" * 9000}, headers=headers)
        assert (long.status_code, long.json()["error"]["code"]) == (414, "uri_too_long")
        many = {**headers, **{f"x-{number}": "y" for number in range(120)}}
        answer = fuzzed.api.client.get("/v1/pairs", headers=many)
        assert (answer.status_code, answer.json()["error"]["code"]) == (431, "headers_too_large")


def test_the_token_file_is_not_a_role(fuzzed: Fuzzed, tmp_path: Path) -> None:
    """The line of the token file is not a token."""
    line = fuzzed.tokens.lines[-1]
    for text in (line, line.split()[-1], line.split()[-1].removeprefix("sha256:")):
        assert fuzzed.api.client.get("/v1/pairs", headers={"Authorization": f"Bearer {text}"}).status_code == 401
