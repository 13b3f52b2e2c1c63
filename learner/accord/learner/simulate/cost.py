"""What a decode step costs, by the number of tokens that the target model processes in it."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..basis import Array
from ..errors import InvalidValue, Reason

MAX_TABLE_BYTES = 1 << 20
MAX_TOKENS = 1 << 24
_HEADER = ("tokens", "cost")


class Cost(Protocol):
    """Cost of a step, in any unit of time. tokens = requests (their bonus tokens) + verified drafts."""

    def table(self, limit: int) -> Array:
        """Costs of 0..limit tokens, float64 [limit + 1], all > 0."""
        ...


@dataclass(frozen=True)
class Roofline:
    """cost = base + slope max(tokens - knee, 0): flat while memory bounds the step, linear once compute does.

    Args:
        base: > 0; slope: >= 0, per token; knee: >= 0, in tokens.

    Raises:
        InvalidValue: naming the option and the value.

    >>> Roofline(12.0, 0.5, 2.0).table(4)
    array([12. , 12. , 12. , 12.5, 13. ])
    """

    base: float = 12.0
    slope: float = 0.06
    knee: float = 32.0

    def __post_init__(self) -> None:
        if not 0.0 < self.base < math.inf:
            raise InvalidValue("cost-base", self.base, "must be a finite number > 0")
        for name in ("slope", "knee"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise InvalidValue(f"cost-{name}", value, "must be a finite number >= 0")

    def table(self, limit: int) -> Array:
        """See `Cost`."""
        cost: Array = self.base + self.slope * np.maximum(np.arange(limit + 1) - self.knee, 0.0)
        return cost


@dataclass(frozen=True)
class Measured:
    """Measured points, linear between them.

    Below the first point the cost is that of the first; beyond the last it goes on with the slope of the last two; a
    point below its predecessor is noise and raised to it. The last two are what vLLM does with its profiled curves
    (`build_cost_tables_from_curves` of its adaptive verification).

    Args:
        tokens: strictly increasing whole numbers >= 0, at least one; cost: as many finite numbers > 0.

    Raises:
        InvalidValue: naming the point and the value.

    >>> Measured((2, 4), (10.0, 12.0)).table(5)
    array([10., 10., 10., 11., 12., 13.])
    """

    tokens: tuple[int, ...]
    cost: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.cost):
            raise InvalidValue(
                "cost-table", f"{len(self.tokens)} tokens, {len(self.cost)} costs", "needs pairs of both"
            )
        for i, (tokens, cost) in enumerate(zip(self.tokens, self.cost, strict=True)):
            if not _is_number(tokens) or tokens != int(tokens) or not 0 <= tokens <= MAX_TOKENS:
                raise InvalidValue(f"tokens of point {i}", tokens, f"must be a whole number from 0 to {MAX_TOKENS}")
            if not _is_number(cost) or cost <= 0:
                raise InvalidValue(f"cost of point {i}", cost, "must be a finite number > 0")
        for i, (before, after) in enumerate(itertools.pairwise(self.tokens), start=1):
            if after <= before:
                raise InvalidValue(f"tokens of point {i}", after, f"must be more than the {before} before it")

    def table(self, limit: int) -> Array:
        """See `Cost`."""
        x, y = np.array(self.tokens, dtype=np.float64), np.maximum.accumulate(np.array(self.cost, dtype=np.float64))
        count = np.arange(limit + 1, dtype=np.float64)
        cost: Array = np.interp(count, x, y)
        if len(x) > 1:
            beyond = np.maximum(count - x[-1], 0.0)
            cost += beyond * (y[-1] - y[-2]) / (x[-1] - x[-2])
        return cost

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Measured:
        """Reads `tokens,cost` lines (CSV, header optional), or JSON for a file named `.json`.

        JSON is a list of [tokens, cost], a list of {"tokens": ..., "cost": ...}, or {"tokens": [...], "cost": [...]}.

        Raises:
            InvalidValue: for a file that cannot be read (at most 1 MiB), is malformed, or holds an impossible table.
        """
        text = _text(Path(path))
        points = _from_json(text) if Path(path).suffix.lower() == ".json" else _from_csv(text)
        for i, point in enumerate(points):
            if len(point) != 2:
                raise InvalidValue(f"point {i}", point, "must be tokens and cost")
        return cls(tuple(tokens for tokens, _ in points), tuple(cost for _, cost in points))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
        if len(content) > MAX_TABLE_BYTES:
            raise InvalidValue("cost-table", str(path), f"at most {MAX_TABLE_BYTES} bytes", Reason.SIZE)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidValue("cost-table", str(path), error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise InvalidValue("cost-table", str(path), "is not UTF-8 text") from None


def _from_csv(text: str) -> list[Sequence[Any]]:
    try:
        lines = [[cell.strip() for cell in line] for line in csv.reader(text.splitlines()) if any(line)]
    except csv.Error as error:
        raise InvalidValue("cost-table", text, f"is not CSV ({error})") from None
    if lines and tuple(cell.lower() for cell in lines[0]) == _HEADER:
        del lines[0]
    try:
        return [[float(cell) for cell in line] for line in lines]
    except ValueError as error:
        raise InvalidValue("cost-table", text, f"must hold lines of tokens,cost ({error})") from None


def _from_json(text: str) -> list[Sequence[Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue("cost-table", text, f"is not JSON ({str(error)[:80]})") from None
    if isinstance(document, dict):
        columns = [document.get(name) for name in _HEADER]
        if not all(isinstance(column, list) for column in columns) or len(columns[0] or ()) != len(columns[1] or ()):
            raise InvalidValue("cost-table", document, "needs lists tokens and cost of the same length")
        return list(zip(*(column or [] for column in columns), strict=True))
    if not isinstance(document, list):
        raise InvalidValue("cost-table", document, "must be a list of points, or lists tokens and cost")
    points = [[p.get(name) for name in _HEADER] if isinstance(p, dict) else p for p in document]
    for i, point in enumerate(points):
        if not isinstance(point, list):
            raise InvalidValue(f"point {i}", point, "must be tokens and cost")
    return points


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
