"""Coefficients of one workload, and the versioned table of a pair that is served to engines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .basis import DEFAULT_KNOTS, Array, SplineBasis, sigmoid
from .bounds import whole
from .errors import InvalidValue, Reason, Refusal
from .pair import check_k, check_pair_id
from .workload import WorkloadKey

SCHEMA = 1
COEFFICIENT_LIMIT = 40.0
MAX_REQUEST_VARIANCE = 4.0
MAX_WORKLOADS = 64
MAX_TABLE_BYTES = 1 << 20
_MONOTONE_SLACK = 1e-9

COLD_SLOPE = 0.5
COLD_INTERCEPT = -0.2
"""Published medians over many pairs: where a pair starts that nobody has seen."""


@dataclass(frozen=True)
class Coefficients:
    """P(accept) = sigmoid(slopes . x(f) + intercepts[k] + u).

    Args:
        slopes: float64 [F] over the spline basis, finite, cumulative sums >= 0 (never falling in f).
        intercepts: float64 [K], one for each draft position, finite.
        request_variance: s2 >= 0 of the request effect u; 0 switches it off.

    Raises:
        InvalidValue: naming the field and the value.

    >>> c = Coefficients.cold(k=2, basis=SplineBasis(()))
    >>> c.probability(SplineBasis(()), [[0.0, 2.0]]).round(3)
    array([[0.45, 0.69]])
    """

    slopes: Array
    intercepts: Array
    request_variance: float = 0.0

    def __post_init__(self) -> None:
        for name in ("slopes", "intercepts"):
            value = _vector(name, getattr(self, name))
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        if self.slopes.cumsum().min(initial=0.0) < -_MONOTONE_SLACK:
            raise InvalidValue("slopes", self.slopes.tolist(), "cumulative slopes must be >= 0", Reason.OUT_OF_BOUNDS)
        s2 = self.request_variance
        if isinstance(s2, bool) or not isinstance(s2, int | float) or not 0.0 <= s2 <= MAX_REQUEST_VARIANCE:
            why = f"must be a number from 0 to {MAX_REQUEST_VARIANCE}"
            raise InvalidValue("request_variance", s2, why, Reason.OUT_OF_BOUNDS)
        object.__setattr__(self, "request_variance", float(s2))

    @classmethod
    def cold(cls, k: int, basis: SplineBasis) -> Coefficients:
        """The published medians: slope 0.5, no bends, intercepts -0.2."""
        slopes = np.zeros(basis.size)
        slopes[0] = COLD_SLOPE
        return cls(slopes, np.full(k, COLD_INTERCEPT))

    @property
    def k(self) -> int:
        """Number of draft positions."""
        return len(self.intercepts)

    def log_odds(self, basis: SplineBasis, features: npt.ArrayLike) -> Array:
        """Features [..., K] -> log-odds of acceptance [..., K] without request effect."""
        return basis.expand(features) @ self.slopes + self.intercepts

    def probability(self, basis: SplineBasis, features: npt.ArrayLike) -> Array:
        """Features [..., K] -> probability of acceptance [..., K] without request effect."""
        return sigmoid(self.log_odds(basis, features))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; floats keep every bit through JSON."""
        return {
            "slopes": self.slopes.tolist(),
            "intercepts": self.intercepts.tolist(),
            "request_variance": self.request_variance,
        }

    @classmethod
    def from_dict(cls, values: Any) -> Coefficients:
        """The inverse of `to_dict`; raises InvalidValue for anything else."""
        if not isinstance(values, Mapping):
            raise InvalidValue("coefficients", values, "must be an object")
        for name in ("slopes", "intercepts"):
            if not isinstance(values.get(name), list):
                raise InvalidValue(name, values.get(name), "must be a list of numbers")
        return cls(values["slopes"], values["intercepts"], values.get("request_variance", 0.0))


@dataclass(frozen=True)
class CoefficientTable:
    """What a pair serves: coefficients of every known workload, and a prior row for the unseen ones.

    Args:
        pair: pair id.
        version: grows by at least one with every publication; 0 is the cold start that nobody published.
        knots: of the spline basis.
        prior: coefficients of a workload that is not in the table.
        workloads: at most 64 rows, keyed by `label:class`.
        published_ms: unix time of publication, milliseconds by the store's clock.

    Raises:
        InvalidValue: when the rows do not fit each other.
    """

    pair: str
    version: int
    prior: Coefficients
    workloads: Mapping[str, Coefficients] = field(default_factory=dict)
    knots: tuple[float, ...] = DEFAULT_KNOTS
    published_ms: int = 0

    def __post_init__(self) -> None:
        check_pair_id(self.pair)
        for name in ("version", "published_ms"):
            whole(name, getattr(self, name))
        if len(self.workloads) > MAX_WORKLOADS:
            raise InvalidValue("workloads", len(self.workloads), f"at most {MAX_WORKLOADS} rows")
        size, k = self.basis.size, check_k(self.prior.k)
        for key, row in {"prior": self.prior, **self.workloads}.items():
            if key != "prior":
                WorkloadKey.parse(key)
            if len(row.slopes) != size:
                raise InvalidValue(f"{key}.slopes", row.slopes.tolist(), f"must have F = {size} values", Reason.SHAPE)
            if row.k != k:
                raise InvalidValue(
                    f"{key}.intercepts", row.intercepts.tolist(), f"must have K = {k} values", Reason.SHAPE
                )

    @classmethod
    def cold(cls, pair: str, k: int, knots: tuple[float, ...] = DEFAULT_KNOTS) -> CoefficientTable:
        """Version 0: what an engine uses before anybody has learnt anything."""
        return cls(pair, 0, Coefficients.cold(k, SplineBasis(knots)), {}, knots)

    @property
    def basis(self) -> SplineBasis:
        """The spline basis of the knots."""
        return SplineBasis(self.knots)

    @property
    def k(self) -> int:
        """Number of draft positions."""
        return self.prior.k

    def row(self, key: str) -> Coefficients:
        """The coefficients of a workload, or the prior row for an unseen one."""
        return self.workloads.get(key, self.prior)

    @property
    def digest(self) -> str:
        """Sixteen hex digits over version, knots and every number: equal on every rank that applies the same table."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]

    def to_json(self) -> bytes:
        """Canonical JSON (sorted keys, no spaces): the same table gives the same bytes."""
        document = {
            "schema": SCHEMA,
            "pair": self.pair,
            "version": self.version,
            "published_ms": self.published_ms,
            "k": self.k,
            "knots": list(self.knots),
            "prior": self.prior.to_dict(),
            "workloads": {key: row.to_dict() for key, row in self.workloads.items()},
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_json(cls, body: bytes) -> CoefficientTable:
        """Decodes and validates a served table.

        Raises:
            Refusal: with the kind of fault (size, schema, not_finite, shape, out_of_bounds) and what is wrong.
        """
        if len(body) > MAX_TABLE_BYTES:
            raise Refusal(Reason.SIZE, f"a table of {len(body)} bytes; at most {MAX_TABLE_BYTES}")
        try:
            document = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise Refusal(Reason.SCHEMA, f"not JSON: {str(error)[:120]}") from None
        if not isinstance(document, dict):
            raise Refusal(Reason.SCHEMA, "not a JSON object")
        if document.get("schema") != SCHEMA:
            raise Refusal(Reason.SCHEMA, f"schema {document.get('schema')!r:.40} is not {SCHEMA}")
        return cls._from_document(document)

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> CoefficientTable:
        workloads, knots = document.get("workloads"), document.get("knots")
        if not isinstance(workloads, dict) or not isinstance(knots, list):
            raise Refusal(Reason.SCHEMA, "workloads must be an object and knots a list")
        if len(workloads) > MAX_WORKLOADS:
            raise Refusal(Reason.SIZE, f"{len(workloads)} workloads; at most {MAX_WORKLOADS}")
        try:
            return cls(
                pair=check_pair_id(document.get("pair")),
                version=document.get("version"),  # type: ignore[arg-type]  # validated by the constructor
                published_ms=document.get("published_ms"),  # type: ignore[arg-type]
                knots=SplineBasis(tuple(_vector("knots", knots).tolist())).knots,
                prior=Coefficients.from_dict(document.get("prior")),
                workloads={key: Coefficients.from_dict(row) for key, row in workloads.items()},
            )
        except InvalidValue as error:
            raise Refusal(error.reason, str(error)) from None


def _vector(name: str, value: object) -> Array:
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(name, value, "must be a list of numbers") from None
    if vector.ndim != 1:
        raise InvalidValue(name, value, "must be a flat list of numbers", Reason.SHAPE)
    if np.abs(vector).max(initial=0.0) <= COEFFICIENT_LIMIT:  # never true with NaN
        return vector
    if not np.all(np.isfinite(vector)):
        raise InvalidValue(name, vector.tolist(), "must be finite", Reason.NOT_FINITE)
    if np.any(np.abs(vector) > COEFFICIENT_LIMIT):
        raise InvalidValue(name, vector.tolist(), f"must lie within {COEFFICIENT_LIMIT} of 0", Reason.OUT_OF_BOUNDS)
    return vector


def _refuse_constant(text: str) -> float:
    raise Refusal(Reason.NOT_FINITE, f"{text} in JSON")
