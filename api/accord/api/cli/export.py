"""`accord export`: tidy tables for offline work, one row an observation."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..whole_file import write_whole
from .client import Api
from .failures import CommandError, Exit
from .options import DEFAULT, PairArg, TokenFile, Url, connect, resolve, scope_path

PAGE = 500

Row = dict[str, Any]


class What(StrEnum):
    """What can be exported."""

    COEFFICIENTS = "coefficients"
    CALIBRATION = "calibration"
    HISTORY = "history"
    AUDIT = "audit"


class Form(StrEnum):
    """In which form."""

    CSV = "csv"
    PARQUET = "parquet"


def export(
    pair: PairArg,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    what: Annotated[What, typer.Option("--what", help="Which table.")] = What.COEFFICIENTS,
    form: Annotated[Form | None, typer.Option("--format", help="Else by the name of the file.")] = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Coefficients of this version.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", help="Coefficients of then: RFC 3339 or unix ms.")] = None,
    url: Url = DEFAULT,
    token_file: TokenFile = None,
) -> None:
    """Write coefficients, calibration, history or the audit trail to a file."""
    chosen = form or (Form.PARQUET if output.suffix in (".parquet", ".pq") else Form.CSV)
    with connect(url, token_file) as api:
        pair = resolve(api, pair)
        if what is What.COEFFICIENTS:
            rows = list(_coefficients(api, pair, version, as_of))
        elif version is not None or as_of is not None:
            raise CommandError(f"--version and --as-of choose coefficients, not {what}", Exit.REFUSED)
        else:
            rows = list(_READERS[what](api, pair))
    columns = _COLUMNS[what]
    body = _csv(columns, rows) if chosen is Form.CSV else _parquet(columns, rows)
    try:
        write_whole(output, body)
    except OSError as error:
        raise CommandError(f"output = '{output}': {error.strerror or error}", Exit.REFUSED) from None
    typer.echo(f"{len(rows)} rows in {output}", err=True)


def _coefficients(api: Api, pair: str, version: int | None, as_of: str | None) -> Iterator[Row]:
    table = api.get(f"{scope_path(pair, None)}/coefficients", version=version, as_of=as_of).body
    base = {"pair": pair, "version": table["version"], "published_ms": table["published_ms"]}
    for workload, row in [("", table["prior"]), *sorted(table["workloads"].items())]:
        for term, name in (("slope", "slopes"), ("intercept", "intercepts")):
            for index, value in enumerate(row[name]):
                yield base | {"workload": workload, "term": term, "index": index, "value": float(value)}
        yield base | {"workload": workload, "term": "request_variance", "index": 0, "value": row["request_variance"]}


def _calibration(api: Api, pair: str) -> Iterator[Row]:
    detail = api.get(scope_path(pair, None)).body
    for item in detail["workloads"]:
        view = api.get(scope_path(pair, item["workload"])).body
        base = {"pair": pair, "version": view["version"], "workload": item["workload"]}
        for place in view["calibration"]["positions"]:
            yield base | {"by": "position", "low": place["position"], "high": place["position"]} | _counts(place)
        for place in view["calibration"]["reliability"]:
            yield base | {"by": "probability", "low": place["low"], "high": place["high"]} | _counts(place)


def _history(api: Api, pair: str) -> Iterator[Row]:
    for entry in _pages(api, f"{scope_path(pair, None)}/history"):
        base = {name: entry[name] for name in ("version", "published_ms", "cause")} | {"pair": pair}
        moved, labels = entry.get("moved") or {}, entry.get("labels") or {}
        for workload, metrics in sorted((entry.get("metrics") or {"": {}}).items()):
            values = {name: metrics.get(name) for name in ("log_loss", "ece", "auc", "brier")}
            yield base | {"workload": workload, "labels": labels.get(workload), "moved": workload in moved} | values


def _audit(api: Api, pair: str) -> Iterator[Row]:
    names = ("id", "at_ms", "action", "scope", "actor", "token", "role", "reason", "version_before", "version_after")
    for entry in _pages(api, f"{scope_path(pair, None)}/audit"):
        kind = (entry["after"] or entry["before"] or {}).get("kind")
        yield {"pair": pair, "kind": kind} | {name: entry[name] for name in names}


_READERS: dict[What, Callable[[Api, str], Iterator[Row]]] = {
    What.CALIBRATION: _calibration,
    What.HISTORY: _history,
    What.AUDIT: _audit,
}

_COLUMNS: dict[What, dict[str, str]] = {
    What.COEFFICIENTS: {
        "pair": "string",
        "version": "int64",
        "published_ms": "int64",
        "workload": "string",
        "term": "string",
        "index": "int64",
        "value": "float64",
    },
    What.CALIBRATION: {
        "pair": "string",
        "version": "int64",
        "workload": "string",
        "by": "string",
        "low": "float64",
        "high": "float64",
        "labels": "float64",
        "predicted": "float64",
        "accepted": "float64",
    },
    What.HISTORY: {
        "pair": "string",
        "version": "int64",
        "published_ms": "int64",
        "cause": "string",
        "workload": "string",
        "labels": "int64",
        "moved": "bool",
        "log_loss": "float64",
        "ece": "float64",
        "auc": "float64",
        "brier": "float64",
    },
    What.AUDIT: {
        "pair": "string",
        "id": "string",
        "at_ms": "int64",
        "action": "string",
        "kind": "string",
        "scope": "string",
        "actor": "string",
        "token": "string",
        "role": "string",
        "reason": "string",
        "version_before": "int64",
        "version_after": "int64",
    },
}
"""Column -> Arrow type. The prior's rows have an empty workload, the whole pair's an empty scope."""


def _pages(api: Api, path: str) -> Iterator[dict[str, Any]]:
    before: str | None = None
    while True:
        page = api.get(path, limit=PAGE, before=before).body
        yield from page["entries"]
        if (before := page["next"]) is None:
            return


def _counts(place: Row) -> Row:
    return {name: place[name] for name in ("labels", "predicted", "accepted")}


def _csv(columns: dict[str, str], rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _plain(value) for name, value in row.items()})
    return text.getvalue().encode()


def _plain(value: Any) -> Any:
    # A spreadsheet would run what an engine or an operator wrote as a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _parquet(columns: dict[str, str], rows: list[Row]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    floats = {name for name, kind in columns.items() if kind == "float64"}
    typed = [{name: float(v) if name in floats and v is not None else v for name, v in row.items()} for row in rows]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(typed, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())
