"""What is served in place of what was learnt, while operators have overridden something.

A learner's own tables, versions and times stay a function of the stream. What leaves it carries the next version that
nobody has seen, and rows composed with the overrides. Without overrides the two are the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..changes import Standing, moved_rows
from ..coefficients import CoefficientTable
from ..effects import effects
from ..overrides import compose, same_rows
from ..pair_learner import Published
from ..pair_state import PairState
from ..store import Publication


@dataclass(frozen=True)
class Served:
    """What a commit publishes.

    Args:
        published: oldest first; none when overrides keep everything as it is served already.
        revision: of the overrides that they were composed under.
        learnt: the learner's newest table, b"" when it is what is served.
    """

    published: list[Published]
    revision: int
    learnt: bytes

    @property
    def publications(self) -> list[Publication]:
        """As the store takes them."""
        tables = [(item.table, item.history) for item in self.published]
        return [Publication(table.version, table.to_json(), why, table.published_ms) for table, why in tables]


def served_instead(
    published: Sequence[Published], standing: Standing, state: PairState, known_version: int = 0
) -> Served:
    """Publications for the learner's own tables, oldest first, at least one, above what stands.

    The state judges the rows that are served in place of learnt ones. Versions begin behind `known_version`, too.
    """
    last_version, last_ms = max(standing.version, known_version), standing.published_ms
    last = standing.served if standing.overrides else None
    made: list[Published] = []
    table = published[-1].table
    for item in published:
        table = compose(item.table, standing.overrides, standing.now_ms) if standing.overrides else item.table
        if last is not None and standing.version and same_rows(table, last):
            continue
        last_version, last_ms = max(table.version, last_version + 1), max(table.published_ms, last_ms)
        table = replace(table, version=last_version, published_ms=last_ms)
        made.append(Published(table, _history(item, last, table, standing, state)))
        last = table if standing.overrides else None
    own = published[-1].table
    as_served = not standing.overrides or same_rows(own, table)
    return Served(made, standing.revision, b"" if as_served else own.to_json())


def _history(
    item: Published, before: CoefficientTable | None, table: CoefficientTable, standing: Standing, state: PairState
) -> bytes:
    if not standing.overrides and (table.version, table.published_ms) == (item.table.version, item.table.published_ms):
        return item.history
    values = json.loads(item.history) | {"version": table.version, "published_ms": table.published_ms}
    if before is not None:
        values["moved"] = moved_rows(before, table)
        values["overridden"] = sorted(scope or "" for scope in standing.overrides)
        values["metrics"] = effects(state, table, table).metrics
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
