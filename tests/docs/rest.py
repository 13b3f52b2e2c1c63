"""docs/rest.md, made from the description that the api gives of itself.

`python -m tests.docs.rest` writes it; a test fails while the page says something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accord.api import Settings, create_app

from .markdown import ROOT

PAGE = ROOT / "docs" / "rest.md"
METHODS = ("get", "put", "post", "delete")
EVERYWHERE = ("413", "414", "422", "431", "500")
"""Statuses that every route may answer with."""

INTRODUCTION = """\
# REST reference

Made from the service's own description, `GET /openapi.json`, by `python -m tests.docs.rest`; do not edit it by hand.

Bodies are JSON in UTF-8, times are unix milliseconds, log-loss is in nats. A pair is its id, a workload key is
`label:class`. With tokens ([security](security.md)) send `Authorization: Bearer TOKEN`; each route names the least role
that it asks for. Everything that goes wrong has one shape, `{"error": {"code", "message", "field", "value"}}`, the last
two where one value is to blame. Besides the statuses that a route names, any may answer 413, 414 or 431 (too large),
422 (a value that cannot be used) and 500.

"""

Schema = Mapping[str, Any]


def document() -> dict[str, Any]:
    """The description of the api."""
    found: dict[str, Any] = create_app(Settings()).openapi()
    return found


def page() -> str:
    """The whole page."""
    described = document()
    schemas = described["components"]["schemas"]
    routes = list(_operations(described))
    parts = [INTRODUCTION, "| route | role | |\n|---|---|---|\n"]
    for title, operation in routes:
        role = operation.get("x-least-role", "none")
        parts.append(f"| [`{title}`](#{_anchor(title)}) | {role} | {_cell(operation['description'])} |\n")
    parts.append("\n## Routes\n\n")
    parts += [_route(title, operation, schemas) for title, operation in routes]
    parts.append("## Models\n\n`?` after a type means that null is possible, `= x` that the field may be left out.\n\n")
    parts += [_model(name, schemas[name]) for name in sorted(schemas)]
    return "".join(parts).rstrip() + "\n"


def _operations(described: Schema) -> Iterator[tuple[str, Schema]]:
    for path, operations in described["paths"].items():
        for method in METHODS:
            if method in operations:
                yield f"{method.upper()} {path}", operations[method]


def _route(title: str, operation: Schema, schemas: Schema) -> str:
    role = operation.get("x-least-role")
    lines = [f"### {title}\n", f"{_paragraphs(operation['description'])}\n"]
    lines.append(f"Least role: `{role}`.\n" if role else "Open to everybody.\n")
    rows = [
        f"| `{item['name']}` | {item['in']} | {_type(item['schema'], schemas)} | "
        f"{'yes' if item.get('required') else ''} | {_text(item)} |"
        for item in operation.get("parameters", ())
    ]
    if rows:
        lines.append("\n".join(["| parameter | in | type | required | |", "|---|---|---|---|---|", *rows]) + "\n")
    body = _content(operation.get("requestBody", {}), schemas)
    if body:
        lines.append(f"Body: {body}.\n")
    answers = []
    for status, answer in sorted(operation["responses"].items()):
        if status not in EVERYWHERE:
            shown = _content(answer, schemas)
            answers.append(f"{status} {shown}" if shown and int(status) < 400 else status)
    lines.append(f"Answers: {', '.join(answers)}.\n")
    return "\n".join(lines) + "\n"


def _content(holder: Schema, schemas: Schema) -> str:
    kinds = []
    for media, content in holder.get("content", {}).items():
        schema = content.get("schema", {})
        kinds.append(_type(schema, schemas) if media == "application/json" and schema else f"`{media}`")
    return " or ".join(kinds)


def _model(name: str, schema: Schema) -> str:
    lines = [f"### {name}\n"]
    if schema.get("description"):
        lines.append(f"{_paragraphs(schema['description'])}\n")
    required = set(schema.get("required", ()))
    rows = []
    for field, inner in schema.get("properties", {}).items():
        default = "" if field in required else f" = {_value(inner.get('default'))}"
        rows.append(f"| `{field}` | {_type(inner)}{default} | {_text(inner)} |")
    if rows:
        lines.append("\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(lines) + "\n"


def _type(schema: Schema, schemas: Schema | None = None) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [_type(part, schemas) for part in schema["anyOf"] if part.get("type") != "null"]
        if len(kinds) == len(schema["anyOf"]):
            return " or ".join(kinds)
        kind, comma, bounds = " or ".join(kinds).partition(",")
        return f"{kind}?{comma}{bounds}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if "prefixItems" in schema:
        return f"[{', '.join(_type(item, schemas) for item in schema['prefixItems'])}]"
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"map of {_type(schema['additionalProperties'], schemas)}"
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum", schema.get("minLength")), schema.get("maximum", schema.get("maxLength"))
    unit = " characters" if "maxLength" in schema or "minLength" in schema else ""
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f", at {'most' if low is None else 'least'} {_value(high if low is None else low)}{unit}"
    return f", {_value(low)} to {_value(high)}{unit}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(schema: Schema) -> str:
    found = schema.get("description") or schema.get("schema", {}).get("description") or ""
    return re.sub(r"\s+", " ", str(found)).replace("|", "\\|")


def _cell(text: str) -> str:
    first = re.sub(r"\s+", " ", text.strip().partition("\n\n")[0])
    return first.replace("|", "\\|")


def _paragraphs(text: str) -> str:
    return "\n\n".join(re.sub(r"\s+", " ", part) for part in text.strip().split("\n\n"))


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
